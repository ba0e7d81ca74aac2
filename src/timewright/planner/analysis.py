"""One analysis: what an advisor is told, the tools it uses, and what is written down of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from timewright.core.moments import DAY, MINUTE, ZERO, parse_duration, spell_duration
from timewright.errors import OverQuota
from timewright.operations import Context, operations
from timewright.operations.plain_text import harmless
from timewright.planner.desk import Desk
from timewright.planner.responses import sibling_names
from timewright.ports import Advised, Advisor, Clock

LONGEST_DESCRIPTION = 2000
LONGEST_TOOK = timedelta(hours=1)
HEALTH = ("total", "success_rate", "streak", "per_hour", "outcomes")


def analyse(
    context: Context, schedule: str, advisor: Advisor, *, clock: Clock, why: str, tokens_left: int = 0
) -> dict[str, Any]:
    """Look at one schedule with an advisor, and keep what came of it; gives back the analysis."""
    began = clock.monotonic()
    brief = brief_of(context, schedule, why=why)
    desk = Desk(context, schedule=brief["schedule"]["id"], group=brief["schedule"]["group"])
    warnings: list[str] = []
    try:
        advised = advisor.advise(brief, desk.use, tokens_left=tokens_left)
    except Exception as error:  # noqa: BLE001  the boundary: whatever an advisor does is written down
        advised = Advised(warnings=(f"the advisor failed: {type(error).__name__}: {error}",))
    if desk.submitted is None:
        warnings.append("the advisor ended without submit_analysis")
    took = timedelta(seconds=max(clock.monotonic() - began, 0.0))
    record = _record(brief, desk, advisor, advised, warnings=[*advised.warnings, *warnings], took=took)
    return _submitted(context, record)


def _submitted(context: Context, record: dict[str, Any]) -> dict[str, Any]:
    """Keep the record; where a namespace takes no request of that size, its end without the tools."""
    try:
        return operations["analysis submit"](context, record)
    except OverQuota:
        cut = {"tools": [], "warnings": [*record["warnings"][:3], "the tools did not fit into the record"]}
        return operations["analysis submit"](context, {**record, **cut})


def brief_of(context: Context, schedule: str, *, why: str) -> dict[str, Any]:
    """What every advisor is told first: pace, bounds, health over three windows, wishes, the last look."""
    detail = operations["schedule get"](context, {"schedule": schedule})
    hinted = operations["hint list"](context, {"schedule": schedule})
    said = detail["schedule"]
    clamp, terms = said["clamp"], operations["namespace get"](context, {})["namespace"]
    return {
        "now": operations["health"](context, {})["now"],
        "why": why,
        "schedule": {
            "id": said["id"],
            "name": harmless(said["name"], longest=255),
            "description": harmless(said["description"], longest=LONGEST_DESCRIPTION),
            "group": said["group"],
            "trigger": detail["trigger"],
            "interval": _interval(said["trigger"]),
            "shortest": spell_duration(max(_bound(clamp["min"]), _bound(terms["agent_shortest_interval"]))),
            "longest": spell_duration(min(_bound(clamp["max"]) or DAY, _bound(terms["agent_longest_hint"]))),
            "stretches": said["cadence"].get("kind") == "stretch",
            "next_at": hinted["next_at"],
            "source": hinted["source"],
            "without_hints": hinted["without_hints"],
        },
        "hints": hinted["hints"],
        "health": _health(context, schedule),
        "siblings": [
            harmless(name, longest=255) for name in sibling_names(context, said["name"], said["group"])
        ],
        "last_analysis": _last(context, schedule),
    }


def _health(context: Context, schedule: str) -> dict[str, Any]:
    found = operations["schedule health"](context, {"schedule": schedule})
    windows = {
        name: {key: tally[key] for key in HEALTH} | {"duration": tally["duration"]["median"]}
        for name, tally in found["windows"].items()
    }
    return {"failures": found["failures"], "in_flight": found["in_flight"], "windows": windows}


def _last(context: Context, schedule: str) -> dict[str, Any] | None:
    rows = operations["analysis list"](context, {"schedule": schedule, "limit": 1})["analyses"]
    if not rows:
        return None
    return {name: rows[0][name] for name in ("at", "advisor", "reasoning", "proposals", "confidence")}


def _record(
    brief: Mapping[str, Any],
    desk: Desk,
    advisor: Advisor,
    advised: Advised,
    *,
    warnings: list[str],
    took: timedelta,
) -> dict[str, Any]:
    end = desk.submitted
    said = end.reasoning if end is not None else advised.said
    record = {
        "schedule": brief["schedule"]["id"],
        "advisor": advisor.name,
        "model": advised.model[:200],
        "tools": desk.calls,
        "reasoning": harmless(said, longest=3900) or "it ended without a word",
        "proposals": desk.proposals,
        "confidence": end.confidence if end is not None else "low",
        "tokens": advised.tokens,
        "cost": advised.cost,
        "took": spell_duration(min(took, LONGEST_TOOK)),
        "warnings": [harmless(one, longest=450) for one in warnings[:16]],
    }
    if end is not None and end.next_analysis_in_minutes is not None:
        record["look_again_in"] = spell_duration(end.next_analysis_in_minutes * MINUTE)
    return record


def _interval(trigger: Mapping[str, Any]) -> str | None:
    found = trigger.get("interval") or trigger.get("delay")
    return str(found) if found else None


def _bound(duration: str | None) -> timedelta:
    return parse_duration(duration) if duration else ZERO
