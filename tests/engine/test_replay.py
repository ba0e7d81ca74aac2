"""Replay: recorded decisions are decided again, and what comes out differently is listed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from timewright.core.definitions import read_definitions
from timewright.errors import NotFound
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, succeed
from timewright.wiring.replay import DecisionDifference, Replay, ReplayReport, replay

SINCE = datetime(2026, 3, 10, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def again(bench: Bench, **question: Any) -> ReplayReport:
    asked = {"since": SINCE, "until": bench.now, **question}
    return replay(Replay(**asked), source=bench.store)


def shown(differences: tuple[DecisionDifference, ...]) -> list[tuple[str, str, str]]:
    return [(f"{one.planned_at:%H:%M}", one.recorded, one.replayed) for one in differences]


@pytest.fixture(scope="module")
def morning() -> Bench:
    """A morning that is only read."""
    return busy_morning()


def busy_morning() -> Bench:
    """Schedules with every overlap and catch-up policy; edits, pauses, a hint and an outage."""
    bench = Bench(start=SINCE - timedelta(minutes=30, seconds=7))
    for overlap in ("skip", "queue", "allow", "replace"):
        bench.schedule(f"slow-{overlap}", "every 7m", overlap=overlap)
        bench.target.script(f"slow-{overlap}", *[succeed(after=10 * MINUTE)] * 200)
    for catch_up in ("none", "last", "all"):
        bench.schedule(f"late-{catch_up}", "*/5 * * * *", catch_up=catch_up, jitter="90s")
    bench.schedule("fails", "*/3 * * * *")
    bench.target.script("fails", *[fail("x", after=5 * MINUTE), succeed(after=MINUTE)] * 100)
    bench.schedule("chain", "after 4m")
    bench.schedule("adaptive", "every 10m", adaptive=True)
    bench.schedule("adaptive-once", "every 30m", adaptive=True)
    bench.schedule("by-hand", "*/10 * * * *")
    bench.advance(minutes=75)
    bench.call("schedule skip", schedule="by-hand", count=2)
    bench.call("schedule move", schedule="by-hand", to=(SINCE + 71 * MINUTE).isoformat())
    bench.call("schedule run", schedule="by-hand")
    bench.call("hint once", schedule="adaptive-once", at=(SINCE + 48 * MINUTE).isoformat(), reason="now")
    bench.call("schedule update", schedule="late-all", cron="*/4 * * * *")
    bench.call("schedule pause", schedule="late-none", reason="x")
    bench.call("hint interval", schedule="adaptive", interval="2m", ttl="20m", reason="busy")
    bench.advance(minutes=31)
    bench.call("schedule resume", schedule="late-none")
    bench.clock.advance(minutes=26)
    bench.advance(minutes=45)
    bench.schedule("new", "*/6 * * * *")
    bench.advance(minutes=60)
    return bench


def test_every_recorded_decision_is_decided_the_same_again(morning: Bench) -> None:
    report = again(morning)
    assert shown(report.differences) == []
    assert report.decisions == report.same > 250
    assert len(report.outages) == 1
    assert [one.schedule for one in report.hints] == ["adaptive", "adaptive-once"]


def test_the_steps_of_a_workflow_are_no_decisions() -> None:
    bench = Bench(start=SINCE - MINUTE)
    bench.call("workflow put", name="load", steps=[{"name": "one", "target": {"note": "x"}}])
    bench.call("schedule create", name="nightly", cron="*/10 * * * *", workflow="load")
    bench.advance(minutes=30)
    report = again(bench)
    assert (report.decisions, report.differences) == (3, ())


def test_a_replay_in_the_middle_of_runs_and_hints_begins_as_it_was(morning: Bench) -> None:
    bench = morning
    for minutes in (3, 50, 58, 80, 111):
        report = again(bench, since=SINCE + minutes * MINUTE)
        assert shown(report.differences) == [], minutes


def test_without_a_hint_the_instants_that_it_caused_are_the_differences(morning: Bench) -> None:
    bench = morning
    hint = again(bench, schedules=("adaptive",)).hints[0]
    report = again(bench, without_hints=(hint.id,))
    assert {one.schedule for one in report.differences} == {"adaptive"}
    assert {(one.recorded, one.replayed) for one in report.differences} <= {("run", ""), ("", "run")}
    assert sum(one.recorded == "run" for one in report.differences) >= 8
    assert [one.schedule for one in report.hints if one.left_out] == ["adaptive"]


def test_other_policies_and_other_definitions_show_what_they_change() -> None:
    bench = Bench(start=SINCE)
    bench.schedule("slow", "every 5m", overlap="skip")
    bench.target.script("slow", *[succeed(after=7 * MINUTE)] * 100)
    bench.advance(minutes=30)
    allowed = again(bench, fields={"overlap": "allow"})
    assert (
        shown(allowed.differences)
        == [
            ("08:10", "skipped: overlap", "run"),
            ("08:20", "skipped: overlap", "run"),
            ("08:30", "skipped: overlap", "run"),
        ][: len(allowed.differences)]
    )
    assert len(allowed.differences) >= 2
    file = read_definitions("schedules: [{name: slow, cron: '*/10 * * * *', note: x}]", name="x.yaml")
    rarer = again(bench, definitions=file.definitions)
    assert {one.replayed for one in rarer.differences} >= {""}


def test_unknown_schedules_and_hints_are_refused(morning: Bench) -> None:
    bench = morning
    with pytest.raises(NotFound, match="no schedule missing"):
        again(bench, schedules=("missing",))
    with pytest.raises(NotFound, match="no hint adaptive@x") as refused:
        again(bench, without_hints=("adaptive@x",))
    assert str(refused.value.fix).startswith("adaptive@2026-03-10T08:44")


def test_a_replay_of_some_schedules_reads_only_those_and_writes_nothing(morning: Bench) -> None:
    bench = morning
    before = [(run.id, run.state) for run in bench.runs("new")]
    report = again(bench, schedules=("new", "chain"))
    assert report.same == report.decisions > 10
    assert [(run.id, run.state) for run in bench.runs("new")] == before
