"""A schedule: a standing intention, and where it stands.

`Schedule` is what someone wrote; it changes only with its revision. `Standing` is what the clock and
the runs did to it since.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.backoff import Cadence, Steady
from timewright.core.calendars import CalendarRule
from timewright.core.costs import NO_COST, Cost
from timewright.core.decision import Candidate, Decision, Source
from timewright.core.hints import NO_HINTS, Hints
from timewright.core.moments import (
    DAY,
    MINUTE,
    ZERO,
    Window,
    bounded,
    check_stored,
    spell_duration,
    spell_instant,
)
from timewright.core.policies import (
    NORMAL,
    Align,
    CatchUp,
    Clamp,
    Delivery,
    JitterSide,
    LeaseTerms,
    Offset,
    Overlap,
    Priority,
    Retry,
)
from timewright.core.target import AnyTarget
from timewright.core.triggers import AnyTrigger, Manual, Once
from timewright.core.upstream import MOST_NEEDS, Need
from timewright.errors import InvalidInput, NotAllowed

_TICK = timedelta(microseconds=1)

Preset = Literal["routine", "queue", "adaptive", "desktop", "workflow"]
Name = Annotated[str, Meta(min_length=1, max_length=255)]


class ScheduleState(StrEnum):
    """Where a schedule can be in its life."""

    ACTIVE = "active"
    PAUSED = "paused"
    PARKED = "parked"
    PENDING_APPROVAL = "pending_approval"
    FINISHED = "finished"
    ARCHIVED = "archived"


class ScheduleEvent(StrEnum):
    """What can happen to a schedule as a whole."""

    PAUSE = "pause"
    RESUME = "resume"
    PARK = "park"
    FINISH = "finish"
    ARCHIVE = "archive"
    APPROVE = "approve"
    REJECT = "reject"
    REVIVE = "revive"


SCHEDULE_TRANSITIONS: dict[tuple[ScheduleState, ScheduleEvent], ScheduleState] = {
    (ScheduleState.ACTIVE, ScheduleEvent.PAUSE): ScheduleState.PAUSED,
    (ScheduleState.ACTIVE, ScheduleEvent.PARK): ScheduleState.PARKED,
    (ScheduleState.ACTIVE, ScheduleEvent.FINISH): ScheduleState.FINISHED,
    (ScheduleState.ACTIVE, ScheduleEvent.ARCHIVE): ScheduleState.ARCHIVED,
    (ScheduleState.PAUSED, ScheduleEvent.RESUME): ScheduleState.ACTIVE,
    (ScheduleState.PAUSED, ScheduleEvent.PARK): ScheduleState.PARKED,
    (ScheduleState.PAUSED, ScheduleEvent.FINISH): ScheduleState.FINISHED,
    (ScheduleState.PAUSED, ScheduleEvent.ARCHIVE): ScheduleState.ARCHIVED,
    (ScheduleState.PARKED, ScheduleEvent.RESUME): ScheduleState.ACTIVE,
    (ScheduleState.PARKED, ScheduleEvent.ARCHIVE): ScheduleState.ARCHIVED,
    (ScheduleState.PENDING_APPROVAL, ScheduleEvent.APPROVE): ScheduleState.ACTIVE,
    (ScheduleState.PENDING_APPROVAL, ScheduleEvent.REJECT): ScheduleState.ARCHIVED,
    (ScheduleState.PENDING_APPROVAL, ScheduleEvent.ARCHIVE): ScheduleState.ARCHIVED,
    (ScheduleState.FINISHED, ScheduleEvent.REVIVE): ScheduleState.ACTIVE,
    (ScheduleState.FINISHED, ScheduleEvent.ARCHIVE): ScheduleState.ARCHIVED,
}


def schedule_after(state: ScheduleState, event: ScheduleEvent) -> ScheduleState:
    """The state a schedule is in after something happened to it."""
    try:
        return SCHEDULE_TRANSITIONS[state, event]
    except KeyError:
        allowed = ", ".join(sorted(e.value for s, e in SCHEDULE_TRANSITIONS if s is state)) or "nothing"
        raise NotAllowed(
            f"a schedule that is {state} cannot {event}",
            field="state",
            value=state.value,
            rule=f"from {state} it can: {allowed}",
            fix="schedule get shows its state and reason",
        ) from None


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A standing intention: trigger, target and policies, in a namespace, with a revision."""

    id: str
    name: Name
    namespace: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    group: Annotated[str, Meta(max_length=255)] | None = None
    description: Annotated[str, Meta(max_length=10_000)] = ""
    tags: tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...] = ()
    metadata: dict[str, Any] = {}
    revision: Annotated[int, Meta(ge=1)] = 1
    created_at: datetime
    created_by: str = ""
    origin: str = "human"
    preset: Preset | None = None

    trigger: AnyTrigger
    target: AnyTarget
    start_at: datetime | None = None
    end_at: datetime | None = None
    max_runs: Annotated[int, Meta(ge=1)] | None = None
    calendar: CalendarRule | None = None
    needs: Annotated[tuple[Need, ...], Meta(max_length=MOST_NEEDS)] = ()

    align: Align = Align.GRID
    catch_up: CatchUp = CatchUp.LAST
    catch_up_limit: Annotated[int, Meta(ge=1, le=10_000)] = 100
    catch_up_window: timedelta | None = DAY
    grace: timedelta = MINUTE
    spread_over: timedelta = MINUTE
    overlap: Overlap = Overlap.SKIP
    queue_limit: Annotated[int, Meta(ge=1, le=100_000)] = 100
    jitter: timedelta = ZERO
    jitter_side: JitterSide = JitterSide.LATE
    offset: Offset = Offset.NONE

    retry: Retry = Retry()
    cadence: Cadence = Steady()
    disable_after: Annotated[int, Meta(ge=1, le=1000)] | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    lease: LeaseTerms = LeaseTerms()
    deadline: timedelta | None = None

    queue: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    limits: tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...] = ()
    budgets: Annotated[tuple[Name, ...], Meta(max_length=16)] = ()
    provider: Name | None = None
    estimate: Cost = NO_COST
    priority: Priority = NORMAL
    adaptive: bool = False
    clamp: Clamp = Clamp()

    def __post_init__(self) -> None:
        check_stored(self.created_at, field="created_at")
        if self.start_at is not None or self.end_at is not None:
            self._check_window()
        # The usual length is the same object; only what someone wrote is looked at.
        if (
            self.grace is not MINUTE
            or self.catch_up_window is not DAY
            or self.spread_over is not MINUTE
            or self.jitter is not ZERO
            or self.deadline is not None
        ):
            self._check_durations()
        if self.offset is Offset.STABLE and not self.jitter:
            raise InvalidInput(
                "offset stable has nowhere to move",
                field="offset",
                value="stable",
                rule="offset: stable needs jitter, which says how far the schedule may move",
                fix="jitter: 5m",
            )

    def _check_durations(self) -> None:
        for field in ("grace", "spread_over", "jitter", "catch_up_window", "deadline"):
            duration: timedelta | None = getattr(self, field)
            if duration is not None:
                bounded(duration, field=field)

    def _check_window(self) -> None:
        for field, moment in (("start_at", self.start_at), ("end_at", self.end_at)):
            if moment is not None:
                check_stored(moment, field=field)
        Window(self.start_at, self.end_at)

    @property
    def window(self) -> Window:
        """When the schedule lives."""
        return Window(self.start_at, self.end_at)

    @property
    def gates(self) -> tuple[str, ...]:
        """The ceilings its runs stand under: its queue's and its named limits', in a fixed order."""
        queue = (queue_gate(self.namespace, self.queue),) if self.queue else ()
        return queue + tuple(limit_gate(self.namespace, name) for name in sorted(set(self.limits)))


