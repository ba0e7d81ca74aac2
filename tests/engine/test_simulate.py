"""The simulation: the production engine on a virtual clock decides as the engine does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from timewright import Scheduler
from timewright.core.definitions import read_definitions
from timewright.core.run.simulation import SimulatedRun, SimulationReport, WorkModel
from timewright.ids import TimedIds
from timewright.operations import OperationContext, operations
from timewright.ports import RunFilter
from timewright.testing.bench import Bench
from timewright.testing.targets import succeed
from timewright.wiring import open_store
from timewright.wiring.what_if import WhatIf, measured_durations, merge_outages, put_definition, what_if

SINCE = datetime(2026, 3, 10, 8, tzinfo=UTC)


def at(hour: int, minute: int = 0, second: int = 0) -> datetime:
    return SINCE.replace(hour=hour, minute=minute, second=second)


def simulate(text: str, *, hours: float = 2, **question: Any) -> SimulationReport:
    """Simulate the fleet of a file."""
    file = read_definitions(text, name="fleet.yaml")
    asked = WhatIf(
        since=SINCE, until=SINCE + timedelta(hours=hours), add=file.definitions, max_rows=100_000, **question
    )
    return what_if(asked)


def rows(report: SimulationReport, name: str) -> list[SimulatedRun]:
    return [one for one in report.rows if one.schedule == name]


def durations(default: int, **given: int) -> WorkModel:
    samples = {name: (timedelta(seconds=length),) for name, length in given.items()}
    return WorkModel(samples=samples, default=timedelta(seconds=default))


def test_every_occurrence_of_the_span_is_decided_once() -> None:
    report = simulate("schedules: [{name: poll, cron: '*/10 * * * *', note: hi}]")
    planned = [one.planned_at for one in rows(report, "poll")]
    assert planned == [at(8) + timedelta(minutes=10 * k) for k in range(1, 12)]
    assert (report.runs, report.delayed, report.unfinished) == (11, 0, 0)


def test_an_outage_skips_what_catch_up_does_not_run() -> None:
    text = """
schedules:
  - {name: forget, cron: '*/5 * * * *', catch_up: none, note: hi}
  - {name: newest, cron: '*/5 * * * *', catch_up: last, note: hi}
  - {name: each, cron: '*/5 * * * *', catch_up: all, note: hi}
"""
    report = simulate(text, outages=((at(8, 52), at(9, 22)),))
    skipped = {one.schedule: one.skipped for one in report.schedules}
    assert skipped == {"forget": {"missed": 6}, "newest": {"missed": 5}, "each": {}}
    assert {one.waited_for for one in rows(report, "each") if one.delay} <= {"outage", "overlap"}
    assert not any(at(8, 52) <= one.started_at < at(9, 22) for one in report.rows if one.started_at)


def test_overlap_and_limits_make_runs_wait_or_be_skipped() -> None:
    text = """
limits: [{name: api, max_running: 1}]
schedules:
  - {name: slow, every: 1m, overlap: skip, note: hi}
  - {name: a, cron: '0 * * * *', limits: [api], note: hi}
  - {name: b, cron: '0 * * * *', limits: [api], note: hi}
"""
    report = simulate(text, hours=1.5, work=durations(1, slow=90, a=300, b=300))
    slow = next(one for one in report.schedules if one.schedule == "slow")
    assert slow.skipped == {"overlap": 44}
    waited = [one for one in report.rows if one.schedule in "ab" and one.delay]
    assert [(one.delay, one.waited_for) for one in waited] == [(timedelta(minutes=5), "limit:default/api")]
    assert [(one.limit, one.capacity, one.peak, one.delayed) for one in report.limits] == [
        ("limit:default/api", 1, 1, 1)
    ]


@pytest.mark.parametrize("field", ["max_running", "max"])
def test_the_limits_of_files_have_the_present_and_the_former_field(field: str) -> None:
    text = f"""
limits: [{{name: api, {field}: 1}}]
schedules:
  - {{name: a, cron: '0 * * * *', limits: [api], note: hi}}
  - {{name: b, cron: '0 * * * *', limits: [api], note: hi}}
"""
    report = simulate(text, hours=1.5, work=durations(300))
    assert sorted(one.delay for one in report.rows) == [timedelta(0), timedelta(minutes=5)]


def test_a_limit_that_a_schedule_defines_itself_holds_for_all_that_name_it() -> None:
    text = """
schedules:
  - {name: a, cron: '0 * * * *', limits: [{name: api, max_running: 2}], note: hi}
  - {name: b, cron: '0 * * * *', limits: [api], note: hi}
  - {name: c, cron: '0 * * * *', limits: [api], note: hi}
"""
    report = simulate(text, hours=1.5, work=durations(300))
    assert sorted(one.delay for one in report.rows) == [timedelta(0), timedelta(0), timedelta(minutes=5)]
    assert [(one.limit, one.capacity, one.peak) for one in report.limits] == [("limit:default/api", 2, 2)]


def test_the_rate_of_a_limit_of_a_store_holds_in_its_simulation() -> None:
    text = """
limits: [{name: api, rate: 1/m}]
schedules:
  - {name: a, cron: '0 9 * * *', limits: [api], note: hi}
  - {name: b, cron: '0 9 * * *', limits: [api], note: hi}
