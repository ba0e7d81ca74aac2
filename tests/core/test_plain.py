"""Plain data: counted, bounded, and refused where it is more than data."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.core.plain import check_plain
from timewright.errors import InvalidInput, InvalidWorkflow


def test_plain_data_is_counted() -> None:
    assert check_plain({"a": [1, 2, {"b": None}], "c": "x"}, deepest=3, most=100) == 7
    assert check_plain(3, deepest=0, most=1) == 1


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        ({"a": [{"b": datetime(2026, 1, 1, tzinfo=UTC)}]}, "w.a[0].b", "a datetime"),
        ({"a": {1: 2}}, "w.a", "a name that is no text"),
        ({"a": [float("nan")]}, "w.a[0]", "no number"),
        ({"a": float("inf")}, "w.a", "no number"),
        ({"a": {1, 2}}, "w.a", "a set"),
        ({"a": b"x"}, "w.a", "a bytes"),
        (object(), "w", "a object"),
        ([[[[1]]]], "w[0][0][0]", "too deep"),
        ([0] * 51, "w", "too much"),
    ],
)
def test_what_is_more_than_data_is_refused_with_its_place(raw: Any, field: str, says: str) -> None:
    with pytest.raises(InvalidWorkflow, match=says) as refused:
        check_plain(raw, where="w", deepest=3, most=50, refusal=InvalidWorkflow)
    assert refused.value.field == field


def test_a_bomb_of_shared_lists_is_refused_before_it_goes_off() -> None:
    bomb: list[Any] = ["x"] * 10
    for _ in range(9):
        bomb = [bomb] * 10
    with pytest.raises(InvalidInput, match="too much"):
        check_plain(bomb, deepest=32, most=10_000)


def test_data_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="too deep"):
        check_plain(loop, deepest=32, most=10_000)


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
    assert check_plain(raw, deepest=99, most=whole) == whole
    if whole > 1:
        with pytest.raises(InvalidInput, match="too much"):
            check_plain(raw, deepest=99, most=whole - 1)