class Standing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Where a schedule stands: what is decided, what comes next, and why.

    Everything up to the `cursor` is decided. `next_at` is the instant that was chosen; `wake_at` is when
    to look again, which is earlier only if jitter may be early, or later while a backlog is full.
    """

    state: ScheduleState = ScheduleState.ACTIVE
    reason: str = ""
    cursor: datetime
    next_at: datetime | None = None
    wake_at: datetime | None = None
    source: Source | None = None
    trail: tuple[Candidate, ...] = ()
    failures: int = 0
    runs: int = 0
    missed: int = 0
    paused_at: datetime | None = None
    paused_until: datetime | None = None
    last_started_at: datetime | None = None
    last_finished_at: datetime | None = None
    hints: Hints = NO_HINTS


def queue_gate(namespace: str, queue: str) -> str:
    """The name of the gate that holds a queue's ceiling."""
    return f"queue:{namespace}/{queue}"


def limit_gate(namespace: str, limit: str) -> str:
    """The name of the gate that holds a named limit."""
    return f"limit:{namespace}/{limit}"


def decided(schedule: Schedule, standing: Standing, decision: Decision) -> Standing:
    """The standing with a new decision in it."""
    wake_at, cursor = decision.at, standing.cursor
    is_paused = decision.source is Source.PAUSED
    if wake_at is not None and schedule.jitter_side is JitterSide.BOTH and not is_paused:
        # The end of a pause has no jitter: whoever woke before it would find it still there, again and again.
        wake_at -= schedule.jitter
    if is_paused and standing.source is not Source.PAUSED and standing.next_at:
        # Nothing lies between the cursor and what was planned; a pause must not make it look open. But what
        # lies ahead of the pause is not decided: an edit may still plan something before it.
        passed = min(standing.next_at, decision.at or standing.next_at) - _TICK
        cursor = max(cursor, min(passed, _pause_began(standing) or passed))
    return replace(
        standing,
        cursor=cursor,
        next_at=decision.at,
        wake_at=wake_at,
        source=decision.source,
        trail=decision.trail,
    )


