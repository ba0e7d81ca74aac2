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

VALID_FOR = timedelta(minutes=5)
_NOT_SIGNED = frozenset({"dry_run", "confirm", "reason"})


class Confirmations:
    """Creates and checks confirmation tokens.

    Instances that share the signing key accept each other's tokens, so an agent may do the dry run on one
    instance and confirm on another.
    """

    def __init__(self, sign: Callable[[str], str] | None = None) -> None:
        self._sign = sign or _signer(secrets.token_bytes(32))

    def token(self, operation: str, request: Mapping[str, Any], *, actor: str, now: datetime) -> str:
        """Return the token of a request of this actor at this time."""
        return self._sign_request(operation, request, actor=actor, period=_period(now))

    def check(self, operation: str, request: Mapping[str, Any], *, actor: str, now: datetime) -> None:
        """Raise if the request has no valid token."""
        given = str(request.get("confirm", ""))
        periods = (_period(now), _period(now) - 1)
        valid = [self._sign_request(operation, request, actor=actor, period=period) for period in periods]
        if not any(hmac.compare_digest(given.encode(), token.encode()) for token in valid):
            raise NotAllowed(
                f"{operation} cannot be undone and needs a confirmation",
                field="confirm",
                value=given or None,
                rule="the token that the same request with dry_run returned within the last five minutes",
                fix="call it with dry_run: true, then again with confirm",
            )

    def _sign_request(self, operation: str, request: Mapping[str, Any], *, actor: str, period: int) -> str:
        fields = {name: value for name, value in request.items() if name not in _NOT_SIGNED}
        text = json.dumps([operation, actor, period, fields], sort_keys=True, default=str)
        return self._sign(f"confirm\n{text}")[:16]


def shared_confirmations(context: OperationContext) -> Confirmations | None:
    """Return confirmations signed with the secret key that all instances share; used over HTTP."""
    cache = context.auth_cache
    return Confirmations(cache.keyring.current.digest) if cache is not None else None


def _signer(secret: bytes) -> Callable[[str], str]:
    return lambda text: hmac.new(secret, text.encode(), "sha256").hexdigest()


def _period(now: datetime) -> int:
    return int(now.timestamp() // VALID_FOR.total_seconds())
