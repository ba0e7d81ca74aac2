"""The life of a queue: added, planned, leased, renewed, completed, released, reclaimed, parked, reset."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.house import House
from timewright.core.facts import LeaseLost, RunAdmitted, RunLeased
from timewright.errors import Conflict, InvalidInput, NotAllowed, NotFound, Stale
from timewright.ledger.policy_file import read_policy_file
from timewright.operations.examples import LEASE, LEASED_RUN, PARKED_RUN


@pytest.fixture(params=["sqlite", "postgres"])
def line(request: pytest.FixtureRequest) -> House:
    """A house of its own; on PostgreSQL a namespace of its own in a shared one."""
    if request.param == "sqlite":
        return House()
    shared: House = request.getfixturevalue("postgres_street")
    return shared.elsewhere(f"queue-{request.node.name[:40]}")


def waits(plan: Any) -> list[tuple[str, str]]:
    return [(one["run_id"], one["reason"]) for one in plan["waiting"]]


def add(house: House, count: int, **fields: Any) -> list[str]:
    """That many entries with the payloads 0, 1, 2 …; gives back their ids in order."""
    return [
        run["id"]
        for run in house.ask("queue add", fields, queue="mail", payloads=list(range(count)))["entries"]
    ]


def test_a_queue_at_work_from_the_first_entry_to_the_last(line: House) -> None:
    first, second, third = add(line, 3)
    plan = line.ask("queue plan", queue="mail")
    assert (plan["max_concurrent"], plan["in_flight"], plan["available"]) == (1, 0, 1)
    assert [run["id"] for run in plan["leases"]] == [first]
    assert waits(plan) == [(second, "ceiling"), (third, "ceiling")]

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


def test_a_plan_reads_only_and_answers_the_same_again(line: House) -> None:
    add(line, 5)
    later = "2030-01-01T00:00:00Z"
    assert line.ask("queue plan", queue="mail", now=later) == line.ask("queue plan", queue="mail", now=later)


def test_a_plan_is_kept_by_the_lease_that_follows_it(line: House) -> None:
    line.ask("queue policy set", queue="mail", max_concurrent=3)
    add(line, 3, priority="low")
    add(line, 2, priority="critical")
    planned = [run["id"] for run in line.ask("queue plan", queue="mail")["leases"]]
    leased = [one["run"] for one in line.ask("queue lease", queue="mail", limit=10)["leases"]]
    assert leased == planned
    assert len(leased) == 3


def test_smaller_priority_is_first_and_then_the_older(line: House) -> None:
    (low,) = add(line, 1, priority=300)
    line.sleep(seconds=1)
    (first,) = add(line, 1)
    line.sleep(seconds=1)
    (second,) = add(line, 1, priority=100)
    (urgent,) = add(line, 1, priority="critical")
    line.ask("queue policy set", queue="mail", max_concurrent=10)
    assert [one["run"] for one in line.ask("queue lease", queue="mail", limit=9)["leases"]] == [
        urgent, first, second, low,
    ]  # fmt: skip


def test_backoff_doubles_exactly_and_the_plan_says_until_when(line: House) -> None:
    (run,) = add(line, 1)
    for wait in ("1s", "2s"):
        (lease,) = line.ask("queue lease", queue="mail")["leases"]
        line.ask("queue release", run=run, fence=lease["fence"], failed=True)
        (waiting,) = line.ask("queue plan", queue="mail")["waiting"]
        assert waiting["reason"] == "backoff"
        assert line.ask("queue lease", queue="mail")["leases"] == []
        line.sleep(seconds=float(wait[:-1]))


def test_a_lease_lives_as_long_as_it_is_renewed(line: House) -> None:
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


def test_a_lease_reclaims_what_is_over_first_and_only_then_hands_it_out_again(line: House) -> None:
    (run,) = add(line, 1)
    line.ask("queue lease", queue="mail")
    line.sleep(minutes=6)
    line.told.clear()
    assert line.ask("queue lease", queue="mail")["leases"] == []
    assert isinstance(line.told[0], LeaseLost)
    line.sleep(seconds=1)
    (lease,) = line.ask("queue lease", queue="mail")["leases"]
    assert (lease["run"], lease["attempt"], lease["fence"]) == (run, 2, 2)


def test_an_answer_that_is_sent_twice_is_written_once(line: House) -> None:
    (run,) = add(line, 1)
    line.ask("queue lease", queue="mail")
    first = line.ask("queue complete", run=run, fence=1, result=[1])
    assert line.ask("queue complete", run=run, fence=1, result=[1]) == first
    assert len(line.ask("run get", run=run)["attempts"]) == 1
    with pytest.raises(Stale):
        line.ask("queue complete", run=run, fence=1, result=[2])


def test_a_lease_must_be_named(house: House) -> None:
    for fields in ({}, {"run": LEASED_RUN}, {"fence": 1}):
        with pytest.raises(InvalidInput) as refusal:
            house.ask("queue complete", fields)
        assert refusal.value.field == "lease"
    with pytest.raises(NotFound) as over:
        house.ask("queue complete", lease=f"{LEASE}9")
    assert "answer again with run and fence" in str(over.value.fix)
    with pytest.raises(InvalidInput) as refusal:
        house.ask("queue lease", queue="mail", length="0.5s")
    assert refusal.value.field == "length"


def test_the_same_client_key_gives_the_same_entry(line: House) -> None:
    first = line.ask("queue add", queue="mail", payload={"n": 1}, client_key="order-1")
    again = line.ask("queue add", queue="mail", payload={"n": 1}, client_key="order-1")
    assert again["known"] is True
    assert again["entries"] == first["entries"]
    with pytest.raises(Conflict):
        line.ask("queue add", queue="mail", payload={"n": 2}, client_key="order-1")
    with pytest.raises(InvalidInput):
        line.ask("queue add", queue="mail", payloads=[1, 2], client_key="order-2")
    assert line.ask("queue show", queue="mail")["queue"]["counts"] == {"ready": 1}


def test_an_entry_may_wait_for_an_instant(house: House) -> None:
    house.ask("queue add", queue="later", payload=1, not_before="2026-03-10T13:00:00Z")
    assert house.ask("queue lease", queue="later")["leases"] == []
    (waiting,) = house.ask("queue plan", queue="later")["waiting"]
    assert (waiting["reason"], waiting["until"]) == ("backoff", "2026-03-10T13:00:00Z")
    house.sleep(hours=1)
    assert len(house.ask("queue lease", queue="later")["leases"]) == 1


def test_what_is_added_and_leased_is_told(house: House) -> None:
    house.ask("queue add", queue="quiet", payload=1)
    house.ask("queue lease", queue="quiet")
    assert [type(fact) for fact in house.told] == [RunAdmitted, RunLeased]


def test_a_payload_and_payloads_together_are_refused(house: House) -> None:
    with pytest.raises(InvalidInput) as refusal:
        house.ask("queue add", queue="mail", payload=1, payloads=[2])
    assert refusal.value.field == "payloads"


def test_a_drain_obeys_backoff_and_parks_nothing(house: House) -> None:
    house.ask("queue complete", run=LEASED_RUN, fence=1)
    drained = house.ask("queue drain", queue="mail", limit=10)
    assert len(drained["drained"]) == 1
    counts = house.ask("queue show", queue="mail")["queue"]["counts"]
    assert counts == {"parked": 1}


def test_a_queue_shows_its_counts_its_ceiling_and_its_entries_in_order(house: House) -> None:
    shown = house.ask("queue show", queue="mail")
    assert shown["queue"] == {
        "queue": "mail",
        "counts": {"leased": 1, "parked": 1, "ready": 1},
        "more": False,
        "max_concurrent": 2,
        "in_flight": 1,
        "available": 1,
    }
    assert sorted(one["state"] for one in shown["entries"]) == ["leased", "parked", "ready"]
    assert [one["id"] for one in house.ask("queue show", queue="mail", state="parked")["entries"]] == [
        PARKED_RUN
    ]
    house.ask("queue complete", run=LEASED_RUN, fence=1)
    assert [one["id"] for one in house.ask("queue show", queue="mail", state="drained")["entries"]] == [
        LEASED_RUN
    ]


def test_entries_and_queues_are_listed_in_pages(house: House) -> None:
    house.ask("queue add", queue="bulk", payloads=list(range(7)), priority=5)
    found: list[str] = []
    cursor = ""
    while True:
        page = house.ask("queue show", queue="bulk", limit=3, cursor=cursor)
        found += [one["id"] for one in page["entries"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert found == sorted(found)
    assert len(found) == 7
    first = house.ask("queue list", limit=1)
    assert [one["queue"] for one in first["queues"]] == ["bulk"]
    second = house.ask("queue list", limit=1, cursor=first["cursor"])
    assert [one["queue"] for one in second["queues"]] == ["mail"]
    assert second["cursor"] == ""


def test_a_queue_nobody_made_is_empty_to_a_worker_and_unknown_to_a_person(house: House) -> None:
    assert house.ask("queue lease", queue="mial")["leases"] == []
    assert house.ask("queue plan", queue="mial")["leases"] == []
    with pytest.raises(NotFound) as refusal:
        house.ask("queue show", queue="mial")
    assert refusal.value.fix == "did you mean mail?"


def test_a_queue_of_another_namespace_is_another_queue(house: House) -> None:
    neighbour = house.elsewhere()
    assert neighbour.ask("queue lease", queue="mail", limit=10)["leases"] == []
    assert neighbour.ask("queue list")["queues"] == []
    neighbour.ask("queue add", queue="mail", payload="theirs")
    (lease,) = neighbour.ask("queue lease", queue="mail", limit=10)["leases"]
    assert lease["payload"] == "theirs"
    assert house.ask("queue drain", queue="mail", limit=10)["drained"][0]["queue"] == "mail"
    assert neighbour.ask("queue show", queue="mail")["queue"]["counts"] == {"leased": 1}


def test_a_policy_nobody_set_is_the_cautious_one(house: House) -> None:
    shown = house.ask("queue policy show", queue="fresh")
    assert shown["source"] == "default"
    assert shown["policy"]["max_concurrent"] == 1
    assert shown["policy"]["lease"] == "5m"
    house.ask("queue add", queue="fresh", payload=1)
    assert house.ask("queue policy show", queue="fresh")["source"] == "default"


def test_a_policy_is_changed_field_by_field_and_a_wrong_one_leaves_it_as_it_was(house: House) -> None:
    changed = house.ask("queue policy set", queue="mail", leaseTtlMs=60_000, backoffBaseMs=500)["policy"]
    assert (changed["max_concurrent"], changed["lease"], changed["backoff"]["base"]) == (2, "1m", "0.5s")
    for wrong in (
        {"max_concurrent": 0},
        {"max_concurrent": "many"},
        {"lease": "soon"},
        {"maxAttempts": True},
    ):
        with pytest.raises(InvalidInput) as refusal:
            house.ask("queue policy set", {"queue": "mail", **wrong})
        assert refusal.value.field in ("max_concurrent", "lease", "max_attempts")
    assert house.ask("queue policy show", queue="mail")["policy"] == changed
    assert house.ask("queue policy show", queue="mail")["source"] == "set"


def test_a_policy_file_is_checked_before_it_is_put_in_place(house: House) -> None:
    house.ask("queue policy set", queue="mail", max_concurrent=5)
    shown = house.ask("queue policy check", file={"mail": {"maxConcurrent": 9}, "other": {}})["queues"]
    assert [(one["queue"], one["change"]) for one in shown] == [("mail", "different"), ("other", "same")]
    assert (shown[0]["policy"]["max_concurrent"], shown[0]["in_force"]["max_concurrent"]) == (9, 5)
    assert house.ask("queue policy show", queue="mail")["policy"]["max_concurrent"] == 5, "nothing changed"
    alone = house.ask("queue policy check", file={"schemaVersion": 1, "maxConcurrent": 1})["queues"]
    assert [one["queue"] for one in alone] == ["default"]
    for wrong, field in (({"mail": {"max_concurrent": 0}}, "file.mail.max_concurrent"), ([], "file")):
        with pytest.raises(InvalidInput) as refusal:
            house.ask("queue policy check", file=wrong)
        assert (refusal.value.field or "").startswith(field)


def test_a_policy_file_that_cannot_be_read_leases_nothing(house: House) -> None:
    broken = read_policy_file("{not json", path="policy.json")
    house.context = replace(house.context, policy_file=lambda: broken)
    for operation in ("queue lease", "queue drain"):
        with pytest.raises(InvalidInput) as refusal:
            house.ask(operation, queue="mail")
        assert refusal.value.field == "policy_file"
    assert house.ask("queue show", queue="mail")["queue"]["in_flight"] == 1


def test_a_scheduled_handoff_is_leased_like_any_entry(house: House) -> None:
    house.ask(
        "schedule create",
        name="for others",
        every="10m",
        handoff={"payload": {"do": "this"}},
        queue="others",
        metadata={"team": "ops"},
    )
    house.advance(minutes=10)
    (lease,) = house.ask("queue lease", queue="others")["leases"]
    assert (lease["schedule"], lease["payload"], lease["metadata"]) == (
        "for others",
        {"do": "this"},
        {"team": "ops"},
    )
    house.ask("queue complete", run=lease["run"], fence=lease["fence"])
    (run,) = house.ask("run list", schedule="for others")["runs"]
    assert run["state"] == "succeeded"


def test_only_a_parked_entry_can_be_reset(house: House) -> None:
    with pytest.raises(NotAllowed):
        house.ask("queue reset", run=LEASED_RUN)
