"""The life of a run as a table, and what an outcome means for the run and for its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.backoff import Steady
from timewright.core.calendars import Calendar
from timewright.core.decision import Decision
from timewright.core.governor import NO_CALENDARS, counts_from_now, plan_next
from timewright.core.policies import REFUND_CAP, Delivery, Exhausted, Retry
from timewright.core.run import (
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
from timewright.core.schedule import Schedule, ScheduleState, Standing, decided
from timewright.core.triggers import After, Manual
from timewright.errors import NotAllowed

_CHARGED = (Failed, TimedOut, Lost)
_LEASED, _SUCCEEDED = RunState.LEASED, RunState.SUCCEEDED
_SUCCESS = str(Succeeded.__struct_config__.tag)


class RunEvent(StrEnum):
    """What can happen to a run."""

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


def run_after(state: RunState, event: RunEvent) -> RunState:
    """The state a run is in after something happened to it."""
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


def anew(run: Run, event: RunEvent, *, now: datetime) -> Run:
    """A run that begins again by somebody's word: what its attempts left behind is cleared."""
    return replace(
        run,
        state=run_after(run.state, event),
        reason="",
        attempts=0,
        refunds=0,
        fire_at=now,
        finished_at=None,
        error="",
    )


class Settlement(Struct, frozen=True, kw_only=True, gc=False):
    """What an outcome made of a run: the run after it, its attempt, and whether that was the end."""

    run: Run
    attempt: Attempt
    event: RunEvent
    why: str
    exhausted: bool = False

    @property
    def finished(self) -> bool:
        """Whether the run is over for its schedule: nothing of it is under way any more."""
        return self.run.state is not RunState.READY


def settle(
    run: Run,
    outcome: Outcome,
    *,
    retry: Retry,
    delivery: Delivery = Delivery.AT_LEAST_ONCE,
    started_at: datetime | None = None,
    now: datetime,
) -> Settlement:
    """Turn the outcome of a leased run into its next state; failure, time-out and loss cost an attempt.

    `started_at` is when the work began, where the run does not say it.
    """
    started_at = started_at or run.started_at
    if isinstance(outcome, Succeeded):
        return _succeeded(run, outcome, started_at=started_at, now=now)
    charged = _is_charged(run, outcome, delivery)
    attempts = run.attempts + charged
    event, reason, why = _verdict(outcome, attempts=attempts, charged=charged, retry=retry, delivery=delivery)
    state = run_after(run.state, event)
    ended = replace(
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
        word="",
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
    return Settlement(run=ended, attempt=attempt, event=event, why=why, exhausted=exhausted)


def _succeeded(run: Run, outcome: Succeeded, *, started_at: datetime | None, now: datetime) -> Settlement:
    """The ordinary end: nothing to charge, to wait for or to explain."""
    word = outcome.word
    ended = replace(
        run,
        state=_SUCCEEDED if run.state is _LEASED else run_after(run.state, RunEvent.SUCCEED),
        reason="",
        started_at=started_at,
        finished_at=now,
        lease_id="",
        holder="",
        leased_at=None,
        lease_until=None,
        word=word,
        error="",
    )
    attempt = _attempt(run, outcome, _SUCCESS, charged=False, word=word, started_at=started_at, now=now)
    return Settlement(run=ended, attempt=attempt, event=RunEvent.SUCCEED, why="the work was done")


def reset(run: Run, *, now: datetime, held: bool = False) -> Run:
    """A parked run with its attempts given back by a person; held if another of its schedule is live."""
    state = run_after(run.state, RunEvent.RESET)
    return replace(
        run,
        state=run_after(run.state, RunEvent.HOLD) if held else state,
        reason="",
        attempts=0,
        refunds=0,
        fire_at=min(run.planned_at, now),
        finished_at=None,
        error="",
        word="",
    )


def _attempt(
    run: Run,
    outcome: Outcome,
    kind: str,
    *,
    charged: bool,
    word: str = "",
    error: str = "",
    started_at: datetime | None,
    now: datetime,
) -> Attempt:
    """The record of the lease that just ended."""
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
        word=word,
        error=error,
        result=outcome.result,
        cost=outcome.cost,
    )


