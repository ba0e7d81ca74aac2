"""The tools of one analysis: limited to one schedule and a number of calls, and recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from timewright.errors import TimewrightError
from timewright.operations import OperationContext, operations
from timewright.operations.text_safety import sanitize
from timewright.planner.responses import latest_response, list_responses, sibling_responses
from timewright.planner.tools import (
    SUBMIT_TOOL,
    TOOLS,
    ClearHintsArguments,
    GetLatestResponse,
    GetResponseHistory,
    GetSiblingLatestResponses,
    PauseUntil,
    ProposeInterval,
    ProposeNextTime,
    SubmitAnalysisArguments,
    ToolArguments,
    decode_arguments,
)

MAX_TOOL_CALLS = 15
# Calls refused after the last allowed one are recorded too, up to this number.
MAX_RECORDED_CALLS = 2 * MAX_TOOL_CALLS
MAX_RECORDED_CHARS = 1800
MAX_REFUSAL_CHARS = 1000


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
