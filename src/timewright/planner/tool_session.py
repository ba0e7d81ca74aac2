"""The tools of an advisor, and one analysis with them.

Each tool is an operation on one schedule that a user also has. Calls are limited in number, and recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from timewright.errors import NotFound, TimewrightError
from timewright.operations import OperationContext, operations
from timewright.operations.text_safety import sanitize

Reason = Annotated[str, Meta(max_length=2000, description="the reason, in one sentence")]
Instant = Annotated[datetime, Meta(tz=True, description="an instant, RFC 3339 with an offset")]
Minutes = Annotated[int, Meta(ge=1, le=1440, description="how long the hint lasts, in minutes")]

MAX_INTERVAL_S = 366 * 86_400
SUBMIT_TOOL = "submit_analysis"
MAX_TOOL_CALLS = 15
# Calls refused after the last allowed one are recorded too, up to this number.
MAX_RECORDED_CALLS = 2 * MAX_TOOL_CALLS
MAX_RECORDED_CHARS = 1800
MAX_REFUSAL_CHARS = 1000
MAX_BODY_CHARS = 1000
MAX_SIBLINGS = 20
MAX_ROWS = 100


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


class ToolSession:
    """Performs the tool calls of one analysis and records them."""

    def __init__(self, context: OperationContext, *, schedule: str, group: str | None) -> None:
        self._context = context
        self._schedule = schedule
        self._group = group
        self.calls: list[dict[str, Any]] = []
        self.proposals: list[str] = []
        self.submitted: SubmitAnalysisArguments | None = None

    @property
    def calls_left(self) -> int:
        """How many more tool calls are allowed."""
        return max(MAX_TOOL_CALLS - len(self.calls), 0)

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a tool. A refusal is returned with its reason, so that the advisor can correct the call."""
        answer, refused = self._try_call(name, arguments)
        if len(self.calls) < MAX_RECORDED_CALLS:
            self._record_call(name, arguments, answer, refused)
        return answer

    def _record_call(self, name: str, arguments: Any, answer: Mapping[str, Any], refused: str) -> None:
        self.calls.append(
            {
                "tool": sanitize(str(name), max_chars=60),
                "arguments": _recorded_arguments(arguments),
                "result": None if refused else _recorded(answer),
                "refused": refused,
            }
        )

    def _try_call(self, name: str, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
        refused = self._refusal(name)
        if not refused:
            try:
                return self._perform(decode_arguments(name, arguments)), ""
            except msgspec.ValidationError as error:
                refused = f"invalid arguments: {error}"
            except TimewrightError as error:
                parts = (error.message, error.rule, error.fix)
                refused = "; ".join(str(part) for part in parts if part)
        refused = sanitize(refused, max_chars=MAX_REFUSAL_CHARS - 50)
        return {"refused": refused}, refused

    def _refusal(self, name: str) -> str:
        if self.submitted is not None:
            return "the analysis has ended: submit_analysis must be the last call"
        if name not in TOOLS:
            return f"unknown tool; the tools are {', '.join(TOOLS)}"
        if not self.calls_left and name != SUBMIT_TOOL:
            return f"{MAX_TOOL_CALLS} calls were made: call submit_analysis now"
        return ""

    def _perform(self, arguments: ToolArguments) -> Mapping[str, Any]:
        if isinstance(arguments, SubmitAnalysisArguments):
            self.submitted = arguments
            return {"status": "analysis_complete"}
        if isinstance(arguments, GetLatestResponse):
            return latest_response(self._context, self._schedule)
        if isinstance(arguments, GetResponseHistory):
            return list_responses(
                self._context, self._schedule, limit=arguments.limit, offset=arguments.offset
            )
        if isinstance(arguments, GetSiblingLatestResponses):
            return sibling_responses(self._context, self._schedule, self._group)
        return self._give_hint(arguments)

    def _give_hint(self, arguments: ToolArguments) -> Mapping[str, Any]:
        operation, fields, description = _hint_request(arguments)
        reason = getattr(arguments, "reason", "")
        request = {"schedule": self._schedule, **fields, "reason": reason}
        result = operations[operation](self._context, request)
        self.proposals.append(sanitize(f"{description}: {reason}" if reason else description, max_chars=450))
        kept = ("next_at", "source", "without_hints", "changes_left")
        return {"accepted": True, **{name: result[name] for name in kept}}


def _hint_request(arguments: ToolArguments) -> tuple[str, dict[str, Any], str]:
    """The operation for a hint, its fields, and a description of the hint."""
    if isinstance(arguments, ProposeInterval):
        spelled = f"{arguments.interval_seconds:.3f}s"
        fields = {"interval": spelled, "ttl": f"{arguments.ttl_minutes}m"}
        return (
            "hint interval",
            fields,
            f"every {arguments.interval_seconds:g} s for {arguments.ttl_minutes} min",
        )
    if isinstance(arguments, ProposeNextTime):
        fields = {"at": arguments.at.isoformat(), "ttl": f"{arguments.ttl_minutes}m"}
        return "hint once", fields, f"once at {arguments.at.isoformat()}"
    if isinstance(arguments, PauseUntil) and arguments.until is not None:
        return (
            "hint pause",
            {"until": arguments.until.isoformat()},
            f"paused until {arguments.until.isoformat()}",
        )
    assert isinstance(arguments, ClearHintsArguments | PauseUntil)
    return "hint clear", {}, "no hints"


def _recorded_arguments(arguments: Any) -> dict[str, Any]:
    noted = _recorded(arguments)
    return noted if isinstance(noted, dict) else {"cut": str(noted)}


def _recorded(value: Any) -> Any:
    """Data for the record: unchanged while short, else its truncated text."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError, UnicodeError):
        return "not JSON data"
    if len(text) > MAX_RECORDED_CHARS:
        return sanitize(text, max_chars=MAX_RECORDED_CHARS)
    return sanitize(msgspec.json.decode(text))


def list_responses(
    context: OperationContext, schedule: str, *, limit: int, offset: int = 0
) -> dict[str, Any]:
    """The newest responses of a schedule: runs that started and finished, successful or not."""
    wanted = offset + limit + 1
    request = {"schedule": schedule, "limit": min(max(wanted * 2, 10), MAX_ROWS)}
    rows = [
        row
        for row in operations["run list"](context, request)["runs"]
        if row["finished_at"] and row["started_at"] and row["state"] != "cancelled"
    ]
    shown = [found for row in rows[offset : offset + limit] for found in _response(context, row["id"])]
    more = len(rows) > offset + limit
    return {"count": len(shown), "has_more": more, "responses": shown}


def latest_response(context: OperationContext, schedule: str) -> dict[str, Any]:
    """The newest response of a schedule, if there is one."""
    found = list_responses(context, schedule, limit=1)["responses"]
    return {"found": True, **found[0]} if found else {"found": False}


def sibling_responses(context: OperationContext, schedule: str, group: str | None) -> dict[str, Any]:
    """The newest response of every other schedule of a group."""
    found = []
    for name in sibling_names(context, schedule, group):
        answer = latest_response(context, name)
        if answer["found"]:
            found.append({"schedule": name, **answer})
    return {"count": len(found), "siblings": found}


def sibling_names(context: OperationContext, schedule: str, group: str | None) -> list[str]:
    """The names of the other schedules of a group; `schedule` is a name or an id."""
    if not group:
        return []
    rows = operations["schedule list"](context, {"group": group, "limit": MAX_SIBLINGS + 1})["schedules"]
    others = [row["name"] for row in rows if schedule not in (row["name"], row["id"])]
    return others[:MAX_SIBLINGS]


def _response(context: OperationContext, run_id: str) -> Iterator[dict[str, Any]]:
    try:
        found = operations["run get"](context, {"run": run_id})
    except NotFound:
        return  # pruned between the list and the read
    if not found["attempts"]:
        return
    last = found["attempts"][-1]
    result = last["result"]
    is_http = isinstance(result, Mapping) and "body" in result and "status" in result
    yield {
        "at": found["run"]["finished_at"],
        "state": found["run"]["state"],
        "source": found["run"]["source"],
        "http_status": result["status"] if is_http else None,
        "error": sanitize(last["error"], max_chars=MAX_BODY_CHARS),
        "body": _truncate(result["body"] if is_http else result),
    }


def _truncate(body: Any) -> Any:
    """Return short data unchanged, else its truncated text."""
    text = body if isinstance(body, str) else msgspec.json.encode(body).decode()
    if isinstance(body, str) or len(text) > MAX_BODY_CHARS:
        return sanitize(text, max_chars=MAX_BODY_CHARS)
    return sanitize(body)
