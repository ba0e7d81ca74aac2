"""Tokens of keys: `tw_`, a prefix by which the key is found, `_`, and 256 random bits."""

from __future__ import annotations

import base64
from collections.abc import Callable

START = "tw"
PREFIX_LENGTH = 12
LONGEST = 200

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


def new_token(random: Callable[[int], bytes]) -> tuple[str, str]:
    """A prefix nobody has, and the whole token."""
    prefix = "".join(_LETTERS[byte % 32] for byte in random(PREFIX_LENGTH))
    return prefix, f"{START}_{prefix}_{base64.urlsafe_b64encode(random(32)).decode().rstrip('=')}"


def prefix_of(token: str) -> str:
    """The part of a token by which its key is found; empty for what cannot be a token."""
    if len(token) > LONGEST or not token.isascii():
        return ""
    start, _, rest = token.partition("_")
    prefix, _, secret = rest.partition("_")
    well_formed = start == START and bool(secret) and len(prefix) == PREFIX_LENGTH
    return prefix if well_formed and set(prefix) <= set(_LETTERS) else ""
