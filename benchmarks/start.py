"""How long until it is up, how large is the install, and how quickly does it stop?

    python -m benchmarks start [--only up,install] [--schedules 1000000] [--rounds 5] [--quick]

`up` is timed from the start of the process to its ready line, on an empty folder and on a file with many
schedules, none of them due. `install` is `pip install .` into a fresh environment, from pip's configured
index.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import apsw

from benchmarks.parts.measure import (
    ROOT,
    Goals,
    TemporaryStores,
    comma_list,
    heading,
    machine,
    median,
    spread,
)
from benchmarks.parts.store_fill import NEVER, REVISION_COLUMNS, SCHEDULE_COLUMNS, schedule_rows
from timewright.wiring import open_store

PARTS = ("up", "install")
MAX_DISTRIBUTIONS = 20
BATCH_ROWS = 100_000
INSTALLER_PACKAGES = {"pip", "setuptools", "wheel"}


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    print(machine("apsw", "starlette", "uvicorn", "aiohttp"))
    goals = Goals()
    with TemporaryStores() as temporary_stores:
        if "up" in options.only:
            measure_up(goals, temporary_stores, schedules=0, most=1.5, rounds=options.rounds)
            measure_up(goals, temporary_stores, schedules=options.schedules, most=3.0, rounds=options.rounds)
    if "install" in options.only:
        measure_install(goals)
    print(f"\nall goals\n{goals.summary()}")
    return 0


def measure_up(
    goals: Goals, temporary_stores: TemporaryStores, *, schedules: int, most: float, rounds: int
) -> None:
    """Time from the start of the process to its ready line, and from the interrupt to its exit."""
    what = f"{schedules:,} schedules, none due" if schedules else "an empty folder"
    heading(f"up: {what}", "SQLite; wall time of one process, HTTP server included")
    ready, costs, gone, output = [], [], [], ""
    with temporary_stores.new_store("sqlite") as store_url:
        if schedules:
            add_schedules(store_url, schedules)
        for _ in range(rounds):
            with up_process(store_url) as (process, seconds, line):
                ready.append(seconds)
                # The CPU clock of another process, as clock_getcpuclockid(3) defines it on Linux.
                costs.append(time.clock_gettime((~process.pid << 3) | 2))
                output = line
                began = time.monotonic()
                process.send_signal(signal.SIGINT)
                process.wait(timeout=30)
                gone.append(time.monotonic() - began)
            if not schedules:
                for file in Path(store_url).parent.iterdir():
                    file.unlink() if file.is_file() else None
    print(f"  ready after {spread(ready, digits=2)} s, stopped after {spread(gone, digits=2)} s")
    print(f"  CPU until ready {spread(costs, digits=2)} s; load {os.getloadavg()[0]:.1f}")
    print(f"  its ready line: {output.strip()}")
    goals.judge(
        f"up, {what}", f"ready within {most} s", found=f"{median(ready):.2f} s", met=median(ready) <= most
    )
    goals.judge(f"stop, {what}", "stopped within 2 s", found=f"{median(gone):.2f} s", met=median(gone) <= 2)


@contextlib.contextmanager
def up_process(store_url: str) -> Iterator[tuple[subprocess.Popen[str], float, str]]:
    """A started process, the seconds until it was ready, and its ready line."""
    words = [sys.executable, "-m", "timewright", "up", "--store", store_url, "--port", "0"]
    state = {**os.environ, "XDG_STATE_HOME": str(Path(store_url).parent)}
    began = time.monotonic()
    process = subprocess.Popen(
        words,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=state,
        cwd=Path(store_url).parent,
    )
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("ready in"):
                yield process, time.monotonic() - began, line
                break
        else:
            raise RuntimeError(f"it never became ready: {''.join(lines)}")
    finally:
        process.kill()
        process.communicate()


def add_schedules(store_url: str, schedules: int) -> None:
    """Insert schedules that are not due; not timed."""
    open_store(store_url).close()
    connection = apsw.Connection(store_url)
    try:
        rows = schedule_rows(0, schedules, wake_at=NEVER)
        for _ in range(0, schedules, BATCH_ROWS):
            batch = [row for row, _ in zip(rows, range(BATCH_ROWS), strict=False)]
            connection.execute("BEGIN")
            for table, columns, which in (
                ("schedules", SCHEDULE_COLUMNS, 0),
                ("revisions", REVISION_COLUMNS, 1),
            ):
                marks = ", ".join("?" for _ in columns.split(","))
                insert = f"INSERT INTO {table} ({columns}) VALUES ({marks})"
                connection.executemany(insert, (row[which] for row in batch))
            connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


def measure_install(goals: Goals) -> None:
    """Measure `pip install .`: number of distributions, bytes, seconds."""
    heading("install: pip install . into a fresh environment", "sizes with bytecode, pip itself left out")
    with tempfile.TemporaryDirectory(prefix="timewright-install-") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        began = time.monotonic()
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)],
            check=True,
            capture_output=True,
        )
        seconds = time.monotonic() - began
        listed = subprocess.run(
            [python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"],
            check=True,
            capture_output=True,
            text=True,
        )
        names = [line.partition("==")[0] for line in listed.stdout.splitlines()]
        found = sorted(set(names) - INSTALLER_PACKAGES - {"timewright"})
        (site,) = Path(folder).glob("lib/python*/site-packages")
        size = sum(_size(part) for part in site.iterdir() if not _is_pip(part.name))
    print(f"  {len(found)} distributions beside itself: {', '.join(found)}")
    print(f"  {size / 1e6:.0f} MB, {seconds:.0f} s")
    goals.judge(
        "install",
        f"at most {MAX_DISTRIBUTIONS} distributions beside itself",
        found=f"{len(found)}, {size / 1e6:.0f} MB",
        met=len(found) <= MAX_DISTRIBUTIONS,
    )


def _is_pip(name: str) -> bool:
    return any(name == one or name.startswith((f"{one}-", f"{one}.")) for one in INSTALLER_PACKAGES)


def _size(part: Path) -> int:
    return (
        sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        if part.is_dir()
        else part.stat().st_size
    )


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks start", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", type=comma_list(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--schedules", type=int, default=None, help="1,000,000, quick 10,000")
    parser.add_argument("--rounds", type=int, default=None, help="how often each figure is made: 5, quick 1")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works, not how fast")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.schedules = options.schedules or (10_000 if options.quick else 1_000_000)
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
