"""What an HTTP answer says it cost: in a header, or in a field of its body, named by the target."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from timewright.core.costs import Cost, read_money, read_tokens
from timewright.core.run import Outcome
from timewright.core.target import COST_HEADER, Http


def named_headers(target: Http) -> tuple[str, ...]:
    """The headers of an answer that are kept because they say what it cost."""
    found = (target.tokens_from, target.money_from)
    return tuple(name.removeprefix(COST_HEADER) for name in found if name.startswith(COST_HEADER))


def with_cost(outcome: Outcome, target: Http) -> Outcome:
    """The outcome with the cost that the answer told; what makes no sense was not told."""
    if not (target.tokens_from or target.money_from) or not isinstance(outcome.result, dict):
        return outcome
    tokens = read_tokens(_found(outcome.result, target.tokens_from))
    money = read_money(_found(outcome.result, target.money_from))
    if tokens is None and money is None:
        return outcome
    return replace(outcome, cost=Cost(tokens=tokens, money=money))


def _found(result: dict[str, Any], name: str) -> Any:
    """The value of a header, or of a field of the body by its path: `usage.total_tokens`."""
    if name.startswith(COST_HEADER):
        return result.get("headers", {}).get(name.removeprefix(COST_HEADER).lower())
    value = result.get("body") if name else None
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
