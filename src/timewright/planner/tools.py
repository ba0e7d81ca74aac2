"""The tools of an advisor. Each is an operation on one schedule that a user also has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

Reason = Annotated[str, Meta(max_length=2000, description="the reason, in one sentence")]
Instant = Annotated[datetime, Meta(tz=True, description="an instant, RFC 3339 with an offset")]
Minutes = Annotated[int, Meta(ge=1, le=1440, description="how long the hint lasts, in minutes")]

MAX_INTERVAL_S = 366 * 86_400


class ToolArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool."""


class ProposeInterval(ToolArguments, frozen=True, kw_only=True):
    """Hint another interval for a while, within the bounds of the schedule and of hints."""

    interval_seconds: Annotated[float, Meta(gt=0, le=MAX_INTERVAL_S, description="seconds between two runs")]
    ttl_minutes: Minutes = 60
    reason: Reason = ""


class ProposeNextTime(ToolArguments, frozen=True, kw_only=True):
    """Hint one run at an instant, if that is earlier than the next one."""

    at: Instant
    ttl_minutes: Minutes = 30
    reason: Reason = ""


class PauseUntil(ToolArguments, frozen=True, kw_only=True):
    """Hint a pause until an instant, at most an hour ahead; null clears every hint."""

    until: Instant | None
    reason: Reason = ""


class ClearHintsArguments(ToolArguments, frozen=True, kw_only=True):
    """Clear every hint: the schedule returns to its own interval."""

    reason: Reason = ""


class GetLatestResponse(ToolArguments, frozen=True, kw_only=True):
    """Read the schedule's latest response."""


class GetResponseHistory(ToolArguments, frozen=True, kw_only=True):
    """Read its last responses, newest first; each body is truncated at 1000 characters."""

    limit: Annotated[int, Meta(ge=1, le=10, description="how many, at most 10")] = 2
    offset: Annotated[int, Meta(ge=0, le=80, description="how many of the newest to skip")] = 0


class GetSiblingLatestResponses(ToolArguments, frozen=True, kw_only=True):
    """Read the latest responses of the other schedules in its group."""


class SubmitAnalysisArguments(ToolArguments, frozen=True, kw_only=True):
    """End the analysis: what you saw, what you did, how sure you are, and when to analyse again.

    Always last.
    """

    reasoning: Annotated[str, Meta(min_length=1, max_length=4000, description="what was seen, what follows")]
    actions_taken: Annotated[tuple[Annotated[str, Meta(max_length=500)], ...], Meta(max_length=16)] = ()
    confidence: Literal["low", "medium", "high"] = "medium"
    next_analysis_in_minutes: (
        Annotated[int, Meta(ge=5, le=1440, description="when to analyse again, in minutes")] | None
    ) = None


TOOLS: Mapping[str, type[ToolArguments]] = {
    "propose_interval": ProposeInterval,
    "propose_next_time": ProposeNextTime,
    "pause_until": PauseUntil,
    "clear_hints": ClearHintsArguments,
    "get_latest_response": GetLatestResponse,
    "get_response_history": GetResponseHistory,
    "get_sibling_latest_responses": GetSiblingLatestResponses,
    "submit_analysis": SubmitAnalysisArguments,
}
SUBMIT_TOOL = "submit_analysis"


def tool_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    kind = TOOLS[name]
    _, parts = msgspec.json.schema_components([kind])
    schema: dict[str, Any] = {**parts[kind.__name__]}
    schema.pop("title", None)
    schema.pop("description", None)
    return schema


def tool_description(name: str) -> str:
    """What a tool does, in a sentence or two."""
    return (TOOLS[name].__doc__ or "").strip()


def decode_arguments(name: str, given: Mapping[str, Any]) -> ToolArguments:
    """Decode the arguments of a tool strictly; raises `msgspec.ValidationError`."""
    found: ToolArguments = msgspec.convert(given, TOOLS[name], strict=True)
    return found
