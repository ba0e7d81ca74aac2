"""Queues: add, plan, lease, renew, complete, release, reclaim, park and reset."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.harness import NOON, OperationsHarness
from timewright.core.facts import LeaseLost, RunAdmitted, RunLeased
from timewright.core.moments import format_instant
from timewright.errors import Conflict, InvalidInput, NotAllowed, NotFound, Stale
from timewright.ledger.queues.policies import parse_policy_file
from timewright.ledger.settle import settle_results
from timewright.operations.queues import lease_results
from timewright.operations.registry import LEASE, LEASED_RUN, PARKED_RUN
from timewright.ports import PruneRequest


@pytest.fixture(params=["sqlite", "postgres"])
def line(request: pytest.FixtureRequest) -> OperationsHarness:
    """An empty harness; on PostgreSQL a separate namespace of a shared one."""
    if request.param == "sqlite":
        return OperationsHarness()
    shared: OperationsHarness = request.getfixturevalue("empty_postgres_harness")
    return shared.in_namespace(f"queue-{request.node.name[:40]}")


def waits(plan: Any) -> list[tuple[str, str]]:
    return [(one["run_id"], one["reason"]) for one in plan["waiting"]]


def add(harness: OperationsHarness, count: int, **fields: Any) -> list[str]:
    """Add entries with the payloads 0, 1, 2 …; return their ids in order."""
    return [
        run["id"]
        for run in harness.ask("queue add", fields, queue="mail", payloads=list(range(count)))["entries"]
    ]


def test_a_queue_from_the_first_entry_to_the_last(line: OperationsHarness) -> None:
    first, second, third = add(line, 3)
    plan = line.ask("queue plan", queue="mail")
    assert (plan["max_running"], plan["in_flight"], plan["available"]) == (1, 0, 1)
    assert [run["id"] for run in plan["leases"]] == [first]
    assert waits(plan) == [(second, "limit"), (third, "limit")]

    (lease,) = line.ask("queue lease", queue="mail", limit=10, holder="host-1")["leases"]
    assert (lease["run"], lease["attempt"], lease["fence"], lease["payload"]) == (first, 1, 1, 0)
    assert line.ask("queue lease", queue="mail")["leases"] == []

    line.ask("queue complete", run=first, fence=1, result={"ok": True})
    (lease,) = line.ask("queue lease", queue="mail")["leases"]
    assert lease["run"] == second
    back = line.ask("queue release", lease=lease["lease"])["run"]
    assert (back["state"], back["attempts"]) == ("ready", 0)

    for attempt in (1, 2, 3):
        (lease,) = line.ask("queue lease", queue="mail")["leases"]
        assert (lease["run"], lease["attempt"]) == (second, attempt)
        released = line.ask("queue release", lease=lease["lease"], failed=True, error="mailbox is full")[
            "run"
        ]
        assert released["attempts"] == attempt
        line.sleep(minutes=1)
    assert (released["state"], released["reason"]) == ("parked", "exhausted: 3/3 attempts used")

    (lease,) = line.ask("queue lease", queue="mail")["leases"]
    assert lease["run"] == third
    line.sleep(minutes=6)
    plan = line.ask("queue plan", queue="mail")
    assert (plan["in_flight"], plan["available"], plan["expired"]) == (0, 1, [third])
    (lost,) = line.ask("queue reclaim", queue="mail")["runs"]
    assert (lost["id"], lost["state"], lost["attempts"]) == (third, "ready", 1)
    with pytest.raises(Stale):
        line.ask("queue complete", run=third, fence=1)

    back = line.ask("queue reset", run=second, reason="mailbox emptied")["run"]
    assert (back["state"], back["attempts"]) == ("ready", 0)
    line.sleep(minutes=1)
    drained = line.ask("queue drain", queue="mail", limit=10)
    assert [run["id"] for run in drained["drained"]] == [second, third]
    assert drained["remaining"] == 0
    assert {run["state"] for run in line.ask("run list", queue="mail")["runs"]} == {"succeeded"}


def test_a_plan_reads_only_and_answers_the_same_again(line: OperationsHarness) -> None:
    add(line, 5)
    later = "2030-01-01T00:00:00Z"
    assert line.ask("queue plan", queue="mail", now=later) == line.ask("queue plan", queue="mail", now=later)


def test_a_lease_follows_the_plan_shown_before(line: OperationsHarness) -> None:
    line.ask("queue policy set", queue="mail", max_running=3)
    add(line, 3, priority="low")
    add(line, 2, priority="critical")
    planned = [run["id"] for run in line.ask("queue plan", queue="mail")["leases"]]
    leased = [one["run"] for one in line.ask("queue lease", queue="mail", limit=10)["leases"]]
    assert leased == planned
    assert len(leased) == 3


def test_lower_priority_numbers_start_first_then_older_entries(line: OperationsHarness) -> None:
    (low,) = add(line, 1, priority=300)
    line.sleep(seconds=1)
    (first,) = add(line, 1)
    line.sleep(seconds=1)
    (second,) = add(line, 1, priority=100)
    (urgent,) = add(line, 1, priority="critical")
    line.ask("queue policy set", queue="mail", max_running=10)
    assert [one["run"] for one in line.ask("queue lease", queue="mail", limit=9)["leases"]] == [
        urgent, first, second, low,
    ]  # fmt: skip


def test_backoff_doubles_exactly_and_the_plan_says_until_when(line: OperationsHarness) -> None:
    (run,) = add(line, 1)
    for wait in ("1s", "2s"):
        (lease,) = line.ask("queue lease", queue="mail")["leases"]
        line.ask("queue release", run=run, fence=lease["fence"], failed=True)
        (waiting,) = line.ask("queue plan", queue="mail")["waiting"]
        assert waiting["reason"] == "backoff"
        assert line.ask("queue lease", queue="mail")["leases"] == []
        line.sleep(seconds=float(wait[:-1]))


def test_a_renewed_lease_stays_valid(line: OperationsHarness) -> None:
    (run,) = add(line, 1)
    (lease,) = line.ask("queue lease", queue="mail", length="1m")["leases"]
    for _ in range(5):
        line.sleep(seconds=50)
        renewed = line.ask("queue renew", run=run, fence=lease["fence"], length="1m")
        assert renewed["cancel_at"] is None
    line.ask("run cancel", run=run, reason="no longer wanted")
    asked = line.ask("queue renew", lease=lease["lease"])
    assert asked["cancel_at"] is not None
    line.sleep(minutes=1)
    line.ask("queue reclaim")
    assert line.ask("run get", run=run)["run"]["state"] == "cancelled"
    with pytest.raises(Stale):
        line.ask("queue renew", run=run, fence=lease["fence"])


def test_a_lease_reclaims_expired_leases_first(
    line: OperationsHarness,
) -> None:
    (run,) = add(line, 1)
    line.ask("queue lease", queue="mail")
    line.sleep(minutes=6)
    line.facts.clear()
    assert line.ask("queue lease", queue="mail")["leases"] == []
    assert isinstance(line.facts[0], LeaseLost)
    line.sleep(seconds=1)
    (lease,) = line.ask("queue lease", queue="mail")["leases"]
    assert (lease["run"], lease["attempt"], lease["fence"]) == (run, 2, 2)


def test_an_answer_that_is_sent_twice_is_written_once(line: OperationsHarness) -> None:
    (run,) = add(line, 1)
    line.ask("queue lease", queue="mail")
    first = line.ask("queue complete", run=run, fence=1, result=[1])
    assert line.ask("queue complete", run=run, fence=1, result=[1]) == first
    assert len(line.ask("run get", run=run)["attempts"]) == 1
    with pytest.raises(Stale):
        line.ask("queue complete", run=run, fence=1, result=[2])


def test_a_lease_must_be_named(harness: OperationsHarness) -> None:
    for fields in ({}, {"run": LEASED_RUN}, {"fence": 1}):
        with pytest.raises(InvalidInput) as error:
            harness.ask("queue complete", fields)
        assert error.value.field == "lease"
    with pytest.raises(NotFound) as over:
        harness.ask("queue complete", lease=f"{LEASE}9")
    assert "repeat it with run and fence" in str(over.value.fix)
    with pytest.raises(InvalidInput) as error:
        harness.ask("queue lease", queue="mail", length="0.5s")
    assert error.value.field == "length"


def test_the_same_client_key_gives_the_same_entry(line: OperationsHarness) -> None:
    first = line.ask("queue add", queue="mail", payload={"n": 1}, client_key="order-1")
    again = line.ask("queue add", queue="mail", payload={"n": 1}, client_key="order-1")
    assert again["known"] is True
    assert again["entries"] == first["entries"]
    with pytest.raises(Conflict):
        line.ask("queue add", queue="mail", payload={"n": 2}, client_key="order-1")
    with pytest.raises(InvalidInput):
        line.ask("queue add", queue="mail", payloads=[1, 2], client_key="order-2")
    assert line.ask("queue show", queue="mail")["queue"]["counts"] == {"ready": 1}


def test_an_entry_may_wait_for_an_instant(harness: OperationsHarness) -> None:
    harness.ask("queue add", queue="later", payload=1, not_before="2026-03-10T13:00:00Z")
    assert harness.ask("queue lease", queue="later")["leases"] == []
    (waiting,) = harness.ask("queue plan", queue="later")["waiting"]
    assert (waiting["reason"], waiting["until"]) == ("backoff", "2026-03-10T13:00:00Z")
    harness.sleep(hours=1)
    assert len(harness.ask("queue lease", queue="later")["leases"]) == 1


def test_adding_and_leasing_send_facts(harness: OperationsHarness) -> None:
    harness.ask("queue add", queue="quiet", payload=1)
    harness.ask("queue lease", queue="quiet")
    assert [type(fact) for fact in harness.facts] == [RunAdmitted, RunLeased]


def test_a_payload_and_payloads_together_are_refused(harness: OperationsHarness) -> None:
    with pytest.raises(InvalidInput) as error:
        harness.ask("queue add", queue="mail", payload=1, payloads=[2])
    assert error.value.field == "payloads"


def test_an_empty_list_of_payloads_adds_no_entry(line: OperationsHarness) -> None:
    add(line, 1)
    with pytest.raises(InvalidInput) as error:
        line.ask("queue add", queue="mail", payloads=[])
    assert error.value.field == "payloads"
    assert len(line.ask("queue show", queue="mail")["entries"]) == 1


def test_a_lease_id_beside_another_run_or_fence_is_refused(line: OperationsHarness) -> None:
    line.ask("queue policy set", queue="mail", max_running=2)
    add(line, 2)
    first, second = line.ask("queue lease", queue="mail", limit=2)["leases"]
    for operation in ("queue complete", "queue release", "queue renew"):
        with pytest.raises(InvalidInput) as error:
            line.ask(operation, lease=first["lease"], run=second["run"], fence=1)
        assert error.value.field == "run"
        with pytest.raises(Stale):
            line.ask(operation, lease=first["lease"], fence=2)
    states = [line.ask("run get", run=one["run"])["run"]["state"] for one in (first, second)]
    assert states == ["leased", "leased"]
    line.ask("queue complete", lease=first["lease"], fence=1)


def test_a_drain_obeys_backoff_and_parks_nothing(harness: OperationsHarness) -> None:
    harness.ask("queue complete", run=LEASED_RUN, fence=1)
    drained = harness.ask("queue drain", queue="mail", limit=10)
    assert len(drained["drained"]) == 1
    counts = harness.ask("queue show", queue="mail")["queue"]["counts"]
    assert counts == {"parked": 1}


def test_a_queue_shows_its_counts_limit_and_entries_in_order(harness: OperationsHarness) -> None:
    shown = harness.ask("queue show", queue="mail")
    assert shown["queue"] == {
        "queue": "mail",
        "counts": {"leased": 1, "parked": 1, "ready": 1},
        "more": False,
        "max_running": 2,
        "in_flight": 1,
        "available": 1,
        "oldest_at": "2026-03-10T11:58:00Z",
        "paused_by": "",
    }
    assert sorted(one["state"] for one in shown["entries"]) == ["leased", "parked", "ready"]
    assert [one["id"] for one in harness.ask("queue show", queue="mail", state="parked")["entries"]] == [
        PARKED_RUN
    ]
    harness.ask("queue complete", run=LEASED_RUN, fence=1)
    assert [one["id"] for one in harness.ask("queue show", queue="mail", state="drained")["entries"]] == [
        LEASED_RUN
    ]


def test_a_queue_shows_each_payload_and_says_where_one_is_cut(line: OperationsHarness) -> None:
    long = {"to": "bob@example.com", "text": "x" * 1000}
    line.ask("queue add", queue="mail", payloads=[{"to": "ada@example.com"}, long, None])
    short, cut, none = [one["payload"] for one in line.ask("queue show", queue="mail")["entries"]]
    assert (short, none) == ({"to": "ada@example.com"}, None)
    assert cut.startswith('{"to": "bob@example.com"')
    assert cut.endswith(f"… ({len(json.dumps(long)) - 500} more characters)")
    (planned,) = line.ask("queue plan", queue="mail")["leases"]
    assert planned["payload"] == {"to": "ada@example.com"}


def test_a_queue_lists_leased_entries_then_those_that_wait_then_parked_ones(
    line: OperationsHarness,
) -> None:
    # The shared store may be hours further when other tests have used it.
    hour = f"{line.now:%H}"
    line.ask("queue policy set", queue="mail", max_running=9, max_attempts=1, ageing="1h")
    add(line, 2, priority="high")
    parked, _ = line.ask("queue lease", queue="mail", limit=2)["leases"]
    line.ask("queue release", lease=parked["lease"], failed=True, error="full")
    add(line, 1, not_before="2026-03-10T18:00Z", priority="high")
    add(line, 1, not_before="2026-03-10T17:00Z", priority="low")
    add(line, 1)
    add(line, 1, priority="high")
    shown = line.ask("queue show", queue="mail")["entries"]
    states = [(one["state"], one["priority"], one["fire_at"][11:13]) for one in shown]
    assert states == [
        ("leased", 50, hour),
        ("ready", 50, hour),
        ("ready", 100, hour),
        ("ready", 200, "17"),
        ("ready", 50, "18"),
        ("parked", 50, hour),
    ]
    pages, cursor = list[str](), ""
    while cursor or not pages:
        page = line.ask("queue show", queue="mail", limit=2, cursor=cursor)
        pages += [one["id"] for one in page["entries"]]
        cursor = page["cursor"]
    assert pages == [one["id"] for one in shown]


def test_entries_and_queues_are_listed_in_pages(harness: OperationsHarness) -> None:
    harness.ask("queue add", queue="bulk", payloads=list(range(7)), priority=5)
    found: list[str] = []
    cursor = ""
    while True:
        page = harness.ask("queue show", queue="bulk", limit=3, cursor=cursor)
        found += [one["id"] for one in page["entries"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert found == sorted(found)
    assert len(found) == 7
    first = harness.ask("queue list", limit=1)
    assert [one["queue"] for one in first["queues"]] == ["bulk"]
    second = harness.ask("queue list", limit=1, cursor=first["cursor"])
    assert [one["queue"] for one in second["queues"]] == ["mail"]
    third = harness.ask("queue list", limit=1, cursor=second["cursor"])
    assert [one["queue"] for one in third["queues"]] == ["nightly-load"], "a step of it is handed off"
    assert third["cursor"] == ""


def test_an_unknown_queue_leases_nothing_and_cannot_be_shown(harness: OperationsHarness) -> None:
    assert harness.ask("queue lease", queue="mial")["leases"] == []
    assert harness.ask("queue plan", queue="mial")["leases"] == []
    with pytest.raises(NotFound) as error:
        harness.ask("queue show", queue="mial")
    assert error.value.fix == "did you mean mail?"


def test_a_queue_of_another_namespace_is_another_queue(harness: OperationsHarness) -> None:
    neighbour = harness.in_namespace()
    assert neighbour.ask("queue lease", queue="mail", limit=10)["leases"] == []
    assert neighbour.ask("queue list")["queues"] == []
    neighbour.ask("queue add", queue="mail", payload="theirs")
    (lease,) = neighbour.ask("queue lease", queue="mail", limit=10)["leases"]
    assert lease["payload"] == "theirs"
    assert harness.ask("queue drain", queue="mail", limit=10)["drained"][0]["queue"] == "mail"
    assert neighbour.ask("queue show", queue="mail")["queue"]["counts"] == {"leased": 1}


def test_the_default_policy_is_the_cautious_one(harness: OperationsHarness) -> None:
    shown = harness.ask("queue policy show", queue="fresh")
    assert shown["source"] == "default"
    assert shown["policy"]["max_running"] == 1
    assert shown["policy"]["lease"] == "5m"
    harness.ask("queue add", queue="fresh", payload=1)
    assert harness.ask("queue policy show", queue="fresh")["source"] == "default"


@pytest.mark.parametrize("word", ["max_running", "max_concurrent", "maxConcurrent"])
def test_the_limit_of_a_queue_is_max_running_and_its_earlier_name_is_read(
    harness: OperationsHarness, word: str
) -> None:
    assert harness.ask("queue policy set", queue="mail", **{word: 7})["policy"]["max_running"] == 7


def test_a_policy_is_changed_by_field_and_an_invalid_change_is_rejected(
    harness: OperationsHarness,
) -> None:
    changed = harness.ask("queue policy set", queue="mail", leaseTtlMs=60_000, backoffBaseMs=500)["policy"]
    assert (changed["max_running"], changed["lease"], changed["backoff"]["base"]) == (2, "1m", "0.5s")
    for wrong in (
        {"max_running": 0},
        {"max_running": "many"},
        {"lease": "soon"},
        {"maxAttempts": True},
    ):
        with pytest.raises(InvalidInput) as error:
            harness.ask("queue policy set", {"queue": "mail", **wrong})
        assert error.value.field in ("max_running", "lease", "max_attempts")
    assert harness.ask("queue policy show", queue="mail")["policy"] == changed
    assert harness.ask("queue policy show", queue="mail")["source"] == "set"


def test_a_policy_file_is_checked_before_it_is_put_in_place(harness: OperationsHarness) -> None:
    harness.ask("queue policy set", queue="mail", max_running=5)
    shown = harness.ask("queue policy check", file={"mail": {"maxConcurrent": 9}, "other": {}})["queues"]
    assert [(one["queue"], one["change"]) for one in shown] == [("mail", "different"), ("other", "same")]
    assert (shown[0]["policy"]["max_running"], shown[0]["in_force"]["max_running"]) == (9, 5)
    assert harness.ask("queue policy show", queue="mail")["policy"]["max_running"] == 5, "nothing changed"
    alone = harness.ask("queue policy check", file={"schemaVersion": 1, "maxConcurrent": 1})["queues"]
    assert [one["queue"] for one in alone] == ["default"]
    for wrong, field in (({"mail": {"max_running": 0}}, "file.mail.max_running"), ([], "file")):
        with pytest.raises(InvalidInput) as error:
            harness.ask("queue policy check", file=wrong)
        assert (error.value.field or "").startswith(field)


def test_a_policy_file_that_cannot_be_read_leases_nothing(harness: OperationsHarness) -> None:
    broken = parse_policy_file("{not json", path="policy.json")
    harness.context = replace(harness.context, policy_file=lambda: broken)
    for operation in ("queue lease", "queue drain"):
        with pytest.raises(InvalidInput) as error:
            harness.ask(operation, queue="mail")
        assert error.value.field == "policy_file"
    assert harness.ask("queue show", queue="mail")["queue"]["in_flight"] == 1


def test_a_policy_file_and_a_policy_refuse_a_base_above_the_cap(harness: OperationsHarness) -> None:
    file = parse_policy_file("mail: {backoff: {base: 5m}}", path="policy.yaml")
    assert file.error is not None
    assert "is longer than the cap, 1m" in file.error.message
    with pytest.raises(InvalidInput) as error:
        harness.ask("queue policy set", queue="mail", backoff={"base": "5m"})
    assert str(error.value.field).endswith("backoff.base")


def test_a_scheduled_handoff_is_leased_like_any_entry(harness: OperationsHarness) -> None:
    harness.ask(
        "schedule create",
        name="for others",
        every="10m",
        handoff={"payload": {"do": "this"}},
        queue="others",
        metadata={"team": "ops"},
    )
    harness.advance(minutes=10)
    (lease,) = harness.ask("queue lease", queue="others")["leases"]
    assert (lease["schedule"], lease["payload"], lease["metadata"]) == (
        "for others",
        {"do": "this"},
        {"team": "ops"},
    )
    harness.ask("queue complete", run=lease["run"], fence=lease["fence"])
    (run,) = harness.ask("run list", schedule="for others")["runs"]
    assert run["state"] == "succeeded"


def test_only_a_parked_entry_can_be_reset(harness: OperationsHarness) -> None:
    with pytest.raises(NotAllowed):
        harness.ask("queue reset", run=LEASED_RUN)


def test_a_purge_cancels_what_waits_and_leaves_what_runs(harness: OperationsHarness) -> None:
    preview = harness.ask("queue purge", queue="mail", dry_run=True)
    assert preview == {"queue": "mail", "cancelled": 1, "more": False}
    assert harness.ask("queue show", queue="mail")["queue"]["counts"]["ready"] == 1
    harness.ask("queue purge", queue="mail", reason="sent twice")
    assert harness.ask("queue show", queue="mail")["queue"]["counts"] == {"leased": 1, "parked": 1}
    harness.ask("queue purge", queue="mail", parked=True)
    assert harness.ask("queue show", queue="mail")["queue"]["counts"] == {"leased": 1}


def test_a_queue_shows_what_happened_lately_and_its_pause(harness: OperationsHarness) -> None:
    added = harness.ask("queue show", queue="mail")["activity"]["added"]
    harness.ask("queue add", queue="mail", payloads=[1, 2])
    harness.ask("queue complete", run=LEASED_RUN, fence=1)
    harness.ask("pause", scope="queue", name="mail", reason="the mail server moves")
    shown = harness.ask("queue show", queue="mail")
    assert shown["activity"]["added"] == added + 2
    assert shown["activity"]["succeeded"] == 1
    assert shown["activity"]["last_leased_at"] is not None
    assert shown["queue"]["paused_by"] == "queue mail"


def test_a_result_whose_run_is_pruned_at_once_is_answered_with_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dense seed 120000453: the clock stepped ahead, so the run was pruned before the answer was built."""
    line = OperationsHarness()
    (run,) = add(line, 1)
    line.ask("queue lease", queue="mail")
    settle = settle_results

    def settle_and_prune(store: Any, *args: Any, **named: Any) -> Any:
        settled = settle(store, *args, **named)
        store.write(lambda tx: tx.prune(PruneRequest(older_than=NOON + timedelta(days=400))))
        return settled

    monkeypatch.setattr(lease_results, "settle_results", settle_and_prune)
    with pytest.raises(NotFound):
        line.ask("queue complete", run=run, fence=1)


def test_every_answer_about_an_entry_has_its_first_start(harness: OperationsHarness) -> None:
    harness.ask("queue add", queue="letters", payload=1)
    first = harness.ask("queue lease", queue="letters")["leases"][0]
    started = harness.now
    harness.ask("queue release", run=first["run"], fence=first["fence"])
    harness.sleep(minutes=5)
    again = harness.ask("queue lease", queue="letters")["leases"][0]
    (shown,) = harness.ask("queue show", queue="letters")["entries"]
    ended = harness.ask("queue complete", run=again["run"], fence=again["fence"])["run"]
    known = harness.ask("run get", run=again["run"])["run"]
    found = [one["first_started_at"] for one in (shown, ended, known)]
    assert found == [format_instant(started)] * 3
