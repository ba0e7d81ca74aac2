"""The state machine of runs, and what an outcome means for a run and for its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.calendars import Calendar
from timewright.core.policies.backoff import Steady
from timewright.core.policies.policies import MAX_REFUNDS, Delivery, Exhausted, Retry
from timewright.core.recurrence.triggers import After, Manual
from timewright.core.run.run import (
    Attempt,
    Cancelled,
    Failed,
    Lost,
    Outcome,
    Reason,
    Released,
    Run,
    RunState,
    Succeeded,
    TimedOut,
)
from timewright.core.schedule.decision import Decision
from timewright.core.schedule.governor import (
    NO_CALENDARS,
    counts_from_last_start,
    follows_trigger,
    plan_next,
)
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState, apply_decision
from timewright.errors import NotAllowed

_CHARGED = (Failed, TimedOut, Lost)
_LEASED, _SUCCEEDED = RunState.LEASED, RunState.SUCCEEDED
_SUCCESS = str(Succeeded.__struct_config__.tag)


class RunEvent(StrEnum):
    """Events of the state machine of runs."""

    LEASE = "lease"
    SUCCEED = "succeed"
    RETRY = "retry"
    RELEASE = "release"
    FAIL = "fail"
    PARK = "park"
    CANCEL = "cancel"
    SKIP = "skip"
    HOLD = "hold"
    FREE = "free"
    RESET = "reset"
    REOPEN = "reopen"


TRANSITIONS: dict[tuple[RunState, RunEvent], RunState] = {
    (RunState.READY, RunEvent.LEASE): RunState.LEASED,
    (RunState.READY, RunEvent.CANCEL): RunState.CANCELLED,
    (RunState.READY, RunEvent.SKIP): RunState.SKIPPED,
    (RunState.READY, RunEvent.PARK): RunState.PARKED,
    (RunState.HELD, RunEvent.FREE): RunState.READY,
    (RunState.HELD, RunEvent.CANCEL): RunState.CANCELLED,
    (RunState.HELD, RunEvent.SKIP): RunState.SKIPPED,
    (RunState.LEASED, RunEvent.SUCCEED): RunState.SUCCEEDED,
    (RunState.LEASED, RunEvent.RETRY): RunState.READY,
    (RunState.LEASED, RunEvent.RELEASE): RunState.READY,
    (RunState.LEASED, RunEvent.FAIL): RunState.FAILED,
    (RunState.LEASED, RunEvent.PARK): RunState.PARKED,
    (RunState.LEASED, RunEvent.CANCEL): RunState.CANCELLED,
    (RunState.PARKED, RunEvent.RESET): RunState.READY,
    (RunState.PARKED, RunEvent.HOLD): RunState.HELD,
    (RunState.PARKED, RunEvent.CANCEL): RunState.CANCELLED,
    (RunState.FAILED, RunEvent.REOPEN): RunState.READY,
    (RunState.FAILED, RunEvent.HOLD): RunState.HELD,
    (RunState.CANCELLED, RunEvent.REOPEN): RunState.READY,
    (RunState.CANCELLED, RunEvent.HOLD): RunState.HELD,
}


def next_run_state(state: RunState, event: RunEvent) -> RunState:
    """Return the next state of a run, or raise NotAllowed."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        allowed = ", ".join(sorted(e.value for s, e in TRANSITIONS if s is state)) or "nothing further"
        raise NotAllowed(
            f"a run that is {state} cannot {event}",
            field="state",
            value=state.value,
            rule=f"from {state} it can: {allowed}",
            fix="run get shows its state and reason",
        ) from None


def restart_run(run: Run, event: RunEvent, *, now: datetime) -> Run:
    """Return a run that a user starts again, with its attempts and result cleared."""
    return replace(
        run,
        state=next_run_state(run.state, event),
        reason="",
        attempts=0,
        refunds=0,
        fire_at=now,
        finished_at=None,
        error="",
    )


class Settlement(Struct, frozen=True, kw_only=True, gc=False):
    """The result of settling: the run after it, the attempt, and whether attempts are exhausted."""

    run: Run
    attempt: Attempt
    event: RunEvent
    why: str
    exhausted: bool = False

    @property
    def finished(self) -> bool:
        """Whether the run is finished for its schedule: it will not be retried."""
        return self.run.state is not RunState.READY


