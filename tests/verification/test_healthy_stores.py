from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.conformance.support.databases import Database
from tests.operations.harness import OperationsHarness, dump
from tests.verification.busy_day import SCHEDULES, START, busy_day, checked, gathered, latest
from timewright.core.moments import from_micros
from timewright.ids import TimedIds
from timewright.operations import operations
from timewright.operations.context import OperationContext
from timewright.operations.health import verify
from timewright.operations.health.verify import read_history
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.clock import ManualClock
from timewright.verification import check

# Invariants that need a simulation.
FROM_OUTSIDE = {"I35", "I37", "I45", "I47"}
# Reads files; tests/workflows/test_artifacts.py has some.
FROM_FILES = {"I64"}


def test_a_busy_day_violates_no_invariant(busy: Database) -> None:
    report = checked(gathered(busy))
    assert [(violation.invariant, violation.message) for violation in report.violations] == []
    assert report.holds


def test_a_busy_day_covers_every_invariant(busy: Database) -> None:
    for finding in checked(gathered(busy)).findings:
        if finding.invariant in FROM_OUTSIDE:
            assert finding.not_checked_because.startswith("not checked here: needs")
        elif finding.invariant not in FROM_FILES:
            assert finding.checked > 0, finding
            assert not finding.not_checked_because


def test_a_history_from_an_instant_on_has_no_violation(busy: Database) -> None:
    everything = gathered(busy)
    for minutes in (5, 33, 45, 60, 105, 130):
        since = START + timedelta(minutes=minutes)
        part = gathered(busy, since=since)
        assert len(part.runs) <= len(everything.runs)
        report = check(part, now=latest(everything), skew=0)
        assert [violation.message for violation in report.violations] == [], minutes


def test_a_too_long_history_is_cut_and_marked(busy: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "PAGE_ROWS", 20)
    monkeypatch.setattr(verify, "MAX_RUNS", 150)
    part = gathered(busy)
    assert part.cut
    assert part.since is not None
    assert from_micros(part.since) > START
    report = checked(part)
    assert report.cut
    assert [violation.message for violation in report.violations] == []


def test_paging_loses_no_rows(busy: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gathered(busy)
    monkeypatch.setattr(verify, "PAGE_ROWS", 7)
    pieces = gathered(busy)
    ended = sorted(pieces.attempts, key=lambda lease: (lease.run_id, lease.fence))
    assert ended == sorted(whole.attempts, key=lambda lease: (lease.run_id, lease.fence))
    assert replace(pieces, attempts=()) == replace(whole, attempts=())


def test_unfinished_work_is_no_violation() -> None:
    harness = OperationsHarness(
        store=SqliteStore(":memory:", clock=(clock := ManualClock(START))), clock=clock
    )
    harness.ask("calendar put", name="nights", weekly=[{"days": [6], "end": "00:40"}])
    harness.ask("calendar put", name="sundays", weekly=[{"days": [6]}])
    harness.ask("budget set", budget="day", unit="requests", limit=5)
    for words in SCHEDULES:
        harness.ask("schedule create", **words, note="x")
    for step in range(24):
        if step % 5 == 4:
            harness.sleep(minutes=13)  # the engine is down: due runs are late, and nothing is lost
        else:
            harness.advance(minutes=3, seconds=7)
        answer = harness.ask("verify")
        assert answer["violations"] == [], step


def test_verify_writes_nothing() -> None:
    clock = ManualClock(START)
    harness = busy_day(SqliteStore(":memory:", clock=clock), clock)
    before = dump(harness.store)
    assert harness.ask("verify")["holds"]
    assert dump(harness.store) == before
    assert operations["verify"].read_only
    assert operations["verify"].scope == "read"


def test_one_namespace_can_be_checked_alone(busy: Database) -> None:
    context = OperationContext(
        store=busy.open(), ids=TimedIds(), namespace="other", notify=lambda _facts: None
    )
    part = read_history(context)
    assert (part.runs, part.schedules, part.limits, part.audit) == ((), (), (), ())
    assert checked(read_history(context, all_namespaces=True), now=START).schedules == len(
        gathered(busy).schedules
    )


def test_an_empty_store_violates_no_invariant() -> None:
    harness = OperationsHarness()
    answer = harness.ask("verify")
    assert answer["holds"]
    assert answer["runs"] == 0
    assert len(answer["promises"]) == 54
