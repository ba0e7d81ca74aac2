"""The whole list at the HTTP door: the same answers and refusals as when an operation is asked itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.doors.http.visitor import Visitor, visiting
from tests.operations.house import House, furnished
from timewright.doors.http.client import Client
from timewright.doors.http.places import Place, places_of
from timewright.doors.http.problems import status_of
from timewright.errors import TimewrightError
from timewright.operations import Operation, operations

EXAMPLES = [
    pytest.param(one, example, id=f"{one.name} {number}")
    for one in operations
    for number, example in enumerate(one.examples)
]


class Wire(Client):
    """The client of the command line, over a visitor instead of a socket."""

    def __init__(self, visitor: Visitor) -> None:
        super().__init__("http://127.0.0.1:7411", key="tw_none")
        self._visitor = visitor
        self.status = 0

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        answer = self._visitor.ask(method, path, body)
        self.status = answer.status
        if answer.status >= 400:
            self.refusal = answer.data
            raise AssertionError(answer.data)
        found: dict[str, Any] = answer.data
        return found


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_example_gives_the_answer_of_the_operation(
    visitor: Visitor, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    said = Wire(visitor).ask(one.name, example)
    assert said == json.loads(json.dumps(one(furnished().context, example)))


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_refusal_is_that_of_the_operation(
    house: House, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    refusal = refusal_of(one, example)
    with visiting(house.elsewhere()) as visitor:
        wire = Wire(visitor)
        if refusal is None:
            wire.ask(one.name, example)
            return
        with pytest.raises(AssertionError):
            wire.ask(one.name, example)
    problem = wire.refusal
    assert (problem["code"], problem["detail"]) == (refusal.code, refusal.message)
    assert (problem.get("field"), problem.get("rule"), problem.get("fix")) == (
        refusal.field,
        refusal.rule,
        refusal.fix,
    )
    assert problem["status"] == wire.status == status_of(type(refusal))


def refusal_of(one: Operation[Any], example: Mapping[str, Any]) -> TimewrightError | None:
    """What is refused to someone of another namespace."""
    try:
        one(furnished().elsewhere().context, example)
    except TimewrightError as refusal:
        return refusal
    return None


def test_every_operation_has_a_place_and_no_two_have_one() -> None:
    found: dict[tuple[str, tuple[str, ...]], str] = {}
    for one in operations:
        for place in places_of(one):
            shape = tuple("{}" if part.startswith("{") else part for part in place.path)
            assert found.setdefault((place.method, shape), one.name) == one.name
            assert place.method != "GET" or one.reads_only, "nothing is changed by a GET"
    assert set(found.values()) == {one.name for one in operations}


def test_a_new_operation_appears_by_itself() -> None:
    made = replace(operations["schedule get"], noun="anchor", verb="weigh")
    assert [(place.method, place.template) for place in places_of(made)] == [
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
def test_the_place_of_an_operation_follows_from_its_name(name: str, method: str, path: str) -> None:
    first: Place = next(places_of(operations[name]))
    assert (first.method, first.template) == (method, path)
