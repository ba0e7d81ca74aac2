"""Runs: list, cancel, retry, reset, and reports by external workers."""

from __future__ import annotations

import pytest

from tests.operations.harness import OperationsHarness
from timewright.core.facts import CancelRequested, RunCancelled, RunReset, RunSucceeded
from timewright.errors import InvalidInput, NotAllowed, NotFound, Stale
from timewright.operations.registry import FAILED_RUN, LEASED_RUN, PARKED_RUN
from timewright.testing.targets import fail, hang


def ids(harness: OperationsHarness, **filters: object) -> list[str]:
    return [run["id"] for run in harness.ask("run list", filters)["runs"]]


def test_runs_are_found_by_schedule_state_queue_and_time(harness: OperationsHarness) -> None:
    assert len(ids(harness, schedule="nightly-report", state="SUCCESS")) == 10
    assert ids(harness, schedule="nightly-report", state="failed") == [FAILED_RUN]
    assert ids(harness, queue="mail", state="parked") == [PARKED_RUN]
    assert len(ids(harness, since="2026-03-04T00:00:00Z", until="2026-03-06T23:00:00Z")) == 3


def test_runs_are_found_by_the_labels_of_their_schedule(harness: OperationsHarness) -> None:
    harness.advance(minutes=10)
    finance = ids(harness, metadata={"team": "finance"}, limit=1000)
    assert len(finance) == 11
    assert ids(harness, group="reports", limit=1000) == finance
    assert ids(harness, tag="daily", limit=1000) == finance
    assert ids(harness, metadata={"team": "sales"}) == []


