"""The protocol keeps its promises in every state of a model, and the real ledger does what the model does.

TIMEWRIGHT_FULL=1 explores a larger model, and performs every action in every state that eight actions reach.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator

import pytest

from tests.oracle.summary import PROPERTY
from tests.protocol.model import (
    EXCLUSIVE,
    LIMITED,
    Action,
    BrokenPromise,
    Protocol,
    Size,
    State,
    explore,
)
from tests.protocol.real_ledger import RealLedger

FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))
pytestmark = pytest.mark.timeout(3600 if FULL else 300)
Record = Callable[[str, object], None]

SMALL = [Size(ticks=1), Size(ticks=2, schedules=(EXCLUSIVE,)), Size(ticks=3, schedules=(LIMITED,))]
SIZES = [
    Size(ticks=1),
    Size(ticks=3, schedules=(EXCLUSIVE,)),
    Size(ticks=3, schedules=(LIMITED,), lost_answers=0),
]
LARGE = [
    Size(ticks=2),
    Size(ticks=2, instances=3, lost_answers=0),
    Size(ticks=3, schedules=(LIMITED,)),
    Size(ticks=4, schedules=(LIMITED,), crashes=0, lost_answers=0),
    Size(ticks=4, schedules=(EXCLUSIVE,), lost_answers=0),
]


@pytest.mark.parametrize("size", SIZES + LARGE if FULL else SIZES, ids=str)
def test_every_promise_holds_in_every_state_of_the_protocol(size: Size, record_property: Record) -> None:
    explored = explore(Protocol(size))

    record_property(
        PROPERTY,
        json.dumps({"protocol states": explored.states, "protocol transitions": explored.transitions}),
    )


MISTAKES = [
    ["admitted early"],
    ["attempts not counted"],
    ["cursor before rows"],
    ["cursor goes too far"],
    ["expired leases hold no limit"],
    ["fence stands still"],
    ["limit ignored"],
    ["live leases reclaimed"],
    ["losses not counted"],
    ["lost leases are not looked up"],
    ["overlap ignored"],
    ["pause ignored"],
    ["paused instants run"],
    ["renewed without fence"],
    ["rows before cursor", "no unique key"],
    ["settled twice"],
    ["settled without fence"],
]


@pytest.mark.parametrize("mistakes", MISTAKES, ids=" and ".join)
def test_a_mistake_in_the_protocol_is_found(mistakes: list[str]) -> None:
    assert any(_breaks_a_promise(Protocol(size, mistakes)) for size in SMALL)


def _breaks_a_promise(protocol: Protocol) -> bool:
    try:
        explore(protocol)
    except BrokenPromise:
        return True
    return False


def test_the_unique_key_makes_a_cursor_that_was_not_written_harmless() -> None:
    explore(Protocol(Size(ticks=2, schedules=(EXCLUSIVE,)), ["rows before cursor"]))


DEPTH = 8 if FULL else 4
PARTS = 4 if FULL else 1


@pytest.mark.parametrize("part", range(PARTS))
def test_the_ledger_does_what_the_model_does_in_every_state_that_few_actions_reach(
    part: int, record_property: Record
) -> None:
    """Every action in every state: the tree of shortest traces is walked, and each action undone."""
    size = Size()
    protocol, real = Protocol(size), RealLedger(size)
    children = _shortest_traces(protocol, DEPTH - 1)
    performed = 0

    def walk(state: State, depth: int) -> None:
        nonlocal performed
        saved = real.save()
        for number, action in enumerate(protocol.actions(state)):
            child = children.get((state, action))
            if depth == 2 and number % PARTS != part:
                continue
            after = protocol.apply(state, action)
            real.perform(action)
            assert real.state() == after, (state, action)
            performed += 1
            if child is not None:
                walk(child, depth + 1)
            real.restore(saved)
        saved.database.close()

    walk(protocol.initial(), 0)
    real.database.close()
    record_property(PROPERTY, json.dumps({"protocol actions on the ledger": performed}))


def _shortest_traces(protocol: Protocol, depth: int) -> dict[tuple[State, Action], State]:
    """The last step of a shortest trace to each state that `depth` actions reach."""
    layer = [protocol.initial()]
    seen, found = set(layer), dict[tuple[State, Action], State]()
    for _ in range(depth):
        following: list[State] = []
        for state in layer:
            for action in protocol.actions(state):
                after = protocol.apply(state, action)
                if after not in seen:
                    seen.add(after)
                    found[state, action] = after
                    following.append(after)
        layer = following
    return found


def test_the_ledger_does_what_the_model_does_in_random_traces(record_property: Record) -> None:
    size = Size(ticks=4)
    protocol, real = Protocol(size), RealLedger(size)
    start, performed = real.save(), 0
    for seed in range(10_000 if FULL else 100):
        real.restore(start)
        for before, action, after in _random_trace(protocol, random.Random(seed), length=16):
            real.perform(action)
            assert real.state() == after, (seed, before, action)
            performed += 1
    real.database.close()
    record_property(PROPERTY, json.dumps({"protocol actions on the ledger": performed}))


def _random_trace(
    protocol: Protocol, rng: random.Random, *, length: int
) -> Iterator[tuple[State, Action, State]]:
    """Random actions; those that change nothing are rare, so that a trace gets somewhere."""
    state = protocol.initial()
    for _ in range(length):
        action = rng.choice(list(protocol.actions(state)))
        if protocol.apply(state, action) == state and rng.random() < 0.8:
            continue
        after = protocol.apply(state, action)
        yield state, action, after
        state = after
