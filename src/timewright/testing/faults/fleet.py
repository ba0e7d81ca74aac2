"""Workers as real processes on one place, and what they did: their words, their journal, their rows."""

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
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from timewright import Scheduler

PATIENCE = 60.0
POLL = 0.02


class Line(NamedTuple):
    """What a function wrote down: a word, for which schedule, under which key and fence, in which process."""

    word: str
    schedule: str
    key: str
    fence: int
    pid: int


def expect(holds: object, what: str) -> None:
    """Fail with what was expected, also where Python is told to forget its assertions."""
    if not holds:
        raise AssertionError(what)


def until(condition: Callable[[], Any], what: str, *, seconds: float = PATIENCE) -> Any:
    """Wait for something to become true and give it back; fail when it does not in time."""
    pause, deadline = threading.Event(), time.monotonic() + seconds
    while not (found := condition()):
        expect(time.monotonic() < deadline, f"waited {seconds:g} s for {what}")
        pause.wait(POLL)
    return found


class Worker:
    """One process of the fleet; what it says is gathered by a thread, so that it never has to wait for us."""

    def __init__(self, place: str, complaints: Path, **options: Any) -> None:
        with complaints.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "timewright.testing.faults.worker", place, json.dumps(options)],
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        self.pid = self._process.pid
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def said(self, start: str) -> list[str]:
        """The lines that begin so."""
        return [line for line in self.lines if line.startswith(start)]

    def hear(self, start: str, *, seconds: float = PATIENCE) -> str:
        """Wait until it has said such a line."""
        what = f"worker {self.pid} to say {start!r}"
        until(lambda: self.said(start) or self.ended, what, seconds=seconds)
        if self.ended:
            self._reader.join()
            expect(self.said(start), f"{what}, but it ended with {self._process.returncode}")
        return self.said(start)[0]

    def send(self, number: signal.Signals) -> None:
        """A signal to the process."""
        self._process.send_signal(number)

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        return self._process.poll() is not None

    def end(self, *, seconds: float = PATIENCE) -> int:
        """Wait for its end; gives back the exit code."""
        return self._process.wait(seconds)

    def close(self) -> None:
        """Leave nothing of it."""
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


class Fleet:
    """Any number of workers on one place, and a scheduler beside them that never runs anything itself.

    `through` is another way to the same place, for the workers alone. What they leave is checked at the end.
    """

    def __init__(self, place: str, journal: Path, *, through: str = "", checked: bool = True) -> None:
        self.place = place
        self.journal = journal
        self.through = through or place
        self.workers: list[Worker] = []
        self.app = Scheduler(place)
        self._checked = checked

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._ask_where_everyone_is()
        for worker in self.workers:
            worker.close()
        self.app.stop()
        if kind is None and self._checked:
            verify(self.place)

    @property
    def complaints(self) -> Path:
        """Where the standard error of the workers goes; after a failure also where each of them was."""
        return self.journal.with_suffix(".err")

    def start(self, count: int = 1, **options: Any) -> list[Worker]:
        """So many more workers, which have said that they work."""
        new = [Worker(self.through, self.complaints, **options) for _ in range(count)]
        self.workers += new
        for worker in new:
            worker.hear("ready")
        return new

    def apart(self, line: Line) -> tuple[Worker, Worker]:
        """Of two workers the one that wrote the line, and the other."""
        first, second = self.workers
        return (first, second) if line.pid == first.pid else (second, first)

    def schedule(self, name: str, function: str, *, every: str = "1h", **policies: Any) -> None:
        """Keep a schedule that calls a function of the workers; `args`, `isolation` and `lease` are short."""
        args = {"journal": str(self.journal), **policies.pop("args", {})}
        lease = {"length": policies.pop("lease", "2s"), "time_limit": "120s", "grace": "1s"}
        target = {"name": function, "args": args, "isolation": policies.pop("isolation", "inherit")}
        retry = {"max_attempts": 3, "backoff": {"kind": "constant", "wait": "0.1s"}}
        self.app.schedules.create(
            name=name, every=every, target={"call": target}, lease=lease, retry=retry, **policies
        )

    def run(self, name: str) -> str:
        """Have a schedule run now; gives back the run."""
        return str(self.app.schedules.run(schedule=name)["run"]["id"])

    def written(self, word: str = "", *, schedule: str = "") -> list[Line]:
        """What the functions wrote down, in order."""
        if not self.journal.exists():
            return []
        rows = [line.split() for line in self.journal.read_text().splitlines()]
        lines = [Line(row[0], row[1], row[2], int(row[3]), int(row[4])) for row in rows]
        return [line for line in lines if line.word.startswith(word) and schedule in ("", line.schedule)]

    def find(self, word: str, *, schedule: str, fence: int = 1, seconds: float = PATIENCE) -> Line:
        """Wait until a function has written such a line."""

        def search() -> list[Line]:
            return [line for line in self.written(word, schedule=schedule) if line.fence == fence]

        found: list[Line] = until(search, f"{schedule} to write {word!r} at fence {fence}", seconds=seconds)
        return found[0]

    def get(self, run: str) -> dict[str, Any]:
        """A run with its attempts."""
        found: dict[str, Any] = self.app.runs.get(run=run)
        return found

    def settled(self, run: str, state: str = "succeeded") -> dict[str, Any]:
        """Wait until a run is in a state; gives back the run with its attempts."""

        def look() -> dict[str, Any] | None:
            found = self.get(run)
            return found if found["run"]["state"] == state else None

        found: dict[str, Any] = until(look, f"{run} to be {state}")
        return found

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Every row of a schedule, oldest first."""
        page = self.app.runs.list(schedule=name, limit=1000)
        expect(not page["cursor"], f"{name} to have fewer than a thousand rows")
        return sorted(page["runs"], key=lambda run: run["planned_at"])

    def _ask_where_everyone_is(self) -> None:
        for worker in (worker for worker in self.workers if not worker.ended):
            worker.send(signal.SIGUSR1)
        threading.Event().wait(0.2)
        if self.complaints.exists():
            sys.stderr.write(self.complaints.read_text(errors="replace")[-8000:])

    def stop(self) -> None:
        """End every worker politely; each leaves with code 0."""
        for worker in self.workers:
            if not worker.ended:
                worker.send(signal.SIGTERM)
        codes = [worker.end() for worker in self.workers]
        expect(not any(codes), f"every worker to leave with code 0, not {codes}")


def verify(place: str) -> None:
    """Check every promise against the rows of a place, with a clock that has seen what was written there."""
    app = Scheduler(place)
    try:
        told = app.call("verify")
    finally:
        app.stop()
    broken = [f"{one['promise']} {one['message']}" for one in told["violations"]]
    expect(told["holds"], f"verify to hold, but {'; '.join(broken)}")


def outcomes(found: dict[str, Any]) -> list[tuple[str, int, bool]]:
    """How the leases of a run ended: the outcome, the fence, and whether it cost an attempt."""
    return [(each["outcome"], each["fence"], each["charged"]) for each in found["attempts"]]


def doubled(lines: list[Line]) -> list[tuple[str, int]]:
    """The leases that more than one call was made for."""
    counts = Counter((line.key, line.fence) for line in lines)
    return [lease for lease, count in counts.items() if count > 1]


def seconds_between(rows: list[dict[str, Any]]) -> set[timedelta]:
    """The distances between one planned instant and the next."""
    instants = [datetime.fromisoformat(row["planned_at"]) for row in rows]
    return {later - earlier for earlier, later in pairwise(instants)}
