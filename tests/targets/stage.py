"""What the tests of targets share: a launch, an ear for its outcome, a look at what is left afterwards."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from timewright.core.run import Outcome
from timewright.core.target import AnyTarget
from timewright.ports import Launch, Target, Work
from timewright.targets.threads import Piece

T = TypeVar("T")
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
PATIENCE = 60.0


def launch_of(
    target: AnyTarget, *, limit: float = 60.0, grace: float = 30.0, key: str = "abc", **told: Any
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
        **{**facts, **told},
    )


class Doing(Piece):
    """A piece of work that is one call."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    def work(self) -> None:
        self._action()


class Ear:
    """Hears every outcome it is told, and can be waited for."""

    def __init__(self) -> None:
        self.heard: list[Outcome] = []
        self._told = threading.Event()

    def __call__(self, outcome: Outcome) -> None:
        self.heard.append(outcome)
        self._told.set()

    def wait(self) -> Outcome:
        assert self._told.wait(PATIENCE), "no outcome"
        assert len(self.heard) == 1
        return self.heard[0]


def begin(target: Target, what: AnyTarget, **options: Any) -> tuple[Work, Ear]:
    ear = Ear()
    return target.launch(launch_of(what, **options), ear), ear


def outcome_of(target: Target, what: AnyTarget, **options: Any) -> Any:
    return begin(target, what, **options)[1].wait()


def until(found: Callable[[], T]) -> T:
    """Wait until something is so, and give it back."""
    deadline = time.monotonic() + PATIENCE
    while not (thing := found()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)
    return thing


def read(path: Path) -> str:
    """The text of a file that another process is about to write."""
    return until(lambda: path.read_text() if path.exists() else "")


def is_alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return line[line.rfind(")") + 2] not in "ZX"


def children() -> set[int]:
    """Our own children, ended or not."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


def our_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("timewright-")}


def processes_of(run_id: str) -> list[int]:
    """Every process on this machine that knows itself to belong to this run."""
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
    """No thread, no process and no descriptor stays behind."""
    threads, pids, files = our_threads(), children(), open_files()
    yield
    until(lambda: our_threads() <= threads)
    assert children() <= pids
    assert open_files() <= files
