"""One analysis: build the brief, let the advisor use its tools, and record the result."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from timewright.core.moments import DAY, MINUTE, ZERO, format_duration, parse_duration
from timewright.errors import OverQuota
from timewright.operations import OperationContext, operations
from timewright.operations.text_safety import sanitize
from timewright.planner.responses import sibling_names
from timewright.planner.tool_session import ToolSession
from timewright.ports import Advisor, AdvisorReport, Clock

MAX_DESCRIPTION_CHARS = 2000
MAX_RUNS_READ = 100
MAX_DURATION = timedelta(hours=1)
HEALTH_FIELDS = ("total", "success_rate", "streak", "per_hour", "outcomes")


def analyse(
    context: OperationContext,
    schedule: str,
    advisor: Advisor,
    *,
    clock: Clock,
    why: str,
    tokens_left: int = 0,
    notes: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Let an advisor analyse one schedule, record the analysis with `notes`, and return it."""
    began = clock.monotonic()
    brief = build_brief(context, schedule, why=why)
    session = ToolSession(context, schedule=brief["schedule"]["id"], group=brief["schedule"]["group"])
    warnings = list(notes)
    try:
        advised = advisor.advise(brief, session.call_tool, tokens_left=tokens_left)
    except Exception as error:  # noqa: BLE001  boundary: an advisor's failure is recorded, not raised
        advised = AdvisorReport(warnings=(f"the advisor failed: {type(error).__name__}: {error}",))
    if session.submitted is None:
        warnings.append("the advisor ended without submit_analysis")
    took = timedelta(seconds=max(clock.monotonic() - began, 0.0))
    record = _record(brief, session, advisor, advised, warnings=[*advised.warnings, *warnings], took=took)
    return _submit(context, record)


def _submit(context: OperationContext, record: dict[str, Any]) -> dict[str, Any]:
    """Submit the record; if it exceeds the namespace's request size, submit it without the tool calls."""
    try:
        return operations["analysis submit"](context, record)
    except OverQuota:
        cut = {
            "tools": [],
            "warnings": [*record["warnings"][:3], "the tool calls did not fit into the record"],
        }
        return operations["analysis submit"](context, {**record, **cut})


def build_brief(context: OperationContext, schedule: str, *, why: str) -> dict[str, Any]:
    """What every advisor gets first: interval and bounds, health over three windows, hints, the last
    analysis.
    """
    detail = operations["schedule get"](context, {"schedule": schedule})
    hinted = operations["hint list"](context, {"schedule": schedule})
    schedule_body = detail["schedule"]
    clamp, terms = schedule_body["clamp"], operations["namespace get"](context, {})["namespace"]
    return {
        "now": operations["health"](context, {})["now"],
        "why": why,
        "schedule": {
            "id": schedule_body["id"],
            "name": sanitize(schedule_body["name"], max_chars=255),
            "description": sanitize(schedule_body["description"], max_chars=MAX_DESCRIPTION_CHARS),
            "group": schedule_body["group"],
            "trigger": detail["trigger"],
            "interval": _interval(schedule_body["trigger"]),
            "min_interval": format_duration(
                max(_bound(clamp["min"]), _bound(terms["agent_shortest_interval"]))
            ),
            "max_interval": format_duration(
                min(_bound(clamp["max"]) or DAY, _bound(terms["agent_longest_hint"]))
            ),
            "has_stretch_cadence": schedule_body["cadence"].get("kind") == "stretch",
            "next_at": hinted["next_at"],
            "source": hinted["source"],
            "without_hints": hinted["without_hints"],
            "last_started_at": detail["progress"]["last_started_at"],
            "own_instant": _own_instant(context, schedule_body, hinted),
        },
        "hints": hinted["hints"],
        "health": _health(context, schedule),
        "siblings": [
            sanitize(name, max_chars=255)
            for name in sibling_names(context, schedule_body["name"], schedule_body["group"])
        ],
        "last_analysis": _last(context, schedule),
    }


def _own_instant(
    context: OperationContext, schedule: Mapping[str, Any], hinted: Mapping[str, Any]
) -> str | None:
    """An instant at which an interval runs by itself; its other instants are whole intervals away from it."""
    if _interval(schedule["trigger"]) is None or schedule["align"] != "now":
        return None if _interval(schedule["trigger"]) is None else hinted["without_hints"]
    hint = hinted["hints"]["interval"]
    if hint is None:
        return str(hinted["next_at"]) if hinted["next_at"] else None
    request = {
        "schedule": schedule["id"],
        "until": hint["since"] or hint["created_at"],
        "limit": MAX_RUNS_READ,
    }
    rows = operations["run list"](context, request)["runs"]
    return next((row["started_at"] for row in rows if row["source"] == "baseline-interval"), None)


def _health(context: OperationContext, schedule: str) -> dict[str, Any]:
    found = operations["schedule health"](context, {"schedule": schedule})
    windows = {
        name: {key: tally[key] for key in HEALTH_FIELDS} | {"duration": tally["duration"]["median"]}
        for name, tally in found["windows"].items()
    }
    return {"failures": found["failures"], "in_flight": found["in_flight"], "windows": windows}


def _last(context: OperationContext, schedule: str) -> dict[str, Any] | None:
    rows = operations["analysis list"](context, {"schedule": schedule, "limit": 1})["analyses"]
    if not rows:
        return None
    return {name: rows[0][name] for name in ("at", "advisor", "reasoning", "proposals", "confidence")}


def _record(
    brief: Mapping[str, Any],
    session: ToolSession,
    advisor: Advisor,
    advised: AdvisorReport,
    *,
    warnings: list[str],
    took: timedelta,
) -> dict[str, Any]:
    end = session.submitted
    text = end.reasoning if end is not None else advised.summary
    record = {
        "schedule": brief["schedule"]["id"],
        "advisor": advisor.name,
        "model": advised.model[:200],
        "tools": session.calls,
        "reasoning": sanitize(text, max_chars=3900) or "the advisor gave no reasoning",
        "proposals": session.proposals,
        "confidence": end.confidence if end is not None else "low",
        "tokens": advised.tokens,
        "cost": advised.cost,
        "took": format_duration(min(took, MAX_DURATION)),
        "warnings": [sanitize(one, max_chars=450) for one in warnings[:16]],
    }
    if end is not None and end.next_analysis_in_minutes is not None:
        record["look_again_in"] = format_duration(end.next_analysis_in_minutes * MINUTE)
    return record


def _interval(trigger: Mapping[str, Any]) -> str | None:
    found = trigger.get("interval") or trigger.get("delay")
    return str(found) if found else None


def _bound(duration: str | None) -> timedelta:
    return parse_duration(duration) if duration else ZERO
