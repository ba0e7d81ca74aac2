"""The final account of a soak: what must be stored, by brute force, compared with what is."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from benchmarks.parts.soak_workload import SoakWorkload, TrackedSchedule
from timewright.core.policies.policies import Delivery, Overlap
from timewright.core.recurrence.triggers import AnyTrigger, Cron, Every, Manual, Once
from timewright.core.run.run import Attempt, Reason, Run, RunState
from timewright.core.schedule.schedule import ScheduleProgress, ScheduleState
from timewright.ports import RunFilter, Store
from timewright.ports.rows import LeasedRuns

TOLERANCE_S = 0.5  # seconds that cancelled work may take to stop
MAX_SHOWN = 20
UNFINISHED_STATES = (RunState.READY, RunState.LEASED, RunState.HELD)


class LoggedCall(NamedTuple):
    """One call from a process's log; `cut` if the process was suspended meanwhile."""

    run_id: str
    fence: int
    began: float
    ended: float
    cut: bool


class StoreSnapshot(NamedTuple):
    """All rows at the end."""

    runs: dict[str, Run]
    attempts: dict[str, tuple[Attempt, ...]]
    standings: dict[str, ScheduleProgress]


def find_violations(world: SoakWorkload, calls: Sequence[LoggedCall]) -> list[str]:
    """Everything that violates a promise."""
    assert world.ended_at is not None
    shown = read_snapshot(world.store, list(world.tracked))
    rows: dict[str, list[Run]] = defaultdict(list)
    for run in shown.runs.values():
        rows[run.schedule_id].append(run)
    found: list[str] = []
    for kept in world.tracked.values():
        progress = shown.standings[kept.id]
        found += _occurrences(kept, rows[kept.id], progress, until=world.ended_at)
        found += _standing(kept, progress, busy=any(run.state in UNFINISHED_STATES for run in rows[kept.id]))
        found += _history(world.store, kept, rows[kept.id])
    found += _states(shown, world)
    found += _attempts(shown, world)
    found += _calls(shown, world, calls)
    broken = world.store.read(lambda tx: tx.find_broken_audit_entry())
    if broken is not None:
        found.append(f"the audit log is broken at line {broken}")
    return found


def read_snapshot(store: Store, schedule_ids: Sequence[str]) -> StoreSnapshot:
    """Every run with its attempts, and the progress of every schedule."""
    runs: dict[str, Run] = {}
    attempts: dict[str, tuple[Attempt, ...]] = {}
    which = RunFilter(limit=1000)
    while True:
        page = store.read(lambda tx, which=which: tx.find(which))
        ids = [run.id for run in page.rows]
        runs |= {run.id: run for run in page.rows}
        attempts |= store.read(lambda tx, ids=ids: tx.get_run_rows(Attempt, ids))
        if not page.cursor:
            break
        which = RunFilter(limit=1000, cursor=page.cursor)
    dues = store.read(lambda tx: tx.get_schedules(schedule_ids))
    return StoreSnapshot(runs, attempts, {schedule_id: due.progress for schedule_id, due in dues.items()})


# ------------------------------------------------------------------------------------------ every occurrence


def instants(trigger: AnyTrigger, after: datetime, until: datetime) -> Iterator[datetime]:
    """The instants of a trigger after `after` up to `until`, one by one."""
    if isinstance(trigger, Once):
        if after < trigger.at <= until:
            yield trigger.at
    elif isinstance(trigger, Every):
        assert trigger.anchor is not None
        at = trigger.anchor
        while at <= until:
            if at > after:
                yield at
            at += trigger.interval
    elif isinstance(trigger, Cron):
        first = trigger.expression.split()[0]
        step = 1 if first == "*" else int(first.removeprefix("*/"))
        at = after.replace(microsecond=0)
        while (at := at + timedelta(seconds=1)) <= until:
            if at.second % step == 0:
                yield at


def _occurrences(
    kept: TrackedSchedule, rows: Sequence[Run], progress: ScheduleProgress, *, until: datetime
) -> list[str]:
    """Each instant up to the cursor has one row or is in one gap row; no other row is an occurrence."""
    own = [run for run in rows if not run.dedupe_scope]
    planned = Counter(run.planned_at for run in own)
    found = [f"{kept.name}: {times} rows at {at}" for at, times in planned.items() if times > 1]
    if kept.family == "free":
        return found
    expected = _expected(kept, progress.cursor)
    spans = [run for run in own if run.last_of is not None]
    exact = {run.planned_at for run in own if run.last_of is None}
    for at in expected:
        times = (at in exact) + sum(s.planned_at <= at <= s.last_of for s in spans if s.last_of is not None)
        if times != 1:
            found.append(f"{kept.name}: the occurrence at {at} is accounted for {times} times")
    found += [
        f"{kept.name}: a row at {run.planned_at}, {run.state} {run.reason}, where nothing was planned"
        for run in own
        # An instant skipped ahead by hand keeps its row when an edit replaces the plan before it.
        if run.last_of is None and run.planned_at not in expected and run.reason != Reason.BY_HAND
    ]
    for span in spans:
        inside = sum(span.planned_at <= at <= (span.last_of or at) for at in expected)
        if inside != span.dropped:
            found.append(f"{kept.name}: a row counts {span.dropped} occurrences, there are {inside}")
    if progress.state is ScheduleState.ACTIVE and not kept.archived:
        open_ones = list(instants(kept.epochs[-1][1], progress.cursor, until))
        # A full queue makes the rest wait; then the first of them is still next.
        if open_ones and (progress.next_at is None or progress.next_at > open_ones[0]):
            found.append(f"{kept.name}: {len(open_ones)} occurrences from {open_ones[0]} on are passed over")
    return found


