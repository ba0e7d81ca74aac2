"""The embedded advisor: reads through the tools, lets the rules decide, and does as they say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from timewright.core.hints import SHORTEST_INTERVAL
from timewright.core.moments import DAY, MINUTE, parse_duration, parse_instant
from timewright.planner.heuristic import Case, consider, oldest_first
from timewright.planner.readings import Reading, fields_of
from timewright.planner.tools import SUBMIT
from timewright.ports import Advised, Use

# Enough for a trend that one odd answer does not turn, and few enough to see a rise that has just begun.
HISTORY = 4


class Heuristic:
    """Advises by rules alone: no network, no tokens, and the same answer to the same question."""

    name = "heuristic"

    def advise(self, brief: Mapping[str, Any], use: Use, *, tokens_left: int) -> Advised:
        """One analysis by the rules."""
        history = use("get_response_history", {"limit": HISTORY})
        siblings = use("get_sibling_latest_responses", {}) if brief["siblings"] else {}
        advice = consider(case_of(brief, history.get("responses", ()), siblings.get("siblings", ())))
        refusals = [answer["refused"] for answer in _done(use, advice.says) if "refused" in answer]
        use(
            SUBMIT,
            {
                "reasoning": advice.reasoning,
                "actions_taken": [tool for tool, _ in advice.says],
                "confidence": advice.confidence,
                "next_analysis_in_minutes": math.ceil(advice.look_again_in / MINUTE),
            },
        )
        return Advised(warnings=tuple(str(refusal)[:450] for refusal in refusals))


def _done(use: Use, says: Sequence[tuple[str, dict[str, Any]]]) -> list[Mapping[str, Any]]:
    return [use(tool, arguments) for tool, arguments in says]


def case_of(
    brief: Mapping[str, Any], responses: Sequence[Mapping[str, Any]], siblings: Sequence[Mapping[str, Any]]
) -> Case:
    """What the rules need to know, from what every advisor is told."""
    schedule, hints = brief["schedule"], brief["hints"]
    return Case(
        now=parse_instant(brief["now"]),
        next_at=parse_instant(schedule["next_at"]) if schedule["next_at"] else None,
        interval=_duration(schedule["interval"]),
        floor=_duration(schedule["shortest"]) or SHORTEST_INTERVAL,
        ceiling=_duration(schedule["longest"]) or DAY,
        failures=brief["health"]["failures"],
        stretches=schedule["stretches"],
        hinted=_duration((hints["interval"] or {}).get("interval")),
        resting=hints["pause"] is not None,
        readings=oldest_first([_reading(one) for one in responses]),
        siblings={str(one["schedule"]): _reading(one) for one in siblings},
    )


def _reading(one: Mapping[str, Any]) -> Reading:
    return Reading(at=parse_instant(one["at"]), ok=one["state"] == "succeeded", fields=fields_of(one["body"]))


def _duration(text: str | None) -> timedelta | None:
    return parse_duration(text) if text else None
