"""Recorded cases of the control-plane queue, run against our leasing, backoff and lifecycle."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from tests.core.recorded.recorded_cases import (
    Case,
    check,
    error_answer,
    every_case,
    format_ms_instant,
    from_epoch_ms,
    instant,
    load,
)
from timewright.core.input.decode import decode, decode_policy
from timewright.core.input.queue_file import QueueEntry, decode_queue_file
from timewright.core.moments import SECOND, parse_instant
from timewright.core.policies.backoff import Exponential, apply_jitter, occurrence_seed
from timewright.core.policies.policies import QueuePolicy
from timewright.core.run.leasing import LeasePlan, LimitUsage, lease_order, plan_leases
from timewright.core.run.lifecycle import RunEvent, next_run_state, restart_run, settle_outcome
from timewright.core.run.run import Failed, Lost, Outcome, Released, Run, RunState, Succeeded
from timewright.errors import InvalidInput, NotAllowed

LIMIT_KEY = "queue:default/main"
THEIR_REASONS = {"concurrency-ceiling": "limit"}


def as_run(entry: QueueEntry) -> Run:
    return Run(
        id=entry.id,
        queue="main",
        limit_keys=(LIMIT_KEY,),
        planned_at=entry.enqueued_at,
        fire_at=entry.next_eligible_at or entry.enqueued_at,
        state=entry.state,
        reason=entry.reason,
        priority=entry.priority,
        attempts=entry.attempts,
        created_at=entry.enqueued_at,
        lease_id=entry.lease_id,
        leased_at=entry.enqueued_at if entry.lease_until else None,
        lease_until=entry.lease_until,
    )


def as_entry(run: Run) -> dict[str, Any]:
    """A run in the format of the other system, without lease ids, which differ."""
    state = "drained" if run.state is RunState.SUCCEEDED else run.state.value
    found: dict[str, Any] = {"id": run.id, "status": state}
    if run.attempts:
        found["attempts"] = run.attempts
    if run.lease_id and not run.lease_id.startswith("lease_"):
        found["leaseId"] = run.lease_id
    if run.lease_until is not None:
        found["leaseExpiresAt"] = format_ms_instant(run.lease_until)
    if run.fire_at != run.planned_at:
        found["nextEligibleAt"] = format_ms_instant(run.fire_at)
    if run.state is RunState.PARKED and run.reason:
        found["parkedReason"] = run.reason
    return found


def to_our_terms(expected: Any) -> Any:
    """The other system's answer without its lease ids, its zeros, and its name for the limit."""
    if isinstance(expected, list):
        return [to_our_terms(one) for one in expected]
    if not isinstance(expected, dict):
        return THEIR_REASONS.get(expected, expected) if isinstance(expected, str) else expected
    own = str(expected.get("leaseId", "")).startswith("lease-")
    zero = expected.get("attempts") == 0
    left_out = {"leaseId"} if own else set()
    left_out |= {"attempts"} if zero else set()
    return {key: to_our_terms(value) for key, value in expected.items() if key not in left_out}


def runs_in(case: Case) -> list[Run]:
    return [as_run(entry) for entry in decode_queue_file({"entries": case.input["entries"]})]


def planned(runs: list[Run], policy: QueuePolicy, *, now: datetime, capacity: int | None = None) -> LeasePlan:
    live = sum(
        run.state is RunState.LEASED and run.lease_until is not None and run.lease_until > now for run in runs
    )
    limit = LimitUsage(capacity=policy.max_running, held=live)
    return plan_leases(runs, limits={LIMIT_KEY: limit}, capacity=capacity, now=now)


def leased(run: Run, policy: QueuePolicy, *, now: datetime) -> Run:
    return replace(
        run,
        state=next_run_state(run.state, RunEvent.LEASE),
        lease_id=f"lease_{run.id}",
        leased_at=now,
        lease_until=now + policy.lease,
        fence=run.fence + 1,
    )