def _pause_began(standing: Standing) -> datetime | None:
    """When the pause began that a decision speaks of: one by hand, or one that was wished."""
    if standing.paused_at is not None:
        return standing.paused_at
    return standing.hints.pause.created_at if standing.hints.pause is not None else None


def is_step(before: Standing, after: Standing) -> bool:
    """Whether nothing changed but how far a schedule is decided, what comes next, and its counts."""
    return (
        after.state is before.state
        and after.reason is before.reason
        and after.source is before.source
        and after.trail is before.trail
        and after.failures == before.failures
        and after.paused_at is before.paused_at
        and after.paused_until is before.paused_until
        and after.last_started_at is before.last_started_at
        and after.last_finished_at is before.last_finished_at
        and after.hints is before.hints
    )


def opening(schedule: Schedule) -> Standing:
    """Where a new schedule stands before its first decision: nothing after its creation is decided."""
    cursor = schedule.created_at
    if schedule.start_at is not None:
        # The start itself counts, so the search begins just before it.
        cursor = max(cursor, schedule.start_at - _TICK)
    if isinstance(schedule.trigger, Once):
        cursor = min(cursor, schedule.trigger.at - _TICK)
    return Standing(cursor=cursor)


def check_new(schedule: Schedule, *, now: datetime, catch_up_asked: bool) -> None:
    """Refuse at creation what could never run: a past instant, or a life that is already over."""
    trigger = schedule.trigger
    if isinstance(trigger, Once):
        _check_once(trigger.at, schedule.window, now=now, catch_up_asked=catch_up_asked)
    if isinstance(trigger, Manual):
        return
    if schedule.end_at is not None and schedule.end_at < now and not catch_up_asked:
        raise InvalidInput(
            f"end_at {spell_instant(schedule.end_at)} is in the past, so nothing would ever run",
            field="end_at",
            value=spell_instant(schedule.end_at),
            rule="end_at is ahead of now",
            fix="a later end_at, or leave it out",
        )
    if schedule.deadline is not None and schedule.deadline <= ZERO:
        raise InvalidInput(
            f"deadline {spell_duration(schedule.deadline)} leaves no time to start",
            field="deadline",
            value=spell_duration(schedule.deadline),
            rule="longer than zero",
            fix="deadline: 10m",
        )


def _check_once(at: datetime, window: Window, *, now: datetime, catch_up_asked: bool) -> None:
    check_stored(at, field="trigger.at")
    if at <= now and not catch_up_asked:
        raise InvalidInput(
            f"once at {spell_instant(at)} is in the past",
            field="trigger.at",
            value=spell_instant(at),
            rule="an instant ahead of now, unless the request itself sets catch_up",
            fix="a later instant, or catch_up: last to run it at once",
        )
    if not window.contains(at):
        raise InvalidInput(
            f"once at {spell_instant(at)} lies outside start_at and end_at, so nothing would ever run",
            field="trigger.at",
            value=spell_instant(at),
            rule="the instant lies between start_at and end_at",
            fix="leave start_at and end_at out",
        )
