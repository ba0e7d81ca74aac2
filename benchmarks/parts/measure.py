"""Shared by the benchmarks: temporary stores, instances, child processes, figures and goals."""

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

from timewright.core.facts import Fact, RunFailed, RunParked, RunSucceeded, RunWillRetry
from timewright.core.policies.policies import Overlap
from timewright.core.recurrence.triggers import AnyTrigger, Every
from timewright.core.run.admission import Fire
from timewright.core.run.run import Attempt, Run, RunState
from timewright.core.schedule.decision import Source
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import AnyTarget, Call
from timewright.ids import TimedIds
from timewright.ledger.manual_runs import build_manual_run
from timewright.ledger.replan import Actor, create, pause
from timewright.ports import RunFilter, Store
from timewright.settings import Settings
from timewright.wiring import Instance, new_registry, open_store

ACTOR = Actor(name="bench")
IDS = TimedIds()
ROOT = Path(__file__).resolve().parents[2]
MAX_WAIT_S = 300.0
SCHEDULE_COUNT = 10
SECOND = timedelta(seconds=1)
STORES = ("sqlite", "postgres")


# ---------------------------------------------------------------------------------------------- figures


class Goals:
    """The goals and their results."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, bool]] = []

    def judge(self, row: str, goal: str, *, found: str, met: bool) -> None:
        """Print a goal with its figure, and keep it for the summary."""
        self.rows.append((row, goal, found, met))
        print(f"  goal: {goal:<58} found {found:<24} {'met' if met else 'MISSED'}", flush=True)

    def summary(self) -> str:
        """All goals as a table."""
        lines = [f"{'row':<34}{'goal':<62}{'found':<26}verdict"]
        lines += [f"{r:<34}{g:<62}{f:<26}{'met' if m else 'MISSED'}" for r, g, f, m in self.rows]
        return "\n".join(lines)


def heading(title: str, *conditions: str) -> None:
    """Print a question and the conditions of its figures."""
    print(f"\n{title}", *(f"  {line}" for line in conditions), sep="\n", flush=True)


def progress(words: str) -> None:
    """Print what is being measured, on standard error."""
    print(f"    … {words}", file=sys.stderr, flush=True)


def spread(values: Sequence[float], *, digits: int = 0) -> str:
    """Median, with lowest and highest in brackets."""
    median = statistics.median(values)
    return f"{median:,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of all values lies."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def machine(*packages: str) -> str:
    """The machine and the package versions."""
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


# ---------------------------------------------------------------------------------------- temporary stores


def comma_list(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """An argument type: a comma-separated choice of these names."""

    def choose(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in names if name not in allowed]
        if unknown or not names:
            raise argparse.ArgumentTypeError(
                f"{', '.join(unknown) or 'nothing'}: choose from {','.join(allowed)}"
            )
        return names

    return choose


class TemporaryStores:
    """Creates temporary stores; all PostgreSQL databases are on one durable server."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._server = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def new_store(self, kind: str) -> Iterator[str]:
        """An empty store of that kind, removed at the end."""
        if kind == "sqlite":
            with tempfile.TemporaryDirectory(prefix="timewright-bench-", dir=_disk()) as folder:
                yield f"{folder}/bench.db"
            return
        from timewright.testing.postgres import fresh_database

        with fresh_database(self.server) as url:
            yield url

    @property
    def server(self) -> str:
        """The PostgreSQL server, started on first use."""
        if not self._server:
            from timewright.testing.postgres import postgres_server

            self._server = self._stack.enter_context(postgres_server(durable=True)).url()
        return self._server


def describe_store(kind: str) -> str:
    """The durability settings of a store."""
    if kind == "sqlite":
        return "SQLite, WAL, synchronous FULL"
    return "PostgreSQL, fsync and synchronous_commit on, same machine"


def _disk() -> str | None:
    """The folder for SQLite files: a real disk, because flushing costs nothing in memory."""
    return os.environ.get("BENCH_DIR")


# ----------------------------------------------------------------------------------------------- instances


class RunCounter:
    """Counts successful runs, and sets an event at the awaited number."""

    kinds = (RunSucceeded, RunFailed, RunWillRetry, RunParked)

    def __init__(self, awaited: int) -> None:
        self.awaited = awaited
        self.count = 0
        self.error = ""
        self.reached = threading.Event()

    def notify(self, fact: Fact) -> None:
        """Count one fact."""
        if isinstance(fact, RunSucceeded):
            self.count += 1
            if self.count == self.awaited:
                self.reached.set()
        else:
            self.error = getattr(fact, "error", "") or self.error

    def wait(self, *, seconds: float = MAX_WAIT_S) -> None:
        """Wait until all have succeeded; fail after five minutes."""
        if not self.reached.wait(seconds):
            why = f"; the last error was {self.error}" if self.error else ""
            raise SystemExit(f"{self.count} of {self.awaited} runs succeeded within {seconds:.0f} s{why}")


