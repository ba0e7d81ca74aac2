"""Collects what a simulation decided: runs, skips, waits and the limits that caused them."""

from __future__ import annotations

import heapq
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core import facts
from timewright.core.moments import SECOND, ZERO
from timewright.core.schedule.schedule import Schedule

MAX_BUCKETS = 240
Outages = tuple[tuple[datetime, datetime], ...]
_ENDS = (
    facts.RunSucceeded,
    facts.RunFailed,
    facts.RunWillRetry,
    facts.RunParked,
    facts.RunReleased,
    facts.LeaseLost,
)


class WorkModel(Struct, frozen=True, kw_only=True):
    """How long simulated work takes, and whether it fails: samples by schedule name, else a default.

    `outcomes` are known ends of single occurrences: the duration, and whether it failed.
    """

    samples: Mapping[str, tuple[timedelta, ...]] = {}
    default: timedelta = SECOND
    outcomes: Mapping[tuple[str, datetime], tuple[timedelta, bool]] = {}

    def duration(self, schedule: str, planned_at: datetime) -> tuple[timedelta, bool]:
        """Return the duration of a run and whether it fails; the same occurrence always gets the same."""
        known = self.outcomes.get((schedule, planned_at))
        if known is not None:
            return known
        samples = self.samples.get(schedule)
        if not samples:
            return self.default, False
        if len(samples) == 1:
            return samples[0], False
        seed = f"{schedule}{planned_at.timestamp()}".encode()
        return samples[zlib.crc32(seed) % len(samples)], False


class SimulatedRun(Struct, kw_only=True, gc=False):
    """One decision: a run with its times, or an occurrence that was skipped and why.

    `waited_for` is `overlap`, `workers`, `budget`, or the name of a limit. A dropped row counts several.
    """

    schedule: str
    planned_at: datetime
    fire_at: datetime
    state: str = "waiting"
    reason: str = ""
    source: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    waited_for: str = ""
    count: int = 1

    @property
    def delay(self) -> timedelta:
        """How long after its fire time it started; zero if it did not start."""
        return max(self.started_at - self.fire_at, ZERO) if self.started_at is not None else ZERO


class SimulatedSchedule(Struct, kw_only=True):
    """What happened to the occurrences of one schedule."""

    schedule: str
    runs: int = 0
    skipped: dict[str, int] = {}
    delayed: int = 0
    median_delay: timedelta | None = None
    p95_delay: timedelta | None = None
    max_delay: timedelta | None = None
    busy: timedelta = ZERO


class SimulatedLimit(Struct, kw_only=True):
    """A limit, or the workers: how many runs it had at most, and how many waited for it."""

    limit: str
    capacity: int | None
    peak: int = 0
    delayed: int = 0
    max_delay: timedelta = ZERO


class SimulatedPeriod(Struct, kw_only=True):
    """One part of the span: what started, was skipped or waited in it, and how many ran at once at most."""

    at: datetime
    starts: int = 0
    skipped: int = 0
    delayed: int = 0
    peak: int = 0


class SimulationReport(Struct, kw_only=True):
    """The result of a simulation; `rows` are its first decisions, in the order they were made."""

    since: datetime
    until: datetime
    outages: Outages = ()
    runs: int = 0
    skipped: dict[str, int] = {}
    delayed: int = 0
    unfinished: int = 0
    peak: int = 0
    schedules: tuple[SimulatedSchedule, ...] = ()
    limits: tuple[SimulatedLimit, ...] = ()
    periods: tuple[SimulatedPeriod, ...] = ()
    rows: tuple[SimulatedRun, ...] = ()
    more_rows: int = 0


