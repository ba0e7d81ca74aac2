"""Workers as real processes on one store, with their output, their journal and their runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from timewright import Scheduler
from timewright.operations.views import RunDetail, RunSummary

TIMEOUT_S = 60.0
POLL_S = 0.02


class JournalLine(NamedTuple):
    """One journal line: event, schedule, key, fence and process."""

    event: str
    schedule: str
    key: str
    fence: int
    pid: int


def expect(holds: object, what: str) -> None:
    """Raise with the expectation, also under `python -O`."""
    if not holds:
        raise AssertionError(what)


def wait_until(condition: Callable[[], Any], what: str, *, seconds: float = TIMEOUT_S) -> Any:
    """Wait until a condition is true and return its value; fail after the timeout."""
    pause, deadline = threading.Event(), time.monotonic() + seconds
    while not (found := condition()):
        expect(time.monotonic() < deadline, f"waited {seconds:g} s for {what}")
        pause.wait(POLL_S)
    return found


class WorkerProcess:
    """One worker process; a thread reads its output, so that it never blocks."""

    def __init__(self, store_url: str, complaints: Path, **options: Any) -> None:
        with complaints.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.tools.worker", store_url, json.dumps(options)],
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        self.pid = self._process.pid
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def output_starting(self, start: str) -> list[str]:
        """The output lines that begin with `start`."""
        return [line for line in self.lines if line.startswith(start)]

    def wait_for_output(self, start: str, *, seconds: float = TIMEOUT_S) -> str:
        """Wait for an output line that begins with `start`."""
        what = f"worker {self.pid} to print {start!r}"
        wait_until(lambda: self.output_starting(start) or self.has_ended, what, seconds=seconds)
        if self.has_ended:
            self._reader.join()
            expect(self.output_starting(start), f"{what}, but it ended with {self._process.returncode}")
        return self.output_starting(start)[0]

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    @property
    def has_ended(self) -> bool:
        """Whether the process has exited."""
        return self._process.poll() is not None

    def wait_for_exit(self, *, seconds: float = TIMEOUT_S) -> int:
        """Wait for the exit; return its code."""
        return self._process.wait(seconds)

    def close(self) -> None:
        """Kill the process and close its output."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines += ["born"]
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))