@contextmanager
def build_instance(
    store_url: str,
    functions: Mapping[str, Callable[..., Any]],
    *,
    awaited: int = 0,
    observers: Sequence[Any] = (),
    **settings: Any,
) -> Iterator[tuple[Instance, RunCounter]]:
    """Build an instance on a store, not started; stopped and closed at the end."""
    registry = new_registry()
    for name, function in functions.items():
        registry.add(function, name=name)
    ends = RunCounter(awaited)
    instance = Instance(
        open_store(store_url), settings=Settings(**settings), registry=registry, observers=(ends, *observers)
    )
    try:
        yield instance, ends
    finally:
        if instance.loop._threads:
            instance.stop(wait=timedelta(seconds=10))
        instance.close()


def schedule(
    name: str, trigger: AnyTrigger, target: AnyTarget, *, now: datetime, **policies: Any
) -> Schedule:
    """A schedule to create."""
    return Schedule(
        id=IDS.new("schedule", now=now), name=name, created_at=now, trigger=trigger, target=target, **policies
    )


def enqueue_runs(store: Store, count: int, *, target: AnyTarget | None = None) -> None:
    """Create ready runs in bulk, by backfills of ten paused schedules."""
    schedules = [
        create_paused_schedule(store, f"queue-{number}", target=target) for number in range(SCHEDULE_COUNT)
    ]
    for number, schedule in enumerate(schedules):
        enqueue_backfill(
            store,
            schedule,
            count // SCHEDULE_COUNT + (count % SCHEDULE_COUNT if number == SCHEDULE_COUNT - 1 else 0),
        )


def create_paused_schedule(store: Store, name: str, *, target: AnyTarget | None = None) -> Schedule:
    """Create a paused schedule for backfills."""
    now = store.now()
    trigger = Every(SECOND, now - timedelta(days=30))
    one = schedule(name, trigger, target or Call(name="noop"), now=now, overlap=Overlap.ALLOW)
    create(store, [one], by=ACTOR, now=now)
    pause(store, one.id, ids=IDS, by=ACTOR, now=now)
    return one


def enqueue_backfill(store: Store, schedule: Schedule, count: int) -> None:
    """Add ready runs of a paused schedule, in transactions of at most 10,000."""
    now = store.now()
    record = store.read(lambda tx: tx.get_schedules([schedule.id]))[schedule.id]
    fire = Fire(planned_at=now, fire_at=now, source=Source.MANUAL)
    while count:
        part, runs = min(count, 10_000), list[Run]()
        for _ in range(part):
            # Each is linked to the run before, as `run_many` does: a run without a link is looked up.
            previous = runs[-1].id if runs else ""
            runs.append(build_manual_run(record, fire, ids=IDS, by=ACTOR, now=now, previous=previous))
        store.write(lambda tx, runs=runs: tx.add_runs(runs))
        count -= part


def check_each_ran_once(store: Store, awaited: int) -> None:
    """Fail if runs are missing or were attempted more than once."""
    found = 0
    which = RunFilter(state=RunState.SUCCEEDED, limit=1000)
    while True:
        page = store.read(lambda tx, which=which: tx.find(which))
        ids = [run.id for run in page.rows]
        attempts = store.read(lambda tx, ids=ids: tx.get_run_rows(Attempt, ids))
        doubled = [i for i in ids if len(attempts.get(i, ())) != 1]
        if doubled:
            raise SystemExit(f"{len(doubled)} runs were not attempted exactly once: {doubled[:3]}")
        found += len(ids)
        if not page.cursor:
            break
        which = RunFilter(state=RunState.SUCCEEDED, limit=1000, cursor=page.cursor)
    if found != awaited:
        raise SystemExit(f"{found} runs succeeded, {awaited} were options for")


# --------------------------------------------------------------------------------------------- processes


class Child:
    """A child Python process that answers in lines of JSON; its request is an argument."""

    def __init__(self, module: str, task: str, **options: Any) -> None:
        command = [sys.executable, "-m", module, task, json.dumps(options)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, bufsize=1
        )

    def read_answer(self) -> dict[str, Any]:
        """Its next answer; other output is ignored."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise SystemExit(f"{' '.join(self.process.args[2:4])} ended with {self.process.wait()}")

    def send_line(self, word: str = "go") -> None:
        """Send a line, so that it continues."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def end(self, *, seconds: float = 30.0) -> int:
        """Close its standard input, so that it ends, and wait."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def print_answer(**answer: Any) -> None:
    """Print an answer of a child process."""
    print(json.dumps(answer), flush=True)


def wait_for_parent() -> bool:
    """Wait for a line of the parent; false when the parent has ended."""
    return bool(sys.stdin.readline())


def rss_mb(*, peak: bool = False) -> float:
    """The current or peak memory of this process."""
    field = "VmHWM:" if peak else "VmRSS:"
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise SystemExit("this system does not tell the memory of a process in /proc")
