"""What the benchmarks share: places to store in, houses to run in, figures with their spread and verdict."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from timewright.assembly import House, new_registry, open_store
from timewright.core.facts import Fact, RunFailed, RunParked, RunSucceeded, RunWillRetry
from timewright.core.policies import Overlap
from timewright.core.run import RunState
from timewright.core.schedule import Schedule
from timewright.core.target import AnyTarget, Call
from timewright.core.triggers import AnyTrigger, Every
from timewright.ids import TimedIds
from timewright.ledger.backfill import MOST_BACKFILL, backfill
from timewright.ledger.replan import By, create, pause
from timewright.ports import RunFilter, Store
from timewright.settings import Settings

BY = By(actor="bench")
IDS = TimedIds()
ROOT = Path(__file__).resolve().parent.parent
LONGEST_WAIT = 300.0
LANES = 10
SECOND = timedelta(seconds=1)
STORES = ("sqlite", "postgres")


# ---------------------------------------------------------------------------------------------- figures


class Goals:
    """Every goal that was measured against, and what came of it."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, bool]] = []

    def judge(self, row: str, goal: str, *, found: str, met: bool) -> None:
        """Print a goal beside its figure, and keep it for the summary."""
        self.rows.append((row, goal, found, met))
        print(f"  goal: {goal:<58} found {found:<24} {'met' if met else 'MISSED'}", flush=True)

    def summary(self) -> str:
        """All goals once more."""
        lines = [f"{'row':<34}{'goal':<62}{'found':<26}verdict"]
        lines += [f"{r:<34}{g:<62}{f:<26}{'met' if m else 'MISSED'}" for r, g, f, m in self.rows]
        return "\n".join(lines)


def heading(title: str, *conditions: str) -> None:
    """The question, and under which conditions the figures below it hold."""
    print(f"\n{title}", *(f"  {line}" for line in conditions), sep="\n", flush=True)


def progress(words: str) -> None:
    """What is being measured just now, beside the figures and not among them."""
    print(f"    … {words}", file=sys.stderr, flush=True)


def spread(values: Sequence[float], *, digits: int = 0) -> str:
    """Median, and in brackets the lowest and the highest."""
    median = statistics.median(values)
    return f"{median:,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of all lies."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def machine(*packages: str) -> str:
    """Where and with what the figures were made."""
    versions = ", ".join(f"{name} {_version(name)}" for name in packages)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {cores} cores,"
        f" load before the start {load:.1f}\n{versions}"
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


# ----------------------------------------------------------------------------------------------- places


