"""Sanitise text by others for a language model: no invisible characters, bounded length."""

from __future__ import annotations

import unicodedata
from typing import Any

MAX_TEXT_CHARS = 4000
# Unicode categories of control, format, private-use, surrogate and unassigned characters.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})
_ALLOWED = frozenset("\n\t")


def sanitize(value: Any, *, max_chars: int = MAX_TEXT_CHARS) -> Any:
    """Return the value with invisible characters removed from every string, and long strings cut."""
    if isinstance(value, str):
        return _text(value, max_chars)
    if isinstance(value, dict):
        return {
            _text(str(key), max_chars): sanitize(item, max_chars=max_chars) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [sanitize(item, max_chars=max_chars) for item in value]
    return value


def _text(text: str, longest: int) -> str:
    if not text.isascii() or not text.isprintable():
        text = "".join(
            c for c in text if c in _ALLOWED or unicodedata.category(c) not in _INVISIBLE_CATEGORIES
        )
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text) - longest} more characters)"
