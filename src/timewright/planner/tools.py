"""The tools of an advisor: exactly these, each an operation a person has, for one schedule and no other."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

Reason = Annotated[str, Meta(max_length=2000, description="why, in a sentence")]
Instant = Annotated[datetime, Meta(tz=True, description="an instant, RFC 3339 with an offset")]
Minutes = Annotated[int, Meta(ge=1, le=1440, description="how long the wish lives, in minutes")]

LONGEST_SECONDS = 366 * 86_400


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool is used with."""


class ProposeInterval(Arguments, frozen=True, kw_only=True):
    """Wish for another interval while the wish lives; bounds of the schedule and of hints hold."""

    interval_seconds: Annotated[float, Meta(gt=0, le=LONGEST_SECONDS, description="seconds between two runs")]
    ttl_minutes: Minutes = 60
    reason: Reason = ""


class ProposeNextTime(Arguments, frozen=True, kw_only=True):
    """Wish for one run at an instant, if that is earlier than its next time."""

    at: Instant
    ttl_minutes: Minutes = 30
    reason: Reason = ""


class PauseUntil(Arguments, frozen=True, kw_only=True):
    """Wish for quiet until an instant, at most an hour ahead; null forgets every wish."""

    until: Instant | None
    reason: Reason = ""


class ClearHints(Arguments, frozen=True, kw_only=True):
    """Forget every wish: the schedule goes back to its own pace."""

    reason: Reason = ""


class GetLatestResponse(Arguments, frozen=True, kw_only=True):
    """Read what the schedule answered last."""


class GetResponseHistory(Arguments, frozen=True, kw_only=True):
    """Read its last responses, newest first; each body is cut at 1000 characters."""

    limit: Annotated[int, Meta(ge=1, le=10, description="how many, at most 10")] = 2
    offset: Annotated[int, Meta(ge=0, le=80, description="how many of the newest to pass over")] = 0


class GetSiblingLatestResponses(Arguments, frozen=True, kw_only=True):
    """Read what the other schedules of its group answered last."""


class SubmitAnalysis(Arguments, frozen=True, kw_only=True):
    """End the analysis: what was seen, what was done, how sure, and when to look again. Always the last."""

    reasoning: Annotated[str, Meta(min_length=1, max_length=4000, description="what was seen, what follows")]
    actions_taken: Annotated[tuple[Annotated[str, Meta(max_length=500)], ...], Meta(max_length=16)] = ()
    confidence: Literal["low", "medium", "high"] = "medium"
    next_analysis_in_minutes: (
        Annotated[int, Meta(ge=5, le=1440, description="when to look again, in minutes")] | None
    ) = None


TOOLS: Mapping[str, type[Arguments]] = {
    "propose_interval": ProposeInterval,
    "propose_next_time": ProposeNextTime,
    "pause_until": PauseUntil,
    "clear_hints": ClearHints,
    "get_latest_response": GetLatestResponse,
    "get_response_history": GetResponseHistory,
    "get_sibling_latest_responses": GetSiblingLatestResponses,
    "submit_analysis": SubmitAnalysis,
}
SUBMIT = "submit_analysis"


def tool_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of what a tool is used with."""
    kind = TOOLS[name]
    _, parts = msgspec.json.schema_components([kind])
    schema: dict[str, Any] = {**parts[kind.__name__]}
    schema.pop("title", None)
    schema.pop("description", None)
    return schema


def tool_summary(name: str) -> str:
    """What a tool does, in a sentence or two."""
    return (TOOLS[name].__doc__ or "").strip()


def read_arguments(name: str, given: Mapping[str, Any]) -> Arguments:
    """What a tool is used with, read strictly; what does not fit is a `msgspec.ValidationError`."""
    found: Arguments = msgspec.convert(given, TOOLS[name], strict=True)
    return found
