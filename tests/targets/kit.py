"""Support for tests of targets: launches, recorded outcomes, and checks for leftovers."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from timewright.core.run.run import Outcome
from timewright.core.target import AnyTarget
from timewright.ports import Launch, RunHandle, Target
from timewright.targets.call.threads import WorkItem

T = TypeVar("T")
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
TIMEOUT_S = 60.0
# Every launch is a run of its own, because calls of one run never run side by side.
RUN_NUMBERS = itertools.count(1)


def launch_of(
    target: AnyTarget, *, limit: float = 60.0, grace: float = 30.0, key: str = "abc", **fields: Any
) -> Launch:
    facts: dict[str, Any] = {
        "run_id": "run_1",
        "namespace": "default",
        "schedule_id": "sch_1",
        "schedule_name": "nightly-report",
        "given_key": key,
        "fence": 3,
        "attempt": 2,
        "planned_at": NOON,
        "fire_at": NOON + timedelta(seconds=1),
    }
    return Launch(
        target=target,
        time_limit=timedelta(seconds=limit),
        grace=timedelta(seconds=grace),
        **{**facts, **fields},
    )


class CallItem(WorkItem):
    """A work item that calls a function."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    def run(self) -> None:
        self._action()


class OutcomeRecorder:
    """Records outcomes, and waits for the first one."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self._received = threading.Event()

    def __call__(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._received.set()

    def wait(self) -> Outcome:
        assert self._received.wait(TIMEOUT_S), "no outcome"
        assert len(self.outcomes) == 1
        return self.outcomes[0]


def start_launch(target: Target, what: AnyTarget, **options: Any) -> tuple[RunHandle, OutcomeRecorder]:
    recorder = OutcomeRecorder()
    options.setdefault("run_id", f"run_{next(RUN_NUMBERS)}")
    return target.launch(launch_of(what, **options), recorder), recorder


def outcome_of(target: Target, what: AnyTarget, **options: Any) -> Any:
    return start_launch(target, what, **options)[1].wait()


def wait_until(found: Callable[[], T]) -> T:
    """Wait until a function returns a true value, and return it."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (thing := found()):
        assert time.monotonic() < deadline, "timed out while waiting"
        time.sleep(0.002)
    return thing


def read(path: Path) -> str:
    """Wait until another process has written a file, and return its text."""
    return wait_until(lambda: path.read_text() if path.exists() else "")


def is_alive(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return line[line.rfind(")") + 2] not in "ZX"


def children() -> set[int]:
    """Our child processes, ended or not."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


def our_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("timewright-")}


def processes_of(run_id: str) -> list[int]:
    """All processes with this run id in their environment."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):
                environment = (folder / "environ").read_bytes()
                if f"TIMEWRIGHT_RUN_ID={run_id}\0".encode() in environment and is_alive(int(folder.name)):
                    found.append(int(folder.name))
    return found


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@contextmanager
def nothing_left() -> Iterator[None]:
    """Check that no thread, process or descriptor is left."""
    threads, pids, files = our_threads(), children(), open_files()
    yield
    wait_until(lambda: our_threads() <= threads)
    assert children() <= pids
    assert open_files() <= files
