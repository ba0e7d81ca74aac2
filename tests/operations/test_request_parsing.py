"""The fast path of request parsing gives the same result as field-by-field parsing."""

from __future__ import annotations

from typing import Any

import pytest

from timewright.errors import InvalidInput
from timewright.operations import operations
from timewright.operations.registry import GetSchedule
from timewright.operations.request_parsing import _parse_fields, _parse_simple, parse_request
from timewright.operations.schedules.queries import ListSchedules

EXAMPLES = [(one.request_type, dict(example)) for one in operations for example in one.examples]


def test_fast_parsing_equals_field_by_field_parsing() -> None:
    plain = [
        (request, payload) for request, payload in EXAMPLES if _parse_simple(payload, request) is not None
    ]
    assert len(plain) > len(EXAMPLES) // 3
    for request, payload in plain:
        assert _parse_simple(payload, request) == _parse_fields(payload, request), payload


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
def test_ambiguous_values_are_parsed_field_by_field(payload: dict[str, Any]) -> None:
    assert _parse_simple(payload, ListSchedules) is None


def test_names_are_normalised_to_nfc() -> None:
    assert parse_request({"schedule": "cafe\u0301"}, GetSchedule) == GetSchedule(schedule="caf\u00e9")
    with pytest.raises(InvalidInput) as error:
        parse_request({"schedule": ""}, GetSchedule)
    assert error.value.field == "schedule"
