"""What other people wrote, made harmless for a model that reads it: no invisible marks, no endless lines."""

from __future__ import annotations

import unicodedata
from typing import Any

LONGEST = 4000
# Marks that show nothing, turn the writing round, or spell letters nobody sees.
_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})
_KEPT = frozenset("\n\t")


def harmless(value: Any, *, longest: int = LONGEST) -> Any:
    """The same data with every text stripped of what cannot be seen, and cut where it is too long."""
    if isinstance(value, str):
        return _text(value, longest)
    if isinstance(value, dict):
        return {_text(str(key), longest): harmless(inside, longest=longest) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [harmless(inside, longest=longest) for inside in value]
    return value


def _text(text: str, longest: int) -> str:
    if not text.isascii() or not text.isprintable():
        text = "".join(c for c in text if c in _KEPT or unicodedata.category(c) not in _UNSEEN)
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text) - longest} more characters)"