def swapped(runs: list[Run], changed: dict[str, Run]) -> list[dict[str, Any]]:
    return [as_entry(changed.get(run.id, run)) for run in runs]


def ask_normalize_policy(case: Case) -> dict[str, Any]:
    policy = decode_policy(case.input["policy"])
    assert isinstance(policy.backoff, Exponential)
    return {
        "maxConcurrent": policy.max_running,
        "maxAttempts": policy.max_attempts,
        "leaseTtlMs": round(policy.lease / SECOND * 1000),
        "backoffBaseMs": round(policy.backoff.base / SECOND * 1000),
        "backoffFactor": round(policy.backoff.factor),
        "backoffCapMs": round(policy.backoff.cap / SECOND * 1000),
    }


def ask_backoff_ms(case: Case) -> dict[str, Any]:
    delay = decode_policy(case.input["policy"]).backoff.delay(case.input["attempts"])
    return {"ms": round(delay / SECOND * 1000)}


def ask_plan(case: Case) -> dict[str, Any]:
    now, policy = parse_instant(case.input["now"]), decode_policy(case.input["policy"])
    plan = planned(runs_in(case), policy, now=now)
    return {
        "now": format_ms_instant(plan.now),
        "maxConcurrent": plan.limits[LIMIT_KEY].capacity,
        "inFlight": plan.limits[LIMIT_KEY].held,
        "available": plan.limits[LIMIT_KEY].free,
        "leases": [
            {
                "id": run.id,
                "leaseExpiresAt": format_ms_instant(now + policy.lease),
                "attempts": run.attempts,
                "priority": run.priority,
            }
            for run in plan.leases
        ],
        "skipped": [{"id": waiting.run_id, "reason": waiting.reason.value} for waiting in plan.waiting],
    }


def ask_lease(case: Case) -> dict[str, Any]:
    now, policy, runs = parse_instant(case.input["now"]), decode_policy(case.input["policy"]), runs_in(case)
    plan = planned(runs, policy, now=now, capacity=case.input["limit"])
    granted = {run.id: leased(run, policy, now=now) for run in plan.leases}
    return {"granted": [run.id for run in plan.leases], "entries": swapped(runs, granted)}


def answer_lease(case: Case, outcome: Outcome) -> dict[str, Any]:
    """Settle the run with this lease; an unknown lease matches nothing."""
    runs, policy = runs_in(case), decode_policy(case.input.get("policy"))
    run = next((run for run in runs if run.lease_id == case.input["lease_id"]), None)
    try:
        done = (
            settle_outcome(run, outcome, retry=policy.retry, now=parse_instant(case.input["now"]))
            if run
            else None
        )
    except NotAllowed:
        done = None
    changed = {} if done is None else {done.run.id: done.run}
    return {"matched": done is not None, "entries": swapped(runs, changed)}


def ask_complete(case: Case) -> dict[str, Any]:
    return answer_lease(case, Succeeded())


def ask_release(case: Case) -> dict[str, Any]:
    outcome = Failed(error=case.input.get("reason", "failed")) if case.input["failed"] else Released()
    return answer_lease(case, outcome)


def ask_reclaim(case: Case) -> dict[str, Any]:
    now, policy, runs = parse_instant(case.input["now"]), decode_policy(case.input["policy"]), runs_in(case)
    lost = [run for run in runs if run.lease_until is not None and run.lease_until <= now]
    changed = {run.id: settle_outcome(run, Lost(), retry=policy.retry, now=now).run for run in lost}
    return {"reclaimed": list(changed), "entries": swapped(runs, changed)}


def ask_reset(case: Case) -> dict[str, Any]:
    runs = runs_in(case)
    run = next((run for run in runs if run.id == case.input["entry_id"]), None)
    try:
        changed = {run.id: restart_run(run, RunEvent.RESET, now=run.planned_at)} if run else {}
    except NotAllowed:
        changed = {}
    return {"matched": bool(changed), "entries": swapped(runs, changed)}


