"""Build the planner and its advisor from the settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from urllib.parse import urlsplit

from timewright.errors import InvalidInput
from timewright.operations import OperationContext
from timewright.operations.hints.analyses import read_advisor_key
from timewright.planner.heuristic_advisor import HeuristicAdvisor
from timewright.planner.planner_loop import Planner
from timewright.ports import Advisor, Clock
from timewright.settings import Settings


def build_planner(
    context: OperationContext,
    settings: Settings,
    *,
    clock: Clock,
    on_error: Callable[[str], None] = lambda _: None,
) -> Planner:
    """Build the planner of an instance, with the built-in rules or a model as its advisor."""
    return Planner(
        context,
        build_advisor(context, settings),
        clock=clock,
        interval=settings.planner_every,
        uses_tokens=settings.planner == "llm",
        on_error=on_error,
    )


def build_advisor(context: OperationContext, settings: Settings) -> Advisor:
    """Build the advisor that the settings name."""
    if settings.planner != "llm":
        return HeuristicAdvisor()
    from timewright.planner.llm_advisor import LlmAdvisor

    terms = settings.advisor
    if not terms.model:
        raise InvalidInput(
            "no model is set",
            field="advisor.model",
            rule="planner: llm needs a model",
            fix="advisor: {model: NAME, key: env:OPENAI_API_KEY}",
        )
    host = urlsplit(terms.base_url).hostname or ""
    return LlmAdvisor(
        terms, key=lambda: read_advisor_key(context, terms.key, host=host, environment=os.environ)
    )
