"""Durations, dates, zones and names from the corpus of bad input: accepted, or refused with a way out.

Every row of `data/bad_input.json` says its class. A refusal names the field, the rule and a fix, and comes at
once; nothing is half done.
"""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from timewright.core.input.decode import decode_schedule
from timewright.core.moments import HOUR
from timewright.core.schedule.schedule import Schedule
from timewright.errors import InvalidInput

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
ROWS = json.loads((Path(__file__).parents[1] / "data" / "bad_input.json").read_text(encoding="utf-8"))

FIELDS: dict[str, Any] = {
    "interval_ms": lambda value: {"interval_ms": value},
    "interval": lambda value: {"every": value},
    "instant": lambda value: {"every": "1h", "start_at": value},
    "window": lambda value: {"every": "1h", "start_at": value[0], "end_at": value[1]},
    "zone": lambda value: {"cron": "30 2 * * *", "zone": value},
    "name": lambda value: {"every": "1h", "name": value},
    "tag": lambda value: {"every": "1h", "tags": [value]},
    "group": lambda value: {"every": "1h", "group": value},
    "queue": lambda value: {"every": "1h", "queue": value},
}


class Row(NamedTuple):
    kind: str
    accepted: bool
    value: Any
    why: str


def read_row(row: dict[str, Any]) -> Row:
    """A row with its placeholders expanded: long texts, and unpaired surrogates."""
    value = row["input"]
    if isinstance(value, dict):
        text, times = value.get("repeat", ["", 0])
        value = (
            "a\ud800"
            if "surrogate" in value
            else value.get("first", "") + text * times + value.get("then", "")
        )
    return Row(row["kind"], row["class"] == "accept", value, row["why"])


def read(row: Row) -> Schedule:
    raw = {"name": "corpus", "note": "hello", **FIELDS[row.kind](row.value)}
    return decode_schedule(raw, id="sch_1", now=NOON)


def each(*, accepted: bool) -> list[Any]:
    rows = [(i, read_row(row)) for i, row in enumerate(ROWS)]
    return [
        pytest.param(row, id=f"{i}-{row.kind}-{row.why.replace(' ', '_')}")
        for i, row in rows
        if row.accepted is accepted
    ]


@pytest.mark.parametrize("row", each(accepted=False))
def test_bad_input_is_refused_with_its_field_its_rule_and_a_fix(row: Row) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read(row)
    error = refusal.value
    assert error.field
    assert error.rule
    assert error.fix
    assert len(error.message) < 400
    assert len(str(error.value)) < 400
    assert error.explain().isprintable() or "\n" in error.explain()


@pytest.mark.parametrize("row", each(accepted=True))
def test_unusual_but_valid_input_is_accepted(row: Row) -> None:
    assert read(row).id == "sch_1"


def test_two_spellings_of_one_name_are_one_name() -> None:
    twins = [read(Row("name", True, text, "")).name for text in ("e\u0301", "\u00e9")]
    assert twins == ["\u00e9", "\u00e9"]
    assert all(unicodedata.is_normalized("NFC", name) for name in twins)


def test_the_corpus_has_both_classes_of_every_kind() -> None:
    kinds = {(row["kind"], row["class"]) for row in ROWS}
    wanted = {(kind, answer) for kind in FIELDS for answer in ("accept", "reject")}
    assert wanted - kinds == {("group", "accept"), ("queue", "accept")}


def test_accepted_input_has_the_expected_value() -> None:
    schedule = read(Row("instant", True, "2026-04-10T12:00:00+01:00", ""))
    assert schedule.start_at == datetime(2026, 4, 10, 11, tzinfo=UTC)
    assert schedule.created_at + HOUR > NOON
