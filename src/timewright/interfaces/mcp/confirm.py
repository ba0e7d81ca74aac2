"""Confirmation tokens: a destructive call needs the token that the same call with dry_run returned."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from timewright.errors import NotAllowed
from timewright.operations import OperationContext
from timewright.operations.idempotency import claim_once

VALID_FOR = timedelta(minutes=5)
_NOT_SIGNED = frozenset({"dry_run", "confirm", "reason"})


class NotConfirmed(NotAllowed):
    """A destructive call has no valid confirmation token."""


class Confirmations:
    """Creates and checks confirmation tokens.

    Instances that share the signing key accept each other's tokens, so an agent may do the dry run on one
    instance and confirm on another. A token has a random part, so each dry run gives another one.
    """

    def __init__(self, sign: Callable[[str], str] | None = None) -> None:
        self._sign = sign or _signer(secrets.token_bytes(32))

    def token(self, operation: str, request: Mapping[str, Any], *, actor: str, now: datetime) -> str:
        """Return the token of a request of this actor at this time."""
        nonce = secrets.token_hex(4)
        return nonce + self._sign_request(operation, request, actor=actor, period=_period(now), nonce=nonce)

    def check(self, operation: str, request: Mapping[str, Any], *, actor: str, now: datetime) -> None:
        """Raise if the request has no valid token."""
        given = str(request.get("confirm", ""))
        nonce = given[:8]
        valid = [
            nonce + self._sign_request(operation, request, actor=actor, period=period, nonce=nonce)
            for period in (_period(now), _period(now) - 1)
        ]
        if not any(hmac.compare_digest(given.encode(), token.encode()) for token in valid):
            raise _not_confirmed(f"{operation} cannot be undone and needs a confirmation", given)

    def use(self, context: OperationContext, operation: str, request: Mapping[str, Any]) -> None:
        """Raise if the token of a checked request was used before, on any instance."""
        given = str(request.get("confirm", ""))
        if not claim_once(context, f"confirm-{given}"):
            raise _not_confirmed(f"the confirmation of {operation} was used already", given)

    def _sign_request(
        self, operation: str, request: Mapping[str, Any], *, actor: str, period: int, nonce: str
    ) -> str:
        fields = {name: value for name, value in request.items() if name not in _NOT_SIGNED}
        text = json.dumps([operation, actor, period, nonce, fields], sort_keys=True, default=str)
        return self._sign(f"confirm\n{text}")[:16]


def _not_confirmed(message: str, given: str) -> NotConfirmed:
    return NotConfirmed(
        message,
        field="confirm",
        value=given or None,
        rule="a token of the same request with dry_run, used once, within five minutes",
        fix="call it with dry_run: true, then again with confirm",
    )


def shared_confirmations(context: OperationContext) -> Confirmations | None:
    """Return confirmations signed with the secret key that all instances share; used over HTTP."""
    cache = context.auth_cache
    return Confirmations(cache.keyring.current.digest) if cache is not None else None


def _signer(secret: bytes) -> Callable[[str], str]:
    return lambda text: hmac.new(secret, text.encode(), "sha256").hexdigest()


def _period(now: datetime) -> int:
    return int(now.timestamp() // VALID_FOR.total_seconds())
