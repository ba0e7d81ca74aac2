"""How long until it is up, how large is what is installed, and how soon is it gone again?

    python -m benchmarks start [--only up,install] [--schedules 1000000] [--rounds 5] [--quick]

`up` is timed from the start of the process to the line that says it is ready, on an empty folder and on a
file with many schedules, none of them due. `install` is a plain `pip install .` into a fresh environment,
from the package index that pip is set to, and from its cache where it has one.
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

from benchmarks._measure import ROOT, Goals, Places, chosen, heading, machine, median, spread
from benchmarks._store_fill import NEVER, REVISION_COLUMNS, SCHEDULE_COLUMNS, schedule_rows
from timewright.assembly import open_store

PARTS = ("up", "install")
MOST_DISTRIBUTIONS = 20
AT_A_TIME = 100_000
OURS = {"pip", "setuptools", "wheel"}


def main(arguments: list[str]) -> int:
    asked = parsed(arguments)
    print(machine("apsw", "starlette", "uvicorn", "aiohttp"))
    goals = Goals()
    with Places() as places:
        if "up" in asked.only:
            up(goals, places, schedules=0, most=1.5, rounds=asked.rounds)
            up(goals, places, schedules=asked.schedules, most=3.0, rounds=asked.rounds)
    if "install" in asked.only:
        install(goals)
    print(f"\nall goals\n{goals.summary()}")
    return 0


def up(goals: Goals, places: Places, *, schedules: int, most: float, rounds: int) -> None:
    """From the start of the process to its ready line, and from the interrupt to its end."""
    what = f"{schedules:,} schedules, none due" if schedules else "an empty folder"
    heading(f"up: {what}", "SQLite; wall time of one process, HTTP door included")
    ready, costs, gone, said = [], [], [], ""
    with places.fresh("sqlite") as place:
        if schedules:
            fill(place, schedules)
        for _ in range(rounds):
            with started(place) as (process, seconds, line):
                ready.append(seconds)
                # The clock of another process, as clock_getcpuclockid(3) spells it on Linux.
                costs.append(time.clock_gettime((~process.pid << 3) | 2))
                said = line
                began = time.monotonic()
                process.send_signal(signal.SIGINT)
                process.wait(timeout=30)
                gone.append(time.monotonic() - began)
            if not schedules:
                for file in Path(place).parent.iterdir():
                    file.unlink() if file.is_file() else None
    print(f"  ready after {spread(ready, digits=2)} s, gone after {spread(gone, digits=2)} s")
    print(f"  CPU until ready {spread(costs, digits=2)} s; load {os.getloadavg()[0]:.1f}")
    print(f"  it says: {said.strip()}")
    goals.judge(
        f"up, {what}", f"ready within {most} s", found=f"{median(ready):.2f} s", met=median(ready) <= most
    )
    goals.judge(f"stop, {what}", "gone within 2 s", found=f"{median(gone):.2f} s", met=median(gone) <= 2)


@contextlib.contextmanager
def started(place: str) -> Iterator[tuple[subprocess.Popen[str], float, str]]:
    """A process that says it is ready, after how many seconds, and in which words."""
    words = [sys.executable, "-m", "timewright", "up", "--store", place, "--port", "0"]
    state = {**os.environ, "XDG_STATE_HOME": str(Path(place).parent)}
    began = time.monotonic()
    process = subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=state, cwd=Path(place).parent
    )
    try:
        assert process.stderr is not None
        told = []
        for line in process.stderr:
            told.append(line)
            if line.startswith("ready in"):
                yield process, time.monotonic() - began, line
                break
        else:
            raise RuntimeError(f"it never was ready: {''.join(told)}")
    finally:
        process.kill()
        process.communicate()


def fill(place: str, schedules: int) -> None:
    """So many schedules that are not due; nothing of it is timed."""
    open_store(place).close()
    connection = apsw.Connection(place)
    try:
        rows = schedule_rows(0, schedules, wake_at=NEVER)
        for _ in range(0, schedules, AT_A_TIME):
            batch = [row for row, _ in zip(rows, range(AT_A_TIME), strict=False)]
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


def install(goals: Goals) -> None:
    """A plain `pip install .`: how many distributions, how many bytes, how long."""
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
        found = sorted(set(names) - OURS - {"timewright"})
        (site,) = Path(folder).glob("lib/python*/site-packages")
        size = sum(_size(part) for part in site.iterdir() if not _is_pip(part.name))
    print(f"  {len(found)} distributions beside itself: {', '.join(found)}")
    print(f"  {size / 1e6:.0f} MB, {seconds:.0f} s")
    goals.judge(
        "install",
        f"at most {MOST_DISTRIBUTIONS} distributions beside itself",
        found=f"{len(found)}, {size / 1e6:.0f} MB",
        met=len(found) <= MOST_DISTRIBUTIONS,
    )


def _is_pip(name: str) -> bool:
    return any(name == one or name.startswith((f"{one}-", f"{one}.")) for one in OURS)


def _size(part: Path) -> int:
    return (
        sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        if part.is_dir()
        else part.stat().st_size
    )


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks start", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", type=chosen(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--schedules", type=int, default=None, help="1,000,000, quick 10,000")
    parser.add_argument("--rounds", type=int, default=None, help="how often each figure is made: 5, quick 1")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works, not how fast")
    asked = parser.parse_args(arguments)
    asked.rounds = asked.rounds or (1 if asked.quick else 5)
    asked.schedules = asked.schedules or (10_000 if asked.quick else 1_000_000)
    return asked


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
