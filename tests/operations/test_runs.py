"""Runs: found by what they are of, stopped, tried again, reset, and reported on from outside."""

from __future__ import annotations

import pytest

from tests.operations.house import House
from timewright.core.facts import CancelRequested, RunCancelled, RunReset, RunSucceeded
from timewright.errors import InvalidInput, NotAllowed, NotFound, Stale
from timewright.operations.examples import FAILED_RUN, LEASED_RUN, PARKED_RUN
from timewright.testing.targets import fail, hang


def ids(house: House, **filters: object) -> list[str]:
    return [run["id"] for run in house.ask("run list", filters)["runs"]]


def test_runs_are_found_by_schedule_state_queue_and_time(house: House) -> None:
    assert len(ids(house, schedule="nightly-report", state="SUCCESS")) == 10
    assert ids(house, schedule="nightly-report", state="failed") == [FAILED_RUN]
    assert ids(house, queue="mail", state="parked") == [PARKED_RUN]
    assert len(ids(house, since="2026-03-04T00:00:00Z", until="2026-03-06T23:00:00Z")) == 3


def test_runs_are_found_by_what_their_schedule_is_labelled_with(house: House) -> None:
    house.advance(minutes=10)
    finance = ids(house, metadata={"team": "finance"}, limit=1000)
    assert len(finance) == 11
    assert ids(house, group="reports", limit=1000) == finance
    assert ids(house, tag="daily", limit=1000) == finance
    assert ids(house, metadata={"team": "sales"}) == []


@pytest.mark.parametrize("filters", [{}, {"schedule": "nightly-report"}, {"metadata": {"team": "finance"}}])
def test_runs_are_walked_page_by_page_newest_first(house: House, filters: dict[str, object]) -> None:
    whole = ids(house, **filters, limit=1000)
    assert len(whole) >= 11
    found: list[str] = []
    cursor = ""
    while True:
        page = house.ask("run list", filters, limit=3, cursor=cursor)
        found += [run["id"] for run in page["runs"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert found == whole


def test_a_run_shows_its_key_its_decision_and_every_attempt() -> None:
    house = House()
    house.ask("schedule create", name="poll", every="10m", call="poll", backoff="30s")
    house.bench.target.script("poll", fail("no route"), fail("no route"), fail("gone"))
    house.advance(minutes=15)
    (row,) = house.ask("run list", schedule="poll")["runs"]
    run = house.ask("run get", run=row["id"])
    assert len(run["key"]) == 64
    assert run["run"]["schedule"] == "poll"
    assert [(a["fence"], a["outcome"], a["error"]) for a in run["attempts"]] == [
        (1, "failed", "no route"), (2, "failed", "no route"), (3, "failed", "gone"),
    ]  # fmt: skip


def test_a_run_nobody_holds_is_cancelled_at_once(house: House) -> None:
    made = house.ask("schedule run", schedule="nightly-report")["run"]["id"]
    house.told.clear()
    gone = house.ask("run cancel", run=made, reason="wrong day")["run"]
    assert (gone["state"], gone["reason"]) == ("cancelled", "wrong day")
    assert isinstance(house.told[0], RunCancelled)


def test_a_run_under_way_is_asked_to_stop(house: House) -> None:
    house.bench.target.script("nightly-report", hang())
    made = house.ask("schedule run", schedule="nightly-report")["run"]["id"]
    house.bench.tick()
    asked = house.ask("run cancel", run=made)["run"]
    assert asked["state"] == "leased"
    assert asked["cancel_at"] is not None
    assert isinstance(house.told[-1], CancelRequested)
    house.advance(seconds=2)
    assert house.ask("run get", run=made)["run"]["state"] == "cancelled"


def test_what_is_over_cannot_be_cancelled(house: House) -> None:
    (done,) = ids(house, schedule="nightly-report", state="succeeded", limit=1)
    with pytest.raises(NotAllowed) as refusal:
        house.ask("run cancel", run=done)
    assert refusal.value.rule == "from succeeded it can: nothing further"


def test_a_failed_run_is_tried_again_in_the_same_row_and_the_fence_goes_on(house: House) -> None:
    again = house.ask("run retry", run=FAILED_RUN)["run"]
    assert (again["state"], again["attempts"], again["fence"]) == ("ready", 0, 1)
    house.bench.tick()
    done = house.ask("run get", run=FAILED_RUN)["run"]
    assert (done["state"], done["fence"]) == ("succeeded", 2)


def test_only_a_reset_brings_a_parked_run_back(house: House) -> None:
    with pytest.raises(NotAllowed):
        house.ask("run retry", run=PARKED_RUN)
    back = house.ask("run reset", run=PARKED_RUN, reason="mailbox mended")["run"]
    assert (back["state"], back["attempts"]) == ("ready", 0)
    (fact,) = house.told
    assert isinstance(fact, RunReset)
    assert fact.actor == "ada"
    with pytest.raises(NotAllowed):
        house.ask("run reset", run=PARKED_RUN)


def test_a_report_with_the_right_fence_ends_the_run(house: House) -> None:
    done = house.ask("run report", run=LEASED_RUN, fence=1, outcome={"kind": "succeeded", "result": 7})
    assert done["run"]["state"] == "succeeded"
    assert isinstance(house.told[0], RunSucceeded)
    assert house.ask("run get", run=LEASED_RUN)["attempts"][0]["result"] == 7


def test_the_same_report_again_is_no_news_and_another_is_stale(house: House) -> None:
    report = {"run": LEASED_RUN, "fence": 1, "outcome": "SUCCESS"}
    first = house.ask("run report", report)
    house.told.clear()
    assert house.ask("run report", report) == first
    assert house.told == []
    for odd in ({"outcome": {"kind": "failed", "error": "x"}}, {"fence": 2}):
        with pytest.raises(Stale) as refusal:
            house.ask("run report", {**report, **odd})
        assert refusal.value.field == "fence"
    assert house.ask("run get", run=LEASED_RUN)["run"]["state"] == "succeeded"


def test_a_report_must_say_how_it_ended(house: House) -> None:
    for outcome in ("perhaps", 7, {"kind": "maybe"}, None):
        with pytest.raises(InvalidInput) as refusal:
            house.ask("run report", run=LEASED_RUN, fence=1, outcome=outcome)
        assert (refusal.value.field or "").startswith("outcome")


@pytest.mark.parametrize(
    "run", ["run_", "run_x", "nightly-report", "run_" + "0" * 26, "' or 1=1 --", "%2e%2e%2f"]
)
def test_a_run_that_never_was_is_not_found(house: House, run: str) -> None:
    for operation in ("run get", "run cancel", "run retry", "run reset", "run explain"):
        with pytest.raises(NotFound):
            house.ask(operation, run=run)
