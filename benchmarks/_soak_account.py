"""The account at the end of a soak: what must be there, by brute force, against what is there."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from benchmarks._soak_world import Kept, World
from timewright.core.policies import Delivery, Overlap
from timewright.core.run import Attempt, Reason, Run, RunState
from timewright.core.schedule import ScheduleState, Standing
from timewright.core.triggers import AnyTrigger, Cron, Every, Manual, Once
from timewright.ports import RunFilter, Store

TOLERANCE = 0.5  # seconds that work which was asked to stop may take to do so
MOST_TOLD = 20
LIVE = (RunState.READY, RunState.LEASED, RunState.HELD)


class Call(NamedTuple):
    """One call as a process logged it; `cut` says that the process lay still meanwhile."""

    run_id: str
    fence: int
    began: float
    ended: float
    cut: bool


class Shown(NamedTuple):
    """All rows at the end."""

    runs: dict[str, Run]
    attempts: dict[str, tuple[Attempt, ...]]
    standings: dict[str, Standing]


def violations(world: World, calls: Sequence[Call]) -> list[str]:
    """Everything that is not as it was promised, in words."""
    assert world.over_at is not None
    shown = read_all(world.store, list(world.kept))
    rows: dict[str, list[Run]] = defaultdict(list)
    for run in shown.runs.values():
        rows[run.schedule_id].append(run)
    found: list[str] = []
    for kept in world.kept.values():
        standing = shown.standings[kept.id]
        found += _occurrences(kept, rows[kept.id], standing, until=world.over_at)
        found += _standing(kept, standing, busy=any(run.state in LIVE for run in rows[kept.id]))
        found += _history(world.store, kept, rows[kept.id])
    found += _states(shown, world)
    found += _attempts(shown, world)
    found += _calls(shown, world, calls)
    broken = world.store.read(lambda tx: tx.broken_audit())
    if broken is not None:
        found.append(f"the audit log is broken at line {broken}")
    return found


def read_all(store: Store, schedule_ids: Sequence[str]) -> Shown:
    """Every run with its attempts, and where every schedule stands."""
    runs: dict[str, Run] = {}
    attempts: dict[str, tuple[Attempt, ...]] = {}
    which = RunFilter(limit=1000)
    while True:
        page = store.read(lambda tx, which=which: tx.find_runs(which))
        ids = [run.id for run in page.rows]
        runs |= {run.id: run for run in page.rows}
        attempts |= store.read(lambda tx, ids=ids: tx.get_attempts(ids))
        if not page.cursor:
            break
        which = RunFilter(limit=1000, cursor=page.cursor)
    dues = store.read(lambda tx: tx.get_schedules(schedule_ids))
    return Shown(runs, attempts, {schedule_id: due.standing for schedule_id, due in dues.items()})


# ------------------------------------------------------------------------------------------ every occurrence


def instants(trigger: AnyTrigger, after: datetime, until: datetime) -> Iterator[datetime]:
    """The instants of a trigger after one and not after another, counted out one by one."""
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


def _occurrences(kept: Kept, rows: Sequence[Run], standing: Standing, *, until: datetime) -> list[str]:
    """Each instant up to the cursor has one row or is counted in one; no other row stands for one."""
    own = [run for run in rows if not run.lane]
    planned = Counter(run.planned_at for run in own)
    found = [f"{kept.name}: {times} rows at {at}" for at, times in planned.items() if times > 1]
    if kept.family == "free":
        return found
    expected = _expected(kept, standing.cursor)
    spans = [run for run in own if run.last_of is not None]
    exact = {run.planned_at for run in own if run.last_of is None}
    for at in expected:
        times = (at in exact) + sum(s.planned_at <= at <= s.last_of for s in spans if s.last_of is not None)
        if times != 1:
            found.append(f"{kept.name}: the occurrence at {at} is accounted for {times} times")
    found += [
        f"{kept.name}: a row at {run.planned_at}, {run.state} {run.reason}, where nothing was planned"
        for run in own
        # What was left out by hand ahead of its time keeps its row when another plan takes over before it.
        if run.last_of is None and run.planned_at not in expected and run.reason != Reason.BY_HAND
    ]
    for span in spans:
        inside = sum(span.planned_at <= at <= (span.last_of or at) for at in expected)
        if inside != span.dropped:
            found.append(f"{kept.name}: a row counts {span.dropped} occurrences, there are {inside}")
    if standing.state is ScheduleState.ACTIVE and not kept.archived:
        open_ones = list(instants(kept.epochs[-1][1], standing.cursor, until))
        # A full line makes the rest wait: then the first of them is still next.
        if open_ones and (standing.next_at is None or standing.next_at > open_ones[0]):
            found.append(f"{kept.name}: {len(open_ones)} occurrences from {open_ones[0]} on are passed over")
    return found


def _expected(kept: Kept, cursor: datetime) -> list[datetime]:
    """What the triggers in force say, each from its beginning to the next one's."""
    found: list[datetime] = []
    for number, (since, trigger) in enumerate(kept.epochs):
        last = kept.epochs[number + 1][0] if number + 1 < len(kept.epochs) else cursor
        found += instants(trigger, since, min(last, cursor))
    return found


