"""Requests that are read by the shortest way: they mean what they mean field by field, or are not read so."""

from __future__ import annotations

from typing import Any

import pytest

from timewright.errors import InvalidInput
from timewright.operations import operations
from timewright.operations.reading import _plainly, _read, read_request
from timewright.operations.schedules import Get, List

EXAMPLES = [(one.request, dict(example)) for one in operations for example in one.examples]


def test_what_is_read_plainly_is_what_is_read_field_by_field() -> None:
    plain = [(request, payload) for request, payload in EXAMPLES if _plainly(payload, request) is not None]
    assert len(plain) > len(EXAMPLES) // 3
    for request, payload in plain:
        assert _plainly(payload, request) == _read(payload, request), payload


@pytest.mark.parametrize(
    "payload",
    [
        {"limit": True},
        {"limit": "50"},
        {"limit": 0},
        {"limit": 10**30},
        {"state": "ACTIVE"},
        {"nameStarts": "a"},
        {"tag": "a\0b"},
        {"tag": "é"},
        {"metadata": {"team": "finance"}},
        {"unheard": "of"},
    ],
)
def test_what_may_mean_something_else_is_read_field_by_field(payload: dict[str, Any]) -> None:
    assert _plainly(payload, List) is None


def test_a_name_is_one_however_it_is_spelled() -> None:
    assert read_request({"schedule": "cafe\u0301"}, Get) == Get(schedule="caf\u00e9")
    with pytest.raises(InvalidInput) as refusal:
        read_request({"schedule": ""}, Get)
    assert refusal.value.field == "schedule"