def _expected(kept: TrackedSchedule, cursor: datetime) -> list[datetime]:
    """The instants of the triggers in force, each until the next edit."""
    found: list[datetime] = []
    for number, (since, trigger) in enumerate(kept.epochs):
        last = kept.epochs[number + 1][0] if number + 1 < len(kept.epochs) else cursor
        found += instants(trigger, since, min(last, cursor))
    return found


def _standing(kept: TrackedSchedule, progress: ScheduleProgress, *, busy: bool) -> list[str]:
    """No schedule is stuck: each is planned, finished or archived."""
    if progress.state in (ScheduleState.FINISHED, ScheduleState.ARCHIVED):
        return []
    if progress.state is not ScheduleState.ACTIVE:
        return [f"{kept.name}: is {progress.state} at the end: {progress.reason}"]
    if progress.next_at is None and not busy and not isinstance(kept.schedule.trigger, Manual):
        return [f"{kept.name}: is active, idle, and has no next time"]
    return []


def _history(store: Store, kept: TrackedSchedule, rows: Sequence[Run]) -> list[str]:
    """A schedule's history, read from its newest run back, has all of its rows."""
    walked: set[str] = set()
    which = RunFilter(schedule_id=kept.id, limit=1000)
    while True:
        page = store.read(lambda tx, which=which: tx.find(which))
        walked |= {run.id for run in page.rows}
        if not page.cursor:
            break
        which = RunFilter(schedule_id=kept.id, limit=1000, cursor=page.cursor)
    missing = {run.id for run in rows} - walked
    return (
        [f"{kept.name}: its history misses {len(missing)} of {len(rows)} rows: {sorted(missing)[:3]}"]
        if missing
        else []
    )


# ------------------------------------------------------------------------------------------- runs and calls


def _states(shown: StoreSnapshot, world: SoakWorkload) -> list[str]:
    """No run is unfinished, except those admitted when pauses ended after the engines had stopped."""
    assert world.ended_at is not None
    live = [
        run
        for run in shown.runs.values()
        if run.state in UNFINISHED_STATES
        and run.created_at < world.ended_at
        # Abandoned by an external worker: it waits for the next one.
        and not (run.handoff and run.state is RunState.READY)
    ]
    return [f"run {run.id} of {_name(world, run)} is still {run.state} ({run.holder})" for run in live]


def _attempts(shown: StoreSnapshot, world: SoakWorkload) -> list[str]:
    """Fences rise and are unique; no run has more attempts than allowed."""
    found: list[str] = []
    for run_id, attempts in shown.attempts.items():
        run = shown.runs[run_id]
        fences = [attempt.fence for attempt in attempts]
        if fences != sorted(set(fences)):
            found.append(f"run {run_id}: its fences are {fences}")
        if fences and max(fences) > run.fence:
            found.append(f"run {run_id}: an attempt has fence {max(fences)}, the run {run.fence}")
        kept = world.tracked.get(run.schedule_id)
        if kept is None:
            continue
        allowed = kept.schedule.retry.max_attempts
        if run.attempts > allowed:
            found.append(f"run {run_id} of {kept.name}: {run.attempts} attempts, at most {allowed}")
        if kept.schedule.delivery is Delivery.AT_MOST_ONCE and run.id not in world.restarted:
            started = [attempt for attempt in attempts if attempt.outcome != "released"]
            if len(started) > 1:
                found.append(f"run {run_id} of {kept.name}: at most once, and {len(started)} attempts")
    return found


