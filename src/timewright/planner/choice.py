"""Which advisor the settings ask for, joined with the loop that asks it."""

from __future__ import annotations

import os
from collections.abc import Callable

from timewright.errors import InvalidInput
from timewright.operations import Context
from timewright.operations.advisor_key import advisor_key
from timewright.planner.watch import Planner
from timewright.ports import Advisor, Clock
from timewright.settings import Settings


def planner_for(
    context: Context, settings: Settings, *, clock: Clock, trouble: Callable[[str], None] = lambda _: None
) -> Planner:
    """The planner of an instance: the embedded rules, or a model at the endpoint the settings name."""
    return Planner(
        context,
        advisor_for(context, settings),
        clock=clock,
        every=settings.planner_every,
        spends=settings.planner == "llm",
        trouble=trouble,
    )


def advisor_for(context: Context, settings: Settings) -> Advisor:
    """The advisor that the settings name."""
    if settings.planner != "llm":
        from timewright.planner.advisors import Heuristic

        return Heuristic()
    from timewright.planner.llm import Model

    terms = settings.advisor
    if not terms.model:
        raise InvalidInput(
            "no model is named",
            field="advisor.model",
            rule="planner: llm needs the model that shall be asked",
            fix="advisor: {model: NAME, key: env:OPENAI_API_KEY}",
        )
    return Model(terms, key=lambda: advisor_key(context, terms.key, environment=os.environ))
