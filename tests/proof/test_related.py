"""What schedules owe each other, as the checker sees it: needs, budgets, last words, ends that came again."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.house import House
from timewright.core.moments import micros
from timewright.operations.verify import gather
from timewright.proof import History, check
from timewright.proof.rows import Note
from timewright.testing.targets import fail, succeed

MINUTE = 60_000_000


def broken(history: History, *only: str, now: int = 0) -> list[str]:
    return [violation.message for violation in check(history, now=now, only=only).violations]


def lived(house: House, *only: str) -> list[str]:
    return broken(gather(house.context, since=None), *only, now=micros(house.now))


@pytest.fixture
def needy() -> House:
    """An hour of one that needs a fresh end of another, and one that starts without it in the end."""
    house = House()
    house.ask("schedule create", name="load", every="20m", note="x")
    need: dict[str, Any] = {"schedule": "load", "within": "5m", "wait": "12m"}
    house.ask("schedule create", name="report", every="10m", needs=[need], note="x")
    house.ask("schedule create", name="anyway", every="7m", needs=[{**need, "else": "run"}], note="x")
    house.advance(hours=1)
    return house


def test_what_waits_for_what_it_needs_holds(needy: House) -> None:
    history = gather(needy.context, since=None)
    (finding,) = check(history, now=micros(needy.now), only=["I43"]).findings
    assert finding.count == 0
    assert finding.looked_at > 5


@pytest.mark.parametrize("name", ["report", "anyway"])
def test_what_started_without_what_it_needs_is_found(needy: House, name: str) -> None:
    history = gather(needy.context, since=None)
    mine = next(row.id for row in history.schedules if row.name == name)
    early = {run.id: run.planned_at - 10 * MINUTE for run in history.runs if run.schedule_id == mine}
    attempts = tuple(
        replace(one, leased_at=early[one.run_id]) if one.run_id in early else one for one in history.attempts
    )
    said = broken(replace(history, attempts=attempts), "I43", now=micros(needy.now))
    assert said
    assert all(one.endswith("without an end of load") for one in said)


@pytest.fixture
def spending() -> House:
    """An hour under a budget of four requests and one of a thousand tokens, each used up."""
    house = House()
    house.ask("budget set", budget="calls", unit="requests", limit=4, period="1h")
    house.ask("budget set", budget="tokens", unit="tokens", limit=1000, period="1h")
    both: dict[str, Any] = {"every": "5m", "overlap": "allow", "note": "x"}
    house.ask("schedule create", name="caller", budgets=["calls"], **both)
    house.ask("schedule create", name="writer", budgets=["tokens"], estimate={"tokens": 300}, **both)
    house.advance(hours=1)
    return house


def test_what_stays_within_its_budget_holds(spending: House) -> None:
    assert lived(spending, "I44") == []


def test_a_lease_that_was_not_charged_is_found(spending: House) -> None:
    history = gather(spending.context, since=None)
    assert history.charges is not None
    found = broken(replace(history, charges=history.charges[1:]), "I44", now=micros(spending.now))
    assert [one.rpartition(" ")[0].endswith("was leased and not charged to") for one in found] == [True]


@pytest.mark.parametrize(("budget", "limit"), [("calls", 3), ("tokens", 600)])
def test_a_lease_beyond_its_budget_is_found(spending: House, budget: str, limit: int) -> None:
    history = gather(spending.context, since=None)
    lowered = tuple(
        replace(line, after=re.sub(r'"limit":\d+', f'"limit":{limit}', line.after))
        if line.subject == budget
        else line
        for line in history.audit
    )
    said = broken(replace(history, audit=lowered), "I44", now=micros(spending.now))
    assert said
    assert all(one.startswith(f"default/{budget}: ") for one in said)


def test_words_that_came_after_the_end_are_found() -> None:
    note = Note(kind="said", at=1, subject="run_a", fence=2, value=7, most=14)
    assert broken(History(notes=(replace(note, value=14),)), "I45") == []
    (said,) = broken(History(notes=(note,)), "I45")
    assert said == "run run_a, fence 2, ended, and 7 of 14 bytes that it said were there"


def test_one_that_was_tried_again_is_followed_once_also_where_history_was_pruned() -> None:
    house = House()
    house.ask("schedule create", name="load", every="10m", max_runs=1, retry={"max_attempts": 1}, note="x")
    house.ask("schedule create", name="alarm", after={"schedule": "load", "on": "end"}, note="x")
    house.bench.target.script("load", fail(), succeed())
    house.advance(minutes=15)
    (failed,) = house.ask("run list", schedule="load")["runs"]
    house.advance(minutes=10)
    house.ask("run retry", run=failed["id"])
    house.advance(minutes=5)
    assert lived(house, "I41") == []
    history = gather(house.context, since=None)
    (alarm,) = [row.id for row in history.schedules if row.name == "alarm"]
    (followed,) = [run for run in history.runs if run.schedule_id == alarm]
    assert followed.planned_at < micros(house.now) - 10 * MINUTE
    gone = tuple(run for run in history.runs if run.id != followed.id)
    pruned = replace(history, runs=gone, meta={**history.meta, "pruned_to": followed.id})
    assert broken(pruned, "I41", now=micros(house.now)) == []


def test_an_end_that_is_followed_twice_is_found() -> None:
    house = House()
    house.ask("schedule create", name="load", every="5m", note="x")
    house.ask("schedule create", name="report", after="load", overlap="allow", note="x")
    house.advance(minutes=30)
    history = gather(house.context, since=None)
    (mine,) = [row.id for row in history.schedules if row.name == "report"]
    row = [run for run in history.runs if run.schedule_id == mine][2]
    twice = replace(row, id="run_x", planned_at=row.planned_at + 1)
    (said,) = broken(replace(history, runs=(*history.runs, twice)), "I41", now=micros(house.now))
    assert said.endswith("follows no end of load")
