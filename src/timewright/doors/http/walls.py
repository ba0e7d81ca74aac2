"""The numbers as one caller may see them: what is counted for another namespace is left out."""

from __future__ import annotations

import re
from collections.abc import Callable

# A quote inside a value is escaped, so whatever looks like this label is it, or hides a line too many.
_NAMESPACE = re.compile(r'[{,]namespace="([^"]*)"')


def numbers_within(text: str, may_enter: Callable[[str], bool]) -> str:
    """The lines that belong to no namespace, or to one that may be entered."""
    return "".join(line for line in text.splitlines(keepends=True) if _is_seen(line, may_enter))


def _is_seen(line: str, may_enter: Callable[[str], bool]) -> bool:
    return all(map(may_enter, _NAMESPACE.findall(line)))
