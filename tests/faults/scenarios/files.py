"""Scenarios of a SQLite file: full disk, failing writes, read-only, foreign, damaged, deleted, shared."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from tests.faults.scenario import FaultEnvironment, FaultScenario
from tests.faults.tools.small_disk import limit_file_size, small_disk
from tests.faults.tools.tick_schedules import (
    assert_each_instant_once,
    create_tick_schedules,
    wait_for_catch_up,
    wait_for_first_runs,
)
from tests.faults.tools.up_process import timewright_up
from tests.faults.tools.worker_fleet import assert_verified, expect, wait_until
from timewright import Scheduler
from timewright.operations.views import RunSummary

STILL_FOR_S = 3.0


def disk_full(environment: FaultEnvironment) -> str:
    """The disk is filled to the last byte while a worker runs, then freed."""
    with (
        small_disk(environment.folder / "disk", size="4m") as disk,
        environment.fleet(str(disk.folder / "store.db")) as fleet,
    ):
        names = create_tick_schedules(fleet)
        (worker,) = fleet.start()
        wait_for_first_runs(fleet, names)
        disk.fill()
        before = wait_until_writes_stop(fleet.app, names)
        disk.free_space()
        wait_for_catch_up(fleet, names)
        expect(not worker.has_ended, "the worker to survive")
        fleet.stop()
        assert_each_instant_once(fleet, names, skipped={"overlap"})
        return f"no writes at {before} rows, reads went on, {len(fleet.rows(names[0]))} s accounted for"


def wait_until_writes_stop(app: Scheduler, names: list[str]) -> int:
    """Wait until no row is added for a few seconds, while reads go on; return the number of rows."""
    seen: list[int] = []

    def is_still() -> bool:
        seen.append(sum(len(app.runs.list(schedule=name, limit=1000).runs) for name in names))
        return len(seen) > STILL_FOR_S / 0.02 and seen[-1] == seen[-int(STILL_FOR_S / 0.02)]

    wait_until(is_still, "writes to stop")
    return seen[-1]


def writes_fail(environment: FaultEnvironment) -> str:
    """Every write that extends a file fails, as on a broken disk; then writes work again."""
    with environment.file_fleet() as fleet:
        names = create_tick_schedules(fleet)
        (worker,) = fleet.start()
        wait_for_first_runs(fleet, names)
        log = Path(f"{fleet.store_url}-wal")
        limit_file_size(worker.pid, log.stat().st_size)
        before = wait_until_writes_stop(fleet.app, names)
        limit_file_size(worker.pid, None)
        wait_for_catch_up(fleet, names)
        expect(not worker.has_ended, "the worker to survive")
        fleet.stop()
        assert_each_instant_once(fleet, names, skipped={"overlap"})
        return f"no writes at {before} rows, then resumed by itself"


def read_only(environment: FaultEnvironment) -> str:
    """A read-only file system."""
    with small_disk(environment.folder / "disk", size="4m") as disk:
        path = disk.folder / "store.db"
        create_store(path)
        disk.read_only()
        before = path.read_bytes()
        with timewright_up(environment.folder, str(path)) as process:
            refusal = process.wait_for_refusal("cannot be written")
        expect(path.read_bytes() == before, "the file to be unchanged")
        return refusal


def truncated_file(environment: FaultEnvironment) -> str:
    """A truncated file."""
    path = environment.folder / "store.db"
    create_store(path)
    os.truncate(path, path.stat().st_size // 2)
    return assert_refused_untouched(environment, path, "damaged")


def foreign_database(environment: FaultEnvironment) -> str:
    """A database of another application."""
    path = environment.folder / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE invoices (id INTEGER); INSERT INTO invoices VALUES (7)")
    connection.close()
    return assert_refused_untouched(environment, path, "another application")


def not_a_database(environment: FaultEnvironment) -> str:
    """A file that is not a database."""
    path = environment.folder / "notes.db"
    path.write_bytes(b"dear diary, " * 500)
    return assert_refused_untouched(environment, path, "not a database")


def assert_refused_untouched(environment: FaultEnvironment, path: Path, word: str) -> str:
    """`timewright up` refuses the file and does not change it."""
    before = path.read_bytes()
    with timewright_up(environment.folder, str(path)) as process:
        refusal = process.wait_for_refusal(word)
    expect(path.read_bytes() == before, "the file to be unchanged")
    return refusal


def removed_file(environment: FaultEnvironment) -> str:
    """The file is deleted while `timewright up` uses it."""
    path = environment.folder / "store.db"
    create_store(path)
    with timewright_up(environment.folder, str(path)) as process:
        process.wait_until_ready()
        for path in environment.folder.glob("store.db*"):
            path.unlink()
        wait_until(lambda: "deleted or replaced" in process.output, "the loss to be reported")
        code = process.stop()
        expect(not path.exists(), "no new store to be created")
        return f"reported it, wrote nothing more, exited with {code}"


def two_processes(environment: FaultEnvironment) -> str:
    """Two `timewright up` on one file."""
    path = environment.folder / "store.db"
    create_store(path)
    with (
        timewright_up(environment.folder, str(path), number=1) as one,
        timewright_up(environment.folder, str(path), number=2) as two,
    ):
        one.wait_until_ready()
        two.wait_until_ready()
        app = Scheduler(path)
        try:
            wait_until(lambda: len(succeeded(app)) >= 6, "six seconds of work")
        finally:
            app.stop()
        codes = (one.stop(), two.stop())
    expect(codes == (0, 0), f"both to exit with 0, not {codes}")
    app = Scheduler(path)
    try:
        rows = app.runs.list(schedule="hello", limit=1000).runs
        expect(len({row.planned_at for row in rows}) == len(rows), "one row for every instant")
        expect({row.fence for row in succeeded(app)} == {1}, "one lease for every run")
    finally:
        app.stop()
    assert_verified(str(path))
    return f"{len(rows)} instants, each decided once and leased once; both exited with 0"


def create_store(path: Path) -> None:
    """Create a store with one schedule that runs every second."""
    app = Scheduler(path)
    app.schedules.create(name="hello", every="1s", note="hello", catch_up="all", metadata={"a": "x" * 3000})
    app.stop()


def succeeded(app: Scheduler) -> tuple[RunSummary, ...]:
    """The runs that succeeded."""
    return app.runs.list(schedule="hello", state="succeeded", limit=1000).runs


SCENARIOS = (
    FaultScenario(
        name="disk-full",
        row="C3",
        action="the disk is filled to the last byte under a worker, then freed",
        expected="writes stop, reads go on, it resumes by itself, no second is lost",
        run=disk_full,
    ),
    FaultScenario(
        name="write-fails",
        row="C4",
        action="every write that extends a file fails (RLIMIT_FSIZE), then writes work again",
        expected="the worker survives, resumes by itself, no second is lost",
        run=writes_fail,
    ),
    FaultScenario(
        name="read-only",
        row="C4",
        action="`timewright up` on a file system mounted read-only",
        expected="refused with a remedy, the file unchanged",
        run=read_only,
        quick=True,
    ),
    FaultScenario(
        name="truncated",
        row="C10",
        action="`timewright up` on a truncated file",
        expected="refused with a remedy, the file unchanged",
        run=truncated_file,
        quick=True,
    ),
    FaultScenario(
        name="foreign",
        row="C10",
        action="`timewright up` on a database of another application",
        expected="refused with a remedy, the file unchanged",
        run=foreign_database,
        quick=True,
    ),
    FaultScenario(
        name="not-a-database",
        row="C10",
        action="`timewright up` on a file that is not a database",
        expected="refused with a remedy, the file unchanged",
        run=not_a_database,
        quick=True,
    ),
    FaultScenario(
        name="deleted-file",
        row="C9, C14",
        action="the file and its WAL are deleted under `timewright up`",
        expected="reported; nothing more is written, no new file is created",
        run=removed_file,
    ),
    FaultScenario(
        name="two-processes",
        row="A15",
        action="two `timewright up` work on one file",
        expected="every instant decided once and leased once, both exit with 0",
        run=two_processes,
    ),
)
