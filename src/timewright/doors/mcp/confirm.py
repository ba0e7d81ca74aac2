"""A word that only whoever has looked can know: made from the request, good for a few minutes."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from timewright.errors import NotAllowed
from timewright.operations import Context

GOOD_FOR = timedelta(minutes=5)
_ASIDE = frozenset({"dry_run", "confirm", "reason"})


class Confirmations:
    """Gives a word for a rehearsed request, and knows it again.

    Whoever signs alike knows the words of the others too, so that an agent may look at one instance and
    confirm at the next.
    """

    def __init__(self, sign: Callable[[str], str] | None = None) -> None:
        self._sign = sign or _signing(secrets.token_bytes(32))

    def word(self, operation: str, request: Mapping[str, Any], *, actor: str, now: datetime) -> str:
        """The word for this request by this actor at this time."""
        return self._made(operation, request, actor=actor, turn=_turn(now))

    def demand(self, operation: str, request: Mapping[str, Any], *, actor: str, now: datetime) -> None:
        """Refuse a request that comes without the word, or with that of another."""
        given = str(request.get("confirm", ""))
        turns = (_turn(now), _turn(now) - 1)
        good = [self._made(operation, request, actor=actor, turn=turn) for turn in turns]
        if not any(hmac.compare_digest(given.encode(), word.encode()) for word in good):
            raise NotAllowed(
                f"{operation} changes what cannot be taken back, and was not confirmed",
                field="confirm",
                value=given or None,
                rule="the word that the same request with dry_run gave, within five minutes",
                fix="the same call with dry_run: true, then again with confirm",
            )

    def _made(self, operation: str, request: Mapping[str, Any], *, actor: str, turn: int) -> str:
        asked = {name: value for name, value in request.items() if name not in _ASIDE}
        text = json.dumps([operation, actor, turn, asked], sort_keys=True, default=str)
        return self._sign(f"confirm\n{text}")[:16]


def common_words(context: Context) -> Confirmations | None:
    """The words of every instance with the same secret key: over HTTP the next request may reach another."""
    keeper = context.doorkeeper
    return Confirmations(keeper.keyring.current.digest) if keeper is not None else None


def _signing(secret: bytes) -> Callable[[str], str]:
    return lambda text: hmac.new(secret, text.encode(), "sha256").hexdigest()


def _turn(now: datetime) -> int:
    return int(now.timestamp() // GOOD_FOR.total_seconds())
