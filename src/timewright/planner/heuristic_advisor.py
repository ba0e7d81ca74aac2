"""The built-in advisor: reads responses through the tools, applies the rules, and performs their advice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from timewright.core.moments import DAY, MINUTE, parse_duration, parse_instant
from timewright.core.schedule.hints import MIN_INTERVAL
from timewright.planner.heuristic_rules import MIN_FAILURES, AdviceInput, apply_rules, sort_by_time
from timewright.planner.response_metrics import ParsedResponse, parse_fields
from timewright.planner.tool_session import SUBMIT_TOOL
from timewright.ports import AdvisorReport, CallTool

# Enough for a trend that one outlier does not turn, and few enough to see a rise that has just begun.
RESPONSES_READ = 4
# While it fails: as many as can be read, for the length of the outage.
RESPONSES_OF_OUTAGE = 10


class HeuristicAdvisor:
    """Advises by fixed rules: no network, no tokens, and the same advice for the same input."""

    name = "heuristic"

    def advise(self, brief: Mapping[str, Any], use: CallTool, *, tokens_left: int) -> AdvisorReport:
        """Analyse one schedule by the rules."""
        is_failing = brief["health"]["failures"] >= MIN_FAILURES
        limit = RESPONSES_OF_OUTAGE if is_failing else RESPONSES_READ
        history = use("get_response_history", {"limit": limit})
        siblings = use("get_sibling_latest_responses", {}) if brief["siblings"] else {}
        advice = apply_rules(
            build_advice_input(brief, history.get("responses", ()), siblings.get("siblings", ()))
        )
        answers = [use(tool, arguments) for tool, arguments in advice.tool_calls]
        refusals = [answer["refused"] for answer in answers if "refused" in answer]
        use(
            SUBMIT_TOOL,
            {
                "reasoning": advice.reasoning,
                "actions_taken": [tool for tool, _ in advice.tool_calls],
                "confidence": advice.confidence,
                "next_analysis_in_minutes": math.ceil(advice.look_again_in / MINUTE),
            },
        )
        return AdvisorReport(warnings=tuple(str(refusal)[:450] for refusal in refusals))


def build_advice_input(
    brief: Mapping[str, Any], responses: Sequence[Mapping[str, Any]], siblings: Sequence[Mapping[str, Any]]
) -> AdviceInput:
    """Build the rules' input from the brief and the responses."""
    schedule, hints = brief["schedule"], brief["hints"]
    return AdviceInput(
        now=parse_instant(brief["now"]),
        next_at=_instant(schedule["next_at"]),
        interval=_duration(schedule["interval"]),
        min_interval=_duration(schedule["min_interval"]) or MIN_INTERVAL,
        max_interval=_duration(schedule["max_interval"]) or DAY,
        own_instant=_instant(schedule["own_instant"]),
        last_start=_instant(schedule["last_started_at"]),
        failures=brief["health"]["failures"],
        has_stretch_cadence=schedule["has_stretch_cadence"],
        hinted_interval=_duration((hints["interval"] or {}).get("interval")),
        hint_ends_at=_instant((hints["interval"] or {}).get("expires_at")),
        is_paused_by_hint=hints["pause"] is not None,
        responses=sort_by_time([_parse_response(one) for one in responses]),
        siblings={str(one["schedule"]): _parse_response(one) for one in siblings},
    )


def _parse_response(one: Mapping[str, Any]) -> ParsedResponse:
    return ParsedResponse(
        at=parse_instant(one["at"]), ok=one["state"] == "succeeded", fields=parse_fields(one["body"])
    )


def _instant(text: str | None) -> datetime | None:
    return parse_instant(text) if text else None


def _duration(text: str | None) -> timedelta | None:
    return parse_duration(text) if text else None
