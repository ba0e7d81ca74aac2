"""The load ahead, hour by hour: how many runs start, how long they keep workers busy, and who they are."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct, field

from timewright.core.following import follows
from timewright.core.forecast import forecast
from timewright.core.governor import is_steady
from timewright.core.jitter import jittered
from timewright.core.moments import HOUR, MINUTE, SECOND, ZERO, spell_duration
from timewright.core.schedule import ScheduleState
from timewright.core.tally import percentile
from timewright.core.triggers import After, Every
from timewright.ledger.shelf import calendars_for
from timewright.operations.context import Context
from timewright.operations.registry import Request, operations
from timewright.operations.shortfalls import Accounts, Shortfall
from timewright.ports import Due, ScheduleFilter, Transaction
from timewright.ports.glance import Mark

MOST_SCHEDULES = 1000
MOST_OF_ONE = 10_000
MOST_IN_ALL = 200_000
SAMPLED = 20
NAMED = 5
DAY = timedelta(days=1)
# So many schedules in one minute are a herd; how far each may move is a part of its own pace, and bounded.
HERD = 3
MOST_HERDS = 5
MOST_IN_HERD = 20
MOST_MEETINGS = 144
SHORTEST_SPREAD, LONGEST_SPREAD = 10 * SECOND, 10 * MINUTE


class Ask(Request, frozen=True, kw_only=True):
    """How many days ahead."""

    days: Annotated[int, Meta(ge=1, le=31)] = 7
    group: str | None = None


class Share(Struct, frozen=True, kw_only=True):
    """One schedule's part of an hour."""

    schedule: str
    starts: int


class Hour(Struct, frozen=True, kw_only=True):
    """One hour ahead: runs that start in it, seconds they will take, and the schedules that start most."""

    at: datetime
    starts: int
    seconds: float
    most: tuple[Share, ...]


class Herd(Struct, frozen=True, kw_only=True):
    """Schedules that start in the same minute, and commands that would spread them.

    `spread` is how far the one with most room would move; `after` is how many would still start in the
    busiest minute; `more` says that the herd is larger than what is named.
    """

    at: datetime
    schedules: tuple[str, ...]
    spread: timedelta
    after: int
    commands: tuple[str, ...]
    more: bool = False


class Load(Struct, frozen=True, kw_only=True):
    """The hours ahead; `more` says that there was more than could be counted.

    `herds` are the worst minutes of the first day, each with a proposal that would spread it. What `follows`
    another schedule is counted in no hour: it says after which one it comes. Hours count what is planned;
    `shortfalls` are budgets that will not last for it, so that some of it waits.
    """

    since: datetime
    hours: tuple[Hour, ...]
    herds: tuple[Herd, ...]
    schedules: int
    more: bool
    follows: dict[str, str] = field(default_factory=dict)
    shortfalls: tuple[Shortfall, ...] = ()


@operations.add("", "forecast", Ask, scope="read", examples=({}, {"days": 2}))
def forecast_load(context: Context, ask: Ask) -> Load:
    """Count the runs that will start in each hour ahead, if nothing changes until then."""
    now = context.now()
    since = now.replace(minute=0, second=0, microsecond=0)
    until = since + ask.days * DAY

    def work(tx: Transaction) -> Load:
        which = ScheduleFilter(
            namespace=context.namespace, state=ScheduleState.ACTIVE, group=ask.group, limit=MOST_SCHEDULES
        )
        page = tx.find_schedules(which)
        sheet = _Sheet(since=since, hours=ask.days * 24)
        crowd, accounts = _Crowd(), Accounts(tx)
        marks = tx.newest_marks([due.schedule.id for due in page.rows], each=SAMPLED)
        more = bool(page.cursor)
        for due in page.rows:
            if sheet.counted >= MOST_IN_ALL:
                more = True
                break
            took = _usual(marks.get(due.schedule.id, ()))
            ahead = list(_starts(tx, due, now=now, until=until))
            for at, starts in ahead:
                sheet.add(due.schedule.name, at, starts=starts, took=took)
            crowd.add(due, _meetings(due, ahead, now=now))
            accounts.add(due.schedule, ahead)
        told = [due.schedule for due in page.rows if follows(due.schedule.trigger)]
        return Load(
            since=since,
            hours=sheet.hours(),
            herds=crowd.herds(),
            schedules=len(page.rows),
            more=more,
            follows={schedule.name: schedule.trigger.describe() for schedule in told},
            shortfalls=accounts.shortfalls(),
        )

    return context.store.read(work)


class _Sheet:
    """Hours that are being filled."""

    def __init__(self, *, since: datetime, hours: int) -> None:
        self._since = since
        self._starts = [Counter[str]() for _ in range(hours)]
        self._seconds = [0.0] * hours
        self.counted = 0

    def add(self, name: str, at: datetime, *, starts: int, took: timedelta) -> None:
        place = int((at - self._since) / HOUR)
        if 0 <= place < len(self._starts):
            self._starts[place][name] += starts
            self._seconds[place] += starts * took.total_seconds()
            self.counted += 1

    def hours(self) -> tuple[Hour, ...]:
        return tuple(
            Hour(
                at=self._since + place * HOUR,
                starts=starts.total(),
                seconds=round(self._seconds[place], 3),
                most=tuple(Share(schedule=name, starts=n) for name, n in starts.most_common(NAMED)),
            )
            for place, starts in enumerate(self._starts)
        )


