"""Redacts secrets in text: values after `password=`, `Authorization: Bearer`, and passwords in store URLs."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode, urlsplit

REDACTED = "…"

# Keys that are always followed by a secret.
_SENSITIVE = (
    "proxy-authorization|authorization|set-cookie|cookie|password|passwd|client[-_]secret|access[-_]token"
    "|refresh[-_]token|api[-_]?key|private[-_]key|(?:private|vault|auth|security|session)[-_]token"
)
# Ambiguous words: a key only if an equals sign or a quote follows.
_AMBIGUOUS = "secret|token|pwd"
_KEY_VALUE = re.compile(
    rf"(?i)(?<![a-z0-9])((?:{_SENSITIVE})[\"']?\s*[:=]\s*|(?:{_AMBIGUOUS})(?:[\"']\s*:\s*|[\"']?\s*=\s*))"
    r"([\"']?)(?!(?:bearer |basic |digest )?secret://)((?:bearer|basic|digest) )?[^\s\"'&,;]+"
)
_URL_PASSWORD = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,30}://[^\s/@:]{0,255}):[^\s/@]{1,1000}@")

# How these keys begin, and letters that match them case-insensitively but do not lower to ASCII.
_KEY_STARTS = (
    "proxy-auth", "auth", "set-cookie", "cookie", "passw", "client", "access", "refresh", "api",
    "private", "vault", "security", "session", "secret", "token", "pwd",
)  # fmt: skip
_CASE_FOLDING_LETTERS = "\u017f\u0130\u0131"


def redact_text(text: str) -> str:
    """Return the text with the values of sensitive keys and the passwords in URLs redacted."""
    lowered = text.lower()
    # The expression is slow, and most outputs have none of these words.
    if any(word in lowered for word in _KEY_STARTS) or any(
        letter in text for letter in _CASE_FOLDING_LETTERS
    ):
        text = _KEY_VALUE.sub(rf"\1\2\3{REDACTED}", text)
    return _URL_PASSWORD.sub(rf"\1:{REDACTED}@", text) if "://" in text else text


def redact_store_url(url: str) -> str:
    """Return a store URL without its password and its options; a path is unchanged.

    Options that say where the database is are kept, so that a printed command can be typed.
    """
    if "://" not in url:
        return url
    split = urlsplit(url)
    host = split.netloc.rpartition("@")[2]
    user = f"{split.username}@" if split.username else ""
    kept = [(name, value) for name, value in parse_qsl(split.query) if name in ("host", "port", "user")]
    return f"{split.scheme}://{user}{host}{split.path}{'?' if kept else ''}{urlencode(kept)}"