def settle_schedule(
    schedule: Schedule,
    standing: Standing,
    run: Run,
    *,
    now: datetime,
    alone: bool = True,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> tuple[Standing, Decision | None]:
    """What a finished run means for its schedule; the outcome is applied before the next time is planned.

    Gives back the standing and, if the next time was decided again, the decision.
    """
    before, standing = standing, replace(standing, failures=_streak(standing, run), last_finished_at=now)
    if standing.state is not ScheduleState.ACTIVE:
        return standing, None
    if schedule.disable_after is not None and standing.failures >= schedule.disable_after:
        why = f"disabled after {standing.failures} failures in a row"
        return _stopped(standing, ScheduleState.PARKED, why), None
    if run.reason == Reason.UNRESOLVED and run.state is RunState.FAILED:
        return _stopped(standing, ScheduleState.PARKED, f"target does not resolve: {run.error}"), None
    decision = None
    if _decides_at_settle(schedule, before, standing):
        base = run.started_at if counts_from_now(schedule) or schedule.adaptive else None
        decision = plan_next(schedule, standing, now=now, base=base, calendars=calendars)
        standing = decided(schedule, standing, decision)
    if standing.next_at is None and alone and not isinstance(schedule.trigger, Manual | After):
        return _stopped(standing, ScheduleState.FINISHED, "nothing further is planned"), None
    return standing, decision


def _stopped(standing: Standing, state: ScheduleState, reason: str) -> Standing:
    return replace(standing, state=state, reason=reason, next_at=None, wake_at=None)


def _streak(standing: Standing, run: Run) -> int:
    """Failures in a row: an error adds one, any non-error clears it, a cancel says nothing."""
    if run.state is RunState.SUCCEEDED:
        return 0
    if run.state in (RunState.FAILED, RunState.PARKED):
        return standing.failures + 1
    return standing.failures


def _decides_at_settle(schedule: Schedule, before: Standing, after: Standing) -> bool:
    """Grid and cron were planned at admission; only a streak, a hint, or the end of the run moves them."""
    streak = before.failures > 0 or after.failures > 0
    hinted = schedule.adaptive and (after.hints.interval is not None or after.hints.one_shot is not None)
    return (
        counts_from_now(schedule)
        or isinstance(schedule.trigger, After)
        or (streak and not isinstance(schedule.cadence, Steady))
        or hinted
    )


def _is_charged(run: Run, outcome: Outcome, delivery: Delivery) -> bool:
    if isinstance(outcome, Released):
        return run.refunds >= REFUND_CAP or delivery is Delivery.AT_MOST_ONCE
    return isinstance(outcome, _CHARGED)


def _verdict(
    outcome: Outcome, *, attempts: int, charged: bool, retry: Retry, delivery: Delivery
) -> tuple[RunEvent, str, str]:
    """The event, the reason to record, and the sentence that explains it."""
    if isinstance(outcome, Cancelled):
        return RunEvent.CANCEL, outcome.reason, f"cancelled: {outcome.reason}"
    if delivery is Delivery.AT_MOST_ONCE and isinstance(outcome, TimedOut | Lost | Released):
        return RunEvent.PARK, Reason.UNKNOWN, "at_most_once: nobody knows whether the work was done"
    if isinstance(outcome, Released) and not charged:
        return RunEvent.RELEASE, outcome.reason, "given back without an attempt being charged"
    used = f"{attempts}/{retry.max_attempts} attempts used"
    ends = delivery is Delivery.AT_MOST_ONCE or (isinstance(outcome, Failed) and outcome.final)
    if attempts < retry.max_attempts and not ends:
        return RunEvent.RETRY, "", f"{used}; will be tried again"
    if isinstance(outcome, Failed) and outcome.unresolved:
        return RunEvent.FAIL, Reason.UNRESOLVED, f"{used}; the target does not resolve"
    if retry.exhausted is Exhausted.PARK:
        return RunEvent.PARK, f"{Reason.EXHAUSTED}: {used}", f"{used}; parked for a person"
    return RunEvent.FAIL, Reason.EXHAUSTED, f"{used}; failed"


def _retry_at(run: Run, outcome: Outcome, *, attempts: int, retry: Retry, now: datetime) -> datetime:
    """When the next attempt may start: after the backoff, and not before the target asked."""
    at = now + retry.backoff.delay(attempts, seed=run.id)
    if isinstance(outcome, Failed) and outcome.not_before is not None:
        at = max(at, min(outcome.not_before, now + retry.longest_wait))
    return at


def _error(outcome: Outcome) -> str:
    if isinstance(outcome, _CHARGED):
        return outcome.error
    return outcome.reason if isinstance(outcome, Cancelled | Released) else ""
