"""Text that is safe to show: without secrets, and for a language model without invisible characters."""

from __future__ import annotations

import json
import re
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from timewright.core.sensitive_keys import redact_text

MAX_VALUES = 10_000
MIN_VALUE_CHARS = 4


class SecretRedactor:
    """Knows the secret values that this process decrypted, and replaces them; thread-safe."""

    def __init__(self, *, max_values: int = MAX_VALUES) -> None:
        self._max_values = max_values
        self._known: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def add_secret(self, name: str, value: str) -> None:
        """Remember a secret value, also as JSON, URL-encoded and by lines; the oldest are dropped."""
        forms = {value, json.dumps(value)[1:-1], quote(value, safe=""), *value.splitlines()}
        with self._lock:
            for one in forms:
                if len(one.strip()) >= MIN_VALUE_CHARS:
                    self._known[one] = name
                    self._known.move_to_end(one)
            while len(self._known) > self._max_values:
                self._known.popitem(last=False)

    def redact_text(self, text: str) -> str:
        """Return a text without known values, and without values after names like `password=`."""
        return redact_text(self._without_values(text))

    def redact_data(self, data: Any) -> Any:
        """Return data without known values, and otherwise unchanged."""
        if isinstance(data, str):
            return self._without_values(data)
        if isinstance(data, Mapping):
            return {key: self.redact_data(value) for key, value in data.items()}
        return [self.redact_data(one) for one in data] if isinstance(data, list | tuple) else data

    def _without_values(self, text: str) -> str:
        with self._lock:
            known = [(value, name) for value, name in self._known.items() if value in text]
        for value, name in sorted(known, key=lambda one: -len(one[0])):
            text = text.replace(value, f"secret://{name}")
        return text


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


def shorten_data(value: Any, *, max_chars: int) -> Any:
    """Return the value if its JSON text is short, else that text, cut and marked as cut."""
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= max_chars else _text(text, max_chars)


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
