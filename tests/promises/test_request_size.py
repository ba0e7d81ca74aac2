"""The cost of a request grows linearly with its size, and a large request does not delay other requests.

Inner steps are counted, not timed: every hash and every comparison of a key of a JSON object is one step.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interfaces.http.http_client import HttpAnswer, HttpTestClient, client_for
from tests.operations.harness import sample_harness
from timewright.errors import InvalidInput
from timewright.interfaces.cli.data_input import read_data
from timewright.interfaces.http.request import MAX_BODY_BYTES_ON_LOOP
from timewright.ledger.queues.policies import parse_policy_file

SMALL, LARGE = 100, 1000
PATH = "/api/v1/schedules"


class Counter:
    """Counts hashes and comparisons of keys, and parses on an event loop."""

    def __init__(self) -> None:
        self.steps = 0
        self.parsed = 0
        self.on_the_loop = 0

    def take(self) -> int:
        """Return the steps since the last call; fails if nothing was parsed since then."""
        if not self.parsed:
            pytest.fail("json.loads did not parse the text: count the steps of the new parser")
        steps, self.steps, self.parsed = self.steps, 0, 0
        return steps


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Counts in every object that `json.loads` parses with a hook for objects."""
    counted, plain = Counter(), json.loads

    class Key(str):
        __slots__ = ()

        def __hash__(self) -> int:
            counted.steps += 1
            return super().__hash__()

        def __eq__(self, other: object) -> bool:
            counted.steps += 1
            return super().__eq__(other)

    def loads(text: Any, *, object_pairs_hook: Callable[[Any], Any] | None = None, **options: Any) -> Any:
        if object_pairs_hook is None:
            return plain(text, **options)
        counted.parsed += 1
        counted.on_the_loop += is_on_a_loop()
        hook = object_pairs_hook
        return plain(text, object_pairs_hook=lambda pairs: hook([(Key(k), v) for k, v in pairs]), **options)

    monkeypatch.setattr(json, "loads", loads)
    return counted


def is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@pytest.fixture
def client() -> Iterator[HttpTestClient]:
    with client_for(sample_harness()) as found:
        yield found


def send(client: HttpTestClient, body: str) -> HttpAnswer:
    headers = {**client.headers, "content-type": "application/json", "content-length": str(len(body))}
    return client.send("POST", PATH, body.encode(), headers.items())


def with_duplicate_key(count: int) -> str:
    """Return an object with `count` keys, the last two of them equal."""
    names = [*(f"key-{number}" for number in range(count - 1)), f"key-{count - 2}"]
    return "{" + ", ".join(f'"{name}": 0' for name in names) + "}"


@pytest.mark.parametrize("shape", ["{}", '{{"metadata": {}}}'], ids=["outermost", "inside"])
def test_a_body_with_a_duplicate_key_takes_linear_steps(
    client: HttpTestClient, counter: Counter, shape: str
) -> None:
    assert send(client, shape.format(with_duplicate_key(SMALL))).status == 400
    few = counter.take()

    assert send(client, shape.format(with_duplicate_key(LARGE))).status == 400

    assert counter.take() <= 15 * few


def test_a_body_without_a_duplicate_key_takes_linear_steps(client: HttpTestClient, counter: Counter) -> None:
    assert send(client, json.dumps(dict.fromkeys(map(str, range(SMALL))))).status == 422
    few = counter.take()

    assert send(client, json.dumps(dict.fromkeys(map(str, range(LARGE))))).status == 422

    assert counter.take() <= 15 * few


def test_a_large_body_is_not_parsed_on_the_event_loop(client: HttpTestClient, counter: Counter) -> None:
    send(client, json.dumps({"name": "x" * MAX_BODY_BYTES_ON_LOOP}))

    counter.take()
    assert counter.on_the_loop == 0


def test_a_large_body_is_refused_with_the_same_error_as_a_small_one(client: HttpTestClient) -> None:
    large = send(client, '{"a": "' + "x" * MAX_BODY_BYTES_ON_LOOP + '", "a": 1}')

    assert (large.status, large.data["code"]) == (400, "invalid_json")
    assert "duplicate key 'a'" in large.data["detail"]


def test_a_json_argument_with_a_duplicate_key_takes_linear_steps(counter: Counter) -> None:
    steps: list[int] = []
    for count in (SMALL, LARGE):
        with pytest.raises(InvalidInput, match="duplicate key"):
            read_data(with_duplicate_key(count), field="payload")
        steps.append(counter.take())

    assert steps[1] <= 15 * steps[0]


def test_a_policy_file_with_a_duplicate_key_takes_linear_steps(counter: Counter) -> None:
    steps: list[int] = []
    for count in (SMALL, LARGE):
        with pytest.raises(InvalidInput, match="duplicate key"):
            parse_policy_file(with_duplicate_key(count), path="queues.json").check()
        steps.append(counter.take())

    assert steps[1] <= 15 * steps[0]
