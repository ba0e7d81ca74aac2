"""The recorded answers of the adaptive scheduler around a run, asked of admission, settling and the nudge."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from tests.core.endpoints import endpoint, hints_of
from tests.core.seed_cases import Case, check, every_case, load, refusal_in, run_of, spelled
from timewright.core.admission import Fire, Flight, admit
from timewright.core.decision import Decision, Source
from timewright.core.governor import nudged, plan_next
from timewright.core.hints import Analysed, OneShotHint, deserves_a_look
from timewright.core.lifecycle import settle, settle_schedule
from timewright.core.moments import HOUR, parse_instant
from timewright.core.policies import Delivery
from timewright.core.run import Lost, Outcome
from timewright.core.schedule import ScheduleState, decided
from timewright.core.vocabulary import decode, decode_schedule
from timewright.errors import InvalidInput

IDLE = Flight()


def ask_after_run(case: Case) -> dict[str, Any]:
    started_at = parse_instant(case.input["started_at"])
    finished_at = started_at + timedelta(milliseconds=case.input["duration_ms"])
    schedule, standing = endpoint(case.input["endpoint_at_start"], now=started_at)
    # The run that starts now was decided one interval ago.
    ahead = plan_next(schedule, standing, now=started_at).at
    assert ahead is not None
    decision = plan_next(schedule, standing, now=started_at - (ahead - started_at))
    standing = decided(schedule, standing, decision)
    admission = admit(schedule, standing, flight=IDLE, now=started_at)
    (fire,) = admission.verdicts
    assert isinstance(fire, Fire)
    run = run_of(schedule, fire, now=started_at)
    outcome = decode(case.input["outcome"], Outcome)
    settlement = settle(run, outcome, retry=schedule.retry, now=finished_at)
    after, _ = settle_schedule(schedule, admission.standing, settlement.run, now=finished_at)
    return {
        "last_run_at": spelled(settlement.attempt.started_at),
        "next_run_at": spelled(after.next_at),
        "failure_count_after": after.failures,
        "run_attempt": settlement.attempt.number,
        "run_source": run.source.value,
    }


def ask_monthly_quota(case: Case) -> dict[str, Any]:
    """However many runs a month has had, the schedule itself goes on; quotas are on keys and namespaces."""
    now = parse_instant(case.input["now"])
    schedule, standing = endpoint({"baselineIntervalMs": 60_000}, now=now)
    standing = replace(
        standing, runs=case.input["runs_this_month"], next_at=now, source=Source.BASELINE_INTERVAL
    )
    verdicts = admit(schedule, standing, flight=IDLE, now=now).verdicts
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
        schedule, standing = endpoint({"baseline_interval_ms": 3_600_000, **words}, now=now)
        standing = replace(standing, source=Source.BASELINE_INTERVAL, state=decode(job, ScheduleState))
        flight = Flight(live=1) if locked_until and parse_instant(locked_until) > now else IDLE
        for verdict in admit(schedule, standing, flight=flight, now=now).verdicts:
            if isinstance(verdict, Fire):
                claimed.append(key)
                locked[key] = spelled(run_of(schedule, verdict, now=now).lease_until)
    return {"claimed": claimed, "locked_until": locked}


def ask_nudge_if_earlier(case: Case) -> dict[str, Any]:
    now = parse_instant(case.input["now"])
    words = {key: value for key, value in case.input.items() if key in {"min_interval_ms", "paused_until"}}
    schedule, standing = endpoint({"baseline_interval_ms": 86_400_000, **words}, now=now)
    hint = OneShotHint(at=parse_instant(case.input["when"]), expires_at=now + HOUR)
    standing = replace(standing, hints=replace(standing.hints, one_shot=hint))
    current = Decision(parse_instant(case.input["next_run_at"]), Source.BASELINE_INTERVAL)
    return {"next_run_at": spelled(nudged(current, plan_next(schedule, standing, now=now)).at)}


def ask_clear_hints_after_run(case: Case) -> dict[str, Any]:
    left = hints_of(case.input).consumed(now=parse_instant(case.input["now"]))
    ends = [hint.expires_at for hint in (left.interval, left.one_shot) if hint is not None]
    return {
        "ai_hint_interval_ms": None
        if left.interval is None
        else left.interval.interval / timedelta(milliseconds=1),
        "ai_hint_next_run_at": None if left.one_shot is None else spelled(left.one_shot.at),
        "ai_hint_expires_at": spelled(ends[0]) if ends else None,
    }


def ask_analysis_due(case: Case) -> dict[str, Any]:
    last = case.input["last_session"]
    again = last["next_analysis_at"]
    analysed = Analysed(again if again is None else parse_instant(again), last["failure_count"])
    now = parse_instant(case.input["now"])
    return {"due": deserves_a_look(analysed, failures=case.input["failure_count"], now=now)}


def ask_zombie_sweep(case: Case) -> dict[str, Any]:
    """A run is lost when its lease is over, not when it reaches an age."""
    now = parse_instant(case.input["now"])
    schedule, _ = endpoint({"baseline_interval_ms": 60_000}, now=now)
    swept, states = [], set()
    for row in case.input["runs"]:
        at = parse_instant(row["started_at"])
        run = replace(
            run_of(schedule, Fire(planned_at=at, fire_at=at, source=Source.MANUAL), now=at), id=row["id"]
        )
        assert run.lease_until is not None
        if run.lease_until <= now:
            done = settle(run, Lost(), retry=schedule.retry, delivery=Delivery.AT_LEAST_ONCE, now=now).run
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
        given = refusal_in(refusal)
    check(case, given)


def test_every_operation_of_the_suite_is_asked() -> None:
    assert {case.op for case in load("cronicorn_lifecycle")} == set(ASK)
