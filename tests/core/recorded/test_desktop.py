"""Recorded cases of the desktop scheduler, run against our triggers and the desktop preset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.recorded.recorded_cases import (
    Case,
    build_run,
    check,
    epoch_ms,
    error_answer,
    every_case,
    format_ms_instant,
    from_epoch_ms,
    load,
    milliseconds,
)
from timewright.core.input.decode import decode, decode_schedule
from timewright.core.moments import DAY, parse_instant
from timewright.core.policies.backoff import Ladder
from timewright.core.policies.policies import PRESETS, sleep_until
from timewright.core.recurrence.triggers import AnyTrigger, Every
from timewright.core.run.admission import Fire, InFlightCounts, admit
from timewright.core.run.leasing import plan_leases
from timewright.core.run.lifecycle import settle_outcome
from timewright.core.run.run import Failed, Lost, Outcome, Run, RunState
from timewright.core.run.schedule_end import settle_schedule
from timewright.core.schedule.decision import Source
from timewright.core.schedule.governor import plan_next
from timewright.core.schedule.schedule import (
    Schedule,
    ScheduleEvent,
    ScheduleProgress,
    ScheduleState,
    apply_decision,
    next_schedule_state,
)
from timewright.errors import InvalidInput, NotAllowed

IDLE = InFlightCounts()


def trigger(raw: Mapping[str, Any]) -> AnyTrigger:
    found: AnyTrigger = decode(raw, AnyTrigger)
    return found


def desktop(schedule: Mapping[str, Any], *, created_at: datetime, **more: Any) -> Schedule:
    raw = {"name": "job", "preset": "desktop", "call": "job", "schedule": schedule, **more}
    return decode_schedule(raw, id="sch_1", now=created_at)


def ask_parse_every(case: Case) -> dict[str, Any]:
    schedule = desktop(
        {"kind": "every", "every": case.input["every"]}, created_at=from_epoch_ms(1_700_000_000_000)
    )
    assert isinstance(schedule.trigger, Every)
    return {"ms": round(milliseconds(schedule.trigger.interval))}


def next_ms(found: datetime | None) -> dict[str, Any]:
    return {"none": True} if found is None else {"next_ms": epoch_ms(found)}


def ask_next_every(case: Case) -> dict[str, Any]:
    grid = trigger({"every_ms": case.input["every_ms"], "anchor_ms": case.input["anchor_ms"]})
    return next_ms(grid.next_after(from_epoch_ms(case.input["now_ms"])))


def ask_next_once(case: Case) -> dict[str, Any]:
    return next_ms(
        trigger({"kind": "once", "once": case.input["once_ms"]}).next_after(
            from_epoch_ms(case.input["now_ms"])
        )
    )


def ask_next_cron(case: Case) -> dict[str, Any]:
    cron = trigger({"cron": case.input["cron"], "timezone": case.input["timezone"]})
    found = cron.next_after(parse_instant(case.input["now"]))
    return {"none": True} if found is None else {"next": format_ms_instant(found)}


def ask_apply_result(case: Case) -> dict[str, Any]:
    job = case.input["job"]
    started_at, finished_at = (
        from_epoch_ms(case.input["started_at_ms"]),
        from_epoch_ms(case.input["finished_at_ms"]),
    )
    anchor = {"anchor_ms": job["anchorMs"]} if job["schedule"]["kind"] == "every" else {}
    schedule = desktop({**job["schedule"], **anchor}, created_at=started_at - DAY)
    # The progress after the run that starts now was admitted.
    progress = ScheduleProgress(cursor=started_at, failures=job["consecutiveErrors"])
    progress = apply_decision(schedule, progress, plan_next(schedule, progress, now=started_at))
    run = build_run(
        schedule, Fire(planned_at=started_at, fire_at=started_at, source=Source.MANUAL), now=started_at
    )
    outcome = decode(case.input["outcome"], Outcome)
    done = settle_outcome(run, outcome, retry=schedule.retry, now=finished_at).run
    after, _ = settle_schedule(schedule, progress, done, now=finished_at)
    active = after.state is ScheduleState.ACTIVE
    return {
        "status": "idle" if active else "disabled",
        "enabled": active,
        "consecutive_errors": after.failures,
        "next_run_at_ms": epoch_ms(after.next_at),
        "last_run_at_ms": epoch_ms(done.started_at),
    }


def ask_backoff_delay(case: Case) -> dict[str, Any]:
    ladder = PRESETS["desktop"]["cadence"]
    assert isinstance(ladder, Ladder)
    return {"delay_ms": round(milliseconds(ladder.delay(case.input["consecutive_errors"])))}


def standing_of(job: Mapping[str, Any], *, next_at: datetime, state: str) -> ScheduleProgress:
    kept = decode(state, ScheduleState)
    return ScheduleProgress(
        cursor=next_at - DAY, next_at=next_at, source=Source.BASELINE_INTERVAL, state=kept
    )


def ask_is_due(case: Case) -> dict[str, Any]:
    job, now = case.input["job"], from_epoch_ms(case.input["now_ms"])
    next_at = from_epoch_ms(job["next_run_at_ms"])
    schedule = desktop(
        {"kind": "every", "every": "1h", "anchor_ms": job["next_run_at_ms"]}, created_at=now - DAY
    )
    in_flight = IDLE if job["running_at_ms"] is None else InFlightCounts(live=1)
    progress = standing_of(job, next_at=next_at, state=job["status"])
    verdicts = admit(schedule, progress, in_flight=in_flight, now=now).verdicts
    return {"due": any(isinstance(verdict, Fire) for verdict in verdicts)}


def ask_wake_delay(case: Case) -> dict[str, Any]:
    wakes = [from_epoch_ms(at) for at in case.input["next_runs"]]
    rest = sleep_until(min(wakes, default=None), now=from_epoch_ms(case.input["now_ms"]))
    return {"delay_ms": round(milliseconds(rest))}


def ask_restart(case: Case) -> dict[str, Any]:
    """The state at startup: a run marked as running is a lease that must expire; a pause is kept."""
    job, now = case.input["job"], from_epoch_ms(case.input["now_ms"])
    spec = {"anchor_ms": job["anchor_ms"], **job["schedule"]} if "anchor_ms" in job else {"every": "1h"}
    schedule = desktop(spec, created_at=now - DAY)
    if job.get("running_at_ms") is not None:
        at = from_epoch_ms(job["running_at_ms"])
        run = build_run(schedule, Fire(planned_at=at, fire_at=at, source=Source.MANUAL), now=at)
        assert run.lease_until is not None
        if run.lease_until <= now:
            run = settle_outcome(run, Lost(), retry=schedule.retry, now=now).run
        running = run.state is RunState.LEASED
        return {
            "status": "running" if running else "idle",
            "running_at_ms": job["running_at_ms"] if running else None,
        }
    progress = standing_of(job, next_at=from_epoch_ms(job["next_run_at_ms"]), state=job["status"])
    verdicts = admit(schedule, progress, in_flight=IDLE, now=now).verdicts
    return {"catch_up_runs": sum(isinstance(verdict, Fire) for verdict in verdicts)}


def ask_resume(case: Case) -> dict[str, Any]:
    try:
        next_schedule_state(decode(case.input["job"]["status"], ScheduleState), ScheduleEvent.RESUME)
    except NotAllowed:
        return {"changed": False}
    return {"changed": True}


def ask_add_job(case: Case) -> dict[str, Any]:
    return {"added": desktop(case.input["schedule"], created_at=from_epoch_ms(case.input["now_ms"])).id}


def ask_count_due(case: Case) -> dict[str, Any]:
    grid = trigger({**case.input["schedule"], "anchor_ms": case.input["anchor_ms"]})
    assert isinstance(grid, Every)
    after, until = from_epoch_ms(case.input["after_ms"]), from_epoch_ms(case.input["until_ms"])
    assert grid.count(after, until) == len(grid.between(after, until))
    return {"count": grid.count(after, until)}


def ask_dispatch(case: Case) -> dict[str, Any]:
    now = from_epoch_ms(1_700_000_000_000)
    if "due" in case.input:
        ready = [
            Run(id=key, planned_at=now, fire_at=now, state=RunState.READY, created_at=now)
            for key in case.input["due"]
        ]
        plan = plan_leases(ready, limits={}, capacity=case.input["cap"], now=now)
        return {"started": [run.id for run in plan.leases], "waiting": [one.run_id for one in plan.waiting]}
    schedule = desktop({"every": "1h"}, created_at=now)
    assert case.input["job_kind"] not in case.input["handlers"]
    run = build_run(schedule, Fire(planned_at=now, fire_at=now, source=Source.MANUAL), now=now)
    done = settle_outcome(
        run, Failed(error="no such handler", unresolved=True), retry=schedule.retry, now=now
    )
    after, _ = settle_schedule(schedule, ScheduleProgress(cursor=now), done.run, now=now)
    outcome = "error" if done.run.state is RunState.FAILED else done.run.state.value
    return {"outcome": outcome, "consecutive_errors": after.failures, "schedule": after.state.value}


ask_stuck = ask_restart

ASK: dict[str, Callable[[Case], dict[str, Any]]] = {
    name.removeprefix("ask_"): function for name, function in globals().items() if name.startswith("ask_")
}


def answer(case: Case) -> dict[str, Any]:
    try:
        return ASK[case.op](case)
    except InvalidInput as refusal:
        return error_answer(refusal)


@every_case("halo_next_run")
def test_the_next_instant_is_as_recorded(case: Case) -> None:
    given = answer(case)
    check(case, given)


@every_case("halo_timer")
def test_the_life_of_a_desktop_job_goes_as_recorded(case: Case) -> None:
    given = answer(case)
    check(case, given)


def test_every_operation_of_the_suites_is_tested() -> None:
    assert {case.op for suite in ("halo_next_run", "halo_timer") for case in load(suite)} == set(ASK)


def test_a_past_instant_is_accepted_only_when_the_request_itself_sets_catch_up() -> None:
    (case,) = (case for case in load("halo_timer") if case.id == "halot-043")
    now = from_epoch_ms(case.input["now_ms"])
    with pytest.raises(InvalidInput):
        desktop(case.input["schedule"], created_at=now)
    schedule = desktop(case.input["schedule"], created_at=now, catch_up="last")
    progress = replace(ScheduleProgress(cursor=now - timedelta(seconds=1)), next_at=None)
    progress = apply_decision(schedule, progress, plan_next(schedule, progress, now=now))
    assert [type(v) for v in admit(schedule, progress, in_flight=IDLE, now=now).verdicts] == [Fire]