def settle_outcome(
    run: Run,
    outcome: Outcome,
    *,
    retry: Retry,
    delivery: Delivery = Delivery.AT_LEAST_ONCE,
    started_at: datetime | None = None,
    now: datetime,
) -> Settlement:
    """Compute the next state of a leased run from its outcome; failure, timeout and loss use an attempt.

    `started_at` is when the attempt began, if the run does not record it.
    """
    started_at = started_at or run.started_at
    if isinstance(outcome, Succeeded):
        return _succeeded(run, outcome, started_at=started_at, now=now)
    charged = _is_charged(run, outcome, delivery)
    attempts = run.attempts + charged
    event, reason, why = _classify(
        outcome, attempts=attempts, charged=charged, retry=retry, delivery=delivery
    )
    state = next_run_state(run.state, event)
    after = replace(
        run,
        state=state,
        reason=reason,
        started_at=started_at,
        attempts=attempts,
        refunds=run.refunds + (event is RunEvent.RELEASE),
        fire_at=_retry_at(run, outcome, attempts=attempts, retry=retry, now=now)
        if event is RunEvent.RETRY
        else run.fire_at,
        finished_at=None if state is RunState.READY else now,
        lease_id="",
        holder="",
        leased_at=None,
        lease_until=None,
        outcome_label="",
        error=_error(outcome),
    )
    attempt = _attempt(
        run,
        outcome,
        str(type(outcome).__struct_config__.tag or ""),
        charged=charged,
        error=_error(outcome),
        started_at=started_at,
        now=now,
    )
    exhausted = (event is RunEvent.FAIL or event is RunEvent.PARK) and reason != Reason.UNKNOWN
    return Settlement(run=after, attempt=attempt, event=event, why=why, exhausted=exhausted)


def _succeeded(run: Run, outcome: Succeeded, *, started_at: datetime | None, now: datetime) -> Settlement:
    """Settle a success: no attempt is charged and nothing is retried."""
    label = outcome.outcome_label
    after = replace(
        run,
        state=_SUCCEEDED if run.state is _LEASED else next_run_state(run.state, RunEvent.SUCCEED),
        reason="",
        started_at=started_at,
        finished_at=now,
        lease_id="",
        holder="",
        leased_at=None,
        lease_until=None,
        outcome_label=label,
        error="",
    )
    attempt = _attempt(run, outcome, _SUCCESS, charged=False, label=label, started_at=started_at, now=now)
    return Settlement(run=after, attempt=attempt, event=RunEvent.SUCCEED, why="succeeded")


def reset_run(run: Run, *, now: datetime, held: bool = False) -> Run:
    """Return a parked run with its attempts reset; held if another run of its schedule is live."""
    state = next_run_state(run.state, RunEvent.RESET)
    return replace(
        run,
        state=next_run_state(run.state, RunEvent.HOLD) if held else state,
        reason="",
        attempts=0,
        refunds=0,
        fire_at=min(run.planned_at, now),
        finished_at=None,
        error="",
        outcome_label="",
    )


def _attempt(
    run: Run,
    outcome: Outcome,
    kind: str,
    *,
    charged: bool,
    label: str = "",
    error: str = "",
    started_at: datetime | None,
    now: datetime,
) -> Attempt:
    """Return the record of the lease that just ended."""
    assert run.leased_at is not None
    assert run.lease_until is not None
    return Attempt(
        run_id=run.id,
        fence=run.fence,
        number=run.attempts + 1,
        lease_id=run.lease_id,
        holder=run.holder,
        leased_at=run.leased_at,
        lease_until=run.lease_until,
        started_at=started_at,
        ended_at=now,
        outcome=kind,
        charged=charged,
        outcome_label=label,
        error=error,
        result=outcome.result,
        cost=outcome.cost,
    )


