"""Every operation over HTTP returns the same answers and errors as a direct call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.interfaces.http.http_client import ApiTestClient, HttpTestClient, client_for
from tests.operations.harness import OperationsHarness, sample_harness
from timewright.errors import TimewrightError
from timewright.interfaces.http.problems import status_of
from timewright.interfaces.http.routing import Route, routes_of
from timewright.operations import Operation, operations

EXAMPLES = [
    pytest.param(one, example, id=f"{one.name} {number}")
    for one in operations
    for number, example in enumerate(one.examples)
]


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_example_gives_the_answer_of_the_operation(
    client: HttpTestClient, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    said = ApiTestClient(client).call(one.name, example)
    assert said == json.loads(json.dumps(one(sample_harness().context, example)))


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_error_equals_that_of_the_operation(
    harness: OperationsHarness, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    refusal = error_of(one, example)
    with client_for(harness.in_namespace()) as client:
        wire = ApiTestClient(client)
        if refusal is None:
            wire.call(one.name, example)
            return
        with pytest.raises(AssertionError):
            wire.call(one.name, example)
    problem = wire.refusal
    assert (problem["code"], problem["detail"]) == (refusal.code, refusal.message)
    assert (problem.get("field"), problem.get("rule"), problem.get("fix")) == (
        refusal.field,
        refusal.rule,
        refusal.fix,
    )
    assert problem["status"] == wire.status == status_of(type(refusal))


def error_of(one: Operation[Any], example: Mapping[str, Any]) -> TimewrightError | None:
    """Return the error that a caller of another namespace gets."""
    try:
        one(sample_harness().in_namespace().context, example)
    except TimewrightError as refusal:
        return refusal
    return None


def test_every_operation_has_a_unique_route() -> None:
    found: dict[tuple[str, tuple[str, ...]], str] = {}
    for one in operations:
        for route in routes_of(one):
            shape = tuple("{}" if part.startswith("{") else part for part in route.path)
            assert found.setdefault((route.method, shape), one.name) == one.name
            assert route.method != "GET" or one.read_only, "nothing is changed by a GET"
    assert set(found.values()) == {one.name for one in operations}


def test_a_new_operation_gets_a_route_automatically() -> None:
    made = replace(operations["schedule get"], noun="anchor", verb="weigh")
    assert [(route.method, route.template) for route in routes_of(made)] == [
        ("GET", "/api/v1/anchors/{schedule}/weigh")
    ]


@pytest.mark.parametrize(
    ("name", "method", "path"),
    [
        ("schedule list", "GET", "/api/v1/schedules"),
        ("schedule get", "GET", "/api/v1/schedules/{schedule}"),
        ("schedule create", "POST", "/api/v1/schedules"),
        ("schedule put", "PUT", "/api/v1/schedules/{name}"),
        ("schedule update", "PATCH", "/api/v1/schedules/{schedule}"),
        ("schedule delete", "DELETE", "/api/v1/schedules/{schedule}"),
        ("schedule pause", "POST", "/api/v1/schedules/{schedule}/pause"),
        ("schedule explain", "GET", "/api/v1/schedules/{schedule}/explain"),
        ("queue lease", "POST", "/api/v1/queues/{queue}/lease"),
        ("queue policy show", "GET", "/api/v1/queues/{queue}/policy"),
        ("audit list", "GET", "/api/v1/audit"),
        ("health", "GET", "/api/v1/health"),
    ],
)
def test_the_route_of_an_operation_follows_from_its_name(name: str, method: str, path: str) -> None:
    first: Route = next(routes_of(operations[name]))
    assert (first.method, first.template) == (method, path)