class _Crowd:
    """Who starts in which minute of the day ahead, among those that nothing spreads yet."""

    def __init__(self) -> None:
        self._minutes: dict[datetime, list[str]] = {}
        self._ids: dict[str, str] = {}
        self._pace: dict[str, timedelta] = {}

    def add(self, due: Due, instants: Sequence[datetime]) -> None:
        schedule, name = due.schedule, due.schedule.name
        if schedule.jitter or isinstance(schedule.trigger, After) or not instants:
            return
        for minute in {at.replace(second=0, microsecond=0) for at in instants}:
            self._minutes.setdefault(minute, []).append(name)
        self._ids[name] = schedule.id
        self._pace[name] = instants[1] - instants[0] if len(instants) > 1 else DAY

    def herds(self) -> tuple[Herd, ...]:
        """The largest first; what meets again and again is told once, and a part of a herd is none."""
        crowded = [(at, names) for at, names in self._minutes.items() if len(names) >= HERD]
        found: dict[frozenset[str], datetime] = {}
        for at, names in sorted(crowded, key=lambda one: (-len(one[1]), one[0])):
            herd = frozenset(names)
            if len(found) < MOST_HERDS and not any(herd <= known for known in found):
                found[herd] = at
        herds = [self._herd(at, self._minutes[at]) for at in found.values()]
        return tuple(herd for herd in herds if herd.after < len(herd.schedules))

    def _herd(self, at: datetime, names: list[str]) -> Herd:
        """Each moves by its own stable amount, within a fifth of its own pace."""
        spreads = {name: self._spread(name) for name in names}
        moved = [jittered(at, within=spreads[name], both_sides=False, seed=self._ids[name]) for name in names]
        after = Counter(one.replace(second=0, microsecond=0) for one in moved)
        shown = names[:MOST_IN_HERD]
        return Herd(
            at=at,
            schedules=tuple(shown),
            spread=max(spreads.values()),
            after=max(after.values()),
            commands=tuple(_spreading(name, spreads[name]) for name in shown),
            more=len(names) > len(shown),
        )

    def _spread(self, name: str) -> timedelta:
        room = self._pace[name] / 5
        return min(max(room - room % SECOND, SHORTEST_SPREAD), LONGEST_SPREAD)


def _spreading(name: str, by: timedelta) -> str:
    return f"timewright schedule update {shlex.quote(name)} --jitter {spell_duration(by)} --offset stable"


def _starts(tx: Transaction, due: Due, *, now: datetime, until: datetime) -> Iterator[tuple[datetime, int]]:
    """Instants and how many runs start at each; a fine grid is counted by hours."""
    schedule, standing = due.schedule, due.standing
    if (grid := _fine_grid(due)) is not None:
        yield from _on_a_grid(grid, now=now, until=until)
        return
    calendars = calendars_for(tx, [schedule]).of(schedule)
    ahead = forecast(schedule, standing, now=now, count=MOST_OF_ONE, until=until, calendars=calendars)
    yield from ((one.fire_at, 1) for one in ahead if one.fire_at is not None)


def _meetings(due: Due, ahead: Sequence[tuple[datetime, int]], *, now: datetime) -> list[datetime]:
    """The instants of the day ahead at which it may meet others; what runs all the time meets everyone."""
    until, grid = now + DAY, _fine_grid(due)
    if grid is None:
        return [at for at, _ in ahead[:MOST_MEETINGS] if at < until]
    if grid.interval < DAY / MOST_MEETINGS:
        return []
    first = now + (grid.interval - (now - (grid.anchor or now)) % grid.interval)
    return [at for n in range(MOST_MEETINGS) if (at := first + n * grid.interval) < until]


def _fine_grid(due: Due) -> Every | None:
    """The grid of a schedule that nothing bends, if it is finer than an hour."""
    schedule, trigger = due.schedule, due.schedule.trigger
    plain = schedule.calendar is None and is_steady(schedule, due.standing)
    return trigger if isinstance(trigger, Every) and plain and trigger.interval < HOUR else None


def _on_a_grid(trigger: Every, *, now: datetime, until: datetime) -> Iterator[tuple[datetime, int]]:
    at, anchor = now, trigger.anchor or now
    while at < until:
        end = at.replace(minute=0, second=0, microsecond=0) + HOUR
        before, after = (at - anchor) // trigger.interval, (end - anchor) // trigger.interval
        yield at, after - before
        at = end


def _usual(marks: Sequence[Mark]) -> timedelta:
    """How long a run usually takes, from the newest that ended."""
    took = sorted(m.finished_at - m.started_at for m in marks if m.finished_at and m.started_at)
    return max(ZERO, percentile(took, 50)) if took else ZERO