def _calls(shown: StoreSnapshot, world: SoakWorkload, calls: Sequence[LoggedCall]) -> list[str]:
    """No attempt was called twice, and overlap and limits held in real time."""
    twice = Counter((call.run_id, call.fence) for call in calls)
    found = [f"run {run}: called {n} times under fence {fence}" for (run, fence), n in twice.items() if n > 1]
    whole = [call for call in calls if not call.cut and call.run_id in shown.runs]
    groups: dict[tuple[str, int], list[LoggedCall]] = defaultdict(list)
    for call in whole:
        run = shown.runs[call.run_id]
        kept = world.tracked.get(run.schedule_id)
        if kept is not None and run.exclusive and kept.schedule.overlap is not Overlap.ALLOW:
            groups[kept.name, 1].append(call)
        for key in run.limit_keys:
            groups[key, max(capacity for _, capacity in world.limit_history[key])].append(call)
    for (name, capacity), several in groups.items():
        found += _together(name, several, capacity=capacity)
    return found


def _together(name: str, calls: Sequence[LoggedCall], *, capacity: int) -> list[str]:
    """Whether more than `capacity` ran at the same time for longer than the tolerance."""
    ends: list[float] = []
    found: list[str] = []
    for call in sorted(calls, key=lambda call: call.began):
        ends = [end for end in ends if end > call.began + TOLERANCE_S]
        if len(ends) >= capacity:
            found.append(
                f"{name}: {len(ends) + 1} calls at once at {call.began:.3f}, limit {capacity}: {call.run_id}"
            )
        ends.append(call.ended)
    return found


def read_calls(log: Path, *, ended: float, stops: Sequence[tuple[float, float]] = ()) -> list[LoggedCall]:
    """The calls of one process; a call without an end in the log ended with the process."""
    open_calls: dict[tuple[str, int], list[float]] = defaultdict(list)
    found: list[LoggedCall] = []
    for line in log.read_text(encoding="ascii").splitlines():
        parts = line.split()
        if len(parts) != 4:
            continue  # the last line of a process that was killed while writing
        word, run_id, fence, at = parts[0], parts[1], int(parts[2]), float(parts[3])
        if word == "S":
            open_calls[run_id, fence].append(at)
        elif open_calls[run_id, fence]:
            found.append(_call(run_id, fence, open_calls[run_id, fence].pop(), at, stops))
    for (run_id, fence), begins in open_calls.items():
        found += [_call(run_id, fence, began, ended, stops) for began in begins]
    return found


def _call(
    run_id: str, fence: int, began: float, ended: float, stops: Sequence[tuple[float, float]]
) -> LoggedCall:
    cut = any(began < end and stop < ended for stop, end in stops)
    return LoggedCall(run_id, fence, began, ended, cut)


def _name(world: SoakWorkload, run: Run) -> str:
    kept = world.tracked.get(run.schedule_id)
    return kept.name if kept is not None else f"queue {run.queue}"


# --------------------------------------------------------------------------------------------------- limits


class LimitMonitor:
    """Checks the limits now and then, and records where more leases were live than allowed."""

    def __init__(self, world: SoakWorkload) -> None:
        self._world = world
        self._over: dict[str, int] = {}
        self.checks = 0
        self.found: list[str] = []

    def check_limits(self) -> None:
        """Compare live leases with the limits in force, in one snapshot.

        After a limit was lowered, earlier leases may exceed it; then no new one is granted.
        """
        leased, limits, now = self._world.store.read(
            lambda tx: (
                tx.select(LeasedRuns()),
                tx.get_limits(self._world.limit_history),
                self._world.store.now(),
            )
        )
        self.checks += 1
        counts = Counter(key for run in leased for key in run.limit_keys)
        for key, ceiling in limits.items():
            if counts[key] != ceiling.held:
                self.found.append(f"{key}: {counts[key]} live leases, {ceiling.held} counted at {now}")
            allowed = max(ceiling.capacity, self._allowed_before(key, now))
            if counts[key] > allowed:
                self.found.append(f"{key}: {counts[key]} live leases at {now}, at most {allowed}")

    def _allowed_before(self, key: str, now: datetime) -> int:
        """The highest capacity within the longest life of a lease that is not renewed."""
        recent = now - timedelta(seconds=10)
        history = self._world.limit_history[key]
        first = max(bisect_right([at for at, _ in history], recent) - 1, 0)
        return max(capacity for _, capacity in history[first:])


def find_leaks(name: str, before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> list[str]:
    """Threads, files and children that a process has left after stopping its engine."""
    found: list[str] = []
    for what in ("threads", "files", "children"):
        more = Counter(map(_kind, after[what])) - Counter(map(_kind, before[what]))
        if more:
            found.append(f"{name}: {what} left after the stop: {dict(more)}")
    return found


def _kind(thing: object) -> str:
    """Drop the number in socket:[123]."""
    return str(thing).split(":[", maxsplit=1)[0]


def format_violations(found: Sequence[str]) -> str:
    """The violations, or the first of them."""
    more = [f"  … and {len(found) - MAX_SHOWN} more"] if len(found) > MAX_SHOWN else []
    return "\n".join([*(f"  {line}" for line in found[:MAX_SHOWN]), *more])
