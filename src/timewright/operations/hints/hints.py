"""Hints: temporary requests to run an adaptive schedule at other times, within its clamp."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.moments import HOUR, check_duration, check_storable, format_duration, format_instant
from timewright.core.schedule.adjustments import AdjustmentKind
from timewright.core.schedule.decision import Source
from timewright.core.schedule.governor import baseline
from timewright.core.schedule.hints import (
    DEFAULT_INTERVAL_TTL,
    DEFAULT_ONE_SHOT_TTL,
    MAX_PAUSE,
    IntervalHint,
    OneShotHint,
    PauseHint,
    check_hint,
)
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import InvalidInput, NotAllowed, OverQuota
from timewright.ledger.lookups import load_calendars
from timewright.ledger.replan import clear_hints, hint
from timewright.ledger.schedule_progress import HintRequest, check_adaptive
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_editable_schedule, find_schedule
from timewright.operations.registry import GetSchedule, ObjectName, ScheduleAction, WriteRequest, operations
from timewright.operations.schedules.agent_rules import check_hint_interval
from timewright.ports import ScheduleRecord, Transaction
from timewright.ports.objects import AdjustmentsOf

MAX_CHANGES_PER_HOUR = 12

_HINTS = frozenset({AdjustmentKind.INTERVAL, AdjustmentKind.ONE_SHOT, AdjustmentKind.HINT_PAUSE})
_TAKES_HINTS = frozenset({ScheduleState.ACTIVE, ScheduleState.PAUSED})


class HintInterval(WriteRequest, frozen=True, kw_only=True):
    """Run a schedule at this interval instead, until the hint expires."""

    schedule: ObjectName
    interval: timedelta
    ttl: timedelta = DEFAULT_INTERVAL_TTL


class HintOnce(WriteRequest, frozen=True, kw_only=True):
    """Run a schedule once at an instant or after a delay, if that is earlier than its next occurrence."""

    schedule: ObjectName
    at: datetime | None = None
    after: timedelta | None = None
    ttl: timedelta = DEFAULT_ONE_SHOT_TTL


class HintPause(WriteRequest, frozen=True, kw_only=True):
    """Do not run a schedule until an instant, at most one hour ahead."""

    schedule: ObjectName
    until: datetime


class ActiveHints(Struct, frozen=True, kw_only=True):
    """At most one hint of each kind."""

    interval: IntervalHint | None
    one_shot: OneShotHint | None
    pause: PauseHint | None


class HintStatus(Struct, frozen=True, kw_only=True):
    """The active hints, the next occurrence with them, and what it would be without them."""

    schedule: str
    adaptive: bool
    hints: ActiveHints
    next_at: datetime | None
    source: Source | None
    without_hints: datetime | None
    changes_left: int


@operations.write(
    "hint interval",
    scope="hint",
    examples=(
        {"schedule": "orders-poll", "interval": "1m", "reason": "the queue grows"},
        {"schedule": "orders-poll", "interval": "30s", "ttl": "2h"},
    ),
)
def hint_interval(context: OperationContext, tx: Transaction, request: HintInterval) -> HintStatus:
    """Request another interval until the hint expires; it may bring the next run forward, not delay it."""
    now, record = context.now(), _find_hintable(tx, context, request.schedule)
    check_hint(now=now, ttl=request.ttl, interval=request.interval)
    check_hint_interval(context, request.interval)
    wish = IntervalHint(
        interval=request.interval,
        expires_at=now + request.ttl,
        reason=request.reason,
        actor=context.by.name,
        created_at=now,
    )
    return _apply_hint(context, tx, record, wish, now=now)


@operations.write(
    "hint once",
    scope="hint",
    examples=(
        {"schedule": "orders-poll", "at": "2026-03-10T12:02:00Z", "reason": "a batch has landed"},
        {"schedule": "orders-poll", "after": "90s", "reason": "a batch has landed"},
    ),
)
def hint_once(context: OperationContext, tx: Transaction, request: HintOnce) -> HintStatus:
    """Request one run at an instant; that run consumes the hint."""
    now, record = context.now(), _find_hintable(tx, context, request.schedule)
    at = _requested_instant(request, now=now)
    check_hint(now=now, ttl=request.ttl, at=at)
    wish = OneShotHint(
        at=at, expires_at=now + request.ttl, reason=request.reason, actor=context.by.name, created_at=now
    )
    return _apply_hint(context, tx, record, wish, now=now)


@operations.write(
    "hint pause",
    scope="hint",
    examples=({"schedule": "orders-poll", "until": "2026-03-10T12:45:00Z", "reason": "maintenance"},),
)
def hint_pause(context: OperationContext, tx: Transaction, request: HintPause) -> HintStatus:
    """Request a pause until an instant, at most one hour ahead; for longer, use schedule pause."""
    now, record = context.now(), _find_hintable(tx, context, request.schedule)
    until = check_storable(request.until, field="until")
    if not now < until <= now + MAX_PAUSE:
        raise InvalidInput(
            f"until {format_instant(until)} is out of range",
            field="until",
            value=format_instant(until),
            rule=f"after now, and at most {format_duration(MAX_PAUSE)} ahead",
            fix=f"{format_instant(now + MAX_PAUSE)}, or schedule pause for longer",
        )
    wish = PauseHint(until=until, reason=request.reason, actor=context.by.name, created_at=now)
    return _apply_hint(context, tx, record, wish, now=now)


@operations.write(
    "hint clear", scope="hint", examples=({"schedule": "orders-poll", "reason": "steady again"},)
)
def clear_all_hints(context: OperationContext, tx: Transaction, request: ScheduleAction) -> HintStatus:
    """Remove all hints; the next occurrence is decided again without them."""
    now = context.now()
    record = find_editable_schedule(tx, context.namespace, request.schedule)
    context.notify(
        clear_hints(context.store, record.schedule.id, ids=context.ids, by=context.by, now=now).facts
    )
    return _hint_status(tx, record.schedule.id, now=now)


@operations.read("hint list", scope="read", examples=({"schedule": "orders-poll"},))
def list_hints(context: OperationContext, tx: Transaction, request: GetSchedule) -> HintStatus:
    """Show the active hints, and when the schedule would run without them."""
    now = context.now()
    record = find_schedule(tx, context.namespace, request.schedule)
    return _hint_status(tx, record.schedule.id, now=now)


def _requested_instant(request: HintOnce, *, now: datetime) -> datetime:
    """Return the requested instant, from `at` or `after`."""
    if request.at is not None and request.after is None:
        return request.at
    if request.after is not None and request.at is None:
        return now + check_duration(request.after, field="after")
    raise InvalidInput(
        "give at or after" if request.at is None else "give at or after, not both",
        field="at",
        rule="one of: at, an instant; after, a duration from now",
        fix="after: 90s",
    )


def _find_hintable(tx: Transaction, context: OperationContext, wanted: str) -> ScheduleRecord:
    """Return a schedule that takes hints."""
    record = find_schedule(tx, context.namespace, wanted)
    state, schedule = record.progress.state, record.schedule
    if state not in _TAKES_HINTS:
        raise NotAllowed(
            f"schedule {schedule.name} is {state}",
            field="state",
            value=state.value,
            rule="only a schedule that is active or paused takes hints",
            fix="schedule get shows its state and reason",
        )
    check_adaptive(schedule)
    return record


def _apply_hint(
    context: OperationContext, tx: Transaction, record: ScheduleRecord, wish: HintRequest, *, now: datetime
) -> HintStatus:
    schedule_id = record.schedule.id
    changed = hint(context.store, schedule_id, wish, ids=context.ids, by=context.by, now=now)
    # Writing the hint locks the schedule's row, so that concurrent changes are counted one by one.
    _check_rate(tx, record, now=now)
    context.notify(changed.facts)
    return _hint_status(tx, schedule_id, now=now)


def _recent(tx: Transaction, schedule_id: str, *, now: datetime) -> list[datetime]:
    """Return when hints were given within the last hour, newest first."""
    return [
        one.at for one in tx.select(AdjustmentsOf(schedule_id)) if one.kind in _HINTS and one.at > now - HOUR
    ]


def _check_rate(tx: Transaction, record: ScheduleRecord, *, now: datetime) -> None:
    """Reject the newest hint if it is one too many: constant changes make a schedule unpredictable."""
    recent = _recent(tx, record.schedule.id, now=now)
    if len(recent) > MAX_CHANGES_PER_HOUR:
        raise OverQuota(
            f"the hints of {record.schedule.name} changed {len(recent) - 1} times within the last hour",
            field="schedule",
            value=record.schedule.name,
            rule=f"at most {MAX_CHANGES_PER_HOUR} changes an hour",
            fix=f"wait until {format_instant(recent[-1] + HOUR)}; hint clear is always possible",
        )


def _hint_status(tx: Transaction, schedule_id: str, *, now: datetime) -> HintStatus:
    record = tx.get_schedules([schedule_id])[schedule_id]
    schedule, progress = record.schedule, record.progress
    hints = progress.hints.unexpired(now=now)
    calendars = load_calendars(tx, [schedule]).for_schedule(schedule)
    return HintStatus(
        schedule=schedule.name,
        adaptive=schedule.adaptive,
        hints=ActiveHints(interval=hints.interval, one_shot=hints.one_shot, pause=hints.pause),
        next_at=progress.next_at,
        source=progress.source,
        without_hints=baseline(schedule, progress, now=now, base=now, calendars=calendars).at,
        changes_left=MAX_CHANGES_PER_HOUR - len(_recent(tx, schedule_id, now=now)),
    )
