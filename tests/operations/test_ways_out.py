"""Why nothing runs, or something waits: the answer is true, complete, and names a way out that works."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.operations.house import House
from timewright.operations import operations
from timewright.operations.access import ROLES, Caller, acting
from timewright.testing.targets import fail, succeed

LONG = succeed(after=timedelta(minutes=9))


@pytest.fixture
def empty() -> House:
    return House()


def explain(house: House, schedule: str, **fields: Any) -> Any:
    return house.ask("schedule explain", fields, schedule=schedule)


def newest(house: House, schedule: str) -> str:
    return str(house.ask("run list", schedule=schedule)["runs"][0]["id"])


def follow(house: House, told: Any, number: int = 0) -> Any:
    """Do what the explanation proposes, as it stands."""
    way = told["remedies"][number]
    return house.ask(way["operation"], way["request"])


def test_one_that_is_finished_says_what_finished_it_and_goes_on_when_that_is_changed(empty: House) -> None:
    empty.ask("schedule create", name="twice", every="1m", note="x", max_runs=2)
    empty.ask("schedule create", name="short", every="1m", note="y", end_at="2026-03-10T12:02:30Z")
    empty.advance(minutes=5)
    twice, short = explain(empty, "twice"), explain(empty, "short")
    assert twice["because"] == ["it has had all its runs: max_runs is 2"]
    assert short["because"] == ["its end_at, 2026-03-10T12:02:30Z, has passed"]
    assert short["remedies"][0]["command"] == "timewright schedule update short --end-at null"
    for told in (twice, short):
        follow(empty, told)
        assert explain(empty, told["schedule"])["fate"] == "planned"


def test_one_that_was_archived_says_by_whom(empty: House) -> None:
    empty.ask("schedule create", name="old", every="1m", note="x")
    empty.ask("schedule archive", schedule="old", reason="not needed")
    told = explain(empty, "old")
    assert told["because"][0] == "it was archived by ada at 2026-03-10T12:00:00Z: not needed"
    assert told["remedies"] == []


def test_one_that_waits_for_approval_names_who_made_it_and_can_be_approved(empty: House) -> None:
    empty.ask("namespace set", name="default", agent_approval=True)
    bot = acting(empty.context, Caller(actor="bot", origin="agent", scopes=ROLES["editor"]))
    operations["schedule create"](bot, {"name": "idea", "every": "1m", "note": "x"})
    told = explain(empty, "idea")
    assert (told["fate"], told["policy"]) == ("pending_approval", {})
    assert told["because"] == ["bot made it as agent, and nobody has approved it yet"]
    follow(empty, told)
    assert explain(empty, "idea")["fate"] == "planned"


def test_one_that_is_paused_with_its_group_can_go_on_with_its_group(empty: House) -> None:
    for name in ("one", "two"):
        empty.ask("schedule create", name=name, every="1m", note=name, group="g")
    empty.ask("group pause", group="g", reason="incident")
    follow(empty, explain(empty, "one"))
    assert explain(empty, "two")["fate"] == "planned"


@pytest.mark.parametrize(("field", "value"), [("limits", ["mail"]), ("queue", "mail")])
def test_one_that_waits_for_a_place_says_where_and_starts_when_there_is_one_more(
    empty: House, field: str, value: Any
) -> None:
    empty.ask("limit set", limit="mail", most=1)
    for name in ("first", "second"):
        empty.ask("schedule create", name=name, every="1m", call=name, **{field: value})
        empty.bench.target.script(name, LONG)
    empty.advance(minutes=1, seconds=5)
    told = empty.ask("run explain", run=newest(empty, "second"))
    kind = "limit" if field == "limits" else "queue"
    assert told["because"][-1] == f"it waits for a place: {kind} mail admits 1 and has 1 under way"
    assert told["summary"].endswith("waits to start")
    follow(empty, told)
    empty.advance(seconds=5)
    assert empty.ask("run get", run=told["run"]["id"])["run"]["state"] == "leased"


def test_the_next_one_names_the_run_that_is_still_in_its_way(empty: House) -> None:
    empty.ask("schedule create", name="slow", every="5m", call="slow")
    empty.bench.target.script("slow", LONG)
    empty.advance(minutes=6)
    told, run = explain(empty, "slow"), newest(empty, "slow")
    assert f"if {run}, which is under way now, is not over by then, overlap: skip decides" in told["because"]
    assert follow(empty, told)["run"]["id"] == run


def test_a_missed_one_that_was_too_old_asks_for_a_longer_window_and_not_for_what_it_has(empty: House) -> None:
    words = {"every": "1h", "note": "x", "catch_up_window": "3h"}
    empty.ask("schedule create", name="each", catch_up="all", **words)
    empty.ask("schedule create", name="last", **words)
    empty.sleep(hours=10, minutes=5)
    empty.advance(seconds=5)
    at = "2026-03-10T14:00:00Z"
    asked = [explain(empty, name, at=at)["remedies"][0]["request"] for name in ("each", "last")]
    assert asked[0] == {"schedule": "each", "catch_up_window": "9h"}
    assert asked[1] == {"schedule": "last", "catch_up": "all", "catch_up_window": "9h"}


def test_a_budget_that_is_used_up_makes_the_next_one_wait_and_not_run(empty: House) -> None:
    empty.ask("budget set", budget="day", unit="requests", limit=1)
    empty.ask("schedule create", name="eager", every="1m", note="x", budgets=["day"])
    empty.advance(minutes=1)
    assert explain(empty, "eager")["summary"] == "eager: 2026-03-10T12:02:00Z will come due, and wait"


def test_failures_that_stretch_the_time_between_two_are_told(empty: House) -> None:
    words = {"every": "1m", "call": "bad", "cadence": "stretch", "retry": {"max_attempts": 1}}
    empty.ask("schedule create", name="bad", **words)
    empty.bench.target.script("bad", fail("no"), fail("no"))
    empty.advance(minutes=4)
    assert "2 in a row failed: its cadence puts" in " | ".join(explain(empty, "bad")["because"])


def test_what_nobody_looks_at_says_where_to_see_who_is_there(empty: House) -> None:
    empty.ask("schedule create", name="late", every="1m", note="x")
    run = empty.ask("schedule run", schedule="late")["run"]["id"]
    empty.sleep(minutes=5)
    for told in (explain(empty, "late"), empty.ask("run explain", run=run)):
        assert "is one running?" in told["because"][-1]
        assert "instances" in follow(empty, told)


def test_one_that_has_not_begun_says_when_it_may(empty: House) -> None:
    empty.ask("schedule create", name="spring", every="1h", note="x", start_at="2026-04-01T00:00:00Z")
    told = explain(empty, "spring")
    assert "nothing of it runs before its start_at, 2026-04-01T00:00:00Z" in told["because"]