def _standing(kept: Kept, standing: Standing, *, busy: bool) -> list[str]:
    """Nothing is stuck: a schedule is planned, finished or archived."""
    if standing.state in (ScheduleState.FINISHED, ScheduleState.ARCHIVED):
        return []
    if standing.state is not ScheduleState.ACTIVE:
        return [f"{kept.name}: is {standing.state} at the end: {standing.reason}"]
    if standing.next_at is None and not busy and not isinstance(kept.schedule.trigger, Manual):
        return [f"{kept.name}: is active, idle, and has no next time"]
    return []


def _history(store: Store, kept: Kept, rows: Sequence[Run]) -> list[str]:
    """A schedule's own history, walked from its newest run back, holds all of its rows."""
    walked: set[str] = set()
    which = RunFilter(schedule_id=kept.id, limit=1000)
    while True:
        page = store.read(lambda tx, which=which: tx.find_runs(which))
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


def _states(shown: Shown, world: World) -> list[str]:
    """Nothing is under way any more; but what came when pauses were lifted with no engine left may wait."""
    assert world.over_at is not None
    live = [
        run
        for run in shown.runs.values()
        if run.state in LIVE
        and run.created_at < world.over_at
        # Leased from outside by someone who was never heard of again: it waits for the next one.
        and not (run.handoff and run.state is RunState.READY)
    ]
    return [f"run {run.id} of {_name(world, run)} is still {run.state} ({run.holder})" for run in live]


def _attempts(shown: Shown, world: World) -> list[str]:
    """Fences rise and are never used twice; a run never has more attempts than it may."""
    found: list[str] = []
    for run_id, attempts in shown.attempts.items():
        run = shown.runs[run_id]
        fences = [attempt.fence for attempt in attempts]
        if fences != sorted(set(fences)):
            found.append(f"run {run_id}: its fences are {fences}")
        if fences and max(fences) > run.fence:
            found.append(f"run {run_id}: an attempt has fence {max(fences)}, the run {run.fence}")
        kept = world.kept.get(run.schedule_id)
        if kept is None:
            continue
        most = kept.schedule.retry.max_attempts
        if run.attempts > most:
            found.append(f"run {run_id} of {kept.name}: {run.attempts} attempts, at most {most}")
        if kept.schedule.delivery is Delivery.AT_MOST_ONCE and run.id not in world.restarted:
            started = [attempt for attempt in attempts if attempt.outcome != "released"]
            if len(started) > 1:
                found.append(f"run {run_id} of {kept.name}: at most once, and {len(started)} attempts")
    return found


def _calls(shown: Shown, world: World, calls: Sequence[Call]) -> list[str]:
    """No attempt was called twice; what must not run together did not, in the real world."""
    twice = Counter((call.run_id, call.fence) for call in calls)
    found = [f"run {run}: called {n} times under fence {fence}" for (run, fence), n in twice.items() if n > 1]
    whole = [call for call in calls if not call.cut and call.run_id in shown.runs]
    groups: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in whole:
        run = shown.runs[call.run_id]
        kept = world.kept.get(run.schedule_id)
        if kept is not None and run.alone and kept.schedule.overlap is not Overlap.ALLOW:
            groups[kept.name, 1].append(call)
        for gate in run.gates:
            groups[gate, max(most for _, most in world.ceilings[gate])].append(call)
    for (name, most), several in groups.items():
        found += _together(name, several, most=most)
    return found


