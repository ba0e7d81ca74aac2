"""The clock of a real process is set while it runs, by libfaketime: no schedule falls silent or runs twice.

Not run without libfaketime; the last line of the suite says so. TIMEWRIGHT_FULL=1 takes every step.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from tests.faults.tools.worker_fleet import wait_until
from timewright import Scheduler

LIBRARY = next((str(path) for path in sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), "")
EVERY_STEP = ["-3", "+3", "-1h", "-2d", "-40d", "+2d", "+40d", "@2999-01-01 00:00:00"]
FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))
STEPS = EVERY_STEP if FULL else ["+40d", "@2999-01-01 00:00:00"]
WRONG_S = 3.0
# Twice as long as the process waits until it uses a clock that was set: two hours, if that is an hour.
LASTING_S = 10.0
CHILD = Path(__file__).with_name("clock_child.py")

if not LIBRARY:
    __test__ = False


def test_a_process_whose_clock_is_wrong_for_three_seconds_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    store, journal, offset = tmp_path / "app.db", tmp_path / "journal", tmp_path / "offset"
    offset.write_text("+0\n")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    with (tmp_path / "child.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(CHILD), str(store), str(journal)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
        )
    try:
        wait_until(lambda: len(lines(journal)) >= 2, "the first runs")
        for step in STEPS:
            set_wrong(offset, step)
            expected = len(lines(journal)) + 2
            wait_until(partial(has_lines, journal, expected), f"runs after {step}")
        if FULL:
            check_lasting_year(journal, offset)
        (tmp_path / "finish").touch()
        check(store)
        if FULL:
            check_hour(store, journal, offset)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
    keys = [line.split()[0] for line in lines(journal)]
    assert len(keys) == len(set(keys)), "no occurrence ran twice"


def check_lasting_year(journal: Path, offset: Path) -> None:
    """A year that no instant may have is not used, however long it lasts."""
    before = len(lines(journal))
    set_wrong(offset, "@2999-01-01 00:00:00", for_s=LASTING_S)
    assert len(lines(journal)) <= before + 2, "nothing is started while the clock is in doubt"
    wait_until(partial(has_lines, journal, before + 4), "runs after two hours in 2999")


def check_hour(store: Path, journal: Path, offset: Path) -> None:
    """An hour ahead is used as an outage is: the newest instant runs, and the clock of a file stays there."""
    before = len(lines(journal))
    set_wrong(offset, "+1h")
    assert len(lines(journal)) > before, "the hour is caught up"
    with Scheduler(store) as app:
        next_at = app.schedules.get(schedule="tick").progress.next_at
        assert next_at is not None
        assert timedelta(minutes=50) < next_at - datetime.now(UTC) < timedelta(minutes=65)


def set_wrong(offset: Path, step: str, *, for_s: float = WRONG_S) -> None:
    """Set the clock of the process, and set it right after some seconds."""
    offset.write_text(f"{step}\n")
    time.sleep(for_s)
    offset.write_text("+0\n")


def check(store: Path) -> None:
    """Nothing is planned further ahead than its trigger says, and the run under way kept its lease."""
    with Scheduler(store) as app:
        now = datetime.now(UTC)
        for name, interval in (("tick", timedelta(seconds=1)), ("hourly", timedelta(hours=1))):
            next_at = app.schedules.get(schedule=name).progress.next_at
            assert next_at is not None
            assert next_at <= now + interval + timedelta(seconds=60), name
        wait_until(lambda: states(app, "long") == ["succeeded"], "the run that was under way")
        (run,) = app.runs.list(schedule="long").runs
        assert run.fence == 1
        report = app.call("verify")
        assert report.holds, report


def states(app: Scheduler, name: str) -> list[str]:
    return [str(run.state) for run in app.runs.list(schedule=name).runs]


def has_lines(journal: Path, count: int) -> bool:
    return len(lines(journal)) >= count


def lines(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []
