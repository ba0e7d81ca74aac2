"""Hides what follows a telling name in a text for people: `password=…`, `Authorization: Bearer …`."""

from __future__ import annotations

import re
from collections.abc import Iterator

HIDDEN = "…"

# Words that are followed by a secret wherever they stand.
_SURE = (
    "proxy-authorization|authorization|set-cookie|cookie|password|passwd|client[-_]secret|access[-_]token"
    "|refresh[-_]token|api[-_]?key|private[-_]key"
)
# Words that people also use for other things: an equals sign or a quote tells.
_LIKELY = "secret|token|pwd"
_NAMED = re.compile(
    rf"(?i)(?<![a-z0-9])((?:{_SURE})[\"']?\s*[:=]\s*|(?:{_LIKELY})(?:[\"']\s*:\s*|[\"']?\s*=\s*))"
    r"([\"']?)(?!(?:bearer |basic |digest )?secret://)((?:bearer|basic|digest) )?[^\s\"'&,;]+"
)
_USER = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,30}://[^\s/@:]{0,255}):[^\s/@]{1,1000}@")

# How these words begin, and letters that are one of theirs whatever their case, and yet not when lowered.
_STARTS = (
    "proxy-auth", "authorization", "set-cookie", "cookie", "passw", "client", "access", "refresh", "api",
    "private", "secret", "token", "pwd",
)  # fmt: skip
_ODD = "\u017f\u0130\u0131"


def hide_named(text: str) -> str:
    """The same text without the values that names give away, and without passwords in addresses."""
    without = _without_values(text)
    return _USER.sub(rf"\1:{HIDDEN}@", without) if "://" in without else without


def _without_values(text: str) -> str:
    """Looks only where a telling name may begin: the words of a whole run are many, and names are few."""
    if any(letter in text for letter in _ODD):
        return _NAMED.sub(rf"\1\2\3{HIDDEN}", text)
    lowered, parts, end = text.lower(), list[str](), 0
    for start in sorted({place for word in _STARTS for place in _places(word, lowered)}):
        found = _NAMED.match(text, start) if start >= end else None
        if found is not None:
            parts += (text[end:start], found[1], found[2], found[3] or "", HIDDEN)
            end = found.end()
    return "".join((*parts, text[end:]))


def _places(word: str, text: str) -> Iterator[int]:
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + 1)
