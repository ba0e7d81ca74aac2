"""The state machines of runs and schedules, and the effect of an outcome on both."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.schedule_simulation import NOON, first_progress, schedule
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.core.policies.backoff import Exponential, Ladder, Stretch
from timewright.core.policies.policies import (
    MAX_REFUNDS,
    PRESETS,
    Align,
    Delivery,
    Exhausted,
    QueuePolicy,
    Retry,
)
from timewright.core.recurrence.triggers import Cron, Every, Manual, Once
from timewright.core.run.lifecycle import (
    TRANSITIONS,
    RunEvent,
    Settlement,
    next_run_state,
    restart_run,
    settle_outcome,
)
from timewright.core.run.run import (
    LIVE_STATES,
    TERMINAL_STATES,
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
    occurrence_key,
    run_idempotency_key,
)
from timewright.core.run.schedule_end import settle_schedule
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.hints import Hints, IntervalHint
from timewright.core.schedule.schedule import (
    SCHEDULE_TRANSITIONS,
    Schedule,
    ScheduleEvent,
    ScheduleProgress,
    ScheduleState,
    apply_decision,
    next_schedule_state,
)
from timewright.errors import NotAllowed

NOW = NOON + 30 * SECOND
ONCE = Delivery.AT_MOST_ONCE
RETRY = Retry(max_attempts=3, backoff=Exponential())


def leased(**fields: Any) -> Run:
    given = {
        "id": "run_1",
        "schedule_id": "sch_1",
        "planned_at": NOON,
        "fire_at": NOON,
        "state": RunState.LEASED,
        "source": Source.BASELINE_CRON,
        "created_at": NOON,
        "fence": 1,
        "lease_id": "lease_1",
        "holder": "worker",
        "leased_at": NOON,
        "lease_until": NOON + 5 * MINUTE,
        "started_at": NOON,
        **fields,
    }
    return Run(**given)


def settled(
    outcome: Outcome, *, delivery: Delivery = Delivery.AT_LEAST_ONCE, retry: Retry = RETRY, **fields: Any
) -> Settlement:
    return settle_outcome(leased(**fields), outcome, retry=retry, delivery=delivery, now=NOW)


# The tables


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("event", RunEvent)
def test_every_pair_of_the_run_table_is_a_state_or_a_refusal(state: RunState, event: RunEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert next_run_state(state, event) is TRANSITIONS[state, event]
        return
    with pytest.raises(NotAllowed) as refusal:
        next_run_state(state, event)
    assert refusal.value.field == "state"
    assert refusal.value.rule
    assert refusal.value.fix


@pytest.mark.parametrize("state", ScheduleState)
@pytest.mark.parametrize("event", ScheduleEvent)
def test_every_pair_of_the_schedule_table_is_a_state_or_a_refusal(
    state: ScheduleState, event: ScheduleEvent
) -> None:
    if (state, event) in SCHEDULE_TRANSITIONS:
        assert next_schedule_state(state, event) is SCHEDULE_TRANSITIONS[state, event]
        return
    with pytest.raises(NotAllowed) as refusal:
        next_schedule_state(state, event)
    assert refusal.value.field == "state"
    assert refusal.value.rule
    assert refusal.value.fix


@given(events=st.lists(st.sampled_from(RunEvent), max_size=40))
def test_no_walk_of_a_run_leaves_its_table(events: list[RunEvent]) -> None:
    state = RunState.READY
    for event in events:
        try:
            following = next_run_state(state, event)
        except NotAllowed:
            assert (state, event) not in TRANSITIONS
            continue
        # Succeeded and skipped runs are final, and only a reset makes a parked run ready.
        assert state not in (RunState.SUCCEEDED, RunState.SKIPPED)
        assert state is not RunState.PARKED or event in (RunEvent.RESET, RunEvent.HOLD, RunEvent.CANCEL)
        assert following is not RunState.LEASED or state is RunState.READY
        state = following


@given(events=st.lists(st.sampled_from(ScheduleEvent), max_size=40))
def test_no_walk_of_a_schedule_leaves_its_table(events: list[ScheduleEvent]) -> None:
    state = ScheduleState.PENDING_APPROVAL
    for event in events:
        try:
            following = next_schedule_state(state, event)
        except NotAllowed:
            continue
        assert state is not ScheduleState.ARCHIVED
        assert state is not ScheduleState.PENDING_APPROVAL or event is not ScheduleEvent.RESUME
        state = following


def test_every_state_can_be_reached_and_an_end_is_an_end() -> None:
    assert set(TRANSITIONS.values()) == set(RunState)
    assert LIVE_STATES.isdisjoint(TERMINAL_STATES)
    assert {state for state, _ in TRANSITIONS} & {RunState.SUCCEEDED, RunState.SKIPPED} == set()


# Settling a run


def test_success_ends_a_run_and_keeps_the_handlers_label() -> None:
    done = settled(Succeeded(outcome_label="noop", result={"rows": 0}))
    assert (done.run.state, done.run.outcome_label, done.run.finished_at, done.finished) == (
        RunState.SUCCEEDED,
        "noop",
        NOW,
        True,
    )
    assert (done.attempt.outcome, done.attempt.result, done.attempt.charged) == (
        "succeeded",
        {"rows": 0},
        False,
    )
    assert (done.run.lease_id, done.run.holder, done.run.lease_until) == ("", "", None)
    assert not done.exhausted


def test_a_run_is_attempted_once_by_default() -> None:
    done = settled(Failed(error="no"), retry=Retry())
    assert (done.run.state, done.run.reason, done.exhausted) == (RunState.FAILED, "exhausted", True)


@pytest.mark.parametrize("outcome", [Lost(), Released(reason="released at stop", interrupted=True)])
def test_a_loss_is_no_attempt_and_the_run_starts_again_at_once(outcome: Outcome) -> None:
    run = leased()
    for losses in range(1, 4):
        done = settle_outcome(run, outcome, retry=Retry(), now=NOW)
        assert (done.event, done.run.attempts, done.run.losses) == (RunEvent.RELEASE, 0, losses)
        assert (done.run.fire_at, done.run.refunds, done.attempt.charged) == (NOW, 0, False)
        run = replace(done.run, state=RunState.LEASED, leased_at=NOON, lease_until=NOW)
    done = settle_outcome(run, outcome, retry=Retry(), now=NOW)
    assert (done.run.state, done.run.reason, done.run.losses) == (RunState.PARKED, "lost", 4)
    assert (done.why, done.exhausted) == ("lost 4 times; parked", False)


def test_a_loss_does_not_use_up_the_attempts_of_the_work() -> None:
    lost = settled(Lost(), attempts=2).run
    again = replace(lost, state=RunState.LEASED, leased_at=NOON, lease_until=NOW)
    done = settle_outcome(again, Failed(error="no"), retry=RETRY, now=NOW)
    assert (done.run.state, done.run.attempts, done.run.losses) == (RunState.FAILED, 3, 1)


def test_no_loss_may_be_allowed() -> None:
    done = settled(Lost(), retry=Retry(max_losses=0))
    assert (done.run.state, done.run.reason) == (RunState.PARKED, "lost")


@pytest.mark.parametrize("preset", ["queue", "routine"])
def test_two_presets_count_a_lost_lease_as_an_attempt(preset: str) -> None:
    retry = PRESETS[preset]["retry"]
    done = settled(Lost(), retry=retry)
    assert (done.run.attempts, done.run.losses, done.attempt.charged) == (1, 0, True)
    stopped = settled(Released(interrupted=True), retry=retry)
    assert (stopped.event, stopped.run.attempts, stopped.run.refunds) == (RunEvent.RELEASE, 0, 1)
    assert settled(Lost(), retry=QueuePolicy().retry, attempts=2).run.reason == "exhausted: 3/3 attempts used"


@pytest.mark.parametrize("outcome", [Failed(error="no"), TimedOut()])
def test_failure_and_timeout_each_cost_one_attempt(outcome: Outcome) -> None:
    done = settled(outcome)
    assert (done.event, done.run.state, done.run.attempts) == (RunEvent.RETRY, RunState.READY, 1)
    assert (done.run.fire_at, done.run.finished_at, done.finished) == (NOW + SECOND, None, False)
    assert done.attempt.charged
    assert done.run.error
    assert done.why == "1/3 attempts used; will be retried"


@pytest.mark.parametrize(
    ("exhausted", "state"), [(Exhausted.FAIL, RunState.FAILED), (Exhausted.PARK, RunState.PARKED)]
)
def test_past_its_attempts_a_run_fails_or_is_parked(exhausted: Exhausted, state: RunState) -> None:
    done = settled(Failed(error="no"), retry=replace(RETRY, exhausted=exhausted), attempts=2)
    assert (done.run.state, done.run.attempts, done.exhausted) == (state, 3, True)
    assert done.run.reason.startswith("exhausted")


def test_a_final_failure_is_not_tried_again() -> None:
    assert settled(Failed(error="bad request", final=True)).run.state is RunState.FAILED


def test_work_that_defers_its_run_uses_no_attempt() -> None:
    asked = settled(Failed(error="429", not_before=NOW + HOUR), retry=Retry())
    assert (asked.event, asked.run.attempts, asked.run.fire_at) == (RunEvent.RELEASE, 0, NOW + HOUR)
    assert (asked.attempt.outcome, asked.attempt.charged, asked.run.deferred_since) == (
        "deferred",
        False,
        NOW,
    )
    assert settled(Failed(error="429", not_before=NOW + HOUR), delivery=ONCE).run.state is RunState.FAILED
    final = settled(Failed(error="never", not_before=NOW + HOUR, final=True))
    assert final.run.state is RunState.FAILED


def test_a_run_is_deferred_for_max_wait_in_all_then_it_costs_an_attempt() -> None:
    later = Failed(error="429", not_before=NOW + HOUR)
    retry = Retry(max_wait=90 * MINUTE)
    second = settled(later, retry=retry, deferred_since=NOW - HOUR)
    assert (second.run.attempts, second.run.fire_at) == (0, NOW + 30 * MINUTE)
    last = settled(later, retry=retry, deferred_since=NOW - 90 * MINUTE)
    assert (last.run.state, last.run.attempts, last.run.deferred_since) == (RunState.FAILED, 1, None)
    failed = settled(Failed(error="no"), deferred_since=NOW - HOUR)
    assert (failed.run.attempts, failed.run.deferred_since) == (1, None)


def test_a_target_may_delay_its_next_attempt() -> None:
    asked = settled(Failed(error="429", not_before=NOW + HOUR))
    assert asked.run.fire_at == NOW + HOUR
    assert settled(Failed(error="429", not_before=NOW - HOUR)).run.fire_at == NOW + SECOND
    assert settled(Failed(error="429", not_before=NOW + 99 * DAY)).run.fire_at == NOW + RETRY.max_wait


def test_releasing_a_run_uses_no_attempt_up_to_a_limit() -> None:
    clean = settled(Released(reason="drained"))
    assert (clean.event, clean.run.attempts, clean.run.refunds, clean.run.fire_at) == (
        RunEvent.RELEASE,
        0,
        1,
        NOON,
    )
    capped = settled(Released(), refunds=MAX_REFUNDS)
    assert (capped.event, capped.run.attempts, capped.attempt.charged) == (RunEvent.RETRY, 1, True)


@pytest.mark.parametrize("outcome", [TimedOut(), Lost(), Released()])
def test_at_most_once_parks_a_run_with_an_unknown_result(outcome: Outcome) -> None:
    done = settled(outcome, delivery=ONCE)
    assert (done.run.state, done.run.reason, done.exhausted) == (RunState.PARKED, "unknown", False)


def test_at_most_once_is_never_retried() -> None:
    assert settled(Failed(error="no"), delivery=ONCE).run.state is RunState.FAILED


def test_a_cancelled_run_has_its_reason_and_uses_no_attempt() -> None:
    done = settled(Cancelled(reason=Reason.REPLACED))
    assert (done.run.state, done.run.reason, done.run.attempts) == (RunState.CANCELLED, "replaced", 0)


def test_a_run_that_is_not_leased_cannot_be_settled() -> None:
    for state in set(RunState) - {RunState.LEASED}:
        with pytest.raises(NotAllowed):
            settled(Succeeded(), state=state)


def test_the_attempt_is_a_record_of_its_lease() -> None:
    attempt = settled(Lost(), attempts=1, fence=4).attempt
    assert (attempt.number, attempt.fence, attempt.lease_id, attempt.holder) == (2, 4, "lease_1", "worker")
    assert (attempt.leased_at, attempt.ended_at, attempt.outcome) == (NOON, NOW, "lost")


def test_only_a_reset_brings_a_parked_run_back_with_all_its_attempts() -> None:
    parked = leased(
        state=RunState.PARKED,
        attempts=3,
        refunds=2,
        losses=4,
        reason="exhausted",
        error="no",
        finished_at=NOW,
    )
    back = restart_run(parked, RunEvent.RESET, now=NOW)
    assert (back.state, back.attempts, back.refunds, back.losses) == (RunState.READY, 0, 0, 0)
    assert (back.reason, back.error, back.fire_at, back.fence) == ("", "", NOW, parked.fence)
    assert restart_run(parked, RunEvent.HOLD, now=NOW).state is RunState.HELD
    for state in set(RunState) - {RunState.PARKED}:
        with pytest.raises(NotAllowed):
            restart_run(replace(parked, state=state), RunEvent.RESET, now=NOW)


outcomes = st.sampled_from(
    [
        Succeeded(),
        Failed(error="no"),
        TimedOut(),
        Lost(),
        Cancelled(),
        Released(),
        Released(interrupted=True),
    ]
)


@given(
    story=st.lists(outcomes, min_size=1, max_size=30),
    retry=st.builds(
        Retry,
        max_attempts=st.integers(1, 5),
        max_losses=st.integers(0, 3),
        losses_are_attempts=st.booleans(),
        exhausted=st.sampled_from(Exhausted),
    ),
    delivery=st.sampled_from(Delivery),
)
def test_a_run_is_leased_at_most_attempts_plus_losses_plus_refunds_times(
    story: list[Outcome], retry: Retry, delivery: Delivery
) -> None:
    run, leases = leased(), 0
    for outcome in story:
        leases += 1
        done = settle_outcome(run, outcome, retry=retry, delivery=delivery, now=NOW)
        assert done == settle_outcome(run, outcome, retry=retry, delivery=delivery, now=NOW)
        assert TRANSITIONS[RunState.LEASED, done.event] is done.run.state
        assert done.run.fence == run.fence
        if done.run.state is not RunState.READY:
            break
        run = replace(done.run, state=next_run_state(done.run.state, RunEvent.LEASE), fence=run.fence + 1)
        run = replace(run, leased_at=NOW, lease_until=NOW + MINUTE)
    losses = 0 if retry.losses_are_attempts else retry.max_losses
    assert leases <= retry.max_attempts + MAX_REFUNDS + losses
    assert delivery is Delivery.AT_LEAST_ONCE or leases == 1


@given(
    attempts=st.integers(0, 20),
    wait=st.integers(0, 10**6),
    outcome=st.sampled_from([Failed(error="x"), TimedOut()]),
)
def test_the_next_attempt_waits_at_least_its_backoff(attempts: int, wait: int, outcome: Outcome) -> None:
    backoff = Exponential(base=wait * timedelta(milliseconds=1), jitter=0.5)
    retry = Retry(max_attempts=1000, backoff=backoff)
    done = settled(outcome, retry=retry, attempts=attempts)
    plain = replace(backoff, jitter=0.0).delay(attempts + 1)
    assert NOW + plain <= done.run.fire_at <= NOW + plain * 1.5


# Effect on the schedule


def ran(state: RunState, **fields: Any) -> Run:
    return leased(state=state, finished_at=NOW, lease_id="", **fields)


def after(made: Schedule, progress: ScheduleProgress, run: Run, *, minutes: float = 0.5) -> ScheduleProgress:
    return settle_schedule(made, progress, run, now=NOON + minutes * MINUTE)[0]


def test_a_failure_adds_to_the_streak_and_a_success_clears_it() -> None:
    stands = replace(first_progress(schedule()), failures=2)
    expected = {
        RunState.SUCCEEDED: 0,
        RunState.FAILED: 3,
        RunState.PARKED: 3,
        RunState.CANCELLED: 2,
    }
    assert {state: after(schedule(), stands, ran(state)).failures for state in expected} == expected


def test_a_grid_planned_at_admission_is_not_replanned_at_settling() -> None:
    made = schedule(cadence=Ladder(), align=Align.GRID)
    stands = first_progress(made)
    progress, decision = settle_schedule(made, stands, ran(RunState.SUCCEEDED), now=NOON + MINUTE)
    assert decision is None
    assert progress.next_at == stands.next_at == NOON + MINUTE


def test_the_outcome_is_applied_before_the_next_time_is_planned() -> None:
    made = schedule(Every(MINUTE, NOON), align=Align.NOW, cadence=Stretch())
    stands = replace(first_progress(made), failures=3)
    assert after(made, stands, ran(RunState.FAILED)).next_at == NOON + 16 * MINUTE
    assert after(made, stands, ran(RunState.SUCCEEDED)).next_at == NOON + MINUTE


def test_disable_after_parks_a_schedule_after_consecutive_failures() -> None:
    made = schedule(disable_after=3)
    stands = replace(first_progress(made), failures=2)
    stopped = after(made, stands, ran(RunState.FAILED))
    assert (stopped.state, stopped.next_at, stopped.wake_at) == (ScheduleState.PARKED, None, None)
    assert stopped.reason == "disabled after 3 failures in a row"


def test_a_target_that_does_not_resolve_parks_its_schedule() -> None:
    run = ran(RunState.FAILED, reason=Reason.UNRESOLVED.value, error="no function 'x'")
    stopped = after(schedule(), first_progress(schedule()), run)
    assert (stopped.state, stopped.reason) == (
        ScheduleState.PARKED,
        "target does not resolve: no function 'x'",
    )


def test_once_is_finished_after_its_run_whatever_the_outcome() -> None:
    made = schedule(Once(NOON + MINUTE))
    stands = apply_decision(
        made, replace(first_progress(made), cursor=NOON + MINUTE), Decision(None, Source.BASELINE_ONCE)
    )
    for state in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED):
        assert after(made, stands, ran(state)).state is ScheduleState.FINISHED


def test_a_schedule_with_another_live_run_is_not_finished() -> None:
    made = schedule(Once(NOON + MINUTE))
    stands = replace(first_progress(made), cursor=NOON + MINUTE, next_at=None)
    progress, _ = settle_schedule(made, stands, ran(RunState.SUCCEEDED), now=NOW, idle=False)
    assert progress.state is ScheduleState.ACTIVE


def test_a_manual_schedule_is_never_finished_by_a_run() -> None:
    made = schedule(Manual())
    assert after(made, first_progress(made), ran(RunState.SUCCEEDED)).state is ScheduleState.ACTIVE


def test_a_paused_schedule_counts_the_outcome_and_moves_nothing() -> None:
    made = schedule(Every(MINUTE, NOON), align=Align.NOW)
    stands = replace(first_progress(made), state=ScheduleState.PAUSED)
    assert after(made, stands, ran(RunState.FAILED)) == replace(
        stands, failures=1, failing_since=NOON + 30 * SECOND, last_finished_at=NOON + 30 * SECOND
    )


def test_an_interval_hint_counts_from_the_start_of_the_run_on_a_grid_too() -> None:
    made = schedule(Cron("0 * * * *"), adaptive=True)
    hints = Hints(interval=IntervalHint(interval=10 * MINUTE, expires_at=NOON + DAY))
    stands = replace(first_progress(made), hints=hints)
    assert after(made, stands, ran(RunState.SUCCEEDED), minutes=4).next_at == NOON + 10 * MINUTE


# Identity


def test_the_key_of_an_occurrence_never_depends_on_the_attempt() -> None:
    run = leased()
    assert (
        run_idempotency_key(run)
        == run_idempotency_key(replace(run, attempts=2, fence=9, id="run_2"))
        == occurrence_key("sch_1", NOON)
    )


def test_a_run_without_an_occurrence_has_a_key_of_its_own() -> None:
    by_hand = leased(dedupe_scope="run_1")
    assert run_idempotency_key(by_hand) != run_idempotency_key(
        replace(by_hand, id="run_2", dedupe_scope="run_2")
    )
    assert run_idempotency_key(leased(schedule_id="", id="a")) != run_idempotency_key(
        leased(schedule_id="", id="b")
    )


def test_two_instants_within_one_second_have_two_keys() -> None:
    half = NOON + timedelta(milliseconds=500)
    assert (
        len({occurrence_key("s", NOON), occurrence_key("s", half), occurrence_key("s", NOON + SECOND)}) == 3
    )