@pytest.mark.parametrize("filters", [{}, {"schedule": "nightly-report"}, {"metadata": {"team": "finance"}}])
def test_runs_are_paged_newest_first(harness: OperationsHarness, filters: dict[str, object]) -> None:
    whole = ids(harness, **filters, limit=1000)
    assert len(whole) >= 11
    found: list[str] = []
    cursor = ""
    while True:
        page = harness.ask("run list", filters, limit=3, cursor=cursor)
        found += [run["id"] for run in page["runs"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert found == whole


def test_a_run_shows_its_key_its_decision_and_every_attempt() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="poll", every="10m", call="poll", backoff="30s", max_attempts=3)
    harness.bench.target.script("poll", fail("no route"), fail("no route"), fail("gone"))
    harness.advance(minutes=15)
    (row,) = harness.ask("run list", schedule="poll")["runs"]
    run = harness.ask("run get", run=row["id"])
    assert len(run["key"]) == 64
    assert run["run"]["schedule"] == "poll"
    assert [(a["fence"], a["outcome"], a["error"]) for a in run["attempts"]] == [
        (1, "failed", "no route"), (2, "failed", "no route"), (3, "failed", "gone"),
    ]  # fmt: skip


def test_an_unleased_run_is_cancelled_at_once(harness: OperationsHarness) -> None:
    made = harness.ask("schedule run", schedule="nightly-report")["run"]["id"]
    harness.facts.clear()
    gone = harness.ask("run cancel", run=made, reason="wrong day")["run"]
    assert (gone["state"], gone["reason"]) == ("cancelled", "wrong day")
    assert isinstance(harness.facts[0], RunCancelled)


def test_a_leased_run_is_asked_to_stop(harness: OperationsHarness) -> None:
    harness.bench.target.script("nightly-report", hang())
    made = harness.ask("schedule run", schedule="nightly-report")["run"]["id"]
    harness.bench.tick()
    asked = harness.ask("run cancel", run=made)["run"]
    assert asked["state"] == "leased"
    assert asked["cancel_at"] is not None
    assert isinstance(harness.facts[-1], CancelRequested)
    harness.advance(seconds=2)
    assert harness.ask("run get", run=made)["run"]["state"] == "cancelled"


def test_a_finished_run_cannot_be_cancelled(harness: OperationsHarness) -> None:
    (done,) = ids(harness, schedule="nightly-report", state="succeeded", limit=1)
    with pytest.raises(NotAllowed) as error:
        harness.ask("run cancel", run=done)
    assert error.value.rule == "what can be done with it: nothing, it has ended"


def test_a_retry_reuses_the_run_and_increases_the_fence(harness: OperationsHarness) -> None:
    again = harness.ask("run retry", run=FAILED_RUN)["run"]
    assert (again["state"], again["attempts"], again["fence"]) == ("ready", 0, 1)
    harness.bench.tick()
    done = harness.ask("run get", run=FAILED_RUN)["run"]
    assert (done["state"], done["fence"]) == ("succeeded", 2)


@pytest.mark.parametrize("operation", ["run reset", "run retry"])
def test_a_reset_or_a_retry_by_a_named_actor_releases_a_parked_run(
    harness: OperationsHarness, operation: str
) -> None:
    back = harness.ask(operation, run=PARKED_RUN, reason="mailbox mended")["run"]
    assert (back["state"], back["attempts"]) == ("ready", 0)
    (fact,) = harness.facts
    assert isinstance(fact, RunReset)
    assert fact.actor == "ada"
    with pytest.raises(NotAllowed):
        harness.ask("run reset", run=PARKED_RUN)


def test_a_report_with_the_right_fence_ends_the_run(harness: OperationsHarness) -> None:
    done = harness.ask("run report", run=LEASED_RUN, fence=1, outcome={"kind": "succeeded", "result": 7})
    assert done["run"]["state"] == "succeeded"
    assert isinstance(harness.facts[0], RunSucceeded)
    assert harness.ask("run get", run=LEASED_RUN)["attempts"][0]["result"] == 7


def test_repeating_a_report_changes_nothing_and_another_one_is_stale(harness: OperationsHarness) -> None:
    report = {"run": LEASED_RUN, "fence": 1, "outcome": "SUCCESS"}
    first = harness.ask("run report", report)
    harness.facts.clear()
    assert harness.ask("run report", report) == first
    assert harness.facts == []
    for odd in ({"outcome": {"kind": "failed", "error": "x"}}, {"fence": 2}):
        with pytest.raises(Stale) as error:
            harness.ask("run report", {**report, **odd})
        assert error.value.field == "fence"
    assert harness.ask("run get", run=LEASED_RUN)["run"]["state"] == "succeeded"


@pytest.mark.parametrize("operation", ["run report", "queue complete", "queue release", "queue renew"])
def test_the_work_of_an_instance_is_not_ended_by_a_report(harness: OperationsHarness, operation: str) -> None:
    harness.bench.target.script("nightly-report", hang())
    made = harness.ask("schedule run", schedule="nightly-report")["run"]["id"]
    harness.advance(seconds=1)
    fields = {"outcome": "succeeded"} if operation == "run report" else {}
    with pytest.raises(NotAllowed, match="is done by this scheduler"):
        harness.ask(operation, run=made, fence=1, **fields)
    assert harness.ask("run get", run=made)["run"]["state"] == "leased"


def test_a_report_needs_an_outcome(harness: OperationsHarness) -> None:
    for outcome in ("perhaps", 7, {"kind": "maybe"}, None):
        with pytest.raises(InvalidInput) as error:
            harness.ask("run report", run=LEASED_RUN, fence=1, outcome=outcome)
        assert (error.value.field or "").startswith("outcome")


@pytest.mark.parametrize(
    "run", ["run_", "run_x", "nightly-report", "run_" + "0" * 26, "' or 1=1 --", "%2e%2e%2f"]
)
def test_an_unknown_run_is_not_found(harness: OperationsHarness, run: str) -> None:
    for operation in ("run get", "run cancel", "run retry", "run reset", "run explain"):
        with pytest.raises(NotFound):
            harness.ask(operation, run=run)


def test_a_refused_change_of_a_run_names_what_can_be_done_with_it(harness: OperationsHarness) -> None:
    (failed,) = ids(harness, state="failed", limit=1)
    with pytest.raises(NotAllowed) as error:
        harness.ask("run cancel", run=failed)
    assert error.value.message == "a run that is failed cannot be cancelled"
    assert error.value.rule == "what can be done with it: run retry"
