"""Decodes single values: text, numbers, durations, instants, enum members and opaque JSON data.

The size of all data is checked first, before any of it is decoded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta, tzinfo
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from msgspec import inspect as mi

from timewright.core.alerts.channels import MAIL_PATTERN, SECRET_PATTERN
from timewright.core.alerts.incidents import LINK_PATTERN
from timewright.core.budgets.costs import AMOUNT_PATTERN, QUANTITY_PATTERN
from timewright.core.input.aliases import CHOICE_ALIASES, normalize_choice
from timewright.core.input.input_errors import input_error, join_path
from timewright.core.input.shorthand import Milliseconds
from timewright.core.moments import EPOCH, as_instant, check_duration, from_ms, parse_duration, parse_instant
from timewright.core.zones import name_of_zone
from timewright.errors import InvalidDuration, InvalidInput, InvalidInstant, TimewrightError

MAX_TEXT_LENGTH = 4 * 1024 * 1024
MAX_DEPTH = 64
MAX_PARTS = 100_000
# Types without inner values; checked by set lookup because `isinstance(value, Mapping)` is slow.
_SCALAR_TYPES = frozenset({str, bytes, int, float, bool, type(None)})

_INT64_LIMIT = 2**63
_LEAVE_OUT = "leave it out for the default"
# Per pattern: what is wrong with a text that does not match, the rule, and an example.
_KNOWN_PATTERNS = {
    SECRET_PATTERN: (
        "is not a reference to a secret",
        "a password, token or key is stored with `timewright secret set NAME` and named here",
        "secret://NAME",
    ),
    LINK_PATTERN: (
        "is not a URL",
        "http:// or https://, or secret://NAME for a URL that is stored as a secret",
        "https://example.com/hook",
    ),
    MAIL_PATTERN: ("is not a mail address", "a name and a host", "you@example.com"),
}


def check_size(
    raw: Any,
    path: str = "",
    *,
    max_depth: int = MAX_DEPTH,
    max_parts: int = MAX_PARTS,
    error_type: type[TimewrightError] = InvalidInput,
    locate: bool = False,
) -> None:
    """Refuse data that is nested too deep, has too many values or too much text, or contains itself.

    With `locate` the error names the value whose content is too deep, otherwise the whole.
    """
    pending: list[tuple[Any, int]] = [(raw, 0)]
    parts = text = 0
    while pending:
        value, depth = pending.pop()
        parts += 1
        kind = type(value)
        text += len(value) if kind is str or isinstance(value, str | bytes) else 0
        if depth > max_depth or parts > max_parts or text > MAX_TEXT_LENGTH:
            rule = f"at most {max_depth} levels, {max_parts} parts and {MAX_TEXT_LENGTH} characters"
            where = _place_of_depth(raw, path, max_depth) if locate and depth > max_depth else path
            raise input_error(
                where, raw, "is too deep or too large", rule=rule, fix="split it", kind=error_type
            )
        if kind in _SCALAR_TYPES:
            continue
        if kind is dict or isinstance(value, Mapping):
            pending += ((inner, depth + 1) for pair in value.items() for inner in pair)
        elif isinstance(value, list | tuple | set | frozenset):
            pending += ((inner, depth + 1) for inner in value)


def _place_of_depth(raw: Any, path: str, max_depth: int) -> str:
    """The path, of at most three parts, to a value whose content is nested deeper than `max_depth`."""
    pending: list[tuple[Any, int, str]] = [(raw, 0, path)]
    while pending:
        value, depth, where = pending.pop()
        if depth > max_depth:
            return where
        inside: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else ()
        if isinstance(value, list | tuple):
            inside = enumerate(value)
        for name, inner in inside:
            below = f"{where}[{name}]" if isinstance(name, int) else join_path(where, str(name)[:64])
            pending.append((inner, depth + 1, below if depth < 3 else where))
    return path


def read_text(raw: Any, info: mi.Type, path: str) -> Any:
    """Read text within its length limits that every store can save."""
    assert isinstance(info, mi.StrType)
    low, high = info.min_length or 0, info.max_length or MAX_TEXT_LENGTH
    rule = f"text of {low} to {high} characters"
    if info.pattern in (AMOUNT_PATTERN, QUANTITY_PATTERN):
        return _read_decimal(raw, info, path)
    if isinstance(raw, tzinfo):
        raw = name_of_zone(raw)
    if not isinstance(raw, str):
        raise input_error(path, raw, "is not text", rule=rule, fix="put it in quotes")
    if not low <= len(raw) <= high:
        raise input_error(
            path,
            raw,
            f"has {len(raw)} characters",
            rule=rule,
            fix=f"at most {high} characters"
            if len(raw) > high
            else "write at least one character"
            if low == 1
            else f"write at least {low} characters",
        )
    if "\0" in raw or (not raw.isascii() and any("\ud800" <= c <= "\udfff" for c in raw)):
        rule = "text that can be written as UTF-8, without NUL"
        raise input_error(path, raw, "has a character that cannot be stored", rule=rule, fix="remove it")
    if info.pattern is not None and not re.fullmatch(info.pattern, raw):
        if info.pattern in _KNOWN_PATTERNS:
            why, rule, fix = _KNOWN_PATTERNS[info.pattern]
            # What is no reference to a secret may be the secret.
            shown = "***" if info.pattern == SECRET_PATTERN else raw
            raise input_error(path, shown, why, rule=rule, fix=fix)
        rule = f"text that matches {info.pattern}"
        raise input_error(path, raw, "does not match the pattern", rule=rule, fix=_LEAVE_OUT)
    return raw


def _read_decimal(raw: Any, info: mi.StrType, path: str) -> str:
    """Read a decimal number as text; also accepts a JSON number."""
    is_number = isinstance(raw, int | float) and not isinstance(raw, bool)
    text = repr(raw) if is_number else raw
    if not isinstance(text, str) or not re.fullmatch(info.pattern or "", text):
        rule = "a plain decimal number, not negative, with at most six decimals"
        raise input_error(path, raw, "is not a valid amount", rule=rule, fix="12.50")
    return text


def read_bool(raw: Any, path: str) -> Any:
    """Read true or false."""
    if not isinstance(raw, bool):
        raise input_error(path, raw, "is not true or false", rule="true or false", fix="true")
    return raw


def read_number(raw: Any, info: mi.Type, path: str) -> Any:
    """Read a finite number within its bounds; true and false are not numbers."""
    assert isinstance(info, mi.IntType | mi.FloatType)
    whole = isinstance(info, mi.IntType)
    low = -_INT64_LIMIT if info.ge is None else info.ge
    high = _INT64_LIMIT - 1 if info.le is None else info.le
    bounds = f"of at least {low:g}" if info.le is None else f"from {low:g} to {high:g}"
    rule = f"a {'whole ' if whole else ''}number {bounds}"
    wanted = int if whole else (int, float)
    if (
        isinstance(raw, bool)
        or not isinstance(raw, wanted)
        or (isinstance(raw, float) and not math.isfinite(raw))
    ):
        raise input_error(path, raw, "is not a valid number", rule=rule, fix=_number_fix(raw, low))
    if not low <= raw <= high:
        raise input_error(path, raw, "is out of range", rule=rule, fix=f"{min(max(raw, low), high):g}")
    return raw if whole else float(raw)


def _number_fix(raw: Any, low: float) -> str:
    if isinstance(raw, str) and raw.strip().isascii() and raw.strip().isdigit() and len(raw) < 20:
        return f"{raw.strip()} without quotes"
    return f"{max(low, 1):g}"


def read_duration(raw: Any, path: str) -> Any:
    """Read a duration with its unit."""
    if isinstance(raw, Milliseconds):
        return from_ms(raw.value, field=f"{path}_ms")
    if isinstance(raw, timedelta):
        return check_duration(raw, field=path)
    if isinstance(raw, str):
        return parse_duration(raw, field=path)
    rule = "text with a unit, such as 90s, 15m or PT15M; a bare number only in a field that ends in _ms"
    fix = f"{raw}s" if isinstance(raw, int) and not isinstance(raw, bool) and 0 < raw < 10**6 else "90s"
    raise input_error(path, raw, "is not a duration", rule=rule, fix=fix, kind=InvalidDuration)


def read_instant(raw: Any, path: str) -> Any:
    """Read a point in time with its offset."""
    if isinstance(raw, Milliseconds):
        try:
            return EPOCH + from_ms(raw.value, field=f"{path}_ms")
        except TimewrightError as error:
            raise InvalidInstant(
                error.message,
                field=f"{path}_ms",
                value=error.value,
                rule=error.rule,
                fix="1700000000000 for 2023-11-14T22:13:20Z",
            ) from None
    if isinstance(raw, datetime):
        return as_instant(raw, field=path)
    if isinstance(raw, str):
        return parse_instant(raw, field=path)
    rule, fix = "RFC 3339 with an offset, in quotes", "2026-03-10T12:00:00Z"
    raise input_error(path, raw, "is not a point in time", rule=rule, fix=fix, kind=InvalidInstant)


def read_date(raw: Any, path: str) -> Any:
    """Read a date."""
    if isinstance(raw, date) and not isinstance(raw, datetime):
        return raw
    try:
        # Only some Python versions accept other ISO forms, such as week dates.
        return date.fromisoformat(raw if len(raw) == 10 and raw[4] == raw[7] == "-" else "")
    except (TypeError, ValueError):
        rule = "a day of the calendar: YYYY-MM-DD"
        raise input_error(
            path, raw, "is not a day", rule=rule, fix="2026-12-25", kind=InvalidInstant
        ) from None


def read_choice(raw: Any, info: mi.Type, path: str) -> Any:
    """Read an enum member by its value or an alias; case does not matter."""
    assert isinstance(info, mi.EnumType)
    cls = info.cls
    if isinstance(raw, cls):
        return raw
    assert issubclass(cls, StrEnum)
    known = {normalize_choice(member.value): member for member in cls}
    word = normalize_choice(raw) if isinstance(raw, str) and len(raw) <= 64 else ""
    word = word if word in known else CHOICE_ALIASES.get(cls, {}).get(word, word)
    if word not in known:
        rule = f"one of {', '.join(member.value for member in cls)}"
        near = get_close_matches(word, list(known), n=1, cutoff=0.5)
        fix = known[near[0]].value if near else next(iter(cls)).value
        raise input_error(path, raw, "is not one of the choices", rule=rule, fix=fix)
    return known[word]


def read_literal(raw: Any, info: mi.Type, path: str) -> Any:
    """Read one of the allowed texts; case does not matter."""
    assert isinstance(info, mi.LiteralType)
    for value in info.values:
        if isinstance(raw, str) and isinstance(value, str) and raw.lower() == value.lower():
            return value
    choices = [str(value) for value in info.values if value != ""]
    near = get_close_matches(str(raw)[:64].lower(), choices, n=1, cutoff=0.5)
    fix = near[0] if near else str(info.values[-1])
    raise input_error(path, raw, "is not one of the choices", rule=f"one of {', '.join(choices)}", fix=fix)


def read_json_value(raw: Any, path: str) -> Any:
    """Read opaque data; it must be JSON, because it is stored and sent as JSON."""
    if isinstance(raw, Mapping):
        return {
            _json_key(key, path): read_json_value(value, join_path(path, str(key)))
            for key, value in raw.items()
        }
    if isinstance(raw, list | tuple):
        return [read_json_value(value, f"{path}[{i}]") for i, value in enumerate(raw)]
    if isinstance(raw, str):
        return read_text(raw, mi.StrType(), path) if "\0" not in raw else raw
    fits = isinstance(raw, int) and -_INT64_LIMIT <= raw < 2 * _INT64_LIMIT
    if raw is None or isinstance(raw, bool) or fits or (isinstance(raw, float) and math.isfinite(raw)):
        return raw
    rule = (
        "null, true, false, a finite number of at most 64 bits, text, a list, or a mapping with text as keys"
    )
    raise input_error(path, raw, "cannot be written as JSON", rule=rule, fix=_json_hint(raw))


def _json_hint(raw: Any) -> str:
    """Return how to convert a Python value to JSON."""
    hints = {
        "isoformat": "its isoformat()",
        "model_dump": "its model_dump(mode='json')",
        "__dataclass_fields__": "dataclasses.asdict() of it",
        "__struct_fields__": "msgspec.to_builtins() of it",
        "isdisjoint": "list() of it",
    }
    return next((hint for attribute, hint in hints.items() if hasattr(raw, attribute)), "put it in quotes")


def _json_key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise input_error(path, key, "is not a key", rule="keys are text", fix=f'"{str(key)[:32]}" in quotes')
    read_text(key, mi.StrType(), path)
    return key


def read_null(raw: Any, path: str) -> Any:
    """Read null."""
    if raw is not None:
        raise input_error(path, raw, "must be null", rule="only null is allowed here", fix="write null")
