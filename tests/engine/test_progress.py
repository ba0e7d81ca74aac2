"""Progress and checkpoints: shown while a run runs, and given to its next attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.operations.harness import OperationsHarness
from tests.targets.call import functions
from tests.targets.kit import wait_until
from timewright import Context, Scheduler
from timewright.errors import InvalidInput, Stale
from timewright.operations.views import RunDetail
from timewright.ports.attempt_output import MAX_CHECKPOINT_BYTES, RunProgress
from timewright.stores.queries.run_rows import SqlRunRowQueries
from timewright.testing.bench import Bench
from timewright.wiring import new_registry


def bench_with(job: Any, **schedule: Any) -> Bench:
    """A bench with one schedule that calls a function."""
    registry = new_registry()
    registry.register("job")(job)

    class Program:
        pass

    program: Any = Program()
    program.registry = registry
    program.declared = ({"name": "job", "every": "1h", "call": "job", **schedule},)
    bench = Bench()
    bench.adopt(program)
    return bench


def failing_at(found: list[Any], *, is_async: bool) -> Any:
    """A function that saves a checkpoint and fails, until its third attempt."""

    def work(ctx: Context) -> None:
        found.append(ctx.last_checkpoint)
        page = (ctx.last_checkpoint or {"page": 0})["page"] + 1
        ctx.progress(page / 10, f"page {page}")
        ctx.checkpoint({"page": page})
        if len(found) < 3:
            raise OSError("connection lost")

    async def work_async(ctx: Context) -> None:
        await asyncio.sleep(0)
        work(ctx)

    return work_async if is_async else work


@pytest.mark.parametrize("is_async", [False, True])
def test_a_checkpoint_is_given_to_the_next_attempt(is_async: bool) -> None:
    found: list[Any] = []
    bench = bench_with(failing_at(found, is_async=is_async), retry={"max_attempts": 3})
    bench.advance(minutes=65)
    assert found == [None, {"page": 1}, {"page": 2}]
    (run,) = bench.runs("job")
    assert bench.call("run get", run=run.id)["checkpoint"] == {"page": 3}
    assert bench.call("run get", run=run.id)["run"]["progress"] is None, "a finished run has no progress"


def test_the_next_occurrence_starts_without_a_checkpoint() -> None:
    found: list[Any] = []

    def job(ctx: Context) -> None:
        found.append(ctx.last_checkpoint)
        ctx.checkpoint({"page": 1})

    bench = bench_with(job)
    bench.advance(minutes=125)
    assert found == [None, None]


def test_a_run_that_is_retried_by_hand_continues_from_its_checkpoint() -> None:
    found: list[Any] = []

    def job(ctx: Context) -> None:
        found.append(ctx.last_checkpoint)
        ctx.checkpoint(["done", len(found)])
        raise OSError("no")

    bench = bench_with(job)
    bench.advance(minutes=61)
    bench.call("run retry", run=bench.runs("job")[0].id)
    bench.advance(seconds=5)
    assert found == [None, ["done", 1]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"ids": {1, 2}}, "is not JSON data"),
        ({1: "one"}, "is not JSON data"),
        (float("nan"), "is not JSON data"),
        (object(), "is not JSON data"),
        (None, "is not JSON data"),
        ({"text": "x" * MAX_CHECKPOINT_BYTES}, f"the checkpoint has {MAX_CHECKPOINT_BYTES + 11} bytes"),
    ],
)
def test_a_checkpoint_that_cannot_be_kept_is_refused_where_it_is_made(value: Any, message: str) -> None:
    errors: list[InvalidInput] = []

    def job(ctx: Context) -> None:
        try:
            ctx.checkpoint(value)
        except InvalidInput as error:
            errors.append(error)

    bench_with(job).advance(minutes=61)
    assert message in errors[0].message
    assert errors[0].fix


@pytest.mark.parametrize("fraction", [-0.1, 1.5, "half", True])
def test_progress_is_a_number_from_0_to_1(fraction: Any) -> None:
    bench = bench_with(lambda ctx: ctx.progress(fraction))
    bench.advance(minutes=61)
    assert "is not a fraction" in bench.attempts("job")[0].error


@pytest.fixture(params=["thread", "process", "loop"])
def reporting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scheduler]:
    """A running scheduler with a function that reports 3,000 pages and then waits to be cancelled."""
    app = Scheduler(tmp_path / "app.db")
    job = functions.report_pages_async if request.param == "loop" else functions.report_pages
    app.schedule(manual=True, name="job", isolation=request.param)(job)
    with app:
        yield app


def test_progress_is_shown_while_the_run_runs_and_is_not_a_write_per_call(
    reporting: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[RunProgress] = []
    put = SqlRunRowQueries.put_run_rows

    def counting(tx: SqlRunRowQueries, rows: Sequence[Any]) -> None:
        written.extend(row for row in rows if isinstance(row, RunProgress))
        put(tx, rows)

    monkeypatch.setattr(SqlRunRowQueries, "put_run_rows", counting)
    run_id = reporting.schedules.run("job").run.id

    def last_page() -> RunDetail | None:
        found = reporting.runs.get(run_id)
        return found if found.run.progress_note == "page 2999" else None

    shown = wait_until(last_page)
    assert shown is not None
    assert (shown.run.progress, shown.checkpoint) == (0.5, {"page": 2999})
    assert [one.progress for one in reporting.runs.list().runs] == [0.5]
    assert len(written) < 60
    reporting.runs.cancel(run_id)
    wait_until(lambda: reporting.runs.get(run_id).run.finished_at)
    assert reporting.runs.get(run_id).run.progress is None


def test_a_checkpoint_survives_the_death_of_the_worker_process(tmp_path: Path) -> None:
    app = Scheduler(tmp_path / "app.db")
    app.schedule(manual=True, name="job", isolation="process")(functions.die_after_a_checkpoint)
    with app:
        assert app.run_now("job", timeout="60s") == {"page": 7}


def test_a_lease_from_a_queue_reports_progress_and_leaves_a_checkpoint() -> None:
    line = OperationsHarness()
    line.ask("queue add", queue="mail", payload={"to": "ada"})
    (lease,) = line.ask("queue lease", queue="mail")["leases"]
    assert lease["checkpoint"] is None
    line.ask("queue renew", run=lease["run"], fence=1, progress=0.4, note="page 12", checkpoint={"page": 12})
    shown = line.ask("run get", run=lease["run"])
    assert (shown["run"]["progress"], shown["run"]["progress_note"]) == (0.4, "page 12")
    assert shown["checkpoint"] == {"page": 12}
    assert line.ask("run list")["runs"][0]["progress"] == 0.4
    line.ask("queue renew", run=lease["run"], fence=1)
    line.ask("queue release", run=lease["run"], fence=1)
    assert line.ask("run get", run=lease["run"])["run"]["progress"] is None, "nobody works on it"
    (again,) = line.ask("queue lease", queue="mail")["leases"]
    assert again["checkpoint"] == {"page": 12}
    with pytest.raises(Stale):
        line.ask("queue renew", run=lease["run"], fence=1, checkpoint={"page": 1})
    assert line.ask("run get", run=lease["run"])["checkpoint"] == {"page": 12}
    with pytest.raises(InvalidInput, match="the checkpoint has"):
        line.ask("queue renew", run=lease["run"], fence=2, checkpoint="x" * MAX_CHECKPOINT_BYTES)
