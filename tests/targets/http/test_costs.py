"""Reported costs: by a function through its context, by an HTTP response in a header or its body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tests.targets.http.kit import HttpCaller
from tests.targets.http.scripted_server import ScriptedServer, respond
from tests.targets.kit import outcome_of
from timewright.core.budgets.costs import Cost
from timewright.core.run.run import Failed, Succeeded, TimedOut
from timewright.core.target import Call, Http, Isolation
from timewright.targets.call.registry import FunctionRegistry
from timewright.targets.call.target import CallTarget
from timewright.targets.context import Context

SECOND = timedelta(seconds=1)
registry = FunctionRegistry()


@registry.register("spend")
def spend(context: Context, *, fails: bool = False) -> None:
    """Report the cost in several calls."""
    context.cost(tokens=100, money="0.25")
    context.cost(tokens=20)
    context.cost(money=Decimal("0.0000005"), currency="EUR")
    if fails:
        raise ValueError("and then it failed")


@registry.register("spend_later")
async def spend_later(context: Context) -> None:
    """Report the cost in an async function."""
    context.cost(tokens=7)


@registry.register("spend_and_stay")
def spend_and_stay(context: Context) -> None:
    """Report a cost, and run until asked to stop."""
    context.cost(tokens=5)
    context.cancelled.wait(10)


@registry.register("spend_in")
def spend_in(context: Context, *, currency: Any) -> None:
    """Report a currency."""
    context.cost(money=1, currency=currency)


@registry.register("spend_all")
def spend_all(context: Context) -> None:
    """Report the largest cost repeatedly."""
    for _ in range(3):
        context.cost(tokens=10**12, money="999999999")


@registry.register("nonsense")
def nonsense(context: Context, *, money: Any) -> None:
    """Report an invalid cost."""
    context.cost(money=money)


@pytest.fixture
def target() -> Iterator[CallTarget]:
    made = CallTarget(registry)
    yield made
    made.close(grace=SECOND)


@pytest.mark.parametrize("isolation", ["thread", "loop"])
def test_costs_reported_by_a_function_are_summed(target: CallTarget, isolation: Isolation) -> None:
    name = "spend" if isolation == "thread" else "spend_later"
    outcome = outcome_of(target, Call(name=name, isolation=isolation))
    expected = Cost(tokens=120, money="0.25", currency="EUR") if name == "spend" else Cost(tokens=7)
    assert outcome == Succeeded(cost=expected)


def test_failed_and_timed_out_calls_keep_their_reported_cost(target: CallTarget) -> None:
    failed = outcome_of(target, Call(name="spend", args={"fails": True}))
    assert isinstance(failed, Failed)
    assert failed.cost == Cost(tokens=120, money="0.25", currency="EUR")
    late = outcome_of(target, Call(name="spend_and_stay", isolation="thread"), limit=0.2)
    assert isinstance(late, TimedOut)
    assert late.cost == Cost(tokens=5)


@pytest.mark.parametrize("currency", ["of the realm", "\ud800", "\0", 5])
def test_an_invalid_currency_is_refused(target: CallTarget, currency: Any) -> None:
    outcome = outcome_of(target, Call(name="spend_in", args={"currency": currency}))
    assert isinstance(outcome, Failed)
    assert "currency" in outcome.error
    assert outcome.cost is None


def test_a_huge_total_cost_can_be_stored_and_read(target: CallTarget) -> None:
    cost = outcome_of(target, Call(name="spend_all")).cost
    assert msgspec.convert(msgspec.to_builtins(cost), Cost) == cost


@pytest.mark.parametrize("money", ["-1", "much", "nan", 1e12, True])
def test_an_invalid_cost_is_refused(target: CallTarget, money: Any) -> None:
    outcome = outcome_of(target, Call(name="nonsense", args={"money": money}))
    assert isinstance(outcome, Failed)
    assert "is not a cost" in outcome.error
    assert outcome.cost is None


@pytest.fixture(scope="module")
def peer() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@pytest.fixture(scope="module")
def caller() -> Iterator[HttpCaller]:
    with HttpCaller() as calling:
        yield calling


@pytest.mark.parametrize(
    ("cost_sources", "cost"),
    [
        ({"tokens_from": "usage.total_tokens"}, Cost(tokens=321)),
        ({"money_from": "usage.price"}, Cost(money="0.0125")),
        ({"tokens_from": "header:X-Tokens", "money_from": "header:x-price"}, Cost(tokens=12, money="3.00")),
        ({"tokens_from": "usage.total_tokens.deeper", "money_from": "nothing"}, None),
        ({"tokens_from": "header:Content-Type", "money_from": "usage"}, None),
        ({}, None),
    ],
)
def test_the_cost_is_read_from_the_configured_place_in_the_response(
    caller: HttpCaller, peer: ScriptedServer, cost_sources: dict[str, Any], cost: Cost | None
) -> None:
    body = json.dumps({"usage": {"total_tokens": 321, "price": 0.0125}}).encode()
    headers = {"Content-Type": "application/json", "X-Tokens": "12", "X-Price": "3"}
    peer.scripts["/"] = respond(200, body, **headers)
    outcome = caller.call(Http(url=peer.url(), **cost_sources), time_limit=60 * SECOND)
    assert isinstance(outcome, Succeeded)
    assert outcome.cost == cost
