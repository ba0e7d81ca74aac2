"""Parses JSON strictly and in linear time: no duplicate keys, no NaN or Infinity."""

from __future__ import annotations

import json
import math
from typing import Any


class DuplicateKey(ValueError):
    """A key occurs twice in one object, so the intended value is unknown."""

    def __init__(self, key: str) -> None:
        super().__init__(f"duplicate key {key[:64]!r}")


def read_json(text: str) -> Any:
    """Parse JSON; raises ValueError, of type DuplicateKey for a repeated key, or RecursionError."""
    try:
        return json.loads(
            text, object_pairs_hook=unique_keys, parse_constant=_refuse_constant, parse_float=_finite_float
        )
    except ValueError as error:
        if "set_int_max_str_digits" in str(error):  # advice for programmers of Python
            raise ValueError("a number has too many digits") from None
        raise


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of an object as a dict, or raise DuplicateKey; each key is looked up once."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise DuplicateKey(key)
        seen.add(key)
    return found


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:32]} is too large")
    return number
