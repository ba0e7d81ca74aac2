"""Recorded cases of the adaptive scheduler's runs, run against admission, settling and hints."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from tests.core.recorded.endpoints import endpoint, read_hints
from tests.core.recorded.recorded_cases import (
    Case,
    build_run,
    check,
    error_answer,
    every_case,
    format_ms_instant,
    load,
)
from timewright.core.input.decode import decode, decode_schedule
from timewright.core.moments import HOUR, parse_instant
from timewright.core.policies.policies import Delivery
from timewright.core.run.admission import Fire, InFlightCounts, admit
from timewright.core.run.lifecycle import settle_outcome
from timewright.core.run.run import Lost, Outcome
from timewright.core.run.schedule_end import settle_schedule
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.governor import plan_next, pull_forward
from timewright.core.schedule.hints import LastAnalysis, OneShotHint, needs_analysis
from timewright.core.schedule.schedule import ScheduleState, apply_decision
from timewright.errors import InvalidInput

IDLE = InFlightCounts()


def ask_after_run(case: Case) -> dict[str, Any]:
    started_at = parse_instant(case.input["started_at"])
    finished_at = started_at + timedelta(milliseconds=case.input["duration_ms"])
    schedule, progress = endpoint(case.input["endpoint_at_start"], now=started_at)
    # The run that starts now was decided one interval ago.
    ahead = plan_next(schedule, progress, now=started_at).at
    assert ahead is not None
    decision = plan_next(schedule, progress, now=started_at - (ahead - started_at))
    progress = apply_decision(schedule, progress, decision)
    admission = admit(schedule, progress, in_flight=IDLE, now=started_at)
    (fire,) = admission.verdicts
    assert isinstance(fire, Fire)
    run = build_run(schedule, fire, now=started_at)
    outcome = decode(case.input["outcome"], Outcome)
    settlement = settle_outcome(run, outcome, retry=schedule.retry, now=finished_at)
    after, _ = settle_schedule(schedule, admission.progress, settlement.run, now=finished_at)
    return {
        "last_run_at": format_ms_instant(settlement.attempt.started_at),
        "next_run_at": format_ms_instant(after.next_at),
        "failure_count_after": after.failures,
        "run_attempt": settlement.attempt.number,
        "run_source": run.source.value,
    }


def ask_monthly_quota(case: Case) -> dict[str, Any]:
    """The number of runs in a month does not stop a schedule; quotas are on keys and namespaces."""
    now = parse_instant(case.input["now"])
    schedule, progress = endpoint({"baselineIntervalMs": 60_000}, now=now)
    progress = replace(
        progress, runs=case.input["runs_this_month"], next_at=now, source=Source.BASELINE_INTERVAL
    )
    verdicts = admit(schedule, progress, in_flight=IDLE, now=now).verdicts
    return {"allowed": any(isinstance(verdict, Fire) for verdict in verdicts)}


def ask_claim(case: Case) -> dict[str, Any]:
    now = parse_instant(case.input["now"])
    claimed, locked = [], {}
    for row in case.input["endpoints"][: case.input["limit"]]:
        words = dict(row)
        key, locked_until, job = (
            words.pop("id"),
            words.pop("locked_until", None),
            words.pop("job_status", "active"),
        )
        schedule, progress = endpoint({"baseline_interval_ms": 3_600_000, **words}, now=now)
        progress = replace(progress, source=Source.BASELINE_INTERVAL, state=decode(job, ScheduleState))
        in_flight = InFlightCounts(live=1) if locked_until and parse_instant(locked_until) > now else IDLE
        for verdict in admit(schedule, progress, in_flight=in_flight, now=now).verdicts:
            if isinstance(verdict, Fire):
                claimed.append(key)
                locked[key] = format_ms_instant(build_run(schedule, verdict, now=now).lease_until)
    return {"claimed": claimed, "locked_until": locked}


def ask_nudge_if_earlier(case: Case) -> dict[str, Any]:
    now = parse_instant(case.input["now"])
    words = {key: value for key, value in case.input.items() if key in {"min_interval_ms", "paused_until"}}
    schedule, progress = endpoint({"baseline_interval_ms": 86_400_000, **words}, now=now)
    hint = OneShotHint(at=parse_instant(case.input["when"]), expires_at=now + HOUR)
    progress = replace(progress, hints=replace(progress.hints, one_shot=hint))
    current = Decision(parse_instant(case.input["next_run_at"]), Source.BASELINE_INTERVAL)
    return {
        "next_run_at": format_ms_instant(pull_forward(current, plan_next(schedule, progress, now=now)).at)
    }


def ask_clear_hints_after_run(case: Case) -> dict[str, Any]:
    now = parse_instant(case.input["now"])
    left = read_hints(case.input).unexpired(now=now).without_used(until=now)
    ends = [hint.expires_at for hint in (left.interval, left.one_shot) if hint is not None]
    return {
        "ai_hint_interval_ms": None
        if left.interval is None
        else left.interval.interval / timedelta(milliseconds=1),
        "ai_hint_next_run_at": None if left.one_shot is None else format_ms_instant(left.one_shot.at),
        "ai_hint_expires_at": format_ms_instant(ends[0]) if ends else None,
    }


def ask_analysis_due(case: Case) -> dict[str, Any]:
    last = case.input["last_session"]
    again = last["next_analysis_at"]
    analysed = LastAnalysis(again if again is None else parse_instant(again), last["failure_count"])
    now = parse_instant(case.input["now"])
    return {"due": needs_analysis(analysed, failures=case.input["failure_count"], now=now)}


def ask_zombie_sweep(case: Case) -> dict[str, Any]:
    """A run is lost when its lease expires, not at a fixed age."""
    now = parse_instant(case.input["now"])
    schedule, _ = endpoint({"baseline_interval_ms": 60_000}, now=now)
    swept, states = [], set()
    for row in case.input["runs"]:
        at = parse_instant(row["started_at"])
        run = replace(
            build_run(schedule, Fire(planned_at=at, fire_at=at, source=Source.MANUAL), now=at), id=row["id"]
        )
        assert run.lease_until is not None
        if run.lease_until <= now:
            done = settle_outcome(
                run, Lost(), retry=schedule.retry, delivery=Delivery.AT_LEAST_ONCE, now=now
            ).run
            swept.append(done.id)
            states.add(done.state.value)
    return {"swept": swept, "new_status": states.pop()}


def ask_create_endpoint(case: Case) -> dict[str, Any]:
    written = {key: value for key, value in case.input.items() if key not in ("now", "tier")}
    raw = {"name": "endpoint", "preset": "adaptive", "url": "https://example.com/", **written}
    schedule = decode_schedule(raw, id="sch_1", now=parse_instant(case.input["now"]))
    return {"created": True, "trigger": schedule.trigger.describe()}


ASK: dict[str, Callable[[Case], dict[str, Any]]] = {
    name.removeprefix("ask_"): function for name, function in globals().items() if name.startswith("ask_")
}


@every_case("cronicorn_lifecycle")
def test_the_life_of_an_endpoint_goes_as_recorded(case: Case) -> None:
    try:
        given = ASK[case.op](case)
    except InvalidInput as refusal:
        given = error_answer(refusal)
    check(case, given)


def test_every_operation_of_the_suite_is_tested() -> None:
    assert {case.op for case in load("cronicorn_lifecycle")} == set(ASK)
