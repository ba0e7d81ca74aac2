"""Validates names of objects, and normalizes them to one Unicode form."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from timewright.core.input.input_errors import input_error

MAX_NAME_LENGTH = 255
SECRET_NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._/-]{0,127}"  # noqa: S105 - what a name may be

# Unicode characters that change the display order; refused because a name must look like what it is.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_CONTROL_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_RULE = "text of 1 to {max_length} characters, without control or reordering characters or outer spaces"


def check_name(name: Any, *, field: str = "name", max_length: int = MAX_NAME_LENGTH) -> str:
    """Return the name in Unicode form NFC, so that equal text is one name, or raise InvalidInput."""
    rule = _RULE.format(max_length=max_length)
    if not isinstance(name, str):
        raise input_error(field, name, "is not text", rule=rule, fix="nightly-report")
    why = _problem(name, max_length=max_length)
    if why:
        raise input_error(field, name, why, rule=rule, fix=_suggestion(name))
    composed = unicodedata.normalize("NFC", name)
    if len(composed) > max_length:
        raise input_error(
            field, name, f"is longer than {max_length} characters", rule=rule, fix=_suggestion(name)
        )
    return composed


def check_secret_name(name: str, *, field: str = "secret") -> str:
    """Return the name if `secret://` and it can be used in a header, or raise InvalidInput."""
    if not re.fullmatch(SECRET_NAME_PATTERN, name):
        rule = "letters, digits, dots, dashes, underscores and slashes, at most 128, a letter or digit first"
        raise input_error(field, name, "cannot name a secret", rule=rule, fix="crm-token")
    return name


def _problem(name: str, *, max_length: int) -> str:
    if not name:
        return "is empty"
    if len(name) > max_length:
        return f"is longer than {max_length} characters"
    if name in (".", ".."):
        return "is a relative path, not a name"
    if any(unicodedata.category(c) in _CONTROL_CATEGORIES for c in name):
        return "has a control character or a line break"
    if _REORDERING.intersection(name):
        return "has a character that changes the display order"
    if name != name.strip():
        return "begins or ends with a space"
    return ""


def _suggestion(name: str) -> str:
    """Return the name without its invalid characters, or an example."""
    allowed = (
        c
        for c in name[:MAX_NAME_LENGTH]
        if unicodedata.category(c) not in _CONTROL_CATEGORIES and c not in _REORDERING
    )
    rest = "".join(allowed).strip()
    return rest[:40] if rest.strip(".") else "nightly-report"
