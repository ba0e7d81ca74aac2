"""A schedule and its progress.

`Schedule` is the definition that a user wrote; it changes only with a new revision. `ScheduleProgress` is
what time and runs changed since: the state, the next instant, the counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.alerts.incidents import AlertRules, CheckIn, Expect
from timewright.core.budgets.costs import NO_COST, Cost
from timewright.core.calendars import CalendarRule
from timewright.core.moments import (
    DAY,
    MINUTE,
    ZERO,
    Window,
    check_duration,
    check_storable,
)
from timewright.core.policies.answers import (
    MAX_RULES,
    AnswerRule,
    AnswerRules,
    ChangeWatch,
    Verdict,
    check_answer_fields,
    collect_rules,
)
from timewright.core.policies.backoff import Cadence, Steady
from timewright.core.policies.limits import MAX_LIMITS, LimitUse, limit_names, named_limit_key
from timewright.core.policies.policies import (
    NORMAL_PRIORITY,
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
from timewright.core.recurrence.triggers import AnyTrigger, Once
from timewright.core.schedule.decision import Candidate, Decision, Source
from timewright.core.schedule.hints import NO_HINTS, Hints
from timewright.core.schedule.upstream import MAX_NEEDS, Need
from timewright.core.target import AnyTarget
from timewright.errors import InvalidInput, NotAllowed

# For the runs that wait for a `max_running` that was removed.
NO_LIMIT = 100_000
_MICROSECOND = timedelta(microseconds=1)

Preset = Literal["routine", "queue", "adaptive", "desktop", "workflow"]
Name = Annotated[str, Meta(min_length=1, max_length=255)]


class ScheduleState(StrEnum):
    """The states of a schedule."""

    ACTIVE = "active"
    PAUSED = "paused"
    PARKED = "parked"
    PENDING_APPROVAL = "pending_approval"
    FINISHED = "finished"
    ARCHIVED = "archived"


class ScheduleEvent(StrEnum):
    """Events of the state machine of schedules."""

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


# What people do with schedules: the operation, and the word for it in a refusal.
_BY_HAND = {
    ScheduleEvent.PAUSE: ("schedule pause", "paused"),
    ScheduleEvent.RESUME: ("schedule resume", "resumed"),
    ScheduleEvent.FINISH: ("schedule finish", "finished"),
    ScheduleEvent.ARCHIVE: ("schedule archive", "archived"),
    ScheduleEvent.APPROVE: ("approval approve", "approved"),
    ScheduleEvent.REJECT: ("approval reject", "rejected"),
}


def next_schedule_state(state: ScheduleState, event: ScheduleEvent) -> ScheduleState:
    """Return the next state of a schedule, or raise NotAllowed."""
    try:
        return SCHEDULE_TRANSITIONS[state, event]
    except KeyError:
        verbs = [verb for one, (verb, _) in _BY_HAND.items() if (state, one) in SCHEDULE_TRANSITIONS]
        refused = f"be {_BY_HAND[event][1]}" if event in _BY_HAND else event.value
        raise NotAllowed(
            f"a schedule that is {state} cannot {refused}",
            field="state",
            value=state.value,
            rule=f"what can be done with it: {', '.join(verbs) or 'nothing'}",
            fix="schedule get shows its state and reason",
        ) from None


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A schedule: trigger, target and policies, in a namespace, with a revision."""

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
    owner: str = ""
    preset: Preset | None = None

    trigger: AnyTrigger
    target: AnyTarget
    check: AnyTarget | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    max_runs: Annotated[int, Meta(ge=1)] | None = None
    run_at_start: bool = False
    calendar: CalendarRule | None = None
    needs: Annotated[tuple[Need, ...], Meta(max_length=MAX_NEEDS)] = ()

    align: Align = Align.GRID
    catch_up: CatchUp = CatchUp.LAST
    catch_up_limit: Annotated[int, Meta(ge=1, le=10_000)] = 100
    catch_up_window: timedelta | None = DAY
    grace: timedelta = MINUTE
    spread_over: timedelta = MINUTE
    overlap: Overlap = Overlap.SKIP
    max_running: Annotated[int, Meta(ge=1, le=100_000)] | None = None
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
    limits: Annotated[tuple[LimitUse, ...], Meta(max_length=MAX_LIMITS)] = ()
    runs_on: tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...] = ()
    budgets: Annotated[tuple[Name, ...], Meta(max_length=16)] = ()
    provider: Name | None = None
    estimate: Cost = NO_COST
    priority: Priority = NORMAL_PRIORITY
    adaptive: bool = False
    clamp: Clamp = Clamp()
    alerts: AlertRules | None = None
    expect: Expect | None = None
    check_in: CheckIn | None = None

    rules: Annotated[tuple[AnswerRule, ...], Meta(max_length=MAX_RULES)] = ()
    succeed_if: Annotated[str, Meta(max_length=500)] = ""
    exit_codes: Annotated[
        dict[Annotated[str, Meta(pattern=r"^[0-9]{1,3}$")], Verdict], Meta(max_length=MAX_RULES)
    ] = {}
    empty: Literal["succeed", "fail", "quiet"] = "succeed"
    watch: ChangeWatch | None = None
    keep_state: bool = False

    def __post_init__(self) -> None:
        check_storable(self.created_at, field="created_at")
        if self.start_at is not None or self.end_at is not None:
            self._check_window()
        # Defaults are compared by identity, so that only changed durations are checked.
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
                "offset: stable has no effect without jitter",
                field="offset",
                value="stable",
                rule="offset: stable needs jitter, the maximum offset",
                fix="jitter: 5m",
            )

        if self.succeed_if or self.check is not None:
            check_answer_fields(self.succeed_if, self.check, self.target)
        if self.max_running is not None and self.overlap is not Overlap.ALLOW:
            raise InvalidInput(
                f"max_running: {self.max_running} has no effect with overlap: {self.overlap.value}",
                field="max_running",
                value=self.max_running,
                rule="only with overlap: allow do several runs of a schedule run at once",
                fix="overlap: allow",
            )

    def _check_durations(self) -> None:
        for field in ("grace", "spread_over", "jitter", "catch_up_window", "deadline"):
            duration: timedelta | None = getattr(self, field)
            if duration is not None:
                check_duration(duration, field=field)

    def _check_window(self) -> None:
        for field, moment in (("start_at", self.start_at), ("end_at", self.end_at)):
            if moment is not None:
                check_storable(moment, field=field)
        Window(self.start_at, self.end_at)

    @property
    def window(self) -> Window:
        """From `start_at` to `end_at`."""
        return Window(self.start_at, self.end_at)

    @property
    def uses_state(self) -> bool:
        """Whether its runs are judged by rules, or read or write what it keeps between runs."""
        given = (
            self.keep_state or self.check or self.rules or self.succeed_if or self.exit_codes or self.watch
        )
        return bool(given) or self.empty != "succeed"

    @property
    def answer_rules(self) -> AnswerRules:
        """All its rules over answers, as one list."""
        return collect_rules(self.rules, self.succeed_if, self.exit_codes, self.empty, self.watch)

    @property
    def limit_keys(self) -> tuple[str, ...]:
        """The keys of its concurrency limits: its queue, its own and its named limits, in a fixed order."""
        if not (self.queue or self.limits or self.max_running):
            return ()
        queue = (queue_limit_key(self.namespace, self.queue),) if self.queue else ()
        own = (schedule_limit_key(self.namespace, self.id),) if self.max_running else ()
        named = tuple(named_limit_key(self.namespace, name) for name in limit_names(self.limits))
        return queue + own + named


