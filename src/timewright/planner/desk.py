"""Where an advisor sits: it uses tools for one schedule, within a number of steps, and all of it is noted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from timewright.errors import TimewrightError
from timewright.operations import Context, operations
from timewright.operations.plain_text import harmless
from timewright.planner.responses import latest, responses, siblings
from timewright.planner.tools import (
    SUBMIT,
    TOOLS,
    Arguments,
    ClearHints,
    GetLatestResponse,
    GetResponseHistory,
    GetSiblingLatestResponses,
    PauseUntil,
    ProposeInterval,
    ProposeNextTime,
    SubmitAnalysis,
    read_arguments,
)

MOST_STEPS = 15
# What is refused after the last step is noted too, as far as the record goes.
MOST_NOTED = 2 * MOST_STEPS
LONGEST_NOTED = 1800
LONGEST_REFUSAL = 1000


class Desk:
    """The tools of one analysis, and the record of their use."""

    def __init__(self, context: Context, *, schedule: str, group: str | None) -> None:
        self._context = context
        self._schedule = schedule
        self._group = group
        self.calls: list[dict[str, Any]] = []
        self.proposals: list[str] = []
        self.submitted: SubmitAnalysis | None = None

    @property
    def steps_left(self) -> int:
        """How many more tools may be used."""
        return max(MOST_STEPS - len(self.calls), 0)

    def use(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Use a tool; what is refused is answered with the reason, so that it can be mended."""
        answer, refused = self._used(name, arguments)
        if len(self.calls) < MOST_NOTED:
            self._note(name, arguments, answer, refused)
        return answer

    def _note(self, name: str, arguments: Any, answer: Mapping[str, Any], refused: str) -> None:
        self.calls.append(
            {
                "tool": harmless(str(name), longest=60),
                "arguments": _noted_arguments(arguments),
                "result": None if refused else _noted(answer),
                "refused": refused,
            }
        )

    def _used(self, name: str, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
        refused = self._refusal(name)
        if not refused:
            try:
                return self._perform(read_arguments(name, arguments)), ""
            except msgspec.ValidationError as error:
                refused = f"the arguments do not fit: {error}"
            except TimewrightError as error:
                parts = (error.message, error.rule, error.fix)
                refused = "; ".join(str(part) for part in parts if part)
        refused = harmless(refused, longest=LONGEST_REFUSAL - 50)
        return {"refused": refused}, refused

    def _refusal(self, name: str) -> str:
        if self.submitted is not None:
            return "the analysis is over: submit_analysis was the last tool"
        if name not in TOOLS:
            return f"there is no such tool; there are {', '.join(TOOLS)}"
        if not self.steps_left and name != SUBMIT:
            return f"{MOST_STEPS} tools were used: now submit_analysis"
        return ""

    def _perform(self, ask: Arguments) -> Mapping[str, Any]:
        if isinstance(ask, SubmitAnalysis):
            self.submitted = ask
            return {"status": "analysis_complete"}
        if isinstance(ask, GetLatestResponse):
            return latest(self._context, self._schedule)
        if isinstance(ask, GetResponseHistory):
            return responses(self._context, self._schedule, limit=ask.limit, offset=ask.offset)
        if isinstance(ask, GetSiblingLatestResponses):
            return siblings(self._context, self._schedule, self._group)
        return self._wish(ask)

    def _wish(self, ask: Arguments) -> Mapping[str, Any]:
        operation, fields, said = _wished(ask)
        reason = getattr(ask, "reason", "")
        asked = {"schedule": self._schedule, **fields, "reason": reason}
        hinted = operations[operation](self._context, asked)
        self.proposals.append(harmless(f"{said}: {reason}" if reason else said, longest=450))
        kept = ("next_at", "source", "without_hints", "changes_left")
        return {"accepted": True, **{name: hinted[name] for name in kept}}


def _wished(ask: Arguments) -> tuple[str, dict[str, Any], str]:
    """The operation behind a wish, its fields, and the wish in words."""
    if isinstance(ask, ProposeInterval):
        spelled = f"{ask.interval_seconds:.3f}s"
        fields = {"interval": spelled, "ttl": f"{ask.ttl_minutes}m"}
        return "hint interval", fields, f"every {ask.interval_seconds:g} s for {ask.ttl_minutes} min"
    if isinstance(ask, ProposeNextTime):
        fields = {"at": ask.at.isoformat(), "ttl": f"{ask.ttl_minutes}m"}
        return "hint once", fields, f"once at {ask.at.isoformat()}"
    if isinstance(ask, PauseUntil) and ask.until is not None:
        return "hint pause", {"until": ask.until.isoformat()}, f"quiet until {ask.until.isoformat()}"
    assert isinstance(ask, ClearHints | PauseUntil)
    return "hint clear", {}, "no wishes"


def _noted_arguments(arguments: Any) -> dict[str, Any]:
    noted = _noted(arguments)
    return noted if isinstance(noted, dict) else {"cut": str(noted)}


def _noted(value: Any) -> Any:
    """Data for the record: whole while it is short, else the beginning of its text."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError, UnicodeError):
        return "not plain data"
    if len(text) > LONGEST_NOTED:
        return harmless(text, longest=LONGEST_NOTED)
    return harmless(msgspec.json.decode(text))
