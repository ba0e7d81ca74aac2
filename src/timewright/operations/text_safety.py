"""Text by others as it is shown to a language model: no invisible characters, bounded length."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

MAX_TEXT_CHARS = 4000
# Unicode categories of control, format, private-use, surrogate and unassigned characters.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})
# Joiners are part of emoji and of words in several scripts.
_ALLOWED = frozenset("\n\t\u200c\u200d")
_CUT_MARK = re.compile(r"… \(\d+ more characters\)")


def sanitize(value: Any, *, max_chars: int | None = MAX_TEXT_CHARS) -> Any:
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


def find_cut_mark(value: Any) -> str | None:
    """Return a text that contains the mark of a cut: it was shown and is not the whole value."""
    if isinstance(value, str):
        return value if _CUT_MARK.search(value) else None
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return next((found for one in inner if (found := find_cut_mark(one)) is not None), None)


def _text(text: str, longest: int | None) -> str:
    if not text.isascii() or not text.isprintable():
        text = "".join(
            c for c in text if c in _ALLOWED or unicodedata.category(c) not in _INVISIBLE_CATEGORIES
        )
    if longest is None or len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text) - longest} more characters)"
