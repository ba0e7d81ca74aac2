"""The interface of an advisor, which reads the history and proposes hints through tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

CallTool = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


class AdvisorReport(Struct, frozen=True, kw_only=True):
    """The report of one analysis: model, tokens, cost, the model's last message, and warnings."""

    model: str = ""
    tokens: int = 0
    cost: float = 0.0
    summary: str = ""
    warnings: tuple[str, ...] = ()


class Advisor(Protocol):
    """Reads the history and proposes hints, only through tools."""

    @property
    def name(self) -> str:
        """The advisor's name in the record of an analysis."""
        ...

    def advise(self, brief: Mapping[str, Any], call_tool: CallTool, *, tokens_left: int) -> AdvisorReport:
        """Run one analysis: call tools by name, `submit_analysis` last, with at most `tokens_left` tokens."""
        ...
