"""The condition language: parsing, errors and evaluation."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.core.workflow.expression import (
    FUNCTIONS,
    MISSING,
    BooleanExpression,
    Comparison,
    Expression,
    FunctionCall,
    ListExpression,
    LiteralValue,
    NotExpression,
    ValuePath,
    evaluate_condition,
    iter_paths,
    resolve_path,
)
from timewright.core.workflow.grammar import (
    MAX_EXPRESSION_DEPTH,
    MAX_EXPRESSION_LENGTH,
    parse_condition,
    parse_path,
)
from timewright.errors import InvalidWorkflow

SCOPE: dict[str, Any] = {
    "steps": {
        "fetch": {
            "state": "succeeded",
            "result": {
                "count": 3,
                "ratio": 0.5,
                "tags": ["eu", "new"],
                "odd key": 1,
                "none": None,
                "yes": True,
            },
        },
        "load-all": {"state": "failed", "result": None},
    },
    "input": {"region": "eu", "list": [{"id": 7}, {"id": 8}], "empty": [], "zero": 0},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("steps.fetch.result.count > 0", True),
        ("length(steps.fetch.result.tags) == 2", True),
        ("length(steps.fetch.result.count) == null", True),
        ("empty(input.empty) and empty(input.nothing) and not empty(input.zero)", True),
        ("lower('EU') == input.region", True),
        ("steps.fetch.result.count >= 3 and steps.fetch.result.count <= 3", True),
        ("steps.fetch.result.count < 3", False),
        ("steps.fetch.result.ratio == 0.5", True),
        ("steps.fetch.result.ratio == 5e-1", True),
        ("steps.fetch.state == 'succeeded'", True),
        ('steps.load-all.state != "succeeded"', True),
        ("'eu' in steps.fetch.result.tags", True),
        ("'us' not in steps.fetch.result.tags", True),
        ("input.region in ['eu', 'us']", True),
        ("input.region in [input.region]", True),
        ("'e' in input.region", True),
        ("'count' in steps.fetch.result", True),
        ("input.list[1].id == 8", True),
        ("input['list'][0]['id'] == 7", True),
        ('steps.fetch.result["odd key"] == 1', True),
        ("input.list[2].id == null", True),
        ("input.list[0][0] == null", True),
        ("input.nothing.at.all == null", True),
        ("steps.fetch.result.none == null", True),
        ("not input.empty", True),
        ("not input.zero", True),
        ("input.list", True),
        ("true", True),
        ("false or null", False),
        ("not not true", True),
        ("true or false and false", True),
        ("(true or false) and false", False),
        ("not false and false", False),
        ("not (false and false)", True),
        ("1 == 1.0", True),
        ("-1 < 0", True),
        ("1 == true", False),
        ("0 == false", False),
        ("'3' == 3", False),
        ("'3' < 4", False),
        ("4 < '3'", False),
        ("null < 1", False),
        ("null >= null", True),
        ("'10' < '9'", True),
        ("[1, [2, true]] == [1, [2, true]]", True),
        ("[1, [2, true]] == [1, [2, 1]]", False),
        ("[] == []", True),
        ("'a' in 3", False),
        ("3 in 'a3'", False),
        (r"'it\'s\n' == 'it\'s' ", False),
        (r'"\\" == "\\"', True),
        ("steps.fetch.result.yes == true", True),
    ],
)
def test_conditions_are_evaluated(text: str, expected: bool) -> None:
    assert evaluate_condition(parse_condition(text), SCOPE) is expected


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("", 1, "the expression is empty"),
        ("   ", 1, "the expression is empty"),
        ("input.x =", 9, "'=' is not allowed here"),
        ("input.x == ", 12, "a value is missing before the end"),
        ("== 3", 1, "a value is missing before '=='"),
        ("input.x 3", 9, "'3' is after the end of the condition"),
        ("1 < 2 < 3", 7, "'<' is after the end of the condition"),
        ("(true", 6, "')' is missing"),
        ("true)", 5, "')' is after the end of the condition"),
        ("[1, 2", 6, "',' or ']' is missing"),
        ("[1 2]", 4, "',' or ']' is missing"),
        ("[,]", 2, "a value is missing before ','"),
        ("input.", 7, "a name is missing after '.'"),
        ("input.0", 7, "a name is missing after '.'"),
        ("input[-1]", 7, "a position or a name in quotes"),
        ("input[1.5]", 7, "a position or a name in quotes"),
        ("input[x]", 7, "a position or a name in quotes"),
        ("input[0", 8, "']' is missing"),
        ("fetch.count > 0", 1, "a path begins with steps, input, item"),
        ("true and or", 10, "a value is missing before 'or'"),
        ("not", 4, "a value is missing before the end"),
        ("1 not 2", 7, "'in' is missing"),
        ("'open", 1, "is not allowed here"),
        (r"'\x41'", 2, r"\x is not an escape sequence"),
        ("1e999", 1, "too large"),
        ("input.x == ١", 12, "is not allowed here"),
        ("len(input.x)", 1, "no function"),
        ("input.x + 1", 9, "'+' is not allowed here"),
        ("lambda: 0", 7, "':' is not allowed here"),
        ("True", 1, "a path begins with"),
        ("x" * (MAX_EXPRESSION_LENGTH + 1), MAX_EXPRESSION_LENGTH + 1, "longer than 500"),
        ("(" * 51 + "1" + ")" * 51, 51, "more than 50 levels"),
        ("not " * 60 + "1", 201, "more than 50 levels"),
        ("[" * 60 + "]" * 60, 51, "more than 50 levels"),
    ],
)
def test_an_invalid_condition_is_refused_with_its_position(text: str, position: int, says: str) -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        parse_condition(text)
    assert says in refused.value.message
    assert f"at position {position} of" in refused.value.message
    assert refused.value.rule
    assert refused.value.fix


def test_changed_compares_with_the_value_seen_last() -> None:
    condition = parse_condition("changed(result.version)", roots=("result", "seen"))
    scope = {"result": {"version": [1, 2]}}
    assert not evaluate_condition(condition, scope), "the first value is no change"
    assert not evaluate_condition(condition, {**scope, "seen": {"result.version": [1, 2]}})
    assert evaluate_condition(condition, {**scope, "seen": {"result.version": [1, 3]}})


@pytest.mark.parametrize(
    ("text", "says"),
    [("changed(input.x)", "no function"), ("size(input.x)", "one of length"), ("length(input.x", "missing")],
)
def test_an_unknown_or_open_function_call_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        parse_condition(text)
    assert says in refused.value.explain()


def test_the_maximum_depth_and_length_are_accepted() -> None:
    brackets = MAX_EXPRESSION_DEPTH - 1
    assert evaluate_condition(parse_condition("(" * brackets + "true" + ")" * brackets), {})
    assert evaluate_condition(parse_condition("true" + " and true" * 55), {})


def test_a_path_alone_is_parsed_as_a_path() -> None:
    assert parse_path('steps.fetch.result["odd key"][0]').segments == (
        "steps",
        "fetch",
        "result",
        "odd key",
        0,
    )
    assert str(parse_path("steps.a.result[0]['b c'].d")) == "steps.a.result[0]['b c'].d"
    for text in ("steps.a or input.b", "3", "'steps'", "(input.a)"):
        with pytest.raises(InvalidWorkflow):
            parse_path(text)


def test_every_path_of_a_condition_is_listed() -> None:
    text = "not (steps.a.result > input.b) or steps.c.state in [steps.d.state, 'x'] and true"
    assert [str(path) for path in iter_paths(parse_condition(text))] == [
        "steps.a.result",
        "input.b",
        "steps.c.state",
        "steps.d.state",
    ]


def test_a_missing_value_differs_from_null() -> None:
    assert resolve_path(parse_path("input.nothing"), SCOPE) is MISSING
    assert resolve_path(parse_path("item"), SCOPE) is MISSING
    assert resolve_path(parse_path("steps.fetch.result.none"), SCOPE) is None


# --------------------------------------------------------------------------------------- properties

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
)
SIGNS = ("(", ")", "[", "]", ",", ".", "==", "!=", "<", "<=", ">", ">=", "in", "and", "or", "not")
VALUES = ("true", "false", "null", "steps", "input", "item", "x", "1", "-2.5", "'a'", '"b"')
words = st.sampled_from(SIGNS + VALUES)


@given(st.one_of(st.text(max_size=60), st.lists(words, max_size=25).map(" ".join)))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(InvalidWorkflow):
        assert evaluate_condition(parse_condition(text), SCOPE) in (True, False)


def spelled(expression: Expression) -> str:
    """Format an expression unambiguously."""
    match expression:
        case ValuePath():
            return str(expression)
        case LiteralValue(value):
            return (
                {True: "true", False: "false", None: "null"}.get(value, repr(value))
                if _plain(value)
                else repr(value)
            )
        case ListExpression(items):
            return "[" + ", ".join(spelled(item) for item in items) + "]"
        case NotExpression(inner):
            return f"not ({spelled(inner)})"
        case BooleanExpression(parts, needs_all):
            return (" and " if needs_all else " or ").join(f"({spelled(part)})" for part in parts)
        case Comparison(sign, left, right):
            return f"({spelled(left)}) {sign} ({spelled(right)})"
        case FunctionCall(name, argument):
            return f"{name}({spelled(argument)})"


def _plain(value: object) -> bool:
    return value is None or isinstance(value, bool)


constants = st.one_of(
    st.none(), st.booleans(), st.integers(-99, 99), st.text(alphabet="abc", max_size=3)
).map(LiteralValue)
some_paths = st.sampled_from(["steps.fetch.result.count", "input.list[1]", "input.region", "item"]).map(
    parse_path
)
expressions: st.SearchStrategy[Expression] = st.recursive(
    st.one_of(constants, some_paths.map(lambda path: ValuePath(path.segments))),
    lambda inner: st.one_of(
        st.builds(NotExpression, inner),
        st.builds(FunctionCall, st.sampled_from(sorted(FUNCTIONS)), inner),
        st.builds(BooleanExpression, st.lists(inner, min_size=2, max_size=3).map(tuple), st.booleans()),
        st.builds(
            Comparison, st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]), inner, inner
        ),
    ),
    max_leaves=8,
)


def without_positions(expression: Expression) -> Expression:
    match expression:
        case ValuePath(segments):
            return ValuePath(segments)
        case NotExpression(inner):
            return NotExpression(without_positions(inner))
        case FunctionCall(name, argument):
            return FunctionCall(name, without_positions(argument))
        case BooleanExpression(parts, needs_all):
            return BooleanExpression(tuple(without_positions(part) for part in parts), needs_all)
        case Comparison(sign, left, right):
            return Comparison(sign, without_positions(left), without_positions(right))
        case _:
            return expression


@given(expressions)
def test_a_formatted_expression_is_parsed_as_itself(expression: Expression) -> None:
    text = spelled(expression)
    if len(text) <= MAX_EXPRESSION_LENGTH:
        assert without_positions(parse_condition(text)) == expression


@given(left=json_values, right=json_values)
def test_comparisons_never_fail_and_are_consistent(left: Any, right: Any) -> None:
    scope = {"input": {"a": left, "b": right}}

    def says(sign: str) -> bool:
        return evaluate_condition(parse_condition(f"input.a {sign} input.b"), scope)

    assert says("==") is not says("!=")
    assert says("in") is not says("not in")
    assert says("<=") is (says("<") or says("=="))
    assert says(">=") is (says(">") or says("=="))
    assert says("<") + says(">") + says("==") <= 1
    assert evaluate_condition(parse_condition("input.a == input.a"), scope)
    assert evaluate_condition(parse_condition("input.a in [input.b, input.a]"), scope)


def test_deeply_nested_values_are_compared_without_recursion() -> None:
    deep: list[Any] = []
    other: list[Any] = []
    for _ in range(100_000):
        deep, other = [deep], [other]
    scope = {"input": {"a": deep, "b": other}}
    assert evaluate_condition(parse_condition("input.a == input.b"), scope)
