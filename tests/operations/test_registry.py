"""Properties of every registered operation."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec import Struct

from tests.operations.harness import OperationsHarness, as_json, dump
from timewright.errors import NotFound, TimewrightError, UnknownField
from timewright.operations import Operation, operations
from timewright.operations.registry import ListRequest, WriteRequest

# Request fields that name an existing object; an unknown queue is an empty one, so it is not here.
OBJECTS = ("schedule", "run", "analysis", "workflow", "lease", "group", "calendar", "key", "secret", "budget")
# Operations that create an object by name, so nothing of another namespace can be found.
MAKES = frozenset(
    {"alert get", "alert set", "budget set", "channel create", "key create", "limit set", "secret set"}
)


def each(*, when: Callable[[Operation[Any]], bool] = lambda one: True) -> list[Any]:
    """Return the matching operations as test parameters."""
    return [pytest.param(one, id=one.name) for one in operations if when(one)]


def each_example(*, when: Callable[[Operation[Any], Mapping[str, Any]], bool]) -> list[Any]:
    """Return the matching examples of all operations as test parameters."""
    return [
        pytest.param(one, example, id=f"{one.name} {number}")
        for one in operations
        for number, example in enumerate(one.examples)
        if when(one, example)
    ]


def names_an_object(one: Operation[Any], example: Mapping[str, Any]) -> bool:
    named = any(name in example and name in one.request_type.__struct_fields__ for name in OBJECTS)
    return named and one.name not in MAKES


EVERY = each()
READS = each(when=lambda one: one.read_only)
LISTS = each(when=lambda one: issubclass(one.request_type, ListRequest))
OF_SCHEDULES = each(when=lambda one: "schedule" in one.request_type.__struct_fields__)
EXAMPLES = each_example(when=lambda one, example: True)
WRITES = each_example(when=lambda one, example: not one.read_only)
ABOUT = each_example(when=names_an_object)


def own_fields(one: Operation[Any]) -> list[str]:
    """Return the fields of a request without those of the model it flattens."""
    gathered = one.request_type.flattens[0] if one.request_type.flattens is not None else ""
    return [name for name in one.request_type.__struct_fields__ if name != gathered]


def test_every_documented_operation_is_registered() -> None:
    promised = {
        "schedule": "grid finish set-state"
        " create put put-many get list update delete pause resume archive run run-many next"
        " explain backfill skip"
        " move note health revisions restore feed upcoming test outcomes trends",
        "clock": "accept",
        "instance": "list",
        "run": "list get wait cancel retry reset explain report logs answer link artifacts"
        " counts failures retry-failures",
        "queue": "add list show plan lease renew complete release reclaim drain reset import purge",
        "queue policy": "show set check",
        "hint": "interval once pause clear list",
        "analysis": "list get due submit",
        "approval": "list approve reject",
        "limit": "set get list delete",
        "budget": "set get list usage delete",
        "provider": "close open list",
        "calendar": "put get list refresh delete",
        "group": "list pause resume",
        "reminder": "set list snooze cancel",
        "audit": "list verify",
        "key": "create list get revoke rotate",
        "secret": "set bind list delete rotate",
        "session": "list end",
        "namespace": "create list get set",
        "workflow": "put get list delete graph run pause resume approve reject signal",
        "incident": "list get acknowledge snooze",
        "alert": "get set",
        "channel": "create list test delete",
        "ping": "create list delete send",
        "backfill": "list get pause resume cancel",
        "": "health doctor now forecast overdue verify pause resume lint plan apply diff export"
        " schema search",
    }
    names = {f"{noun} {verb}".strip() for noun, verbs in promised.items() for verb in verbs.split()}
    assert {one.name for one in operations} == names


@pytest.mark.parametrize("one", EVERY)
def test_every_operation_has_a_summary_and_examples(one: Operation[Any]) -> None:
    assert re.fullmatch(r"[A-Z].{10,110}\.", one.summary)
    assert one.examples
    assert issubclass(one.answer_type, Struct)
    assert one.request_type.__doc__
    assert one.answer_type.__doc__


@pytest.mark.parametrize("one", EVERY)
def test_only_writes_have_dry_run_and_need_more_than_read(one: Operation[Any]) -> None:
    assert issubclass(one.request_type, WriteRequest) is not one.read_only
    assert (one.scope == "read") <= one.read_only
    # The scope read is enough for all reads, except of keys, secrets and the audit log.
    assert not one.read_only or one.scope == "read" or one.noun in ("key", "secret", "audit")


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_example_is_answered_with_json_values(
    harness: OperationsHarness, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    answer = one(harness.context, example)
    assert set(answer) == set(one.answer_type.__struct_encode_fields__)
    assert as_json(answer)


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_example_is_answered_the_same_on_postgresql(
    harness: OperationsHarness,
    postgres_harness: OperationsHarness,
    one: Operation[Any],
    example: Mapping[str, Any],
) -> None:
    rehearsed = example if one.read_only else {**example, "dry_run": True}
    # An instance does this with its heartbeat.
    postgres_harness.store.write(lambda tx: tx.seal_audit())
    here, there = one(harness.context, rehearsed), one(postgres_harness.context, rehearsed)
    assert _without_ids(here) == _without_ids(there)


@pytest.mark.parametrize("one", EVERY)
def test_an_unknown_field_is_refused_with_the_nearest_one(
    harness: OperationsHarness, one: Operation[Any]
) -> None:
    known = max((*own_fields(one), "anything"), key=len)
    with pytest.raises(UnknownField) as error:
        one(harness.context, {**one.examples[0], f"{known}s": 1})
    assert error.value.field == f"{known}s"
    assert error.value.rule
    if known != "anything":
        assert known in (error.value.fix or "")


@pytest.mark.parametrize("one", EVERY)
def test_a_payload_that_is_no_mapping_is_rejected(harness: OperationsHarness, one: Operation[Any]) -> None:
    odd: Any
    for odd in ([], "nightly-report", None, 7):
        with pytest.raises(TimewrightError) as error:
            one(harness.context, odd)
        assert error.value.rule


@pytest.mark.parametrize(("one", "example"), WRITES)
def test_a_dry_run_answers_like_the_real_one_and_changes_nothing(
    harness: OperationsHarness, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    before = dump(harness.store)
    rehearsed = one(harness.context, {**example, "dry_run": True})
    assert dump(harness.store) == before
    assert harness.facts == []
    done = one(harness.context, {**example, "dry_run": False})
    assert _without_ids(rehearsed) == _without_ids(done)


@pytest.mark.parametrize("one", READS)
def test_a_read_only_operation_changes_nothing(harness: OperationsHarness, one: Operation[Any]) -> None:
    before = dump(harness.store)
    for example in one.examples:
        one(harness.context, example)
    assert dump(harness.store) == before
    assert harness.facts == []


@pytest.mark.parametrize(("one", "example"), ABOUT)
def test_objects_of_another_namespace_are_not_found(
    harness: OperationsHarness, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    foreign = harness.in_namespace()
    before = dump(harness.store)
    with pytest.raises(NotFound) as error:
        one(foreign.context, example)
    assert dump(harness.store) == before
    shown = f"{error.value.message} {error.value.rule} {error.value.fix}"
    assert "default" not in shown
    assert error.value.fix is not None
    assert "did you mean" not in error.value.fix


@pytest.mark.parametrize("one", OF_SCHEDULES)
def test_a_schedule_of_another_namespace_is_not_found_by_its_id(
    harness: OperationsHarness, one: Operation[Any]
) -> None:
    example = {**one.examples[0], "schedule": harness.bench.find("nightly-report")}
    with pytest.raises(NotFound):
        one(harness.in_namespace().context, example)


@pytest.mark.parametrize("one", LISTS)
def test_a_list_has_limits(harness: OperationsHarness, one: Operation[Any]) -> None:
    for limit in (0, -1, 1001, 10**9, "text", 1.5, None):
        with pytest.raises(TimewrightError) as error:
            one(harness.context, {**one.examples[0], "limit": limit})
        assert error.value.field == "limit"


@pytest.mark.parametrize("one", LISTS)
def test_a_cursor_of_another_list_is_rejected(harness: OperationsHarness, one: Operation[Any]) -> None:
    foreign = harness.ask("audit list", limit=1, actor="ada")["cursor"]
    assert foreign
    for cursor in ("x", "AAAA", "%%%", foreign, foreign[:-3], "é" * 20, "a" * 5000):
        with pytest.raises(TimewrightError) as error:
            one(harness.context, {**one.examples[0], "cursor": cursor})
        assert error.value.field == "cursor"


def test_an_unknown_operation_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(NotFound) as error:
        operations["schedule puase"]
    assert error.value.fix == "did you mean schedule pause?"
    with pytest.raises(NotFound) as error:
        operations["nonsense"]
    assert error.value.fix == "schedule list"


def _without_ids(answer: Any) -> str:
    """Return the answer with every id replaced: two stores have different ids."""
    ids = r"\b(sch|run|lease|ana|pause|bf)_[0-9A-Z]{26}|\b[0-9a-f]{64}\b|\b(tw)_[a-z2-7]{12}(_[\w-]{43})?"
    return re.sub(ids, r"\1\2", as_json(answer))


ODD: list[Any] = [
    None, True, 0, -1, 10**30, math.nan, math.inf, "", " ", "x" * 300, "\0", "\ud800", "..", "' or 1=1 --",
    "<img src=x onerror=1>", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-03-10T12:00:00", "100y",
    "PT0S", [], {}, [[]], {"a": {"b": math.nan}}, {1: 2}, object(), b"b", f"sch_{0:026d}", f"run_{0:026d}",
]  # fmt: skip


@pytest.mark.parametrize("one", each(when=lambda one: bool(one.request_type.__struct_fields__)))
def test_odd_values_never_raise_an_unexpected_error(harness: OperationsHarness, one: Operation[Any]) -> None:
    for name in own_fields(one):
        for odd in ODD:
            error = refused(one, harness, {**one.examples[0], name: odd})
            if error is not None:
                assert error.field, f"{name}={odd!r}: {error}"
                assert error.rule, f"{name}={odd!r}: {error}"
                assert error.fix, f"{name}={odd!r}: {error}"
                assert len(error.message) < 1000


def refused(
    one: Operation[Any], harness: OperationsHarness, payload: Mapping[str, Any]
) -> TimewrightError | None:
    """Return the error of a request; None if it was answered with JSON values."""
    try:
        as_json(one(harness.context, payload))
    except TimewrightError as error:
        return error
    return None