class ScheduleProgress(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The progress of a schedule: its state, what is decided, the next instant, and why.

    Every occurrence up to the `cursor` is decided. `next_at` is the chosen instant. `wake_at` is when to
    admit again: earlier than `next_at` if jitter may be early or a hint expires before it, later while the
    backlog is full. Between `replaced_after` and the cursor, a cadence may have replaced instants of the
    trigger, which a success makes occurrences again.
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
    failing_since: datetime | None = None
    replaced_after: datetime | None = None
    hints: Hints = NO_HINTS

    @property
    def reopened_after(self) -> datetime | None:
        """`replaced_after`, unless the streak of failures set it that goes on (`core.run.replaced`)."""
        since, failing = self.replaced_after, self.failing_since
        return since if since is None or failing is None or since < failing else None


def queue_limit_key(namespace: str, queue: str) -> str:
    """Return the key of a queue's concurrency limit."""
    return f"queue:{namespace}/{queue}"


def schedule_limit_key(namespace: str, schedule_id: str) -> str:
    """Return the key of a schedule's own concurrency limit, its `max_running`."""
    return f"schedule:{namespace}/{schedule_id}"


def own_limits(schedules: Iterable[Schedule]) -> dict[str, int]:
    """Return the capacities of the schedules' own limits; one that was removed lets all runs start."""
    return {schedule_limit_key(one.namespace, one.id): one.max_running or NO_LIMIT for one in schedules}


def apply_decision(schedule: Schedule, progress: ScheduleProgress, decision: Decision) -> ScheduleProgress:
    """Return the progress with a new decision. It wakes at the decided instant, or when a hint expires."""
    wake_at, cursor = decision.at, progress.cursor
    is_paused = decision.source is Source.PAUSED
    if wake_at is not None and not is_paused:
        # Waking before the end of a pause or of a hint would find it still active, repeatedly.
        expiry = progress.hints.next_expiry() if schedule.adaptive else None
        if expiry is not None and expiry < wake_at:
            wake_at = expiry
        elif schedule.jitter_side is JitterSide.BOTH:
            wake_at -= schedule.jitter
    # A minimum counts from the last occurrence, so the cursor stays there.
    is_passed = is_paused and progress.source is not Source.PAUSED and not schedule.clamp.min
    if is_passed and progress.next_at:
        # There is no occurrence between the cursor and the planned instant, so move the cursor up to it, but
        # not past the start of the pause: an edit may still plan an occurrence before it.
        passed = min(progress.next_at, decision.at or progress.next_at) - _MICROSECOND
        began = _pause_start(progress)
        cursor = max(cursor, min(passed, began or passed))
    return replace(
        progress,
        cursor=cursor,
        next_at=decision.at,
        wake_at=wake_at,
        source=decision.source,
        trail=decision.trail,
    )


def _pause_start(progress: ScheduleProgress) -> datetime | None:
    """Return when the user's pause, or else the hint's pause, began."""
    if progress.paused_at is not None:
        return progress.paused_at
    return progress.hints.pause.created_at if progress.hints.pause is not None else None


def only_advances(before: ScheduleProgress, after: ScheduleProgress) -> bool:
    """Whether only the cursor, the next instant and the counts changed."""
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
        and after.failing_since is before.failing_since
        and after.replaced_after is before.replaced_after
        and after.hints is before.hints
    )


def initial_progress(schedule: Schedule) -> ScheduleProgress:
    """Return the progress of a new schedule: nothing after its creation is decided."""
    cursor = schedule.created_at
    if schedule.start_at is not None:
        # `start_at` is inclusive, so the search begins one microsecond before it.
        cursor = max(cursor, schedule.start_at - _MICROSECOND)
    if isinstance(schedule.trigger, Once):
        cursor = min(cursor, schedule.trigger.at - _MICROSECOND)
    return ScheduleProgress(cursor=cursor)