def _together(name: str, calls: Sequence[Call], *, most: int) -> list[str]:
    """Whether more than so many ran at the same time for longer than the tolerance."""
    ends: list[float] = []
    found: list[str] = []
    for call in sorted(calls, key=lambda call: call.began):
        ends = [end for end in ends if end > call.began + TOLERANCE]
        if len(ends) >= most:
            found.append(
                f"{name}: {len(ends) + 1} calls at once at {call.began:.3f}, at most {most}: {call.run_id}"
            )
        ends.append(call.ended)
    return found


def read_calls(log: Path, *, ended: float, stops: Sequence[tuple[float, float]] = ()) -> list[Call]:
    """The calls of one process; what has no end in its log ended when the process did."""
    open_calls: dict[tuple[str, int], list[float]] = defaultdict(list)
    found: list[Call] = []
    for line in log.read_text(encoding="ascii").splitlines():
        parts = line.split()
        if len(parts) != 4:
            continue  # the last line of a process that was killed while it wrote
        word, run_id, fence, at = parts[0], parts[1], int(parts[2]), float(parts[3])
        if word == "S":
            open_calls[run_id, fence].append(at)
        elif open_calls[run_id, fence]:
            found.append(_call(run_id, fence, open_calls[run_id, fence].pop(), at, stops))
    for (run_id, fence), begins in open_calls.items():
        found += [_call(run_id, fence, began, ended, stops) for began in begins]
    return found


def _call(run_id: str, fence: int, began: float, ended: float, stops: Sequence[tuple[float, float]]) -> Call:
    cut = any(began < end and stop < ended for stop, end in stops)
    return Call(run_id, fence, began, ended, cut)


def _name(world: World, run: Run) -> str:
    kept = world.kept.get(run.schedule_id)
    return kept.name if kept is not None else f"queue {run.queue}"


# --------------------------------------------------------------------------------------------------- gates


class Watchman:
    """Looks at the gates now and then, and remembers where more was held than may be."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._over: dict[str, int] = {}
        self.looks = 0
        self.found: list[str] = []

    def look(self) -> None:
        """One consistent picture: live leases by gate, against the ceiling in force.

        A ceiling that was lowered may be passed by those who were there before; then nobody new comes in.
        """
        leased, gates, now = self._world.store.read(
            lambda tx: (tx.leased_runs(), tx.read_gates(self._world.ceilings), self._world.store.now())
        )
        self.looks += 1
        counts = Counter(gate for run in leased for gate in run.gates)
        for gate, ceiling in gates.items():
            if counts[gate] != ceiling.held:
                self.found.append(f"{gate}: {counts[gate]} live leases, {ceiling.held} counted at {now}")
            allowed = max(ceiling.limit, self._allowed_before(gate, now))
            if counts[gate] > allowed:
                self.found.append(f"{gate}: {counts[gate]} live leases at {now}, at most {allowed}")

    def _allowed_before(self, gate: str, now: datetime) -> int:
        """The highest ceiling within the longest life of a lease that nobody prolongs any more."""
        recent = now - timedelta(seconds=10)
        history = self._world.ceilings[gate]
        first = max(bisect_right([at for at, _ in history], recent) - 1, 0)
        return max(most for _, most in history[first:])


def leaks(name: str, before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> list[str]:
    """What a process still had after its engine was stopped and closed, and had not before."""
    found: list[str] = []
    for what in ("threads", "files", "children"):
        more = Counter(map(_kind, after[what])) - Counter(map(_kind, before[what]))
        if more:
            found.append(f"{name}: {what} left after the stop: {dict(more)}")
    return found


def _kind(thing: object) -> str:
    """The number in socket:[123] says nothing about what it is."""
    return str(thing).split(":[", maxsplit=1)[0]


def told(found: Sequence[str]) -> str:
    """The violations, or the first of them."""
    more = [f"  … and {len(found) - MOST_TOLD} more"] if len(found) > MOST_TOLD else []
    return "\n".join([*(f"  {line}" for line in found[:MOST_TOLD]), *more])