class WorkerFleet:
    """Worker processes on one store, and a scheduler beside them that runs nothing itself.

    The workers may use another URL of the same store. The invariants are checked at the end.
    """

    def __init__(
        self, store_url: str, journal: Path, *, worker_store_url: str = "", checked: bool = True
    ) -> None:
        self.store_url = store_url
        self.journal = journal
        self.worker_store_url = worker_store_url or store_url
        self.workers: list[WorkerProcess] = []
        self.app = Scheduler(store_url)
        self._checked = checked

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._dump_stacks()
        for worker in self.workers:
            worker.close()
        self.app.stop()
        if kind is None and self._checked:
            assert_verified(self.store_url)

    @property
    def stderr_log(self) -> Path:
        """Where the workers' standard error goes; after a failure also their stacks."""
        return self.journal.with_suffix(".err")

    def start(self, count: int = 1, **options: Any) -> list[WorkerProcess]:
        """Start more workers and wait until they are ready."""
        new = [WorkerProcess(self.worker_store_url, self.stderr_log, **options) for _ in range(count)]
        self.workers += new
        for worker in new:
            worker.wait_for_output("ready")
        return new

    def writer_and_other(self, line: JournalLine) -> tuple[WorkerProcess, WorkerProcess]:
        """Of two workers, the one that wrote the line, and the other."""
        first, second = self.workers
        return (first, second) if line.pid == first.pid else (second, first)

    def schedule(self, name: str, function: str, *, every: str = "1h", **policies: Any) -> None:
        """Create a schedule that calls a function of the workers."""
        args = {"journal": str(self.journal), **policies.pop("args", {})}
        lease = {"length": policies.pop("lease", "2s"), "time_limit": "120s", "grace": "1s"}
        target = {"name": function, "args": args, "isolation": policies.pop("isolation", "inherit")}
        retry = {"max_attempts": 3, "backoff": {"kind": "constant", "wait": "0.1s"}}
        self.app.schedules.create(
            name=name, every=every, target={"call": target}, lease=lease, retry=retry, **policies
        )

    def run(self, name: str) -> str:
        """Run a schedule now; return the run's id."""
        return str(self.app.schedules.run(schedule=name).run.id)

    def journal_lines(self, event: str = "", *, schedule: str = "") -> list[JournalLine]:
        """The lines of the journal, in order."""
        if not self.journal.exists():
            return []
        rows = [line.split() for line in self.journal.read_text().splitlines()]
        lines = [JournalLine(row[0], row[1], row[2], int(row[3]), int(row[4])) for row in rows]
        return [line for line in lines if line.event.startswith(event) and schedule in ("", line.schedule)]

    def wait_for_line(
        self, event: str, *, schedule: str, fence: int = 1, seconds: float = TIMEOUT_S
    ) -> JournalLine:
        """Wait until a function has written such a line."""

        def search() -> list[JournalLine]:
            return [line for line in self.journal_lines(event, schedule=schedule) if line.fence == fence]

        found: list[JournalLine] = wait_until(
            search, f"{schedule} to write {event!r} at fence {fence}", seconds=seconds
        )
        return found[0]

    def get(self, run: str) -> RunDetail:
        """A run with its attempts."""
        return self.app.runs.get(run=run)

    def wait_for_state(self, run: str, state: str = "succeeded") -> RunDetail:
        """Wait until a run is in a state; return it with its attempts."""

        def in_state() -> RunDetail | None:
            found = self.get(run)
            return found if found.run.state == state else None

        found: RunDetail = wait_until(in_state, f"{run} to be {state}")
        return found

    def rows(self, name: str) -> list[RunSummary]:
        """Every run of a schedule, oldest first."""
        page = self.app.runs.list(schedule=name, limit=1000)
        expect(not page.cursor, f"{name} to have fewer than a thousand rows")
        return sorted(page.runs, key=lambda run: run.planned_at)

    def _dump_stacks(self) -> None:
        for worker in (worker for worker in self.workers if not worker.has_ended):
            worker.send_signal(signal.SIGUSR1)
        threading.Event().wait(0.2)
        if self.stderr_log.exists():
            sys.stderr.write(self.stderr_log.read_text(errors="replace")[-8000:])

    def stop(self) -> None:
        """Stop every worker gracefully; each must exit with 0."""
        for worker in self.workers:
            if not worker.has_ended:
                worker.send_signal(signal.SIGTERM)
        codes = [worker.wait_for_exit() for worker in self.workers]
        expect(not any(codes), f"every worker to exit with 0, not {codes}")


def assert_verified(store_url: str) -> None:
    """Check every invariant on a store."""
    app = Scheduler(store_url)
    try:
        report = app.call("verify")
    finally:
        app.stop()
    broken = [f"{one.promise} {one.message}" for one in report.violations]
    expect(report.holds, f"verify to hold, but {'; '.join(broken)}")


def outcomes(found: RunDetail) -> list[tuple[str, int, bool]]:
    """How the leases of a run ended: outcome, fence, and whether an attempt was charged."""
    return [(each.outcome, each.fence, each.charged) for each in found.attempts]


def duplicate_leases(lines: list[JournalLine]) -> list[tuple[str, int]]:
    """The leases with more than one call."""
    counts = Counter((line.key, line.fence) for line in lines)
    return [lease for lease, count in counts.items() if count > 1]


def gaps_between(rows: list[RunSummary]) -> set[timedelta]:
    """The distances between consecutive planned instants."""
    return {later.planned_at - earlier.planned_at for earlier, later in pairwise(rows)}
