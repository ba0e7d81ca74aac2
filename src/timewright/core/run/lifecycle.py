"""The state machine of runs, and what an outcome means for a run and for its schedule."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.policies.policies import MAX_REFUNDS, Delivery, Exhausted, LeaseTerms, Retry
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
from timewright.core.target import Call, RunTarget
from timewright.errors import NotAllowed

_WITH_ERROR = (Failed, TimedOut, Lost)
_LEASED, _SUCCEEDED = RunState.LEASED, RunState.SUCCEEDED
_SUCCESS = str(Succeeded.__struct_config__.tag)
_DEFERRED = "deferred"


class LeaseCost(StrEnum):
    """What an ended lease uses up."""

    ATTEMPT = "attempt"
    LOSS = "loss"
    REFUND = "refund"
    DEFERRAL = "deferral"
    NOTHING = "nothing"


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
    QUIET = "quiet"


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
    (RunState.LEASED, RunEvent.QUIET): RunState.SKIPPED,
    (RunState.PARKED, RunEvent.RESET): RunState.READY,
    (RunState.PARKED, RunEvent.HOLD): RunState.HELD,
    (RunState.PARKED, RunEvent.CANCEL): RunState.CANCELLED,
    (RunState.FAILED, RunEvent.REOPEN): RunState.READY,
    (RunState.FAILED, RunEvent.HOLD): RunState.HELD,
    (RunState.CANCELLED, RunEvent.REOPEN): RunState.READY,
    (RunState.CANCELLED, RunEvent.HOLD): RunState.HELD,
}


# What people do with runs: the operation, and the word for it in a refusal.
_BY_HAND = {
    RunEvent.CANCEL: ("run cancel", "cancelled"),
    RunEvent.RESET: ("run reset", "reset"),
    RunEvent.REOPEN: ("run retry", "retried"),
}


def next_run_state(state: RunState, event: RunEvent) -> RunState:
    """Return the next state of a run, or raise NotAllowed."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        verbs = [verb for one, (verb, _) in _BY_HAND.items() if (state, one) in TRANSITIONS]
        refused = f"be {_BY_HAND[event][1]}" if event in _BY_HAND else event.value
        raise NotAllowed(
            f"a run that is {state} cannot {refused}",
            field="state",
            value=state.value,
            rule=f"what can be done with it: {', '.join(verbs) or 'nothing, it has ended'}",
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
        losses=0,
        deferred_since=None,
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
    """Compute the next state of a leased run from its outcome; failure and timeout use an attempt.

    `started_at` is when the attempt began, if the run does not record it.
    """
    started_at = started_at or run.started_at
    if isinstance(outcome, Succeeded):
        return _succeeded(run, outcome, started_at=started_at, now=now)
    cost = _cost_of(run, outcome, retry=retry, delivery=delivery, now=now)
    attempts = run.attempts + (cost is LeaseCost.ATTEMPT)
    losses = run.losses + (cost is LeaseCost.LOSS)
    event, reason, why = _classify(
        outcome, cost=cost, attempts=attempts, losses=losses, retry=retry, delivery=delivery
    )
    state = next_run_state(run.state, event)
    after = replace(
        run,
        state=state,
        reason=reason,
        started_at=started_at,
        attempts=attempts,
        losses=losses,
        refunds=run.refunds + (cost is LeaseCost.REFUND),
        deferred_since=(run.deferred_since or now) if cost is LeaseCost.DEFERRAL else None,
        fire_at=_retry_at(run, outcome, cost=cost, attempts=attempts, retry=retry, now=now)
        if state is RunState.READY
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
        _DEFERRED if cost is LeaseCost.DEFERRAL else str(type(outcome).__struct_config__.tag or ""),
        charged=cost is LeaseCost.ATTEMPT,
        error=_error(outcome),
        started_at=started_at,
        now=now,
    )
    ended = event is RunEvent.FAIL or event is RunEvent.PARK
    exhausted = ended and reason not in (Reason.UNKNOWN, Reason.LOST)
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


def settle_quiet(
    run: Run, outcome: Outcome, *, started_at: datetime | None = None, now: datetime
) -> Settlement:
    """Settle an occurrence whose answer was nothing new: it is skipped, and no attempt is charged."""
    started_at = started_at or run.started_at
    after = replace(
        run,
        state=next_run_state(run.state, RunEvent.QUIET),
        reason=Reason.QUIET.value,
        started_at=started_at,
        finished_at=now,
        lease_id="",
        holder="",
        leased_at=None,
        lease_until=None,
        error="",
    )
    attempt = _attempt(run, outcome, _SUCCESS, charged=False, label="noop", started_at=started_at, now=now)
    return Settlement(run=after, attempt=attempt, event=RunEvent.QUIET, why="nothing new")


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


def stop_deadline(run: Run, target: RunTarget, lease: LeaseTerms, *, now: datetime) -> datetime:
    """Return when the lease of a run that is asked to stop ends: after the grace of work that can be killed.

    A function may run on a thread, which cannot be killed: its lease ends as usual, and is renewed while the
    function runs. A lease may be dated after `now`; the grace starts no earlier than it.
    """
    is_killable = not isinstance(target, Call) or target.isolation == "process"
    return max(now, run.leased_at or now) + (lease.grace if is_killable else max(lease.length, lease.grace))


def _cost_of(run: Run, outcome: Outcome, *, retry: Retry, delivery: Delivery, now: datetime) -> LeaseCost:
    """Return what the lease uses up: work that failed an attempt, a killed or stopped process a loss."""
    if isinstance(outcome, Cancelled):
        return LeaseCost.NOTHING
    if isinstance(outcome, Lost) or (isinstance(outcome, Released) and outcome.interrupted):
        if not retry.losses_are_attempts:
            return LeaseCost.LOSS
    elif isinstance(outcome, Failed) and outcome.not_before is not None:
        may_wait = run.deferred_since is None or now < run.deferred_since + retry.max_wait
        if may_wait and not outcome.final and delivery is Delivery.AT_LEAST_ONCE:
            return LeaseCost.DEFERRAL
    if isinstance(outcome, Released) and run.refunds < MAX_REFUNDS and delivery is Delivery.AT_LEAST_ONCE:
        return LeaseCost.REFUND
    return LeaseCost.ATTEMPT


def _classify(
    outcome: Outcome, *, cost: LeaseCost, attempts: int, losses: int, retry: Retry, delivery: Delivery
) -> tuple[RunEvent, str, str]:
    """Return the event, the reason to store, and an explanation."""
    if isinstance(outcome, Cancelled):
        return RunEvent.CANCEL, outcome.reason, f"cancelled: {outcome.reason}"
    may_be_done = isinstance(outcome, TimedOut | Lost | Released) or (
        isinstance(outcome, Failed) and outcome.unknown
    )
    if delivery is Delivery.AT_MOST_ONCE and may_be_done:
        return RunEvent.PARK, Reason.UNKNOWN, "at_most_once: it is unknown whether the work was done"
    if cost is LeaseCost.DEFERRAL:
        return RunEvent.RELEASE, Reason.DEFERRED, "deferred by the work without using an attempt"
    if cost is LeaseCost.LOSS and losses > retry.max_losses:
        return RunEvent.PARK, Reason.LOST, f"lost {losses} times; parked"
    if cost in (LeaseCost.LOSS, LeaseCost.REFUND):
        reason = outcome.reason if isinstance(outcome, Released) else Reason.LOST
        return RunEvent.RELEASE, reason, "released without using an attempt"
    used = f"{attempts}/{retry.max_attempts} attempts used"
    ends = delivery is Delivery.AT_MOST_ONCE or (isinstance(outcome, Failed) and outcome.final)
    if attempts < retry.max_attempts and not ends:
        return RunEvent.RETRY, "", f"{used}; will be retried"
    if isinstance(outcome, Failed) and outcome.unresolved:
        return RunEvent.FAIL, Reason.UNRESOLVED, f"{used}; the target does not resolve"
    if retry.exhausted is Exhausted.PARK:
        return RunEvent.PARK, f"{Reason.EXHAUSTED}: {used}", f"{used}; parked"
    return RunEvent.FAIL, Reason.EXHAUSTED, f"{used}; failed"


def _retry_at(
    run: Run, outcome: Outcome, *, cost: LeaseCost, attempts: int, retry: Retry, now: datetime
) -> datetime:
    """Return when the run may start again: at once after a loss or a release, else after the backoff.

    A deferred run also waits for the target's `not_before`, at most `max_wait` after it was deferred first.
    """
    if cost is LeaseCost.REFUND:
        return run.fire_at
    if cost is LeaseCost.LOSS:
        # Not earlier: the next lease must not begin before this one ended.
        return max(run.fire_at, now)
    at = now + retry.backoff.delay(max(attempts, 1), seed=run.id)
    if isinstance(outcome, Failed) and outcome.not_before is not None:
        at = max(at, min(outcome.not_before, (run.deferred_since or now) + retry.max_wait))
    return at


def _error(outcome: Outcome) -> str:
    if isinstance(outcome, _WITH_ERROR):
        return outcome.error
    return outcome.reason if isinstance(outcome, Cancelled | Released) else ""
