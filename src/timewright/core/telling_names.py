"""Hides what follows a telling name in a text for people: `password=…`, `Authorization: Bearer …`."""

from __future__ import annotations

import re

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


def hide_named(text: str) -> str:
    """The same text without the values that names give away, and without passwords in addresses."""
    return _USER.sub(rf"\1:{HIDDEN}@", _NAMED.sub(rf"\1\2\3{HIDDEN}", text))
