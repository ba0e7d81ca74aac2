"""What we ask of an advisor: it reads what happened and proposes, through the tools it is handed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

Use = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


class Advised(Struct, frozen=True, kw_only=True):
    """What advice took: the model, its tokens and cost, its last words, and what went wrong."""

    model: str = ""
    tokens: int = 0
    cost: float = 0.0
    said: str = ""
    warnings: tuple[str, ...] = ()


class Advisor(Protocol):
    """Reads what happened and proposes hints, through the tools and nothing else."""

    @property
    def name(self) -> str:
        """What it is called in the record of an analysis."""
        ...

    def advise(self, brief: Mapping[str, Any], use: Use, *, tokens_left: int) -> Advised:
        """One analysis: use tools by name, `submit_analysis` last; it may spend so many tokens."""
        ...
