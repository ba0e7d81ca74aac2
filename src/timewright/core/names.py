"""Names people give to things: what they may hold, and the one form they are kept in."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from timewright.core.refusals import refused

LONGEST_NAME = 255
SECRET_NAME = "[A-Za-z0-9][A-Za-z0-9._/-]{0,127}"  # noqa: S105 - what a name may be

# Marks that make text read in another order than it is written; a name must look like what it is.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_BREAKS = frozenset({"Cc", "Cs", "Zl", "Zp"})
_RULE = "text of 1 to {longest} characters, without control characters, reordering marks or outer blanks"


def check_name(name: Any, *, field: str = "name", longest: int = LONGEST_NAME) -> str:
    """The name in its composed form, so that two spellings of one text are one name; or a refusal."""
    rule = _RULE.format(longest=longest)
    if not isinstance(name, str):
        raise refused(field, name, "is not text", rule=rule, fix="nightly-report")
    why = _fault(name, longest=longest)
    if why:
        raise refused(field, name, why, rule=rule, fix=_suggestion(name))
    composed = unicodedata.normalize("NFC", name)
    if len(composed) > longest:
        raise refused(field, name, f"is longer than {longest} characters", rule=rule, fix=_suggestion(name))
    return composed


def check_secret_name(name: str, *, field: str = "secret") -> str:
    """The same name, if `secret://` and it can stand in a header; or a refusal."""
    if not re.fullmatch(SECRET_NAME, name):
        rule = "letters, digits, dots, dashes, underscores and slashes, at most 128, a letter or digit first"
        raise refused(field, name, "cannot name a secret", rule=rule, fix="crm-token")
    return name


def _fault(name: str, *, longest: int) -> str:
    if not name:
        return "is empty"
    if len(name) > longest:
        return f"is longer than {longest} characters"
    if name in (".", ".."):
        return "is a way through folders, not a name"
    if any(unicodedata.category(c) in _BREAKS for c in name):
        return "has a control character or a line break"
    if _REORDERING.intersection(name):
        return "has a mark that changes the order of reading"
    if name != name.strip():
        return "begins or ends with a blank"
    return ""


def _suggestion(name: str) -> str:
    """What is left of a name without what is not allowed, or an example."""
    kept = (c for c in name[:LONGEST_NAME] if unicodedata.category(c) not in _BREAKS and c not in _REORDERING)
    rest = "".join(kept).strip()
    return rest[:40] if rest.strip(".") else "nightly-report"
