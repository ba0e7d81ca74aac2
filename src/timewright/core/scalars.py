"""Single values from plain data: text, numbers, durations, instants, choices, and data only carried."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import inspect as mi

from timewright.core.costs import AMOUNT, QUANTITY
from timewright.core.moments import EPOCH, as_instant, bounded, from_ms, parse_duration, parse_instant
from timewright.core.refusals import join, refused
from timewright.core.shapes import Milliseconds
from timewright.core.spellings import WORDS, plain_word
from timewright.errors import InvalidDuration, InvalidInstant, TimewrightError

LONGEST_TEXT = 4 * 1024 * 1024

_WIDEST = 2**63
_LEAVE_OUT = "leave it out for the default"


def read_text(raw: Any, info: mi.Type, path: str) -> Any:
    """Text within its length, and only what every store keeps."""
    assert isinstance(info, mi.StrType)
    low, high = info.min_length or 0, info.max_length or LONGEST_TEXT
    rule = f"text of {low} to {high} characters"
    if info.pattern in (AMOUNT, QUANTITY):
        return _read_decimal(raw, info, path)
    if not isinstance(raw, str):
        raise refused(path, raw, "is not text", rule=rule, fix="put it in quotes")
    if not low <= len(raw) <= high:
        raise refused(
            path, raw, f"has {len(raw)} characters", rule=rule, fix="shorter" if raw else _LEAVE_OUT
        )
    if "\0" in raw or (not raw.isascii() and any("\ud800" <= c <= "\udfff" for c in raw)):
        rule = "text that can be written as UTF-8, without NUL"
        raise refused(path, raw, "has a character no store keeps", rule=rule, fix="take it out")
    if info.pattern is not None and not re.fullmatch(info.pattern, raw):
        rule = f"text of the form {info.pattern}"
        raise refused(path, raw, "does not have that form", rule=rule, fix=_LEAVE_OUT)
    return raw


def _read_decimal(raw: Any, info: mi.StrType, path: str) -> str:
    """A decimal number as text, also if someone wrote it as a number."""
    is_number = isinstance(raw, int | float) and not isinstance(raw, bool)
    text = repr(raw) if is_number else raw
    if not isinstance(text, str) or not re.fullmatch(info.pattern or "", text):
        rule = "a plain decimal number, not negative, with at most six decimals"
        raise refused(path, raw, "is not such an amount", rule=rule, fix="12.50")
    return text


def read_flag(raw: Any, path: str) -> Any:
    """True or false."""
    if not isinstance(raw, bool):
        raise refused(path, raw, "is not true or false", rule="true or false", fix="true")
    return raw


def read_number(raw: Any, info: mi.Type, path: str) -> Any:
    """A finite number within its bounds; true and false are not numbers."""
    assert isinstance(info, mi.IntType | mi.FloatType)
    whole = isinstance(info, mi.IntType)
    low = -_WIDEST if info.ge is None else info.ge
    high = _WIDEST - 1 if info.le is None else info.le
    rule = f"a {'whole ' if whole else ''}number from {low:g} to {high:g}"
    wanted = int if whole else (int, float)
    if (
        isinstance(raw, bool)
        or not isinstance(raw, wanted)
        or (isinstance(raw, float) and not math.isfinite(raw))
    ):
        raise refused(path, raw, "is not such a number", rule=rule, fix=_number_fix(raw, low))
    if not low <= raw <= high:
        raise refused(path, raw, "is out of range", rule=rule, fix=f"{min(max(raw, low), high):g}")
    return raw if whole else float(raw)


def _number_fix(raw: Any, low: float) -> str:
    if isinstance(raw, str) and raw.strip().isascii() and raw.strip().isdigit() and len(raw) < 20:
        return f"{raw.strip()} without quotes"
    return f"{max(low, 1):g}"


def read_duration(raw: Any, path: str) -> Any:
    """A length of time with its unit."""
    if isinstance(raw, Milliseconds):
        return from_ms(raw.value, field=f"{path}_ms")
    if isinstance(raw, timedelta):
        return bounded(raw, field=path)
    if isinstance(raw, str):
        return parse_duration(raw, field=path)
    rule = "text with a unit, such as 90s, 15m or PT15M; a bare number only in a field that ends in _ms"
    fix = f"{raw}s" if isinstance(raw, int) and not isinstance(raw, bool) and 0 < raw < 10**6 else "90s"
    raise refused(path, raw, "is not a duration", rule=rule, fix=fix, kind=InvalidDuration)


def read_instant(raw: Any, path: str) -> Any:
    """A point in time with its offset."""
    if isinstance(raw, Milliseconds):
        try:
            return EPOCH + from_ms(raw.value, field=f"{path}_ms")
        except TimewrightError as error:
            raise InvalidInstant(
                error.message, field=f"{path}_ms", value=error.value, rule=error.rule, fix="1700000000000"
            ) from None
    if isinstance(raw, datetime):
        return as_instant(raw, field=path)
    if isinstance(raw, str):
        return parse_instant(raw, field=path)
    rule, fix = "RFC 3339 with an offset, in quotes", "2026-03-10T12:00:00Z"
    raise refused(path, raw, "is not a point in time", rule=rule, fix=fix, kind=InvalidInstant)


def read_day(raw: Any, path: str) -> Any:
    """A day of the calendar."""
    if isinstance(raw, date) and not isinstance(raw, datetime):
        return raw
    try:
        # Other ISO forms, such as week dates, are read by some versions of Python and not by others.
        return date.fromisoformat(raw if len(raw) == 10 and raw[4] == raw[7] == "-" else "")
    except (TypeError, ValueError):
        rule = "a day of the calendar: YYYY-MM-DD"
        raise refused(path, raw, "is not a day", rule=rule, fix="2026-12-25", kind=InvalidInstant) from None


def read_choice(raw: Any, info: mi.Type, path: str) -> Any:
    """One of our words, or a word someone else uses for it, in any case."""
    assert isinstance(info, mi.EnumType)
    cls = info.cls
    if isinstance(raw, cls):
        return raw
    assert issubclass(cls, StrEnum)
    known = {plain_word(member.value): member for member in cls}
    word = plain_word(raw) if isinstance(raw, str) and len(raw) <= 64 else ""
    word = word if word in known else WORDS.get(cls, {}).get(word, word)
    if word not in known:
        rule = f"one of {', '.join(member.value for member in cls)}"
        raise refused(path, raw, "is not one of the choices", rule=rule, fix=next(iter(cls)).value)
    return known[word]


def read_literal(raw: Any, info: mi.Type, path: str) -> Any:
    """One of a few texts, in any case."""
    assert isinstance(info, mi.LiteralType)
    for value in info.values:
        if isinstance(raw, str) and isinstance(value, str) and raw.lower() == value.lower():
            return value
    listed = ", ".join(str(value) for value in info.values if value != "")
    raise refused(path, raw, "is not one of the choices", rule=f"one of {listed}", fix=str(info.values[-1]))


def read_plain(raw: Any, path: str) -> Any:
    """Data that is only carried: it must be JSON, because that is how it is kept and sent."""
    if isinstance(raw, Mapping):
        return {_plain_key(key, path): read_plain(value, join(path, str(key))) for key, value in raw.items()}
    if isinstance(raw, list | tuple):
        return [read_plain(value, f"{path}[{i}]") for i, value in enumerate(raw)]
    if isinstance(raw, str):
        return read_text(raw, mi.StrType(), path) if "\0" not in raw else raw
    fits = isinstance(raw, int) and -_WIDEST <= raw < 2 * _WIDEST
    if raw is None or isinstance(raw, bool) or fits or (isinstance(raw, float) and math.isfinite(raw)):
        return raw
    rule = (
        "null, true, false, a finite number of at most 64 bits, text, a list, or a mapping with text as keys"
    )
    raise refused(path, raw, "cannot be written as JSON", rule=rule, fix=_as_json(raw))


def _as_json(raw: Any) -> str:
    """How a value of Python becomes one that can be written."""
    ways = {
        "isoformat": "its isoformat()",
        "model_dump": "its model_dump(mode='json')",
        "__dataclass_fields__": "dataclasses.asdict() of it",
        "__struct_fields__": "msgspec.to_builtins() of it",
        "isdisjoint": "list() of it",
    }
    return next((way for mark, way in ways.items() if hasattr(raw, mark)), "put it in quotes")


def _plain_key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise refused(path, key, "is not a key", rule="keys are text", fix=f'"{str(key)[:32]}" in quotes')
    read_text(key, mi.StrType(), path)
    return key


def read_nothing(raw: Any, path: str) -> Any:
    """Null."""
    if raw is not None:
        raise refused(path, raw, "is not null", rule="null", fix="null")
