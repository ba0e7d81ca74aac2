"""Explanations of past, skipped, unplanned and future instants of a schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.operations.harness import OperationsHarness
from timewright.core.moments import MINUTE
from timewright.errors import NotFound
from timewright.operations import operations
from timewright.operations.registry import FAILED_RUN, LEASED_RUN, PARKED_RUN
from timewright.ports import PruneRequest
from timewright.testing.targets import fail, hang, succeed


@pytest.fixture
def empty() -> OperationsHarness:
    return OperationsHarness()


def explain(harness: OperationsHarness, schedule: str, at: str = "", **fields: Any) -> Any:
    if at:
        fields["at"] = f"2026-03-{at}Z"
    return harness.ask("schedule explain", fields, schedule=schedule)


def sentences(answer: Any) -> str:
    return " | ".join([answer["summary"], *answer["because"]])


def test_a_succeeded_run_is_explained_with_its_source_delay_and_duration(
    harness: OperationsHarness,
) -> None:
    answer = explain(harness, "nightly-report", "10T03:00:00")
    assert (answer["status"], answer["source"]) == ("succeeded", "baseline-cron")
    assert "of its trigger" in sentences(answer)
    assert "started 0s after its planned time and took 0s" in sentences(answer)
    assert answer["run"]["planned_at"] == "2026-03-10T03:00:00Z"
    assert len(answer["attempts"]) == 1


def test_an_overlap_names_the_other_run_and_a_remedy(
    empty: OperationsHarness,
) -> None:
    empty.ask(
        "schedule create", name="slow", every="10m", call="slow", lease={"length": "2h", "time_limit": "1h"}
    )
    empty.bench.target.script("slow", succeed(after=15 * MINUTE), succeed())
    empty.advance(minutes=25)
    answer = explain(empty, "slow", "10T12:20:00")
    assert (answer["status"], answer["reason"]) == ("skipped", "overlap")
    first = empty.ask("run list", schedule="slow")["runs"][-1]
    assert first["id"] in sentences(answer)
    assert "was active until 2026-03-10T12:25:00Z" in sentences(answer)
    assert answer["policy"]["overlap"] == "skip"
    assert answer["remedies"][0]["command"] == "timewright schedule update slow --overlap queue"


def test_a_missed_occurrence_names_the_catch_up_policy(
    empty: OperationsHarness,
) -> None:
    empty.ask("schedule create", name="poll", every="10m", call="poll", catch_up="none")
    empty.sleep(minutes=31)
    empty.bench.tick()
    answer = explain(empty, "poll", "10T12:20:00")
    assert (answer["status"], answer["reason"]) == ("skipped", "missed")
    assert "no engine ran until 2026-03-10T12:31:00Z, 11m after its time" in sentences(answer)
    assert answer["policy"] == {"catch_up": "none", "catch_up_window": "1d", "grace": "1m"}
    late = explain(empty, "poll", "10T12:30:00")
    assert late["status"] == "succeeded"


def test_an_occurrence_older_than_the_catch_up_window_is_explained(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="poll", every="6h", call="poll", catch_up="all")
    empty.sleep(days=3)
    empty.bench.tick()
    answer = explain(empty, "poll", "10T18:00:00")
    assert "occurrences older than catch_up_window, 1d, are not caught up" in sentences(answer)


def test_dropped_occurrences_are_explained_together(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="poll", every="1s", call="poll", catch_up="none")
    empty.sleep(hours=1)
    empty.bench.tick()
    answer = explain(empty, "poll", "10T12:30:00")
    assert answer["status"] == "skipped"
    assert answer["run"]["dropped"] > 1000
    assert "occurrences from 2026-03-10T12:00:01Z to" in answer["summary"]
    assert answer["at"] == "2026-03-10T12:30:00Z"


def test_an_occurrence_within_a_pause_names_who_paused_and_why(harness: OperationsHarness) -> None:
    harness.ask("schedule pause", schedule="orders-poll", until="2026-03-10T12:30:00Z", reason="deploy")
    harness.advance(minutes=40)
    answer = explain(harness, "orders-poll", "10T12:18:00")
    assert (answer["status"], answer["reason"]) == ("skipped", "paused")
    assert "paused by ada at 2026-03-10T12:00:00Z: deploy" in sentences(answer)
    assert answer["remedies"][0]["operation"] == "schedule backfill"


def test_a_future_occurrence_within_a_pause_will_be_skipped(harness: OperationsHarness) -> None:
    harness.ask("schedule pause", schedule="orders-poll", until="2026-03-10T12:30:00Z")
    answer = explain(harness, "orders-poll", "10T12:18:00")
    assert (answer["status"], answer["reason"]) == ("paused", "paused")
    assert "will be skipped: paused" in answer["summary"]
    assert explain(harness, "orders-poll", "10T12:38:00")["status"] == "planned"


@pytest.mark.parametrize("until", [None, "2026-03-10T12:30:00Z"])
def test_an_instant_within_a_pause_says_who_paused_since_when_and_why(
    harness: OperationsHarness, until: str | None
) -> None:
    fields = {"until": until} if until else {}
    harness.ask("schedule pause", fields, schedule="orders-poll", reason="deploy")
    harness.sleep(minutes=15)
    for at in (None, "10T12:08:00", "10T12:18:00"):
        answer = explain(harness, "orders-poll", at) if at else explain(harness, "orders-poll")
        assert answer["status"] == "paused"
        assert "paused by ada at 2026-03-10T12:00:00Z: deploy" in sentences(answer)


def test_a_paused_group_says_who_paused_since_when_and_why(harness: OperationsHarness) -> None:
    harness.ask("pause", scope="group", name="reports", reason="deploy")
    for at in (None, "11T03:00:00"):
        answer = explain(harness, "nightly-report", at) if at else explain(harness, "nightly-report")
        assert "ada paused it at 2026-03-10T12:00:00Z (deploy)" in sentences(answer)


def test_a_manually_skipped_occurrence_names_who_skipped_it(harness: OperationsHarness) -> None:
    harness.ask("schedule skip", schedule="nightly-report", reason="the server moves")
    answer = explain(harness, "nightly-report", "11T03:00:00")
    assert (answer["status"], answer["reason"]) == ("skipped", "by_hand")
    assert "by ada at 2026-03-10T12:00:00Z: the server moves" in sentences(answer)


def test_an_excluded_occurrence_names_the_calendar_before_and_after(harness: OperationsHarness) -> None:
    harness.ask("calendar put", name="market", dates=["2026-03-12"])
    harness.ask("schedule update", schedule="nightly-report", calendar={"except": ["market"]})
    ahead = explain(harness, "nightly-report", "12T03:00:00")
    assert (ahead["status"], ahead["reason"]) == ("excluded", "excluded")
    harness.advance(days=3)
    behind = explain(harness, "nightly-report", "12T03:00:00")
    assert (behind["status"], behind["reason"]) == ("skipped", "excluded")
    assert "calendar market excludes this instant" in sentences(ahead)
    assert "calendar market excludes this instant" in sentences(behind)


def test_the_next_occurrence_names_its_source_and_the_rejected_candidates(harness: OperationsHarness) -> None:
    answer = explain(harness, "nightly-report")
    assert (answer["status"], answer["at"]) == ("planned", "2026-03-11T03:00:00Z")
    assert answer["remedies"][0]["command"] == "timewright schedule skip nightly-report"
    harness.ask("hint once", schedule="orders-poll", at="2026-03-10T12:01:00Z", reason="a batch")
    hinted = explain(harness, "orders-poll")
    assert (hinted["status"], hinted["source"]) == ("planned", "ai-oneshot")
    assert "instead of 2026-03-10T12:03:00Z (baseline-interval): a one-shot hint is earlier" in sentences(
        hinted
    )


def test_a_later_occurrence_is_predicted_from_the_trigger(harness: OperationsHarness) -> None:
    answer = harness.ask("schedule explain", schedule="nightly-report", at="2031-06-01T03:00:00Z")
    assert answer["status"] == "planned"
    assert answer["local"] == "2031-06-01T03:00:00+00:00"


def test_an_unplanned_instant_names_its_neighbours(harness: OperationsHarness) -> None:
    for at in ("10T04:00:00", "12T04:00:00"):
        answer = explain(harness, "nightly-report", at)
        assert answer["status"] == "not_planned"
        assert "is not an instant of its trigger" in sentences(answer)
        assert (answer["previous_at"][11:], answer["next_at"][11:]) == ("03:00:00Z", "03:00:00Z")


def test_an_instant_before_creation_is_explained_and_can_be_backfilled(
    harness: OperationsHarness,
) -> None:
    answer = harness.ask("schedule explain", schedule="nightly-report", at="2026-02-20T03:00:00Z")
    assert answer["status"] == "not_planned"
    assert "was created at 2026-03-01T00:00:00Z" in sentences(answer)
    assert answer["remedies"][0]["operation"] == "schedule backfill"


def test_an_instant_outside_start_at_and_end_at_is_explained(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="trial", every="1h", note="x", end_at="2026-03-11T00:00:00Z")
    answer = explain(empty, "trial", "12T00:00:00")
    assert "ends at 2026-03-11T00:00:00Z" in sentences(answer)
    assert answer["policy"]["end_at"] == "2026-03-11T00:00:00Z"


def test_an_instant_beyond_max_runs_is_over(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="thrice", every="1h", note="x", max_runs=3)
    assert explain(empty, "thrice", "10T15:00:00")["status"] == "planned"
    assert explain(empty, "thrice", "10T16:00:00")["status"] == "ended"


def test_a_due_occurrence_without_an_engine_is_undecided(harness: OperationsHarness) -> None:
    harness.sleep(minutes=5)
    answer = explain(harness, "orders-poll", "10T12:03:00")
    assert answer["status"] == "undecided"
    assert "has been due for 2m and no engine has handled it" in sentences(answer)


def test_an_adaptive_schedule_decides_only_its_next_time(harness: OperationsHarness) -> None:
    harness.ask("hint interval", schedule="orders-poll", interval="1m")
    assert explain(harness, "orders-poll", "10T12:30:00")["status"] == "undecided"
    harness.advance(minutes=10)
    assert explain(harness, "orders-poll", "10T12:03:00")["status"] == "succeeded"


def test_an_instant_displaced_by_a_hint_differs_from_an_unaccounted_one(harness: OperationsHarness) -> None:
    harness.ask("hint interval", schedule="orders-poll", interval="4m")
    harness.ask("hint once", schedule="orders-poll", at="2026-03-10T12:02:00Z")
    harness.advance(minutes=10)
    answer = explain(harness, "orders-poll", "10T12:03:00")
    assert answer["status"] == "displaced"
    assert answer["run"] is None


@pytest.mark.parametrize(
    ("name", "draft", "status", "words"),
    [
        ("by hand", {"manual": True}, "ended", "runs only when someone starts it"),
        ("paused-export", None, "paused", "by ada at 2026-03-10T11:58:00Z: the disk is full"),
    ],
)
def test_a_schedule_without_a_next_time_is_explained(
    harness: OperationsHarness, name: str, draft: dict[str, Any] | None, status: str, words: str
) -> None:
    if draft is not None:
        harness.ask("schedule create", draft, name=name, note="x")
    answer = explain(harness, name)
    assert (answer["status"], answer["at"]) == (status, None)
    assert words in sentences(answer)


def test_a_manual_schedule_is_explained_by_its_last_run(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="deploy", manual=True, call="deploy")
    empty.bench.target.script("deploy", fail("no disk"))
    empty.ask("schedule run", schedule="deploy")
    empty.advance(minutes=1)
    answer = explain(empty, "deploy")
    assert (answer["status"], answer["source"]) == ("failed", "manual")
    assert "no disk" in sentences(answer)


def test_a_parked_schedule_names_the_reason_and_the_remedy(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="poll", every="10m", call="poll", preset="desktop", disable_after=2)
    empty.bench.target.script("poll", fail("no disk"))
    empty.advance(hours=2)
    answer = explain(empty, "poll")
    assert answer["status"] == "parked"
    assert "disabled after 2 failures in a row" in sentences(answer)
    assert answer["remedies"][0]["command"] == "timewright schedule resume poll"
    behind = explain(empty, "poll", "10T13:00:00")
    assert behind["status"] == "parked"
    ahead = explain(empty, "poll", "10T20:00:00")
    assert "will not run: it is parked" in ahead["summary"]


def test_a_finished_or_archived_schedule_has_nothing_planned(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="once", once="2026-03-10T13:00:00Z", note="x")
    empty.advance(hours=2)
    assert "it is finished" in explain(empty, "once")["summary"]
    empty.ask("schedule archive", schedule="once")
    assert "it is archived" in explain(empty, "once")["summary"]


def test_the_last_occurrence_is_explained_in_any_state(harness: OperationsHarness) -> None:
    assert explain(harness, "nightly-report", last=True)["run"]["id"] == FAILED_RUN
    never = explain(harness, "orders-poll", last=True)
    assert never["because"][0] == "the schedule has never run"


def test_a_leased_run_names_its_holder_and_lease_end(harness: OperationsHarness) -> None:
    answer = harness.ask("run explain", run=LEASED_RUN)
    assert answer["status"] == "leased"
    assert "worker-1 has leased it since 2026-03-10T11:58:00Z, until 2026-03-10T12:03:00Z" in sentences(
        answer
    )
    harness.sleep(minutes=10)
    assert "that lease has expired" in sentences(harness.ask("run explain", run=LEASED_RUN))
    harness.ask("run cancel", run=LEASED_RUN, reason="wrong list")
    assert "asked to stop at 2026-03-10T12:10:00Z: wrong list" in sentences(
        harness.ask("run explain", run=LEASED_RUN)
    )


def test_a_parked_entry_names_its_error_and_the_remedy(harness: OperationsHarness) -> None:
    answer = harness.ask("run explain", run=PARKED_RUN)
    assert (answer["status"], answer["schedule"]) == ("parked", "")
    assert "1 of 3 attempts were used; mailbox is full" in sentences(answer)
    assert answer["remedies"][0]["operation"] == "run reset"


def test_a_failed_run_names_its_error(harness: OperationsHarness) -> None:
    answer = harness.ask("run explain", run=FAILED_RUN)
    assert "502 Bad Gateway" in sentences(answer)
    assert answer["policy"]["retry"]["max_attempts"] == 1


def test_a_cancelled_run_names_who_cancelled_it(harness: OperationsHarness) -> None:
    made = harness.ask("schedule run", schedule="nightly-report")["run"]["id"]
    harness.ask("run cancel", run=made, reason="wrong day")
    assert "cancelled by ada at 2026-03-10T12:00:00Z: wrong day" in sentences(
        harness.ask("run explain", run=made)
    )


def test_a_ready_run_names_what_it_waits_for(harness: OperationsHarness) -> None:
    harness.ask("queue policy set", queue="mail", max_running=1)
    (entry,) = [one["id"] for one in harness.ask("queue show", queue="mail", state="ready")["entries"]]
    assert "is full: it allows 1, and 1 are running" in sentences(harness.ask("run explain", run=entry))
    harness.ask("queue complete", run=LEASED_RUN, fence=1)
    assert "a worker that leases from queue mail" in sentences(harness.ask("run explain", run=entry))
    made = harness.ask("schedule run", schedule="nightly-report")["run"]["id"]
    assert "for an engine; check that one is running" in sentences(harness.ask("run explain", run=made))


def test_a_run_in_backoff_names_when_it_may_start(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="poll", every="1h", call="poll", backoff="10m", max_attempts=2)
    empty.bench.target.script("poll", fail("no route"))
    empty.advance(hours=1)
    answer = explain(empty, "poll", "10T13:00:00")
    assert answer["status"] == "ready"
    assert "may start at 2026-03-10T13:10:00Z: backoff after a failed attempt" in sentences(answer)


def test_a_held_run_names_the_run_it_waits_for(empty: OperationsHarness) -> None:
    empty.ask(
        "schedule create",
        name="slow",
        every="10m",
        call="slow",
        overlap="queue",
        lease={"length": "2h", "time_limit": "1h"},
    )
    empty.bench.target.script("slow", hang())
    empty.advance(minutes=20)
    answer = explain(empty, "slow", "10T12:20:00")
    assert answer["status"] == "held"
    assert "(leased)" in sentences(answer)


def test_a_replaced_or_late_occurrence_names_its_policy(empty: OperationsHarness) -> None:
    empty.ask(
        "schedule create",
        name="newest",
        every="10m",
        call="x",
        overlap="replace",
        lease={"length": "2h", "time_limit": "1h"},
    )
    empty.bench.target.script("newest", hang(), succeed())
    empty.advance(minutes=25)
    assert "a newer occurrence replaced it" in sentences(explain(empty, "newest", "10T12:10:00"))
    empty.ask("schedule create", name="prompt", every="1h", call="x", deadline="10s", grace="1h")
    empty.sleep(hours=1, seconds=30)
    empty.bench.tick()
    answer = explain(empty, "prompt", "10T13:25:00")
    assert answer["reason"] == "deadline"
    assert answer["policy"] == {"deadline": "10s"}


def test_every_remedy_is_a_valid_operation(harness: OperationsHarness) -> None:
    harness.sleep(days=2)
    harness.bench.tick()
    answer = [
        explain(harness, "nightly-report", "11T03:00:00"),
        explain(harness, "orders-poll", "10T12:03:00"),
    ]
    answer += [harness.ask("run explain", run=run) for run in (FAILED_RUN, PARKED_RUN)]
    remedies = [one for each in answer for one in each["remedies"]]
    assert len(remedies) >= 6
    for one in remedies:
        operation = operations[one["operation"]]
        operation(
            harness.context, one["request"] if operation.read_only else {**one["request"], "dry_run": True}
        )


def test_a_run_is_explained_with_the_revision_that_admitted_it(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="poll", every="10m", call="poll", catch_up="none")
    empty.sleep(minutes=31)
    empty.bench.tick()
    empty.ask("schedule update", schedule="poll", catch_up="all", name="polled")
    answer = explain(empty, "polled", "10T12:20:00")
    assert answer["policy"]["catch_up"] == "none"
    assert answer["schedule"] == "polled"


def test_an_instant_before_an_edit_uses_the_earlier_revision(harness: OperationsHarness) -> None:
    harness.ask("schedule update", schedule="nightly-report", cron="0 5 * * *")
    assert explain(harness, "nightly-report", "09T05:00:00")["status"] == "not_planned"
    assert explain(harness, "nightly-report", "12T05:00:00")["status"] == "planned"
    assert explain(harness, "nightly-report", "12T03:00:00")["status"] == "not_planned"


def test_an_instant_older_than_the_history_is_forgotten(harness: OperationsHarness) -> None:
    harness.bench.clock.advance(timedelta(days=60))
    harness.bench.tick()
    harness.store.write(lambda tx: tx.prune(PruneRequest(older_than=harness.now - timedelta(days=30))))
    answer = explain(harness, "nightly-report", "05T03:00:00")
    assert answer["status"] == "forgotten"
    assert "history is kept for 30d" in sentences(answer)


def test_an_unknown_run_or_schedule_is_not_found(harness: OperationsHarness) -> None:
    with pytest.raises(NotFound):
        harness.ask("schedule explain", schedule="nightly")


def test_a_timed_pause_names_its_end_and_the_first_occurrence_after_it(
    harness: OperationsHarness,
) -> None:
    harness.ask("schedule pause", schedule="orders-poll", until="2026-03-10T12:30:00Z", reason="deploy")
    answer = explain(harness, "orders-poll")
    assert (answer["status"], answer["at"]) == ("paused", "2026-03-10T12:30:00Z")
    assert "paused by ada at 2026-03-10T12:00:00Z: deploy" in sentences(answer)
    assert answer["next_at"] == "2026-03-10T12:33:00Z"
    assert answer["remedies"][0]["operation"] == "schedule resume"


def test_a_pause_by_hint_ends_when_hints_are_cleared(harness: OperationsHarness) -> None:
    harness.ask("hint pause", schedule="orders-poll", until="2026-03-10T12:30:00Z", reason="maintenance")
    answer = explain(harness, "orders-poll")
    assert answer["status"] == "paused"
    assert "maintenance" in sentences(answer)
    harness.ask("hint clear", schedule="orders-poll")
    assert answer["remedies"][0]["operation"] == "hint clear"
    harness.bench.tick()
    assert explain(harness, "orders-poll")["status"] == "planned"


def test_an_after_trigger_has_no_known_neighbours(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="after", trigger={"after": "10m"}, call="x")
    answer = explain(empty, "after", "10T12:30:00")
    assert (answer["status"], answer["previous_at"], answer["next_at"]) == ("undecided", None, None)
    assert explain(empty, "after")["at"] == "2026-03-10T12:10:00Z"


def test_a_backfilled_instant_is_explained_by_its_run(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="daily", cron="0 3 * * *", note="hello")
    span = {"since": "2026-03-05T03:00:00Z", "until": "2026-03-05T03:00:00Z"}
    assert empty.ask("schedule backfill", span, schedule="daily")["count"] == 1
    waiting = explain(empty, "daily", "05T03:00:00")
    empty.advance(minutes=1)
    ran = explain(empty, "daily", "05T03:00:00")
    assert waiting["status"] == "ready"
    assert (ran["status"], ran["source"]) == ("succeeded", "backfill")
    assert "someone requested a backfill" in sentences(ran)


def test_a_skipped_instant_names_the_backfill_that_ran_it(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="poll", every="10m", note="hello", catch_up="none")
    empty.sleep(minutes=31)
    empty.bench.tick()
    span = {"since": "2026-03-10T12:10:00Z", "until": "2026-03-10T12:10:00Z"}
    empty.ask("schedule backfill", span, schedule="poll")
    empty.advance(minutes=1)
    answer = explain(empty, "poll", "10T12:10:00")
    assert answer["status"] == "skipped"
    assert "for the same time ran and succeeded" in sentences(answer)


def test_before_its_creation_a_backfill_is_offered_only_for_an_instant_of_the_trigger(
    empty: OperationsHarness,
) -> None:
    empty.ask("schedule create", name="daily", cron="0 3 * * *", note="hello")
    planned, other = explain(empty, "daily", "05T03:00:00"), explain(empty, "daily", "05T03:01:00")
    assert [one["operation"] for one in planned["remedies"]] == ["schedule backfill"]
    assert other["remedies"] == []
    assert "it is not an instant of its trigger" in sentences(other)


def test_a_run_by_hand_at_a_future_instant_is_explained_by_its_run(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="poll", every="1h", note="hello")
    empty.ask("schedule run", schedule="poll", at="2026-03-10T12:20:00Z")
    assert explain(empty, "poll", "10T12:20:00")["source"] == "manual"
    assert explain(empty, "poll", "10T12:20:01")["status"] == "not_planned"


def test_a_run_is_shown_as_in_the_list_of_runs(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="twice", every="1h", call="x", retry={"max_attempts": 2})
    empty.bench.target.script("twice", fail("no disk", after="30s"), succeed())
    empty.advance(hours=1, minutes=5)
    (listed,) = empty.ask("run list", schedule="twice")["runs"]
    assert listed["first_started_at"] < listed["started_at"]
    for answer in (explain(empty, "twice", last=True), empty.ask("run explain", run=listed["id"])):
        assert answer["run"] == listed


def test_the_instants_around_one_are_within_the_bounds_of_the_schedule(empty: OperationsHarness) -> None:
    empty.ask(
        "schedule create",
        name="short",
        every="1h",
        note="x",
        start_at="2026-03-10T13:00:00Z",
        end_at="2026-03-10T15:00:00Z",
    )
    last, gone = explain(empty, "short", "10T15:00:00"), explain(empty, "short", "10T16:00:00")
    assert (last["previous_at"], last["next_at"]) == ("2026-03-10T14:00:00Z", None)
    assert (gone["previous_at"], gone["next_at"]) == ("2026-03-10T15:00:00Z", None)


def test_the_wait_of_a_run_is_told_in_whole_seconds(empty: OperationsHarness) -> None:
    (run,) = empty.ask("queue add", queue="mail", payload={})["entries"]
    empty.sleep(minutes=2, microseconds=123_456)
    assert "it has waited 2m for a worker" in empty.ask("run explain", run=run["id"])["because"][-1]


@pytest.mark.parametrize("until", [None, "2026-03-10T14:00:00Z"])
def test_a_paused_schedule_names_the_pause_of_the_installation_too(
    empty: OperationsHarness, until: str | None
) -> None:
    empty.ask("schedule create", name="poll", every="1h", note="x")
    empty.ask("pause", reason="maintenance")
    empty.ask("schedule pause", schedule="poll", until=until)
    answer = explain(empty, "poll")
    assert "the installation is paused too, until someone resumes it" in sentences(answer)
    assert [one["command"] for one in answer["remedies"]] == [
        "timewright schedule resume poll",
        "timewright resume",
    ]
