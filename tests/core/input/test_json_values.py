"""JSON data: counted, limited, and refused if it is not JSON-compatible."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.core.input.scalars import check_json
from timewright.errors import InvalidInput, InvalidWorkflow


def test_json_values_are_counted() -> None:
    assert check_json({"a": [1, 2, {"b": None}], "c": "x"}, max_depth=3, max_values=100) == 7
    assert check_json(3, max_depth=0, max_values=1) == 1


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        ({"a": [{"b": datetime(2026, 1, 1, tzinfo=UTC)}]}, "w.a[0].b", "a datetime"),
        ({"a": {1: 2}}, "w.a", "a key that is not text"),
        ({"a": [float("nan")]}, "w.a[0]", "not finite"),
        ({"a": float("inf")}, "w.a", "not finite"),
        ({"a": {1, 2}}, "w.a", "a set"),
        ({"a": b"x"}, "w.a", "a bytes"),
        (object(), "w", "a object"),
        ([[[[1]]]], "w[0][0][0]", "too deep"),
        ([0] * 51, "w", "too large"),
    ],
)
def test_values_that_are_not_json_are_refused_with_their_path(raw: Any, field: str, says: str) -> None:
    with pytest.raises(InvalidWorkflow, match=says) as refused:
        check_json(raw, where="w", max_depth=3, max_values=50, error_type=InvalidWorkflow)
    assert refused.value.field == field


def test_exponentially_shared_lists_are_refused_quickly() -> None:
    bomb: list[Any] = ["x"] * 10
    for _ in range(9):
        bomb = [bomb] * 10
    with pytest.raises(InvalidInput, match="too large"):
        check_json(bomb, max_depth=32, max_values=10_000)


def test_data_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="too deep"):
        check_json(loop, max_depth=32, max_values=10_000)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def count(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(count(one) for one in inner)


@given(json_values)
def test_the_count_is_the_number_of_values(raw: Any) -> None:
    whole = count(raw)
    assert check_json(raw, max_depth=99, max_values=whole) == whole
    if whole > 1:
        with pytest.raises(InvalidInput, match="too large"):
            check_json(raw, max_depth=99, max_values=whole - 1)