class SimulationRecorder:
    """Turns the facts of an engine into a report; keeps only live runs and the first rows."""

    def __init__(
        self, *, since: datetime, until: datetime, workers: int, max_rows: int, outages: Outages = ()
    ) -> None:
        self._since, self._until, self._outages = since, until, outages
        self._workers = workers
        self._max_rows = max_rows
        self._names: dict[str, str] = {}
        self._limits: dict[str, tuple[str, ...]] = {}
        self._capacity: dict[str, int | None] = {}
        self._running: Counter[str] = Counter()
        self._live: dict[str, SimulatedRun] = {}
        self._started: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        # Admitted runs by fire time; those that started or were cancelled since are skipped when taken.
        self._unexplained: list[tuple[datetime, str]] = []
        self._delays: dict[str, list[timedelta]] = defaultdict(list)
        self._stats: dict[str, SimulatedSchedule] = {}
        self._waits: dict[str, SimulatedLimit] = {}
        self._step = max((until - since) / MAX_BUCKETS, timedelta(seconds=1))
        self._periods: dict[int, SimulatedPeriod] = {}
        self._rows: list[SimulatedRun] = []
        self.held = 0
        self.decisions = 0
        self.peak = 0

    def add_schedules(self, schedules: Iterable[Schedule], capacities: Mapping[str, int | None]) -> None:
        """Add the names and the limits of schedules."""
        for schedule in schedules:
            self._names[schedule.id] = schedule.name
            self._limits[schedule.id] = schedule.limit_keys
        self._capacity.update(capacities)

    def record(self, fact: facts.Fact, *, ended_at: Mapping[str, datetime]) -> None:
        """Add one fact; `ended_at` has the exact ends of runs that ended before the engine looked."""
        if isinstance(fact, facts.AttemptStarted):
            self._start(fact)
        elif isinstance(fact, facts.RunAdmitted):
            self._admit(fact)
        elif isinstance(fact, _ENDS):
            self._end(fact.run_id, ended_at.get(fact.run_id, fact.at), finished=not _goes_on(fact))
        elif isinstance(fact, facts.RunSkipped | facts.OccurrencesDropped):
            self._skip(fact)
        elif isinstance(fact, facts.RunCancelled):
            self._cancel(fact, ended_at)
        elif isinstance(fact, facts.RunFreed):
            self.held -= 1
        elif isinstance(fact, facts.RunDeferred) and fact.run_id in self._live:
            self._live[fact.run_id].waited_for = "budget"

    def explain_waits(self, now: datetime) -> None:
        """Note for each run that should have started by now what it waits for."""
        while self._unexplained and self._unexplained[0][0] <= now:
            _, run_id = heapq.heappop(self._unexplained)
            run = self._live.get(run_id)
            if run is not None and run.started_at is None:
                run.waited_for = run.waited_for or self._full_limit(run_id)

    def report(self) -> SimulationReport:
        """Return the report of everything recorded so far."""
        for name, delays in self._delays.items():
            found, stats = sorted(delays), self._stats[name]
            stats.median_delay = _percentile(found, 50, count=stats.runs)
            stats.p95_delay = _percentile(found, 95, count=stats.runs)
            stats.max_delay = found[-1]
        skipped: Counter[str] = Counter()
        for stats in self._stats.values():
            skipped.update(stats.skipped)
        count = int((self._until - self._since) / self._step) + 1
        return SimulationReport(
            since=self._since,
            until=self._until,
            outages=self._outages,
            runs=sum(one.runs for one in self._stats.values()),
            skipped=dict(skipped.most_common()),
            delayed=sum(one.delayed for one in self._stats.values()),
            unfinished=len(self._live),
            peak=self.peak,
            schedules=tuple(sorted(self._stats.values(), key=lambda one: one.schedule)),
            limits=tuple(sorted(self._waits.values(), key=lambda one: (-one.delayed, one.limit))),
            periods=tuple(self._period(self._since + i * self._step) for i in range(count)),
            rows=tuple(self._rows),
            more_rows=max(self.decisions - len(self._rows), 0),
        )

    def _admit(self, fact: facts.RunAdmitted) -> None:
        run = self._row(fact.schedule_id, fact.planned_at, fire_at=fact.fire_at, source=fact.source)
        self._live[fact.run_id], self._owners[fact.run_id] = run, fact.schedule_id
        heapq.heappush(self._unexplained, (fact.fire_at, fact.run_id))
        if fact.held:
            self.held += 1
            run.waited_for = "overlap"

    def _start(self, fact: facts.AttemptStarted) -> None:
        run = self._live.get(fact.run_id)
        if run is None:
            run = self._live[fact.run_id] = self._row(
                fact.schedule_id, fact.planned_at, fire_at=fact.at, source=fact.source
            )
        is_first = run.started_at is None
        run.started_at, run.state = fact.at, "running"
        for key in self._limits.get(fact.schedule_id, ()):
            self._running[key] += 1
            self._limit(key).peak = max(self._limit(key).peak, self._running[key])
        self._started[fact.run_id] = fact.schedule_id
        self.peak = max(self.peak, len(self._started))
        period = self._period(fact.at)
        period.starts += is_first
        period.peak = max(period.peak, len(self._started))
        if is_first:
            self._schedule(run.schedule).runs += 1
            self._delay(run, period)

    def _delay(self, run: SimulatedRun, period: SimulatedPeriod) -> None:
        if not run.delay:
            run.waited_for = ""
            return
        stats = self._schedule(run.schedule)
        stats.delayed += 1
        period.delayed += 1
        self._delays[run.schedule].append(run.delay)
        if any(since <= run.fire_at < until for since, until in self._outages):
            run.waited_for = run.waited_for or "outage"
        if run.waited_for not in ("", "overlap", "outage"):
            limit = self._limit(run.waited_for)
            limit.delayed += 1
            limit.max_delay = max(limit.max_delay, run.delay)

    def _end(self, run_id: str, at: datetime, *, finished: bool) -> None:
        run = self._live.get(run_id)
        schedule_id = self._started.pop(run_id, None)
        if schedule_id is not None:
            self._running.subtract(self._limits.get(schedule_id, ()))
            if run is not None and run.started_at is not None:
                self._schedule(run.schedule).busy += max(at - run.started_at, ZERO)
        if run is not None and finished:
            run.ended_at, run.state = at, "succeeded"
            del self._live[run_id]
            self._owners.pop(run_id, None)

    def _cancel(self, fact: facts.RunCancelled, ended_at: Mapping[str, datetime]) -> None:
        run = self._live.get(fact.run_id)
        if run is not None:
            self.held -= run.started_at is None and run.waited_for == "overlap"
            self._end(fact.run_id, ended_at.get(fact.run_id, fact.at), finished=True)
            run.state, run.reason = "cancelled", fact.reason

    def _skip(self, fact: facts.RunSkipped | facts.OccurrencesDropped) -> None:
        count = fact.count if isinstance(fact, facts.OccurrencesDropped) else 1
        row = self._row(fact.schedule_id, fact.planned_at, fire_at=fact.planned_at)
        row.state, row.reason, row.count = "skipped", fact.reason, count
        stats = self._schedule(row.schedule)
        stats.skipped[fact.reason] = stats.skipped.get(fact.reason, 0) + count
        self._period(fact.planned_at).skipped += count

    def _row(
        self, schedule_id: str, planned_at: datetime, *, fire_at: datetime, source: str = ""
    ) -> SimulatedRun:
        name = self._names.get(schedule_id, schedule_id)
        row = SimulatedRun(schedule=name, planned_at=planned_at, fire_at=fire_at, source=source)
        self.decisions += 1
        if len(self._rows) < self._max_rows:
            self._rows.append(row)
        return row

    def _full_limit(self, run_id: str) -> str:
        """The first limit without a free place, else the workers if all are busy."""
        for key in self._limits.get(self._owners[run_id], ()):
            capacity = self._capacity.get(key)
            if capacity is not None and self._running[key] >= capacity:
                return key
        return "workers" if len(self._started) >= self._workers else ""

    def _schedule(self, name: str) -> SimulatedSchedule:
        found = self._stats.get(name)
        if found is None:
            found = self._stats[name] = SimulatedSchedule(schedule=name, skipped={})
        return found

    def _limit(self, key: str) -> SimulatedLimit:
        found = self._waits.get(key)
        if found is None:
            capacity = self._workers if key == "workers" else self._capacity.get(key)
            found = self._waits[key] = SimulatedLimit(limit=key, capacity=capacity)
        return found

    def _period(self, at: datetime) -> SimulatedPeriod:
        index = max(int((at - self._since) / self._step), 0)
        found = self._periods.get(index)
        if found is None:
            found = self._periods[index] = SimulatedPeriod(at=self._since + index * self._step)
        return found


def _goes_on(fact: facts.Fact) -> bool:
    """Whether the run is attempted again."""
    return isinstance(fact, facts.RunWillRetry | facts.RunReleased | facts.LeaseLost)


def _percentile(delays: Sequence[timedelta], percent: int, *, count: int) -> timedelta:
    """Return the nearest-rank percentile of `count` delays, of which only those above zero are listed."""
    rank = max(math.ceil(count * percent / 100) - 1, 0) - (count - len(delays))
    return delays[rank] if rank >= 0 else ZERO
