"""Hints: wishes about when to run that expire, are clamped, and are recorded with who wished and why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from timewright.core.decision import Source
from timewright.core.governor import baseline
from timewright.core.hints import (
    INTERVAL_TTL,
    LONGEST_PAUSE,
    ONE_SHOT_TTL,
    Hints,
    IntervalHint,
    OneShotHint,
    PauseHint,
    check_hint,
)
from timewright.core.moments import (
    HOUR,
    bounded,
    check_stored,
    from_micros,
    micros,
    spell_duration,
    spell_instant,
)
from timewright.core.schedule import ScheduleState
from timewright.errors import InvalidInput, NotAllowed, OverQuota
from timewright.ledger.replan import clear_hints, hint
from timewright.ledger.shelf import calendars_for
from timewright.ledger.standings import Wish, check_adaptive
from timewright.operations.agent_rules import check_hint_interval
from timewright.operations.context import Context, together
from timewright.operations.find import find_living, find_schedule
from timewright.operations.registry import Named, Request, Write, operations
from timewright.ports import Due, Transaction

MOST_AN_HOUR = 12

_TAKES_HINTS = frozenset({ScheduleState.ACTIVE, ScheduleState.PAUSED})


class Interval(Write, frozen=True, kw_only=True):
    """Run a schedule this often instead, for as long as the wish lives."""

    schedule: Named
    interval: timedelta
    ttl: timedelta = INTERVAL_TTL


class Once(Write, frozen=True, kw_only=True):
    """Run a schedule once, at an instant or so long after now, if that is earlier than its next time."""

    schedule: Named
    at: datetime | None = None
    after: timedelta | None = None
    ttl: timedelta = ONE_SHOT_TTL


class Pause(Write, frozen=True, kw_only=True):
    """Do not run a schedule until an instant, at most an hour ahead."""

    schedule: Named
    until: datetime


class Clear(Write, frozen=True, kw_only=True):
    """Whose hints to forget."""

    schedule: Named


class List(Request, frozen=True, kw_only=True):
    """Whose hints."""

    schedule: Named


class Hinted(Struct, frozen=True, kw_only=True):
    """The wishes that are in force, what they make of the next time, and what it would be without them."""

    schedule: str
    adaptive: bool
    hints: Hints
    next_at: datetime | None
    source: Source | None
    without_hints: datetime | None
    changes_left: int


@operations.add(
    "hint",
    "interval",
    Interval,
    scope="hint",
    examples=(
        {"schedule": "orders-poll", "interval": "1m", "reason": "the queue grows"},
        {"schedule": "orders-poll", "interval": "30s", "ttl": "2h"},
    ),
)
def hint_interval(context: Context, ask: Interval) -> Hinted:
    """Wish for another interval; it may come nearer at once, never further, and expires by itself."""

    def wish(now: datetime) -> Wish:
        check_hint(now=now, ttl=ask.ttl, interval=ask.interval)
        check_hint_interval(context, ask.interval)
        return IntervalHint(
            interval=ask.interval,
            expires_at=now + ask.ttl,
            reason=ask.reason,
            actor=context.by.actor,
            created_at=now,
        )

    return _hinted(context, ask, wish)


@operations.add(
    "hint",
    "once",
    Once,
    scope="hint",
    examples=(
        {"schedule": "orders-poll", "at": "2026-03-10T12:02:00Z", "reason": "a batch has landed"},
        {"schedule": "orders-poll", "after": "90s", "reason": "a batch has landed"},
    ),
)
def hint_once(context: Context, ask: Once) -> Hinted:
    """Wish for one run at an instant; the run that uses it uses it up."""

    def wish(now: datetime) -> Wish:
        at = _instant(ask, now=now)
        check_hint(now=now, ttl=ask.ttl, at=at)
        return OneShotHint(
            at=at, expires_at=now + ask.ttl, reason=ask.reason, actor=context.by.actor, created_at=now
        )

    return _hinted(context, ask, wish)


@operations.add(
    "hint",
    "pause",
    Pause,
    scope="hint",
    examples=({"schedule": "orders-poll", "until": "2026-03-10T12:45:00Z", "reason": "maintenance"},),
)
def hint_pause(context: Context, ask: Pause) -> Hinted:
    """Wish for quiet until an instant, at most an hour ahead; longer is for a person to say."""

    def wish(now: datetime) -> Wish:
        until = check_stored(ask.until, field="until")
        if not now < until <= now + LONGEST_PAUSE:
            raise InvalidInput(
                f"until {spell_instant(until)} is out of range",
                field="until",
                value=spell_instant(until),
                rule=f"after now, and at most {spell_duration(LONGEST_PAUSE)} ahead",
                fix=f"{spell_instant(now + LONGEST_PAUSE)}, or schedule pause for longer",
            )
        return PauseHint(until=until, reason=ask.reason, actor=context.by.actor, created_at=now)

    return _hinted(context, ask, wish)


@operations.add(
    "hint", "clear", Clear, scope="hint", examples=({"schedule": "orders-poll", "reason": "steady again"},)
)
def forget_hints(context: Context, ask: Clear) -> Hinted:
    """Forget every wish; the next time is decided again without them."""
    now = context.now()

    def work(inside: Context) -> Hinted:
        due = inside.store.read(lambda tx: find_living(tx, inside.namespace, ask.schedule))
        by = inside.because(ask.reason)
        inside.tell(clear_hints(inside.store, due.schedule.id, by=by, now=now).facts)
        return inside.store.read(lambda tx: _answer(tx, due.schedule.id, now=now))

    return together(context, work)


@operations.add("hint", "list", List, scope="read", examples=({"schedule": "orders-poll"},))
def list_hints(context: Context, ask: List) -> Hinted:
    """Show the wishes in force, and when the schedule would run without them."""
    now = context.now()

    def work(tx: Transaction) -> Hinted:
        due = find_schedule(tx, context.namespace, ask.schedule)
        return _answer(tx, due.schedule.id, now=now)

    return context.store.read(work)


def _instant(ask: Once, *, now: datetime) -> datetime:
    """The instant that is wished for, in one of the two ways to say it."""
    if ask.at is not None and ask.after is None:
        return ask.at
    if ask.after is not None and ask.at is None:
        return now + bounded(ask.after, field="after")
    raise InvalidInput(
        "when?" if ask.at is None else "at and after both say when",
        field="at",
        rule="one of: at, an instant; after, a duration from now",
        fix="after: 90s",
    )


def _hinted(context: Context, ask: Interval | Once | Pause, wish: Callable[[datetime], Wish]) -> Hinted:
    now = context.now()

    def work(inside: Context) -> Hinted:
        due = _find(inside, ask.schedule)
        _check_takes_hints(due)
        wished = wish(now)
        changed = hint(inside.store, due.schedule.id, wished, by=inside.because(ask.reason), now=now)
        # The hint holds the schedule's row, so that changes are counted one after another.
        inside.store.write(lambda tx: _count_change(tx, due, now=now))
        inside.tell(changed.facts)
        return inside.store.read(lambda tx: _answer(tx, due.schedule.id, now=now))

    return together(context, work)


def _find(context: Context, wanted: str) -> Due:
    return context.store.read(lambda tx: find_schedule(tx, context.namespace, wanted))


def _check_takes_hints(due: Due) -> None:
    state, schedule = due.standing.state, due.schedule
    if state not in _TAKES_HINTS:
        raise NotAllowed(
            f"schedule {schedule.name} is {state}",
            field="state",
            value=state.value,
            rule="only a schedule that is active or paused takes hints",
            fix="schedule get shows its state and reason",
        )
    check_adaptive(schedule)


def _recent(tx: Transaction, schedule_id: str, *, now: datetime) -> list[int]:
    """When hints were changed within the last hour."""
    kept = tx.get_meta(_counter(schedule_id))
    stamps: list[int] = msgspec.json.decode(kept, type=list[int]) if kept else []
    return [stamp for stamp in stamps if from_micros(stamp) > now - HOUR]


def _count_change(tx: Transaction, due: Due, *, now: datetime) -> None:
    """Note one more change; a schedule whose hints change all the time has no plan any more."""
    recent = _recent(tx, due.schedule.id, now=now)
    if len(recent) >= MOST_AN_HOUR:
        free_at = from_micros(recent[0]) + HOUR
        raise OverQuota(
            f"the hints of {due.schedule.name} changed {len(recent)} times within the last hour",
            field="schedule",
            value=due.schedule.name,
            rule=f"at most {MOST_AN_HOUR} changes an hour",
            fix=f"wait until {spell_instant(free_at)}; hint clear is always possible",
        )
    tx.put_meta(_counter(due.schedule.id), msgspec.json.encode([*recent, micros(now)]).decode())


def _counter(schedule_id: str) -> str:
    return f"hints:{schedule_id}"


def _answer(tx: Transaction, schedule_id: str, *, now: datetime) -> Hinted:
    due = tx.get_schedules([schedule_id])[schedule_id]
    schedule, standing = due.schedule, due.standing
    calendars = calendars_for(tx, [schedule]).of(schedule)
    return Hinted(
        schedule=schedule.name,
        adaptive=schedule.adaptive,
        hints=standing.hints.fresh(now=now),
        next_at=standing.next_at,
        source=standing.source,
        without_hints=baseline(schedule, standing, now=now, base=now, calendars=calendars).at,
        changes_left=MOST_AN_HOUR - len(_recent(tx, schedule_id, now=now)),
    )