"""
    source = open_store(":memory:")
    context = OperationContext(store=source, ids=TimedIds(), notify=lambda _: None)
    for one in read_definitions(text, name="fleet.yaml").definitions:
        put_definition(context, one)
    asked = WhatIf(since=SINCE, until=at(9, 30), restart=True, work=durations(1), max_rows=100)
    started = sorted(one.started_at for one in what_if(asked, source=source).rows if one.started_at)
    assert started[1] - started[0] >= timedelta(minutes=1)
    source.close()


def test_runs_wait_for_a_free_worker() -> None:
    names = "\n".join(f"  - {{name: s{i}, cron: '0 9 * * *', note: hi}}" for i in range(5))
    report = simulate(f"schedules:\n{names}", workers=2, work=durations(60))
    assert sorted(one.delay.total_seconds() for one in report.rows) == [0, 0, 60, 60, 120]
    assert {one.waited_for for one in report.rows if one.delay} == {"workers"}
    assert report.peak == 2


def test_a_schedule_that_follows_the_end_of_its_runs_uses_the_given_duration() -> None:
    report = simulate("schedules: [{name: chain, after: 5m, note: hi}]", work=durations(200))
    starts = [one.started_at for one in rows(report, "chain") if one.started_at]
    assert {b - a for a, b in pairwise(starts)} == {timedelta(seconds=500)}


def test_a_schedule_can_be_left_out_and_another_added() -> None:
    bench = Bench(start=SINCE)
    bench.schedule("old", "*/10 * * * *")
    bench.schedule("keeps", "*/30 * * * *")
    file = read_definitions("schedules: [{name: new, cron: '*/20 * * * *', note: hi}]", name="x.yaml")
    question = WhatIf(
        since=SINCE,
        until=SINCE + timedelta(hours=1),
        without=("old",),
        add=file.definitions,
    )
    report = what_if(question, source=bench.store)
    assert {one.schedule: one.runs for one in report.schedules} == {"keeps": 1, "new": 2}
    assert bench.runs("keeps") == []


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow", "replace"])
def test_a_simulation_decides_what_the_engine_decides_under_each_overlap(overlap: str) -> None:
    bench = Bench(start=SINCE)
    bench.schedule("a", "every 7m", overlap=overlap)
    bench.schedule("b", "*/5 * * * *", overlap=overlap, jitter="90s")
    samples = {"a": (timedelta(minutes=10),), "b": (timedelta(minutes=3),)}
    question = WhatIf(
        since=SINCE, until=SINCE + timedelta(hours=6), work=WorkModel(samples=samples), max_rows=10_000
    )
    report = what_if(question, source=bench.store)
    for name, length in samples.items():
        bench.target.script(name, succeed(after=length[0]))
    bench.advance(hours=6)
    for name in samples:
        real = {(run.planned_at, run.state == "skipped", run.reason) for run in bench.runs(name)}
        simulated = {(one.planned_at, one.state == "skipped", one.reason) for one in rows(report, name)}
        assert {one[0] for one in simulated} == {one[0] for one in real if one[0] < question.until}
        assert {one for one in simulated if one[1]} == {
            one for one in real if one[1] and one[0] < question.until
        }


def test_durations_come_from_the_last_runs_unless_they_are_given() -> None:
    bench = Bench(start=SINCE)
    for name in ("a", "b"):
        bench.schedule(name, "*/10 * * * *")
        bench.target.script(name, succeed(after="42s"))
    bench.advance(hours=1)
    given = {"b": timedelta(seconds=7)}
    found = measured_durations(bench.store, namespace="default", given=given)
    assert set(found["a"]) == {timedelta(seconds=42)}
    assert found["b"] == (timedelta(seconds=7),)


def test_overlapping_outages_are_joined() -> None:
    assert merge_outages([(at(9), at(10)), (at(8), at(9, 30)), (at(11), at(12))]) == (
        (at(8), at(10)),
        (at(11), at(12)),
    )


def test_real_seconds_on_a_file_equal_the_simulated_ones_run_by_run(tmp_path: Path) -> None:
    """Eight schedules for three seconds; ten minutes with fifty were compared by hand."""
    path = tmp_path / "real.db"
    store = open_store(path)
    context = OperationContext(store=store, ids=TimedIds(), notify=lambda _: None)
    names = {}
    for number in range(8):
        trigger = "* * * * * *" if number % 2 else "every 1s"
        made = operations["schedule put"](
            context, {"name": f"s{number}", "trigger": trigger, "note": "hi", "jitter": "0s"}
        )
        names[made["detail"]["schedule"]["id"]] = f"s{number}"
    since = store.now()
    until = since + timedelta(seconds=3)
    simulated = what_if(WhatIf(since=since, until=until, max_rows=1000), source=store)
    app = Scheduler(path)
    app.start()
    while store.now() < until + timedelta(seconds=0.5):
        sleep(0.05)
    app.stop()
    found = store.read(lambda tx: tx.find(RunFilter(limit=1000))).rows
    store.close()
    real = {(names[run.schedule_id], run.planned_at) for run in found if run.planned_at < until}
    assert {(one.schedule, one.planned_at) for one in simulated.rows} == real
    assert len(real) >= 20
