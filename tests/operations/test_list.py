"""The whole list, walked: what holds for every operation, whatever it is about."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec import Struct

from tests.operations.house import House, as_json, dump
from timewright.errors import NotFound, TimewrightError, UnknownField
from timewright.operations import Operation, operations
from timewright.operations.registry import Listing, Write

# What an operation is about, by the field that names it; a queue that nobody made is an empty one.
OBJECTS = ("schedule", "run", "analysis", "workflow", "lease", "group", "calendar", "key", "secret", "budget")
# What makes a thing by its name: there is nothing of another namespace to be found.
MAKES = frozenset({"budget set", "key create", "secret set"})


def each(*, when: Callable[[Operation[Any]], bool] = lambda one: True) -> list[Any]:
    """The operations as cases, those that fit."""
    return [pytest.param(one, id=one.name) for one in operations if when(one)]


def each_example(*, when: Callable[[Operation[Any], Mapping[str, Any]], bool]) -> list[Any]:
    """The examples of all operations as cases, those that fit."""
    return [
        pytest.param(one, example, id=f"{one.name} {number}")
        for one in operations
        for number, example in enumerate(one.examples)
        if when(one, example)
    ]


def names_an_object(one: Operation[Any], example: Mapping[str, Any]) -> bool:
    named = any(name in example and name in one.request.__struct_fields__ for name in OBJECTS)
    return named and one.name not in MAKES


EVERY = each()
READS = each(when=lambda one: one.reads_only)
LISTS = each(when=lambda one: issubclass(one.request, Listing))
OF_SCHEDULES = each(when=lambda one: "schedule" in one.request.__struct_fields__)
EXAMPLES = each_example(when=lambda one, example: True)
WRITES = each_example(when=lambda one, example: not one.reads_only)
ABOUT = each_example(when=names_an_object)


def own_fields(one: Operation[Any]) -> list[str]:
    """The fields of a request that are not those of the model it spreads."""
    gathered = one.request.spreads[0] if one.request.spreads is not None else ""
    return [name for name in one.request.__struct_fields__ if name != gathered]


def test_every_noun_and_verb_that_is_promised_is_on_the_list() -> None:
    promised = {
        "schedule": "create put get list update delete pause resume archive run next explain backfill skip"
        " move note health revisions restore feed test strips trends",
        "instance": "list",
        "run": "list get cancel retry reset explain report logs",
        "queue": "add list show plan lease renew complete release reclaim drain reset import",
        "queue policy": "show set check",
        "hint": "interval once pause clear list",
        "analysis": "list get due submit",
        "approval": "list approve reject",
        "limit": "set list",
        "budget": "set get list usage delete",
        "provider": "close open list",
        "calendar": "put get list refresh delete",
        "group": "list pause resume",
        "reminder": "set list snooze cancel",
        "audit": "list verify",
        "key": "create list get revoke rotate",
        "secret": "set list delete rotate",
        "namespace": "create list get set",
        "workflow": "put get list delete graph run pause resume",
        "": "health doctor now forecast overdue verify",
    }
    names = {f"{noun} {verb}".strip() for noun, verbs in promised.items() for verb in verbs.split()}
    assert {one.name for one in operations} == names


@pytest.mark.parametrize("one", EVERY)
def test_an_operation_says_what_it_does_and_shows_how_it_is_asked(one: Operation[Any]) -> None:
    assert re.fullmatch(r"[A-Z].{10,110}\.", one.summary)
    assert one.examples
    assert issubclass(one.answer, Struct)
    assert one.request.__doc__
    assert one.answer.__doc__


@pytest.mark.parametrize("one", EVERY)
def test_only_what_writes_can_be_rehearsed_and_needs_more_than_the_right_to_read(one: Operation[Any]) -> None:
    assert issubclass(one.request, Write) is not one.reads_only
    assert (one.scope == "read") <= one.reads_only
    # Reading is enough for all that only reads, but for what would tell who may come in.
    assert not one.reads_only or one.scope == "read" or one.noun in ("key", "secret", "audit")


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_example_is_answered_with_plain_data(
    house: House, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    answer = one(house.context, example)
    assert set(answer) == set(one.answer.__struct_encode_fields__)
    assert as_json(answer)


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_example_is_answered_the_same_on_postgresql(
    house: House, postgres_house: House, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    rehearsed = example if one.reads_only else {**example, "dry_run": True}
    here, there = one(house.context, rehearsed), one(postgres_house.context, rehearsed)
    assert _without_ids(here) == _without_ids(there)


@pytest.mark.parametrize("one", EVERY)
def test_an_unknown_field_is_refused_with_the_nearest_one(house: House, one: Operation[Any]) -> None:
    known = max((*own_fields(one), "anything"), key=len)
    with pytest.raises(UnknownField) as refusal:
        one(house.context, {**one.examples[0], f"{known}s": 1})
    assert refusal.value.field == f"{known}s"
    assert refusal.value.rule
    if known != "anything":
        assert known in (refusal.value.fix or "")


@pytest.mark.parametrize("one", EVERY)
def test_what_is_not_a_mapping_is_refused(house: House, one: Operation[Any]) -> None:
    odd: Any
    for odd in ([], "nightly-report", None, 7):
        with pytest.raises(TimewrightError) as refusal:
            one(house.context, odd)
        assert refusal.value.rule


@pytest.mark.parametrize(("one", "example"), WRITES)
def test_a_dry_run_answers_like_the_real_one_and_changes_nothing(
    house: House, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    before = dump(house.store)
    rehearsed = one(house.context, {**example, "dry_run": True})
    assert dump(house.store) == before
    assert house.told == []
    done = one(house.context, {**example, "dry_run": False})
    assert _without_ids(rehearsed) == _without_ids(done)


@pytest.mark.parametrize("one", READS)
def test_what_reads_only_changes_nothing(house: House, one: Operation[Any]) -> None:
    before = dump(house.store)
    for example in one.examples:
        one(house.context, example)
    assert dump(house.store) == before
    assert house.told == []


@pytest.mark.parametrize(("one", "example"), ABOUT)
def test_what_belongs_to_another_namespace_is_as_unknown_as_what_never_was(
    house: House, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    foreign = house.elsewhere()
    before = dump(house.store)
    with pytest.raises(NotFound) as refusal:
        one(foreign.context, example)
    assert dump(house.store) == before
    shown = f"{refusal.value.message} {refusal.value.rule} {refusal.value.fix}"
    assert "default" not in shown
    assert refusal.value.fix is not None
    assert "did you mean" not in refusal.value.fix


@pytest.mark.parametrize("one", OF_SCHEDULES)
def test_a_schedule_of_another_namespace_is_not_found_by_its_id(house: House, one: Operation[Any]) -> None:
    example = {**one.examples[0], "schedule": house.bench.find("nightly-report")}
    with pytest.raises(NotFound):
        one(house.elsewhere().context, example)


@pytest.mark.parametrize("one", LISTS)
def test_a_list_has_limits(house: House, one: Operation[Any]) -> None:
    for limit in (0, -1, 1001, 10**9, "text", 1.5, None):
        with pytest.raises(TimewrightError) as refusal:
            one(house.context, {**one.examples[0], "limit": limit})
        assert refusal.value.field == "limit"


@pytest.mark.parametrize("one", LISTS)
def test_a_cursor_that_is_not_of_this_list_is_refused(house: House, one: Operation[Any]) -> None:
    foreign = house.ask("audit list", limit=1, actor="ada")["cursor"]
    assert foreign
    for cursor in ("x", "AAAA", "%%%", foreign, foreign[:-3], "é" * 20, "a" * 5000):
        with pytest.raises(TimewrightError) as refusal:
            one(house.context, {**one.examples[0], "cursor": cursor})
        assert refusal.value.field == "cursor"


def test_an_operation_nobody_knows_is_refused_with_the_nearest() -> None:
    with pytest.raises(NotFound) as refusal:
        operations["schedule puase"]
    assert refusal.value.fix == "did you mean schedule pause?"


def _without_ids(answer: Any) -> str:
    """The answer with every id as one word: two houses number their rooms differently."""
    ids = r"\b(sch|run|lease|ana)_[0-9A-Z]{26}|\b[0-9a-f]{64}\b|\b(tw)_[a-z2-7]{12}(_[\w-]{43})?"
    return re.sub(ids, r"\1\2", as_json(answer))


ODD: list[Any] = [
    None, True, 0, -1, 10**30, math.nan, math.inf, "", " ", "x" * 300, "\0", "\ud800", "..", "' or 1=1 --",
    "<img src=x onerror=1>", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-03-10T12:00:00", "100y",
    "PT0S", [], {}, [[]], {"a": {"b": math.nan}}, {1: 2}, object(), b"b", f"sch_{0:026d}", f"run_{0:026d}",
]  # fmt: skip


@pytest.mark.parametrize("one", each(when=lambda one: bool(one.request.__struct_fields__)))
def test_odd_values_are_answered_or_refused_by_name_and_never_a_surprise(
    house: House, one: Operation[Any]
) -> None:
    for name in own_fields(one):
        for odd in ODD:
            refusal = refused(one, house, {**one.examples[0], name: odd})
            if refusal is not None:
                assert refusal.field, f"{name}={odd!r}: {refusal}"
                assert refusal.rule, f"{name}={odd!r}: {refusal}"
                assert refusal.fix, f"{name}={odd!r}: {refusal}"
                assert len(refusal.message) < 1000


def refused(one: Operation[Any], house: House, payload: Mapping[str, Any]) -> TimewrightError | None:
    """Why a request was refused; nothing if it was answered, in plain data."""
    try:
        as_json(one(house.context, payload))
    except TimewrightError as refusal:
        return refusal
    return None
