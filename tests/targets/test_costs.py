"""What work says it cost: a function through its context, an HTTP answer in a header or its body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tests.targets.calls import Caller
from tests.targets.peers import Peer, answer
from tests.targets.stage import outcome_of
from timewright.core.costs import Cost
from timewright.core.run import Failed, Succeeded, TimedOut
from timewright.core.target import Call, Http, Isolation
from timewright.targets.call import CallTarget
from timewright.targets.context import Context
from timewright.targets.registry import Registry

SECOND = timedelta(seconds=1)
registry = Registry()


@registry.register("spend")
def spend(context: Context, *, fails: bool = False) -> None:
    """Say the cost bit by bit."""
    context.cost(tokens=100, money="0.25")
    context.cost(tokens=20)
    context.cost(money=Decimal("0.0000005"), currency="EUR")
    if fails:
        raise ValueError("and then it failed")


@registry.register("spend_later")
async def spend_later(context: Context) -> None:
    """The same on a loop."""
    context.cost(tokens=7)


@registry.register("spend_and_stay")
def spend_and_stay(context: Context) -> None:
    """Say the cost, and go on until asked to stop."""
    context.cost(tokens=5)
    context.cancelled.wait(10)


@registry.register("spend_in")
def spend_in(context: Context, *, currency: Any) -> None:
    """Say what the money is called."""
    context.cost(money=1, currency=currency)


@registry.register("spend_all")
def spend_all(context: Context) -> None:
    """Say the most that can be said, again and again."""
    for _ in range(3):
        context.cost(tokens=10**12, money="999999999")


@registry.register("nonsense")
def nonsense(context: Context, *, money: Any) -> None:
    """Say something that is no cost."""
    context.cost(money=money)


@pytest.fixture
def target() -> Iterator[CallTarget]:
    made = CallTarget(registry)
    yield made
    made.close(grace=SECOND)


@pytest.mark.parametrize("isolation", ["thread", "loop"])
def test_what_a_function_says_it_cost_is_added_up(target: CallTarget, isolation: Isolation) -> None:
    name = "spend" if isolation == "thread" else "spend_later"
    told = outcome_of(target, Call(name=name, isolation=isolation))
    expected = Cost(tokens=120, money="0.25", currency="EUR") if name == "spend" else Cost(tokens=7)
    assert told == Succeeded(cost=expected)


def test_what_failed_or_took_too_long_has_cost_something_all_the_same(target: CallTarget) -> None:
    failed = outcome_of(target, Call(name="spend", args={"fails": True}))
    assert isinstance(failed, Failed)
    assert failed.cost == Cost(tokens=120, money="0.25", currency="EUR")
    late = outcome_of(target, Call(name="spend_and_stay", isolation="thread"), limit=0.2)
    assert isinstance(late, TimedOut)
    assert late.cost == Cost(tokens=5)


@pytest.mark.parametrize("currency", ["of the realm", "\ud800", "\0", 5])
def test_what_is_no_currency_is_refused_where_it_is_said(target: CallTarget, currency: Any) -> None:
    told = outcome_of(target, Call(name="spend_in", args={"currency": currency}))
    assert isinstance(told, Failed)
    assert "currency" in told.error
    assert told.cost is None


def test_a_sum_beyond_every_sum_can_still_be_written_and_read(target: CallTarget) -> None:
    cost = outcome_of(target, Call(name="spend_all")).cost
    assert msgspec.convert(msgspec.to_builtins(cost), Cost) == cost


@pytest.mark.parametrize("money", ["-1", "much", "nan", 1e12, True])
def test_what_is_no_cost_is_refused_where_it_is_said(target: CallTarget, money: Any) -> None:
    told = outcome_of(target, Call(name="nonsense", args={"money": money}))
    assert isinstance(told, Failed)
    assert "is not a cost" in told.error
    assert told.cost is None


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with Peer() as running:
        yield running


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with Caller() as calling:
        yield calling


@pytest.mark.parametrize(
    ("told", "cost"),
    [
        ({"tokens_from": "usage.total_tokens"}, Cost(tokens=321)),
        ({"money_from": "usage.price"}, Cost(money="0.0125")),
        ({"tokens_from": "header:X-Tokens", "money_from": "header:x-price"}, Cost(tokens=12, money="3.00")),
        ({"tokens_from": "usage.total_tokens.deeper", "money_from": "nothing"}, None),
        ({"tokens_from": "header:Content-Type", "money_from": "usage"}, None),
        ({}, None),
    ],
)
def test_an_answer_says_what_it_cost_where_its_target_says(
    caller: Caller, peer: Peer, told: dict[str, Any], cost: Cost | None
) -> None:
    body = json.dumps({"usage": {"total_tokens": 321, "price": 0.0125}}).encode()
    headers = {"Content-Type": "application/json", "X-Tokens": "12", "X-Price": "3"}
    peer.scripts["/"] = answer(200, body, **headers)
    outcome = caller.call(Http(url=peer.url(), **told), time_limit=60 * SECOND)
    assert isinstance(outcome, Succeeded)
    assert outcome.cost == cost
