"""Recorded cases of the routines scheduler, run against the routine preset."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from tests.core.recorded.recorded_cases import (
    Case,
    build_run,
    check,
    error_answer,
    every_case,
    load,
    milliseconds,
)
from timewright.core.input.decode import decode, decode_schedule
from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.core.policies.policies import PRIORITIES
from timewright.core.run.admission import Admission, Fire, Hold, InFlightCounts, Replace, Skip, admit
from timewright.core.run.catch_up import ChosenOccurrence, apply_overlap
from timewright.core.run.leasing import plan_leases
from timewright.core.run.lifecycle import RunEvent, settle_outcome
from timewright.core.run.run import Failed, Outcome, Reason, Run, RunState, TimedOut
from timewright.core.schedule.decision import Source
from timewright.core.schedule.schedule import (
    Schedule,
    ScheduleEvent,
    ScheduleProgress,
    ScheduleState,
    next_schedule_state,
)
from timewright.errors import InvalidInput

DAY = datetime(2026, 3, 10, tzinfo=UTC)
NOON = DAY + 12 * HOUR
IDLE, BUSY = InFlightCounts(), InFlightCounts(live=1)

STARTS = {Fire: "run", Hold: "hold", Replace: "hold", Skip: "skip"}
STATES = {Fire: RunState.READY, Hold: RunState.HELD, Replace: RunState.HELD, Skip: RunState.SKIPPED}
EVENTS = {
    RunEvent.SUCCEED: "routine.completed",
    RunEvent.RETRY: "routine.failed",
    RunEvent.FAIL: "routine.exhausted",
}


def routine(**options: Any) -> Schedule:
    raw = {"name": "routine", "preset": "routine", "handler": "work", "cron": "0 * * * *", **options}
    return decode_schedule(raw, id="sch_1", now=DAY - HOUR)


def clock(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-10T{text}").replace(tzinfo=UTC)


def admitted(
    schedule: Schedule, *, first: datetime, now: datetime, in_flight: InFlightCounts = IDLE
) -> Admission:
    progress = ScheduleProgress(cursor=first - SECOND, next_at=first, source=Source.BASELINE_CRON)
    return admit(schedule, progress, in_flight=in_flight, now=now)


def running(schedule: Schedule, *, attempt: int = 1) -> Run:
    fire = Fire(planned_at=NOON, fire_at=NOON, source=Source.BASELINE_CRON)
    return replace(build_run(schedule, fire, now=NOON), attempts=attempt - 1, fence=attempt)


def ask_retry_delay(case: Case) -> dict[str, Any]:
    schedule = routine(maxRetries=case.input["max_retries"], retryDelayMs=case.input["retry_delay_ms"])
    run = running(schedule, attempt=case.input["attempt"])
    done = settle_outcome(run, Failed(error="no"), retry=schedule.retry, now=NOON)
    if done.exhausted:
        return {"retry": False, "event": EVENTS[done.event]}
    return {
        "retry": True,
        "delay_ms": milliseconds(done.run.fire_at - NOON),
        "next_attempt": done.run.attempts + 1,
    }


def ask_start_run(case: Case) -> dict[str, Any]:
    schedule = routine(concurrencyPolicy=case.input["policy"])
    in_flight = BUSY if case.input["active_run"] else IDLE
    (verdict,) = admitted(schedule, first=NOON, now=NOON, in_flight=in_flight).verdicts
    assert not isinstance(verdict, Fire) or in_flight is IDLE
    kind = type(verdict)
    cancelled = isinstance(verdict, Replace)
    return {"action": STARTS[kind], "status": STATES[kind].name, "active_cancelled": cancelled}


def ask_outcome(case: Case) -> dict[str, Any]:
    options = {"timeoutMs": case.input["timeout_ms"]} if "timeout_ms" in case.input else {}
    schedule = routine(**options)
    elapsed = timedelta(milliseconds=case.input["elapsed_ms"])
    assert schedule.lease.time_limit is not None
    over = case.input["result"] == "pending" and elapsed >= schedule.lease.time_limit
    outcome: Outcome = TimedOut() if over else decode(case.input["result"], Outcome)
    done = settle_outcome(running(schedule), outcome, retry=schedule.retry, now=NOON + elapsed)
    considered = done.event is RunEvent.RETRY or done.exhausted
    return {"status": done.run.state.name, "event": EVENTS[done.event], "retry_considered": considered}


def ask_catch_up(case: Case) -> dict[str, Any]:
    missed = case.input["missed"]
    first = clock(missed[0]) if isinstance(missed, list) else NOON - (missed - 1) * HOUR
    last = clock(missed[-1]) if isinstance(missed, list) else NOON
    verdicts = admitted(
        routine(catchUpPolicy=case.input["policy"]), first=first, now=last + 30 * MINUTE
    ).verdicts
    runs = [f"{v.planned_at:%H:%M}" for v in verdicts if not isinstance(v, Skip)]
    skips = [v for v in verdicts if isinstance(v, Skip) and v.reason is Reason.MISSED]
    return {
        "runs": runs if isinstance(missed, list) else len(runs),
        "recorded_skipped": len(skips) == missed,
        "concurrent": sum(isinstance(v, Fire) for v in verdicts) > 1,
    }


def ask_state(case: Case) -> dict[str, Any]:
    state, event = decode(case.input["status"], ScheduleState), decode(case.input["do"], ScheduleEvent)
    return {"status": next_schedule_state(state, event).name}


def ask_run_now(case: Case) -> dict[str, Any]:
    assert decode(case.input["status"], ScheduleState) is ScheduleState.ACTIVE
    answers = [
        apply_overlap(routine(), [ChosenOccurrence(NOON, NOON)], in_flight=in_flight)
        for in_flight in (IDLE, BUSY)
    ]
    assert answers == [[Fire], [Reason.OVERLAP]]
    return {"run_status": STATES[Fire].name, "beside_a_live_run": Reason.OVERLAP.value}


def ask_dedup(case: Case) -> dict[str, Any]:
    apart = timedelta(seconds=case.input["seconds_since_last"])
    schedule = routine(cron=None, every=apart, anchor=NOON)
    first = admitted(schedule, first=NOON, now=NOON)
    second = admit(schedule, first.progress, in_flight=IDLE, now=NOON + apart)
    return {"created": [type(v) for v in (*first.verdicts, *second.verdicts)] == [Fire, Fire]}


def ask_pending_order(case: Case) -> dict[str, Any]:
    runs = [
        Run(
            id=key,
            planned_at=NOON + rank * SECOND,
            fire_at=NOON,
            state=RunState.READY,
            created_at=NOON,
            priority=PRIORITIES[word],
        )
        for key, word, rank in case.input["pending"]
    ]
    return {"order": [run.id for run in plan_leases(runs, limits={}, now=NOON + MINUTE).leases]}


def ask_retry_run(case: Case) -> dict[str, Any]:
    schedule = routine()
    run = running(schedule, attempt=case.input["attempt"])
    outcome: Outcome = decode(case.input["status"], Outcome)
    done = settle_outcome(run, outcome, retry=schedule.retry, now=NOON).run
    return {
        "source": done.source.value,
        "attempt": done.attempts + 1,
        "status": done.state.value,
        "same_run": done.id == run.id,
    }


def ask_coalesce(case: Case) -> dict[str, Any]:
    schedule = routine(concurrencyPolicy=case.input["policy"])
    (verdict,) = admitted(schedule, first=NOON, now=NOON, in_flight=BUSY).verdicts
    assert isinstance(verdict, Skip)
    return {"status": "skipped", "reason": verdict.reason.value}


def ask_catch_up_cap(case: Case) -> dict[str, Any]:
    schedule = routine(catchUpPolicy=case.input["policy"], cron=case.input["cron"])
    first = NOON - (case.input["missed"] - 1) * HOUR
    verdicts = admitted(schedule, first=first, now=NOON + 30 * MINUTE).verdicts
    return {"runs": sum(isinstance(v, Fire | Hold) for v in verdicts)}


def ask_missed_or_late(case: Case) -> dict[str, Any]:
    schedule = routine(catchUpPolicy=case.input["policy"])
    admission = admitted(schedule, first=clock(case.input["due"][0]), now=clock(case.input["now"]))
    assert admission.progress.next_at == clock(case.input["next"])
    return {"runs": sum(isinstance(v, Fire) for v in admission.verdicts)}


ASK: dict[str, Callable[[Case], dict[str, Any]]] = {
    name.removeprefix("ask_"): function for name, function in globals().items() if name.startswith("ask_")
}


@every_case("routines")
def test_a_routine_goes_as_recorded(case: Case) -> None:
    try:
        given = ASK[case.op](case)
    except InvalidInput as refusal:
        given = error_answer(refusal)
    check(case, given)


def test_every_operation_of_the_suite_is_tested() -> None:
    assert {case.op for case in load("routines")} == set(ASK)
