"""Walks the list through every door: what is refused at one is refused at all of them, in the same words.

The answers to every example, and the refusals to a stranger, are compared door by door beside each door; here
are the requests that nobody should send, and a few answers side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from msgspec import inspect as mi

from tests.doors.http.test_http_parity import Wire
from tests.doors.http.visitor import Visitor, visiting
from tests.doors.mcp.test_mcp_parity import call
from tests.doors.terminal import ask
from tests.operations.house import House, dump, furnished
from timewright import Scheduler
from timewright.doors.cli.options import words_of
from timewright.doors.mcp.tools import tool_name
from timewright.errors import TimewrightError
from timewright.operations import Operation, operations
from timewright.operations.subjects import subject_of

NOBODY = "nobody-has-this-name"
# What these make has an id or a token of its own each time.
BY_CHANCE = {"key create", "key rotate", "queue add", "schedule create", "schedule put", "workflow put"}
# A word that each of these types refuses, and that every door can say.
WRONG = {
    mi.IntType: "many",
    mi.FloatType: "much",
    mi.DateTimeType: "some day",
    mi.TimeDeltaType: "a while",
    mi.EnumType: "none-of-these",
    mi.LiteralType: "none-of-these",
}


class Refusal(NamedTuple):
    """What a door says when it refuses."""

    code: str
    message: str
    field: str | None
    rule: str | None
    fix: str | None


class Doors:
    """The four doors of one house."""

    def __init__(self, house: House, visitor: Visitor) -> None:
        self.house = house
        self._visitor = visitor
        self._app = Scheduler(":memory:")
        self._app._context = lambda: house.context  # type: ignore[method-assign]

    def python(self, one: Operation[Any], payload: Mapping[str, Any]) -> Any:
        try:
            return self._app.call(one.name, **payload)
        except TimewrightError as error:
            return Refusal(error.code, error.message, error.field, error.rule, error.fix)

    def http(self, one: Operation[Any], payload: Mapping[str, Any]) -> Any:
        wire = Wire(self._visitor)
        try:
            return wire.ask(one.name, payload)
        except AssertionError:
            return _told({**wire.refusal, "message": wire.refusal["detail"]})

    def agents(self, one: Operation[Any], payload: Mapping[str, Any]) -> Any:
        said = call(self.house.context, tool_name(one), payload)
        assert said.structured_content is not None
        return _told(said.structured_content["error"]) if said.is_error else said.structured_content

    def terminal(self, one: Operation[Any], payload: Mapping[str, Any]) -> Any:
        said = ask(self.house, *words_of(one, payload), "-o", "json")
        return said.data if said.code == 0 else _told(json.loads(said.err))


def _told(problem: Mapping[str, Any]) -> Refusal:
    return Refusal(problem["code"], problem["message"], *(problem.get(n) for n in ("field", "rule", "fix")))


@pytest.fixture(scope="module")
def doors() -> Iterator[Doors]:
    """One house for all of them: what is refused leaves nothing behind."""
    house = furnished()
    before = dump(house.store)
    with visiting(house) as visitor:
        yield Doors(house, visitor)
    assert dump(house.store) == before


def wrong_type(one: Operation[Any]) -> dict[str, Any] | None:
    """An example with a word where a number, a time or one of a few words belongs."""
    info = mi.type_info(one.request)
    assert isinstance(info, mi.StructType)
    for field in info.fields:
        kinds = field.type.types if isinstance(field.type, mi.UnionType) else (field.type,)
        kinds = tuple(kind for kind in kinds if not isinstance(kind, mi.NoneType))
        if len(kinds) == 1 and type(kinds[0]) in WRONG and field.name != "dry_run":
            return {**one.examples[0], field.name: WRONG[type(kinds[0])]}
    return None


def nobody(one: Operation[Any]) -> dict[str, Any] | None:
    """An example about something that is not there."""
    subject = subject_of(one) if one.noun else None
    if subject is None or subject.field not in one.examples[0] or one.name in BY_CHANCE:
        return None
    rehearsed = {} if one.reads_only else {"dry_run": True}
    return {**one.examples[0], subject.field: NOBODY, **rehearsed}


TYPES = [
    pytest.param(one, wrong, id=one.name) for one in operations if (wrong := wrong_type(one)) is not None
]
SUBJECTS = [pytest.param(one, ask_, id=one.name) for one in operations if (ask_ := nobody(one)) is not None]
EVERY = [pytest.param(one, id=one.name) for one in operations]


@pytest.mark.parametrize(("one", "payload"), TYPES)
def test_a_word_where_something_else_belongs_is_refused_alike(
    doors: Doors, one: Operation[Any], payload: Mapping[str, Any]
) -> None:
    refusal = doors.python(one, payload)
    assert isinstance(refusal, Refusal)
    assert refusal.fix
    assert doors.http(one, payload) == refusal
    assert doors.agents(one, payload) == refusal
    assert doors.terminal(one, payload) == refusal


@pytest.mark.parametrize(("one", "payload"), SUBJECTS)
def test_something_that_is_not_there_is_answered_or_refused_alike(
    doors: Doors, one: Operation[Any], payload: Mapping[str, Any]
) -> None:
    said = doors.python(one, payload)
    assert doors.http(one, payload) == said
    assert doors.agents(one, payload) == said
    assert doors.terminal(one, payload) == said


@pytest.mark.parametrize("one", EVERY)
def test_a_field_that_nobody_knows_is_refused_alike(doors: Doors, one: Operation[Any]) -> None:
    payload = {**one.examples[0], "dry_rum": True}
    refusal = doors.python(one, payload)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.field) == ("unknown_field", "dry_rum")
    assert doors.http(one, payload) == refusal
    assert doors.agents(one, payload) == refusal
    if one.request.spreads is not None:
        # Whole requests are read from a file; a word that is no option is refused before there is a request.
        subject = subject_of(one)
        named = {subject.field: payload[subject.field]} if subject is not None and subject.required else {}
        words = [*words_of(one, named), "--file", "-", "-o", "json"]
        said = ask(doors.house, *words, typed=json.dumps(payload))
        assert _told(json.loads(said.err)) == refusal
    else:
        said = ask(doors.house, *words_of(one, one.examples[0]), "--dry-rum", "-o", "json")
        assert (said.code, said.out) == (2, "")
        assert "--dry-rum" in said.err


def test_most_of_the_list_is_asked_in_each_way() -> None:
    assert len(TYPES) > len(EVERY) / 3
    assert len(SUBJECTS) > len(EVERY) / 2
