from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.conformance.databases import Database
from tests.operations.house import House, dump
from tests.proof.busy import SCHEDULES, START, busy_day, checked, gathered, latest
from timewright.core.moments import from_micros
from timewright.ids import TimedIds
from timewright.operations import Context, operations, verify
from timewright.operations.verify import gather
from timewright.proof import check
from timewright.stores.sqlite import SqliteStore
from timewright.testing.clock import ManualClock

# What a store alone cannot show.
FROM_OUTSIDE = {"I35", "I37", "I45"}


def test_a_busy_day_keeps_every_promise(busy: Database) -> None:
    report = checked(gathered(busy))
    assert [(violation.invariant, violation.message) for violation in report.violations] == []
    assert report.holds


def test_a_busy_day_has_something_to_show_for_every_promise(busy: Database) -> None:
    for finding in checked(gathered(busy)).findings:
        if finding.invariant in FROM_OUTSIDE:
            assert finding.not_checked.startswith("not checked here: needs")
        else:
            assert finding.looked_at > 0, finding
            assert not finding.not_checked


def test_a_part_of_the_history_is_whole_in_itself(busy: Database) -> None:
    everything = gathered(busy)
    for minutes in (5, 33, 45, 60, 105, 130):
        since = START + timedelta(minutes=minutes)
        part = gathered(busy, since=since)
        assert len(part.runs) <= len(everything.runs)
        report = check(part, now=latest(everything), skew=0)
        assert [violation.message for violation in report.violations] == [], minutes


def test_a_history_that_is_too_long_is_cut_and_said_to_be(
    busy: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "PAGE", 20)
    monkeypatch.setattr(verify, "MOST_RUNS", 150)
    part = gathered(busy)
    assert part.cut
    assert part.since is not None
    assert from_micros(part.since) > START
    report = checked(part)
    assert report.cut
    assert [violation.message for violation in report.violations] == []


def test_pages_leave_nothing_out(busy: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gathered(busy)
    monkeypatch.setattr(verify, "PAGE", 7)
    pieces = gathered(busy)
    ended = sorted(pieces.attempts, key=lambda lease: (lease.run_id, lease.fence))
    assert ended == sorted(whole.attempts, key=lambda lease: (lease.run_id, lease.fence))
    assert replace(pieces, attempts=()) == replace(whole, attempts=())


def test_what_is_under_way_is_never_called_broken() -> None:
    house = House(store=SqliteStore(":memory:", clock=(clock := ManualClock(START))), clock=clock)
    house.ask("calendar put", name="nights", weekly=[{"days": [6], "end": "00:40"}])
    house.ask("calendar put", name="sundays", weekly=[{"days": [6]}])
    house.ask("budget set", budget="day", unit="requests", limit=5)
    for words in SCHEDULES:
        house.ask("schedule create", **words, note="x")
    for step in range(24):
        if step % 5 == 4:
            house.sleep(minutes=13)  # an engine that is down: what is due now is late, and nothing is lost
        else:
            house.advance(minutes=3, seconds=7)
        answer = house.ask("verify")
        assert answer["violations"] == [], step


def test_nothing_is_written_by_looking() -> None:
    clock = ManualClock(START)
    house = busy_day(SqliteStore(":memory:", clock=clock), clock)
    before = dump(house.store)
    assert house.ask("verify")["holds"]
    assert dump(house.store) == before
    assert operations["verify"].reads_only
    assert operations["verify"].scope == "read"


def test_a_namespace_is_checked_by_itself(busy: Database) -> None:
    context = Context(store=busy.open(), ids=TimedIds(), namespace="other", tell=lambda _facts: None)
    part = gather(context)
    assert (part.runs, part.schedules, part.gates, part.audit) == ((), (), (), ())
    assert checked(gather(context, everyone=True), now=START).schedules == len(gathered(busy).schedules)


def test_an_empty_store_keeps_its_promises() -> None:
    house = House()
    answer = house.ask("verify")
    assert answer["holds"]
    assert answer["runs"] == 0
    assert len(answer["promises"]) == 40