def settle_schedule(
    schedule: Schedule,
    progress: ScheduleProgress,
    run: Run,
    *,
    now: datetime,
    idle: bool = True,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> tuple[ScheduleProgress, Decision | None]:
    """Apply a finished run to its schedule: the failure count first, then the next instant.

    Returns the progress and, if the next instant was decided again, the decision.
    """
    before, progress = (
        progress,
        replace(progress, failures=_consecutive_failures(progress, run), last_finished_at=now),
    )
    if progress.state is not ScheduleState.ACTIVE:
        return progress, None
    if schedule.disable_after is not None and progress.failures >= schedule.disable_after:
        why = f"disabled after {progress.failures} failures in a row"
        return _stop(progress, ScheduleState.PARKED, why), None
    if run.reason == Reason.UNRESOLVED and run.state is RunState.FAILED:
        return _stop(progress, ScheduleState.PARKED, f"target does not resolve: {run.error}"), None
    decision = _decide_at_settle(schedule, before, progress, run, now=now, calendars=calendars)
    if decision is not None:
        progress = apply_decision(schedule, progress, decision)
    if progress.next_at is None and idle and not isinstance(schedule.trigger, Manual | After):
        return _stop(progress, ScheduleState.FINISHED, "no further occurrences"), None
    return progress, decision


def _stop(progress: ScheduleProgress, state: ScheduleState, reason: str) -> ScheduleProgress:
    return replace(progress, state=state, reason=reason, next_at=None, wake_at=None)


def _consecutive_failures(progress: ScheduleProgress, run: Run) -> int:
    """Return the consecutive failures: a failure adds one, a success resets, a cancel changes nothing."""
    if run.state is RunState.SUCCEEDED:
        return 0
    if run.state in (RunState.FAILED, RunState.PARKED):
        return progress.failures + 1
    return progress.failures


def _decide_at_settle(
    schedule: Schedule,
    before: ScheduleProgress,
    after: ScheduleProgress,
    run: Run,
    *,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Decision | None:
    """Return the new decision at the end of a run, or None to keep the stored one.

    Grid and cron are planned at admission; failures and hints change that. A manual run keeps the next time.
    """
    follows_end = isinstance(schedule.trigger, After)
    if run.dedupe_scope and not (follows_end and after.next_at is None):
        return None
    counts_from_run = follows_end or counts_from_last_start(schedule)
    if not counts_from_run:
        if _ends_streak(schedule, before, after, now=now):
            # What came due during the run is decided by the next admission, so plan from the cursor.
            unhinted = replace(after, hints=after.hints.unexpired(now=now))
            return plan_next(schedule, unhinted, now=after.cursor, calendars=calendars)
        is_due = after.next_at is not None and after.next_at <= now
        if is_due or not _is_governed(schedule, after):
            return None
    base = run.started_at if counts_from_last_start(schedule) or schedule.adaptive else None
    return plan_next(schedule, after, now=now, base=base, calendars=calendars)


def _ends_streak(
    schedule: Schedule, before: ScheduleProgress, after: ScheduleProgress, *, now: datetime
) -> bool:
    """Whether the run ended a streak of failures, so that the trigger decides again."""
    ended = before.failures > 0 and after.failures == 0 and not isinstance(schedule.cadence, Steady)
    return ended and follows_trigger(schedule, after, now=now)


def _is_governed(schedule: Schedule, progress: ScheduleProgress) -> bool:
    """Whether a cadence or a hint decides the next instant."""
    hints = progress.hints
    hinted = schedule.adaptive and (hints.interval is not None or hints.one_shot is not None)
    return hinted or (progress.failures > 0 and not isinstance(schedule.cadence, Steady))


def _is_charged(run: Run, outcome: Outcome, delivery: Delivery) -> bool:
    if isinstance(outcome, Released):
        return run.refunds >= MAX_REFUNDS or delivery is Delivery.AT_MOST_ONCE
    return isinstance(outcome, _CHARGED)


def _classify(
    outcome: Outcome, *, attempts: int, charged: bool, retry: Retry, delivery: Delivery
) -> tuple[RunEvent, str, str]:
    """Return the event, the reason to store, and an explanation."""
    if isinstance(outcome, Cancelled):
        return RunEvent.CANCEL, outcome.reason, f"cancelled: {outcome.reason}"
    may_be_done = isinstance(outcome, TimedOut | Lost | Released) or (
        isinstance(outcome, Failed) and outcome.unknown
    )
    if delivery is Delivery.AT_MOST_ONCE and may_be_done:
        return RunEvent.PARK, Reason.UNKNOWN, "at_most_once: it is unknown whether the work was done"
    if isinstance(outcome, Released) and not charged:
        return RunEvent.RELEASE, outcome.reason, "released without using an attempt"
    used = f"{attempts}/{retry.max_attempts} attempts used"
    ends = delivery is Delivery.AT_MOST_ONCE or (isinstance(outcome, Failed) and outcome.final)
    if attempts < retry.max_attempts and not ends:
        return RunEvent.RETRY, "", f"{used}; will be retried"
    if isinstance(outcome, Failed) and outcome.unresolved:
        return RunEvent.FAIL, Reason.UNRESOLVED, f"{used}; the target does not resolve"
    if retry.exhausted is Exhausted.PARK:
        return RunEvent.PARK, f"{Reason.EXHAUSTED}: {used}", f"{used}; parked"
    return RunEvent.FAIL, Reason.EXHAUSTED, f"{used}; failed"


def _retry_at(run: Run, outcome: Outcome, *, attempts: int, retry: Retry, now: datetime) -> datetime:
    """Return when the next attempt may start: after the backoff, and not before the target's `not_before`."""
    at = now + retry.backoff.delay(attempts, seed=run.id)
    if isinstance(outcome, Failed) and outcome.not_before is not None:
        at = max(at, min(outcome.not_before, now + retry.max_wait))
    return at


def _error(outcome: Outcome) -> str:
    if isinstance(outcome, _CHARGED):
        return outcome.error
    return outcome.reason if isinstance(outcome, Cancelled | Released) else ""