def ask_drain(case: Case) -> dict[str, Any]:
    runs, policy = runs_in(case), decode_policy(None)
    now = max(run.planned_at for run in runs)
    drained = []
    for _ in range(case.input["limit"] or 1):
        for run in planned(runs, policy, now=now, capacity=1).leases:
            done = settle_outcome(leased(run, policy, now=now), Succeeded(), retry=policy.retry, now=now).run
            drained.append(done.id)
            runs = [done if other.id == done.id else other for other in runs]
    return {"drained": drained, "remaining": sum(run.state is RunState.READY for run in runs)}


def ask_sequence(case: Case) -> dict[str, Any]:
    """Apply a list of steps to one run, and return its state after each."""
    policy, (run,) = decode_policy(case.input["policy"]), runs_in(case)
    answers: list[dict[str, Any]] = []
    for step in case.expected["steps"]:
        now = instant(step.get("now")) or run.planned_at
        answer: dict[str, Any] | None = None
        if step["do"] == "lease":
            (run,) = (leased(one, policy, now=now) for one in planned([run], policy, now=now).leases)
        elif step["do"] == "release_failed":
            run = settle_outcome(run, Failed(error="no"), retry=policy.retry, now=now).run
        elif step["do"] == "reset":
            run = restart_run(run, RunEvent.RESET, now=now)
        else:
            plan = planned([run], policy, now=now)
            waiting = [{"id": one.run_id, "reason": one.reason.value} for one in plan.waiting]
            answer = {"leases": len(plan.leases), "skipped": waiting}
        answers.append(answer or as_entry(run))
    return {"steps": answers}


def ask_deterministic_jitter(case: Case) -> dict[str, Any]:
    planned_at, within = from_epoch_ms(case.input["base_ms"]), case.input["jitter_seconds"] * SECOND
    seeds = [occurrence_seed(f"sch_{i}", planned_at) for i in range(200)]
    moved = [apply_jitter(planned_at, within=within, both_sides=False, seed=seed) for seed in seeds]
    assert moved == [apply_jitter(planned_at, within=within, both_sides=False, seed=seed) for seed in seeds]
    seen = [(at - planned_at) / SECOND for at in moved]
    return {"seen": seen, "offset_seconds": round(seen[0]) if len(set(seen)) == 1 else seen}


def ask_number_flag(case: Case) -> dict[str, Any]:
    name, value = case.input["flag"].removeprefix("--"), case.input["value"]
    if name == "limit":
        return {"value": decode(value, int, field=name)}
    return {"value": decode_policy({name: value})}


ASK: dict[str, Callable[[Case], dict[str, Any]]] = {
    name.removeprefix("ask_"): function for name, function in globals().items() if name.startswith("ask_")
}


def answer(case: Case) -> dict[str, Any]:
    try:
        return ASK[case.op](case)
    except InvalidInput as refusal:
        return error_answer(refusal)


@every_case("cool_workflow_sched")
def test_the_queue_answers_as_recorded(case: Case) -> None:
    given, expected = answer(case), to_our_terms(case.expected)
    if case.op == "sequence":
        expected = {"steps": [step["expect"] for step in expected["steps"]]}
    check(case, given, expected=expected, recorded=to_our_terms(case.recorded))
    if "entries" in expected:
        shapes = [{key.removesuffix("Has") for key in entry} for entry in expected["entries"]]
        assert [set(entry) for entry in given["entries"]] == shapes


def test_every_operation_of_the_suite_is_tested() -> None:
    assert {case.op for case in load("cool_workflow_sched")} == set(ASK)


def test_the_order_of_the_queue_is_priority_then_age_then_id() -> None:
    (case,) = (case for case in load("cool_workflow_sched") if case.id == "cw-019")
    assert [run.id for run in sorted(runs_in(case), key=lease_order)] == ["a", "b", "c", "d"]
