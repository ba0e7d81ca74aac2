"""Forecast the load per hour: starts, worker seconds and the busiest schedules; and herds in one minute."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct, field

from timewright.core.moments import DAY, HOUR, MINUTE, SECOND, ZERO, format_duration
from timewright.core.policies.backoff import apply_jitter
from timewright.core.recurrence.triggers import After, AnyTrigger, Cron, Every
from timewright.core.run.following import follows_upstream
from timewright.core.run.history_stats import percentile
from timewright.core.schedule.forecast import forecast
from timewright.core.schedule.governor import is_trigger_only
from timewright.core.schedule.schedule import ScheduleState
from timewright.ledger.lookups import load_calendars
from timewright.ledger.snapshot import all_schedules
from timewright.operations.budgets.shortfalls import BudgetForecast, Shortfall
from timewright.operations.context import OperationContext
from timewright.operations.registry import OperationRequest, operations
from timewright.ports import ScheduleRecord, Transaction
from timewright.ports.overview import RecentRun

PAGE_SCHEDULES = 1000
MAX_SCHEDULES = 20_000
MAX_RUNS_PER_SCHEDULE = 10_000
MAX_RUNS = 200_000
SAMPLE_RUNS = 20
MAX_NAMES_SHOWN = 5
# Three schedules in one minute are a herd; each may be spread by a fifth of its interval, within limits.
MIN_HERD_SIZE = 3
MAX_HERDS = 5
MAX_HERD_NAMES = 20
MAX_MINUTES_COMPARED = 144
MIN_SPREAD, MAX_SPREAD = 10 * SECOND, 10 * MINUTE


class ForecastLoad(OperationRequest, frozen=True, kw_only=True):
    """How many days ahead, and for which group."""

    days: Annotated[int, Meta(ge=1, le=31)] = 7
    group: str | None = None


class ScheduleShare(Struct, frozen=True, kw_only=True):
    """The number of starts of one schedule in an hour."""

    schedule: str
    starts: int


class HourForecast(Struct, frozen=True, kw_only=True):
    """One hour: how many runs start, the seconds they will take, and the busiest schedules."""

    at: datetime
    starts: int
    seconds: float
    busiest: tuple[ScheduleShare, ...]


class Herd(Struct, frozen=True, kw_only=True):
    """Schedules that start in the same minute, and commands that would spread them.

    `spread` is the largest jitter proposed, `spreads` has that of each; `after` is how many would still start
    in the busiest minute; `more` means that the herd has further schedules.
    """

    at: datetime
    schedules: tuple[str, ...]
    spread: timedelta
    after: int
    commands: tuple[str, ...]
    spreads: dict[str, timedelta] = field(default_factory=dict)
    more: bool = False


class LoadForecast(Struct, frozen=True, kw_only=True):
    """The forecast per hour of `schedules` of `total` active schedules.

    `more` means that not all are counted: the rest has no part in any number here.
    `herds` are the most crowded minutes of the first day, each with commands to spread it. Schedules in
    `follows` run after another one and are not counted. `shortfalls` are budgets that are not enough, so
    that some of the planned runs will wait.
    """

    since: datetime
    hours: tuple[HourForecast, ...]
    herds: tuple[Herd, ...]
    schedules: int
    total: int
    more: bool
    follows: dict[str, str] = field(default_factory=dict)
    shortfalls: tuple[Shortfall, ...] = ()


@operations.read("forecast", scope="read", examples=({}, {"days": 2}))
def forecast_load(context: OperationContext, tx: Transaction, request: ForecastLoad) -> LoadForecast:
    """Forecast how many runs start in each hour, if nothing changes until then."""
    now = context.now()
    since = now.replace(minute=0, second=0, microsecond=0)
    until = since + request.days * DAY
    records, more = _active_schedules(tx, context.namespace, group=request.group)
    counts = _HourCounts(since=since, hours=request.days * 24)
    herd_finder, accounts = _HerdFinder(), BudgetForecast(tx)
    starts = _StartsByTrigger(tx, now=now, until=until)
    counted = 0
    for first in range(0, len(records), PAGE_SCHEDULES):
        page = records[first : first + PAGE_SCHEDULES]
        marks = tx.recent_runs([record.schedule.id for record in page], limit_each=SAMPLE_RUNS)
        for record in page:
            if starts.computed >= MAX_RUNS:
                break
            counted += 1
            took = _median_duration(marks.get(record.schedule.id, ()))
            upcoming = starts.of(record)
            for at, number in upcoming:
                counts.add(record.schedule.name, at, starts=number, took=took)
            herd_finder.add(record, _herd_instants(record, upcoming, now=now))
            accounts.add(record.schedule, upcoming)
    followers = [record.schedule for record in records if follows_upstream(record.schedule.trigger)]
    return LoadForecast(
        since=since,
        hours=counts.hours(),
        herds=herd_finder.herds(),
        schedules=counted,
        total=len(records),
        more=more or counted < len(records),
        follows={schedule.name: schedule.trigger.describe() for schedule in followers},
        shortfalls=accounts.shortfalls(),
    )


def find_herds(tx: Transaction, namespace: str, *, now: datetime) -> tuple[Herd, ...]:
    """Return the herds of the next day."""
    finder = _HerdFinder()
    starts = _StartsByTrigger(tx, now=now, until=now + DAY)
    for record in _active_schedules(tx, namespace)[0]:
        if starts.computed < MAX_RUNS:
            finder.add(record, _herd_instants(record, starts.of(record), now=now))
    return finder.herds()


def _active_schedules(
    tx: Transaction, namespace: str, *, group: str | None = None
) -> tuple[list[ScheduleRecord], bool]:
    """Return the active schedules, at most 20,000, and whether there are more."""
    active = all_schedules(tx, namespace, state=ScheduleState.ACTIVE, group=group)
    found = list(islice(active, MAX_SCHEDULES + 1))
    return found[:MAX_SCHEDULES], len(found) > MAX_SCHEDULES


class _StartsByTrigger:
    """The instants at which schedules start; those of equal triggers are computed once."""

    def __init__(self, tx: Transaction, *, now: datetime, until: datetime) -> None:
        self._tx = tx
        self._now = now
        self._until = until
        self._known: dict[AnyTrigger, list[tuple[datetime, int]]] = {}
        self.computed = 0

    def of(self, record: ScheduleRecord) -> list[tuple[datetime, int]]:
        """Return instants and how many runs start at each."""
        trigger = record.schedule.trigger
        if not isinstance(trigger, (Cron, Every)) or not _is_plain(record):
            return self._compute(record)
        if isinstance(trigger, Every) and trigger.interval >= HOUR:
            return _grid_instants(trigger, now=self._now, until=self._until)
        if trigger not in self._known:
            self._known[trigger] = self._compute(record)
        return self._known[trigger]

    def _compute(self, record: ScheduleRecord) -> list[tuple[datetime, int]]:
        found = list(_starts(self._tx, record, now=self._now, until=self._until))
        self.computed += len(found)
        return found


def _grid_instants(trigger: Every, *, now: datetime, until: datetime) -> list[tuple[datetime, int]]:
    """The instants after now of an interval of an hour or more."""
    anchor = trigger.anchor or now
    first = anchor + max(0, (now - anchor) // trigger.interval + 1) * trigger.interval
    count = max(0, -((first - until) // trigger.interval))
    return [(first + n * trigger.interval, 1) for n in range(count)]


def _is_plain(record: ScheduleRecord) -> bool:
    """Whether the trigger alone decides when the schedule starts."""
    schedule = record.schedule
    return (
        schedule.calendar is None
        and not schedule.jitter
        and schedule.start_at is None
        and schedule.end_at is None
        and schedule.max_runs is None
        and is_trigger_only(schedule, record.progress)
    )


class _HourCounts:
    """Counts starts and seconds per hour."""

    def __init__(self, *, since: datetime, hours: int) -> None:
        self._since = since
        self._starts = [Counter[str]() for _ in range(hours)]
        self._seconds = [0.0] * hours

    def add(self, name: str, at: datetime, *, starts: int, took: timedelta) -> None:
        index = int((at - self._since) / HOUR)
        if 0 <= index < len(self._starts):
            self._starts[index][name] += starts
            self._seconds[index] += starts * took.total_seconds()

    def hours(self) -> tuple[HourForecast, ...]:
        return tuple(
            HourForecast(
                at=self._since + index * HOUR,
                starts=starts.total(),
                seconds=round(self._seconds[index], 3),
                busiest=tuple(
                    ScheduleShare(schedule=name, starts=n) for name, n in starts.most_common(MAX_NAMES_SHOWN)
                ),
            )
            for index, starts in enumerate(self._starts)
        )


class _HerdFinder:
    """Collects which schedules without jitter start in which minute of the next day."""

    def __init__(self) -> None:
        self._minutes: dict[datetime, list[str]] = {}
        self._ids: dict[str, str] = {}
        self._intervals: dict[str, timedelta] = {}

    def add(self, record: ScheduleRecord, instants: Sequence[datetime]) -> None:
        schedule, name = record.schedule, record.schedule.name
        if schedule.jitter or isinstance(schedule.trigger, After) or not instants:
            return
        for minute in {at.replace(second=0, microsecond=0) for at in instants}:
            self._minutes.setdefault(minute, []).append(name)
        self._ids[name] = schedule.id
        self._intervals[name] = instants[1] - instants[0] if len(instants) > 1 else DAY

    def herds(self) -> tuple[Herd, ...]:
        """Return the largest herds first; a repeated herd or a subset of another is reported once."""
        crowded = [(at, names) for at, names in self._minutes.items() if len(names) >= MIN_HERD_SIZE]
        found: dict[frozenset[str], datetime] = {}
        for at, names in sorted(crowded, key=lambda one: (-len(one[1]), one[0])):
            herd = frozenset(names)
            if len(found) < MAX_HERDS and not any(herd <= known for known in found):
                found[herd] = at
        herds = [self._herd(at, self._minutes[at]) for at in found.values()]
        return tuple(herd for herd in herds if herd.after < len(herd.schedules))

    def _herd(self, at: datetime, names: list[str]) -> Herd:
        """Return a herd with the jitter that would spread it: for each schedule a fifth of its interval."""
        spreads = {name: self._spread(name) for name in names}
        moved = [
            apply_jitter(at, within=spreads[name], both_sides=False, seed=self._ids[name]) for name in names
        ]
        after = Counter(one.replace(second=0, microsecond=0) for one in moved)
        shown = names[:MAX_HERD_NAMES]
        return Herd(
            at=at,
            schedules=tuple(shown),
            spread=max(spreads.values()),
            after=max(after.values()),
            commands=tuple(_spread_command(name, spreads[name]) for name in shown),
            spreads={name: spreads[name] for name in shown},
            more=len(names) > len(shown),
        )

    def _spread(self, name: str) -> timedelta:
        slack = self._intervals[name] / 5
        return min(max(slack - slack % SECOND, MIN_SPREAD), MAX_SPREAD)


def _spread_command(name: str, by: timedelta) -> str:
    return f"timewright schedule update {shlex.quote(name)} --jitter {format_duration(by)} --offset stable"


def _starts(
    tx: Transaction, record: ScheduleRecord, *, now: datetime, until: datetime
) -> Iterator[tuple[datetime, int]]:
    """Yield instants and how many runs start at each; short intervals are counted per hour."""
    schedule, progress = record.schedule, record.progress
    if (grid := _short_interval(record)) is not None:
        yield from _count_per_hour(grid, now=now, until=until)
        return
    calendars = load_calendars(tx, [schedule]).for_schedule(schedule)
    upcoming = forecast(
        schedule, progress, now=now, count=MAX_RUNS_PER_SCHEDULE, until=until, calendars=calendars
    )
    yield from ((one.fire_at, 1) for one in upcoming if one.fire_at is not None)


def _herd_instants(
    record: ScheduleRecord, upcoming: Sequence[tuple[datetime, int]], *, now: datetime
) -> list[datetime]:
    """Return the instants of the next day for finding herds; none for very short intervals."""
    until, grid = now + DAY, _short_interval(record)
    if grid is None:
        return [at for at, _ in upcoming[:MAX_MINUTES_COMPARED] if at < until]
    if grid.interval < DAY / MAX_MINUTES_COMPARED:
        return []
    first = now + (grid.interval - (now - (grid.anchor or now)) % grid.interval)
    return [at for n in range(MAX_MINUTES_COMPARED) if (at := first + n * grid.interval) < until]


def _short_interval(record: ScheduleRecord) -> Every | None:
    """Return the interval trigger of a steady schedule, if it is shorter than an hour."""
    schedule, trigger = record.schedule, record.schedule.trigger
    plain = schedule.calendar is None and is_trigger_only(schedule, record.progress)
    return trigger if isinstance(trigger, Every) and plain and trigger.interval < HOUR else None


def _count_per_hour(trigger: Every, *, now: datetime, until: datetime) -> Iterator[tuple[datetime, int]]:
    at, anchor = now, trigger.anchor or now
    while at < until:
        end = at.replace(minute=0, second=0, microsecond=0) + HOUR
        before, after = (at - anchor) // trigger.interval, (end - anchor) // trigger.interval
        yield at, after - before
        at = end


def _median_duration(marks: Sequence[RecentRun]) -> timedelta:
    """Return the median duration of the newest runs that ended."""
    took = sorted(m.finished_at - m.started_at for m in marks if m.finished_at and m.started_at)
    return max(ZERO, percentile(took, 50)) if took else ZERO