def chosen(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """An argument that names some of these, with commas between."""

    def choose(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in names if name not in allowed]
        if unknown or not names:
            raise argparse.ArgumentTypeError(
                f"{', '.join(unknown) or 'nothing'}: choose from {','.join(allowed)}"
            )
        return names

    return choose


class Places:
    """Fresh stores of the kinds that were asked for; one PostgreSQL server, durable, serves all of them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._server = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def fresh(self, kind: str) -> Iterator[str]:
        """An empty place of that kind, gone at the end."""
        if kind == "sqlite":
            with tempfile.TemporaryDirectory(prefix="timewright-bench-", dir=_disk()) as folder:
                yield f"{folder}/bench.db"
            return
        from timewright.testing.postgres import fresh_database

        with fresh_database(self.server) as url:
            yield url

    @property
    def server(self) -> str:
        """The PostgreSQL server, started when it is first needed."""
        if not self._server:
            from timewright.testing.postgres import postgres_server

            self._server = self._stack.enter_context(postgres_server(durable=True)).url()
        return self._server


def store_words(kind: str) -> str:
    """What a store of that kind promises, in a few words."""
    if kind == "sqlite":
        return "SQLite, WAL, synchronous FULL"
    return "PostgreSQL, fsync and synchronous_commit on, same machine"


def _disk() -> str | None:
    """Where SQLite files go: a real disk, because a file in memory pays nothing for durability."""
    return os.environ.get("BENCH_DIR")


# ----------------------------------------------------------------------------------------------- houses


class Ends:
    """Counts runs that succeeded, as observers are told; sets its event at the number that is awaited."""

    kinds = (RunSucceeded, RunFailed, RunWillRetry, RunParked)

    def __init__(self, awaited: int) -> None:
        self.awaited = awaited
        self.count = 0
        self.error = ""
        self.reached = threading.Event()

    def note(self, fact: Fact) -> None:
        """Take note of one fact."""
        if isinstance(fact, RunSucceeded):
            self.count += 1
            if self.count == self.awaited:
                self.reached.set()
        else:
            self.error = getattr(fact, "error", "") or self.error

    def wait(self, *, seconds: float = LONGEST_WAIT) -> None:
        """Rest until all have succeeded; more than five minutes is no figure."""
        if not self.reached.wait(seconds):
            why = f"; the last error was {self.error}" if self.error else ""
            raise SystemExit(f"{self.count} of {self.awaited} runs succeeded within {seconds:.0f} s{why}")


@contextmanager
def house(
    place: str,
    functions: Mapping[str, Callable[..., Any]],
    *,
    awaited: int = 0,
    observers: Sequence[Any] = (),
    **settings: Any,
) -> Iterator[tuple[House, Ends]]:
    """A house on a place, not started; stopped and closed at the end."""
    registry = new_registry()
    for name, function in functions.items():
        registry.add(function, name=name)
    ends = Ends(awaited)
    built = House(
        open_store(place), settings=Settings(**settings), registry=registry, observers=(ends, *observers)
    )
    try:
        yield built, ends
    finally:
        if built.loop._threads:
            built.stop(wait=timedelta(seconds=10))
        built.close()


def schedule(
    name: str, trigger: AnyTrigger, target: AnyTarget, *, now: datetime, **policies: Any
) -> Schedule:
    """A schedule to create."""
    return Schedule(
        id=IDS.new("schedule", now=now), name=name, created_at=now, trigger=trigger, target=target, **policies
    )


def enqueue_runs(store: Store, count: int, *, target: AnyTarget | None = None) -> None:
    """Make that many runs that are ready now, in bulk: a backfill of ten paused schedules."""
    lanes = [paused_lane(store, f"lane-{number}", target=target) for number in range(LANES)]
    for number, lane in enumerate(lanes):
        hand_over(store, lane, count // LANES + (count % LANES if number == LANES - 1 else 0))


def paused_lane(store: Store, name: str, *, target: AnyTarget | None = None) -> Schedule:
    """A paused schedule, of which runs are made in bulk."""
    now = store.now()
    trigger = Every(SECOND, now - timedelta(days=30))
    one = schedule(name, trigger, target or Call(name="noop"), now=now, overlap=Overlap.ALLOW)
    create(store, [one], by=BY, now=now)
    pause(store, one.id, by=BY, now=now)
    return one


def hand_over(store: Store, lane: Schedule, count: int) -> None:
    """Make that many runs of a paused schedule that are ready now, as many in a call as a call may make."""
    while count:
        part = min(count, MOST_BACKFILL)
        # The grid goes through the instant at which the lane was made: both ends are occurrences themselves.
        until = lane.created_at - (count - part) * SECOND
        since = until - (part - 1) * SECOND
        backfill(store, lane.id, since=since, until=until, ids=IDS, by=BY, now=store.now())
        count -= part


def check_once(store: Store, awaited: int) -> None:
    """Refuse a figure whose runs are not all there, or were attempted more than once."""
    found = 0
    which = RunFilter(state=RunState.SUCCEEDED, limit=1000)
    while True:
        page = store.read(lambda tx, which=which: tx.find_runs(which))
        ids = [run.id for run in page.rows]
        attempts = store.read(lambda tx, ids=ids: tx.get_attempts(ids))
        doubled = [i for i in ids if len(attempts.get(i, ())) != 1]
        if doubled:
            raise SystemExit(f"{len(doubled)} runs were not attempted exactly once: {doubled[:3]}")
        found += len(ids)
        if not page.cursor:
            break
        which = RunFilter(state=RunState.SUCCEEDED, limit=1000, cursor=page.cursor)
    if found != awaited:
        raise SystemExit(f"{found} runs succeeded, {awaited} were asked for")


# --------------------------------------------------------------------------------------------- processes


class Child:
    """Another Python that answers in lines of JSON; what it is asked travels as its argument."""

    def __init__(self, module: str, task: str, **asked: Any) -> None:
        command = [sys.executable, "-m", module, task, json.dumps(asked)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, bufsize=1
        )

    def hear(self) -> dict[str, Any]:
        """Its next answer; what else it prints is not for us."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise SystemExit(f"{' '.join(self.process.args[2:4])} ended with {self.process.wait()}")

    def tell(self, word: str = "go") -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def end(self, *, seconds: float = 30.0) -> int:
        """Close its input, which is how it is asked to end, and wait."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def say(**answer: Any) -> None:
    """A child's line."""
    print(json.dumps(answer), flush=True)


def await_word() -> bool:
    """A child's wait for its parent; false when the parent has gone."""
    return bool(sys.stdin.readline())


def rss_mb(*, peak: bool = False) -> float:
    """The memory of this process that is in use, or was at most."""
    field = "VmHWM:" if peak else "VmRSS:"
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise SystemExit("this system does not tell the memory of a process in /proc")
