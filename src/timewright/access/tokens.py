"""Tokens of API keys: `tw_`, the prefix by which the key is found, `_`, and 256 random bits."""

from __future__ import annotations

import base64
from collections.abc import Callable

TOKEN_SCHEME = "tw"  # noqa: S105 - no secret
PREFIX_LENGTH = 12
MAX_TOKEN_CHARS = 200

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


def new_token(random: Callable[[int], bytes]) -> tuple[str, str]:
    """A new random prefix, and the token that contains it."""
    prefix = "".join(_LETTERS[byte % 32] for byte in random(PREFIX_LENGTH))
    return prefix, f"{TOKEN_SCHEME}_{prefix}_{base64.urlsafe_b64encode(random(32)).decode().rstrip('=')}"


def token_prefix(token: str) -> str:
    """The prefix of a token, by which its key is found; empty if it is not a token."""
    if len(token) > MAX_TOKEN_CHARS or not token.isascii():
        return ""
    start, _, rest = token.partition("_")
    prefix, _, secret = rest.partition("_")
    well_formed = start == TOKEN_SCHEME and bool(secret) and len(prefix) == PREFIX_LENGTH
    return prefix if well_formed and set(prefix) <= set(_LETTERS) else ""
