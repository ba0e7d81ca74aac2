"""The desktop document, sentence by sentence: grid, one catch-up run, backoff, and who is told what."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from timewright import Scheduler
from timewright.errors import InvalidInput
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, succeed


def job(bench: Bench, **fields: Any) -> Any:
    given = {"name": "sync", "call": "work", "preset": "desktop", **fields}
    if not {"cron", "once", "every"} & given.keys():
        given["every"] = "1m"
    return bench.call("schedule create", **given)


def test_the_next_run_is_on_the_grid_of_the_anchor_and_never_in_the_past() -> None:
    bench = Bench()
    job(bench, every="25m", anchor="2026-03-10T00:00:00Z")
    assert bench.progress("sync").next_at == bench.now + timedelta(minutes=5)
    bench.clock.advance("3h")
    bench.advance("1s")
    next_at = bench.progress("sync").next_at
    assert next_at is not None
    assert next_at > bench.now


def test_an_anchor_ahead_is_the_first_run() -> None:
    bench = Bench()
    job(bench, every="1h", anchor="2026-03-12T07:00:00Z")
    assert bench.call("schedule get", schedule="sync")["progress"]["next_at"] == "2026-03-12T07:00:00Z"


def test_an_interval_below_ten_seconds_is_raised_to_ten() -> None:
    bench = Bench()
    assert job(bench, every="3s")["schedule"]["trigger"]["interval"] == "10s"


def test_after_an_offline_period_there_is_one_run_and_no_backlog() -> None:
    bench = Bench()
    job(bench)
    bench.clock.advance("2h30s")
    bench.advance("1s")
    assert [run.state.value for run in bench.runs("sync")].count("succeeded") == 1


def test_errors_delay_the_next_run_by_a_ladder_and_the_fifth_disables_the_job() -> None:
    bench = Bench()
    job(bench, every="10s")
    bench.target.script("sync", *[fail("no")] * 6)
    bench.advance("1h")
    starts = [one.started_at for one in bench.attempts("sync") if one.started_at]
    gaps = [after - before for before, after in pairwise(starts)]
    assert gaps == [timedelta(seconds=30), timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15)]
    assert bench.progress("sync").state.value == "parked"


def test_resume_forgives_the_errors() -> None:
    bench = Bench()
    job(bench, every="10s")
    bench.target.script("sync", *[fail("no")] * 5, succeed())
    bench.advance("1h")
    bench.call("schedule resume", schedule="sync")
    assert (bench.progress("sync").state.value, bench.progress("sync").failures) == ("active", 0)
    bench.advance("20s")
    assert bench.runs("sync")[-1].state.value == "succeeded"


def test_a_job_that_runs_is_not_started_again() -> None:
    bench = Bench()
    job(bench)
    bench.target.script("sync", succeed(after="150s"))
    bench.advance("215s")
    assert [run.state.value for run in bench.runs("sync")] == ["succeeded", "skipped", "skipped"]


@pytest.mark.parametrize("outcome", [succeed(), fail("no")])
def test_a_one_shot_is_over_after_its_run_whatever_the_outcome(outcome: Any) -> None:
    bench = Bench()
    job(bench, once="2026-03-10T12:05:00Z")
    bench.target.script("sync", outcome)
    bench.advance("1h")
    assert len(bench.runs("sync")) == 1
    assert bench.progress("sync").next_at is None


def test_an_invalid_expression_is_refused_when_the_job_is_added() -> None:
    with pytest.raises(InvalidInput):
        job(Bench(), cron="61 * * * *")


def test_statistics_since_an_instant_count_the_runs_from_then_on() -> None:
    bench = Bench()
    job(bench, every="10m")
    bench.target.script("sync", *[succeed()] * 30, fail("no"), succeed())
    bench.advance("2d")
    stats = bench.call("schedule health", schedule="sync", since="2026-03-10T12:00:00Z")["windows"]
    assert (stats["since"]["total"], stats["24h"]["total"]) == (288, 145)
    assert stats["since"]["outcomes"] == {"succeeded": 287, "failed": 1}
    assert "since" not in bench.call("schedule health", schedule="sync")["windows"]


def test_the_last_start_is_that_of_the_newest_run_also_of_one_by_hand() -> None:
    bench = Bench()
    job(bench, every="10m")
    bench.advance("10m")
    progress = bench.call("schedule get", schedule="sync")["progress"]
    assert progress["last_started_at"] == "2026-03-10T12:10:00Z"
    bench.clock.advance("90s")
    bench.call("schedule run", schedule="sync")
    bench.tick()
    progress = bench.call("schedule get", schedule="sync")["progress"]
    assert progress["last_started_at"] == "2026-03-10T12:11:30Z"


def test_a_listener_is_told_when_a_job_is_due(tmp_path: Path) -> None:
    app = Scheduler(tmp_path / "app.db")
    due: list[tuple[str, str]] = []
    app.on_due(lambda fact: due.append((fact.schedule_name, fact.run_id)))
    app.schedule(manual=True, name="sync")(lambda: "done")
    with app:
        app.run_now("sync")
    assert [name for name, _ in due] == ["sync"]
    assert due[0][1].startswith("run_")
