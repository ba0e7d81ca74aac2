"""Recorded cases of the workflow cron, run against the workflow preset, admission and forecast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from tests.core.recorded.recorded_cases import (
    Case,
    check,
    error_answer,
    every_case,
    format_ms_instant,
    instant,
    load,
    milliseconds,
)
from timewright.core.input.decode import decode, decode_schedule
from timewright.core.moments import DAY, MINUTE, parse_instant
from timewright.core.recurrence.triggers import Cron
from timewright.core.run.admission import Admission, Drop, Fire, Hold, InFlightCounts, Skip, admit
from timewright.core.run.run import LIVE_STATES, RunState, occurrence_key
from timewright.core.schedule.decision import Source
from timewright.core.schedule.forecast import forecast
from timewright.core.schedule.governor import plan_next
from timewright.core.schedule.schedule import (
    Schedule,
    ScheduleProgress,
    ScheduleState,
    apply_decision,
    initial_progress,
)
from timewright.errors import InvalidInput

IDLE, BUSY = InFlightCounts(), InFlightCounts(live=1)
TICK = timedelta(microseconds=1)
OF_THE_STANDING = {"next_run_at", "paused"}
ACTIONS = {Fire: ("launch", "ENQUEUED"), Hold: ("held", "HELD")}


def read(raw: Mapping[str, Any], *, now: datetime, key: str = "sch_1", **more: Any) -> Schedule:
    written = {name: value for name, value in raw.items() if name not in OF_THE_STANDING}
    given = {"name": "flow", "preset": "workflow", "workflow_id": "etl", "user_id": "u1", **written, **more}
    return decode_schedule(given, id=key, now=now)


def stored(raw: Mapping[str, Any], *, now: datetime, **more: Any) -> tuple[Schedule, ScheduleProgress]:
    """A stored schedule: created long ago, with its decided next instant."""
    schedule = read({"cron": "0 * * * *", **raw}, now=now - 400 * DAY, **more)
    next_at = parse_instant(raw["next_run_at"])
    state = ScheduleState.PAUSED if raw.get("paused") else ScheduleState.ACTIVE
    return schedule, ScheduleProgress(
        cursor=next_at - TICK, next_at=next_at, source=Source.BASELINE_CRON, state=state
    )


def ask_enumerate(case: Case) -> dict[str, Any]:
    now, lookahead = parse_instant(case.input["now"]), timedelta(milliseconds=case.input["lookahead_ms"])
    schedule, progress = stored(case.input["schedule"], now=now, overlap="allow", spread_over=lookahead)
    admission = admit(schedule, progress, in_flight=IDLE, now=now)
    seen = forecast(schedule, admission.progress, now=now, count=100, until=now + lookahead)
    times = [(v.planned_at, v.fire_at) for v in admission.verdicts if isinstance(v, Fire)]
    return {
        "times": [
            {"planned_at": format_ms_instant(planned), "fire_at": format_ms_instant(fire)}
            for planned, fire in times
        ],
        "previewed": [format_ms_instant(one.planned_at) for one in seen],
    }


def ask_idempotency_key(case: Case) -> dict[str, Any]:
    return {"key": occurrence_key(case.input["schedule_id"], parse_instant(case.input["planned_at"]))}


def tick(case: Case) -> Admission:
    now = parse_instant(case.input["now"])
    schedule, progress = stored(case.input["schedule"], now=now)
    return admit(schedule, progress, in_flight=BUSY if case.input.get("inflight_before") else IDLE, now=now)


def ask_tick(case: Case) -> dict[str, Any]:
    actions = []
    for verdict in tick(case).verdicts:
        assert not isinstance(verdict, Drop)
        action: dict[str, Any] = {"planned_at": format_ms_instant(verdict.planned_at), "action": "SKIPPED"}
        if type(verdict) in ACTIONS:
            action["action"], action["status"] = ACTIONS[type(verdict)]
        actions.append(action)
    return {"actions": actions, "stopped_at": None}


def ask_advance(case: Case) -> dict[str, Any]:
    return {"next_run_at": format_ms_instant(tick(case).progress.next_at)}


def ask_upsert(case: Case) -> dict[str, Any]:
    now = parse_instant(case.input["now"])
    written = {name: value for name, value in case.input.items() if name != "now"}
    schedule = read(written, now=now)
    progress = initial_progress(schedule)
    progress = apply_decision(schedule, progress, plan_next(schedule, progress, now=now))
    return {
        "next_run_at": format_ms_instant(progress.next_at),
        "paused": progress.state is ScheduleState.PAUSED,
        "overlap_policy": schedule.overlap.value,
        "catchup_policy": schedule.catch_up.value,
        "jitter_ms": round(milliseconds(schedule.jitter)),
    }


def ask_preview(case: Case) -> dict[str, Any]:
    after = parse_instant(case.input["after"])
    schedule = read({"cron": case.input["cron"], "timezone": case.input["timezone"]}, now=after)
    seen = forecast(schedule, initial_progress(schedule), now=after, count=case.input["count"])
    return {"times": [format_ms_instant(one.planned_at) for one in seen]}


def ask_jitter_bounds(case: Case) -> dict[str, Any]:
    planned_at = parse_instant(case.input["planned_at"])
    seen: dict[str, list[datetime]] = {}
    for side in ("late", "both"):
        for i in range(200):
            raw = {"next_run_at": case.input["planned_at"], "jitter_ms": case.input["jitter_ms"]}
            schedule, progress = stored(raw, now=planned_at, jitter_side=side, key=f"sch_{i}")
            (fire,) = admit(schedule, progress, in_flight=IDLE, now=planned_at).verdicts
            assert isinstance(fire, Fire)
            seen.setdefault(side, []).append(fire.fire_at)
    jitter = timedelta(milliseconds=case.input["jitter_ms"])
    assert min(seen["both"]) < planned_at
    assert all(planned_at - jitter <= at <= planned_at + jitter for at in seen["both"])
    return {"seen": [str(format_ms_instant(at)) for at in seen["late"]]}


def ask_catchup_cap(case: Case) -> dict[str, Any]:
    now = parse_instant("2026-03-10T12:00:30Z")
    first = now.replace(second=0) - (case.input["missed"] - 1) * MINUTE
    raw = {
        "cron": case.input["cron"],
        "next_run_at": format_ms_instant(first),
        "catch_up": "fire_immediately",
    }
    schedule, progress = stored(raw, now=now, overlap="allow", grace="0s", catch_up_limit=case.input["cap"])
    emitted = []
    for _ in range(3):
        admission = admit(schedule, progress, in_flight=IDLE, now=now)
        emitted.append([verdict.planned_at for verdict in admission.verdicts])
        progress = admission.progress
    assert sum(map(len, emitted)) == case.input["missed"]
    assert [at for batch in emitted for at in batch] == sorted(at for batch in emitted for at in batch)
    return {"emitted": len(emitted[0]), "order": "oldest-first" if emitted[0][0] == first else "other"}


def ask_inflight(case: Case) -> dict[str, Any]:
    return {"inflight": any(decode(word, RunState) in LIVE_STATES for word in case.input["statuses"])}


def ask_due_query(case: Case) -> dict[str, Any]:
    now = parse_instant(case.input["now"])
    schedule, progress = stored(case.input["schedule"], now=now)
    verdicts = admit(schedule, progress, in_flight=IDLE, now=now).verdicts
    return {
        "selected": bool(verdicts),
        "rows": [format_ms_instant(verdict.planned_at) for verdict in verdicts],
    }


def ask_dst_policy_dependent(case: Case) -> dict[str, Any]:
    cron = Cron(case.input["cron"], case.input["timezone"])
    after = instant(case.input["after"])
    assert after is not None
    found = format_ms_instant(cron.next_after(after))
    return {"by_engine": dict.fromkeys(case.recorded["by_engine"], found), "next": found}


ASK: dict[str, Callable[[Case], dict[str, Any]]] = {
    name.removeprefix("ask_"): function for name, function in globals().items() if name.startswith("ask_")
}


@every_case("seed004_enumeration")
def test_the_workflow_cron_goes_as_recorded(case: Case) -> None:
    try:
        given = ASK[case.op](case)
    except InvalidInput as refusal:
        given = error_answer(refusal)
    check(case, given)


def test_every_operation_of_the_suite_is_tested() -> None:
    assert {case.op for case in load("seed004_enumeration")} == set(ASK)


def test_an_occurrence_on_time_behind_a_held_backlog_is_skipped_in_a_later_pass() -> None:
    (case,) = (case for case in load("seed004_enumeration") if case.id == "s4-029")
    first = tick(case)
    assert [type(verdict) for verdict in first.verdicts] == [Fire, Hold, Hold, Hold]
    now = parse_instant(case.input["now"]) + MINUTE
    schedule, _ = stored(case.input["schedule"], now=now)
    later = admit(schedule, first.progress, in_flight=InFlightCounts(live=1, held=2), now=now)
    assert [(type(v), v.planned_at) for v in later.verdicts] == [(Skip, now)]
    assert replace(later.progress, cursor=now) == later.progress
