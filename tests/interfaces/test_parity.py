"""All interfaces give the same errors and answers.

The parity tests of each interface compare every example; this module compares invalid requests and some
answers side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec import inspect as mi

from tests.interfaces.all_interfaces import Interfaces, Refusal, refusal_of
from tests.interfaces.http.http_client import client_for
from tests.interfaces.terminal import invoke
from tests.operations.harness import dump, sample_harness
from timewright.interfaces.cli.options import command_words
from timewright.operations import Operation, operations
from timewright.operations.registry import subject_of

UNKNOWN_NAME = "nobody-has-this-name"
# Their answers contain generated ids or tokens.
RANDOM_ANSWERS = {"key create", "key rotate", "queue add", "schedule create", "schedule put", "workflow put"}
# A value that each of these types refuses and that every interface can send.
WRONG = {
    mi.IntType: "many",
    mi.FloatType: "much",
    mi.DateTimeType: "some day",
    mi.TimeDeltaType: "a while",
    mi.EnumType: "none-of-these",
    mi.LiteralType: "none-of-these",
}


@pytest.fixture(scope="module")
def interfaces() -> Iterator[Interfaces]:
    """One harness for all tests, because errors change nothing."""
    harness = sample_harness()
    before = dump(harness.store)
    with client_for(harness) as client:
        yield Interfaces(harness, client)
    assert dump(harness.store) == before


def wrong_type(one: Operation[Any]) -> dict[str, Any] | None:
    """Return an example with text where another type is required."""
    info = mi.type_info(one.request_type)
    assert isinstance(info, mi.StructType)
    for field in info.fields:
        kinds = field.type.types if isinstance(field.type, mi.UnionType) else (field.type,)
        kinds = tuple(kind for kind in kinds if not isinstance(kind, mi.NoneType))
        if len(kinds) == 1 and type(kinds[0]) in WRONG and field.name != "dry_run":
            return {**one.examples[0], field.name: WRONG[type(kinds[0])]}
    return None


def nobody(one: Operation[Any]) -> dict[str, Any] | None:
    """Return an example with an unknown object."""
    subject = subject_of(one) if one.noun else None
    if subject is None or subject.field not in one.examples[0] or one.name in RANDOM_ANSWERS:
        return None
    rehearsed = {} if one.read_only else {"dry_run": True}
    return {**one.examples[0], subject.field: UNKNOWN_NAME, **rehearsed}


TYPES = [
    pytest.param(one, wrong, id=one.name) for one in operations if (wrong := wrong_type(one)) is not None
]
SUBJECTS = [pytest.param(one, ask_, id=one.name) for one in operations if (ask_ := nobody(one)) is not None]
EVERY = [pytest.param(one, id=one.name) for one in operations]


@pytest.mark.parametrize(("one", "payload"), TYPES)
def test_a_value_of_the_wrong_type_gets_the_same_error_everywhere(
    interfaces: Interfaces, one: Operation[Any], payload: Mapping[str, Any]
) -> None:
    refusal = interfaces.python(one, payload)
    assert isinstance(refusal, Refusal)
    assert refusal.fix
    assert interfaces.http(one, payload) == refusal
    assert interfaces.agents(one, payload) == refusal
    assert interfaces.terminal(one, payload) == refusal


@pytest.mark.parametrize(("one", "payload"), SUBJECTS)
def test_an_unknown_object_gets_the_same_answer_everywhere(
    interfaces: Interfaces, one: Operation[Any], payload: Mapping[str, Any]
) -> None:
    said = interfaces.python(one, payload)
    assert interfaces.http(one, payload) == said
    assert interfaces.agents(one, payload) == said
    assert interfaces.terminal(one, payload) == said


@pytest.mark.parametrize("one", EVERY)
def test_an_unknown_field_gets_the_same_error_everywhere(interfaces: Interfaces, one: Operation[Any]) -> None:
    payload = {**one.examples[0], "dry_rum": True}
    refusal = interfaces.python(one, payload)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.field) == ("unknown_field", "dry_rum")
    assert interfaces.http(one, payload) == refusal
    assert interfaces.agents(one, payload) == refusal
    if one.request_type.flattens is not None:
        # Whole requests are read from a file; a word that is no option is refused before there is a request.
        subject = subject_of(one)
        named = {subject.field: payload[subject.field]} if subject is not None and subject.required else {}
        words = [*command_words(one, named), "--file", "-", "-o", "json"]
        said = invoke(interfaces.harness, *words, stdin=json.dumps(payload))
        assert refusal_of(json.loads(said.err)) == refusal
    else:
        said = invoke(interfaces.harness, *command_words(one, one.examples[0]), "--dry-rum", "-o", "json")
        assert (said.code, said.out) == (2, "")
        assert "--dry-rum" in said.err


def test_most_operations_are_covered() -> None:
    assert len(TYPES) > len(EVERY) / 3
    assert len(SUBJECTS) > len(EVERY) / 2
