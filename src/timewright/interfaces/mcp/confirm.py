"""Confirmation tokens: a destructive call needs the token that the same call with dry_run returned."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from timewright.errors import NotAllowed, TimewrightError
from timewright.operations import OperationContext
from timewright.operations.access.authentication import require_auth_cache
from timewright.operations.idempotency import claim_once

VALID_FOR = timedelta(minutes=5)
_NOT_SIGNED = frozenset({"dry_run", "confirm", "reason"})
_NONCE_CHARS = 8
_MADE_CHARS = 16
_TOKEN_CHARS = 40


class NotConfirmed(NotAllowed):
    """A destructive call has no valid confirmation token."""


class Confirmations:
    """Creates and checks confirmation tokens.

    Processes that share the signing key accept each other's tokens, so an agent may do the dry run in one
    process and confirm in another. A token is a random part and the second it was made at, the signature of
    both, and the signature of its request, so that a refusal can say what is wrong with it.
    """

    def __init__(self, sign: Callable[[str], str] | None = None) -> None:
        self._sign = sign or _signer(secrets.token_bytes(32))
        self._used: dict[str, object] = {}

    def token(self, operation: str, request: Mapping[str, Any], *, actor: str, now: datetime) -> str:
        """Return the token of a request of this actor at this time."""
        made = f"{secrets.token_hex(4)}{int(now.timestamp()):08x}"
        return made + self._sign_made(made) + self._sign_request(operation, request, actor=actor, made=made)

    def check(self, operation: str, request: Mapping[str, Any], *, actor: str, now: datetime) -> None:
        """Raise if the request has no valid token."""
        given = str(request.get("confirm") or "")
        if not given:
            raise _not_confirmed(f"{operation} cannot be undone and needs a confirmation", given)
        made = given[:_MADE_CHARS]
        known = made + self._sign_made(made)
        if len(given) != _TOKEN_CHARS or not _is_same(given[: len(known)], known):
            raise _not_confirmed(
                f"the confirmation of {operation} is unknown: it is no token of this server,"
                " nor of one with the same secret key",
                given,
            )
        if int(now.timestamp()) - int(made[_NONCE_CHARS:], 16) > VALID_FOR.total_seconds():
            raise _not_confirmed(f"the confirmation of {operation} has expired", given)
        token = known + self._sign_request(operation, request, actor=actor, made=made)
        if not _is_same(given, token):
            raise _not_confirmed(
                f"the confirmation is not of this call of {operation}: the tool, the arguments or the caller"
                " were others",
                given,
            )

    def use(self, context: OperationContext, operation: str, request: Mapping[str, Any]) -> None:
        """Raise if the token of a checked request was used before, on any instance."""
        given = str(request.get("confirm", ""))
        # Without a store here, because a server has it, no other process accepts the token.
        is_first = claim_once(context, f"confirm-{given}") if context.remote is None else self._claim(given)
        if not is_first:
            raise _not_confirmed(f"the confirmation of {operation} was used already", given)

    def _claim(self, given: str) -> bool:
        first = object()
        return self._used.setdefault(given, first) is first

    def _sign_made(self, made: str) -> str:
        return self._sign(f"confirm made\n{made}")[:8]

    def _sign_request(self, operation: str, request: Mapping[str, Any], *, actor: str, made: str) -> str:
        fields = {name: value for name, value in request.items() if name not in _NOT_SIGNED}
        text = json.dumps([operation, actor, made, fields], sort_keys=True, default=str)
        return self._sign(f"confirm\n{text}")[:16]


def _is_same(given: str, expected: str) -> bool:
    return hmac.compare_digest(
        given.encode("utf-8", "surrogatepass"), expected.encode("utf-8", "surrogatepass")
    )


def _not_confirmed(message: str, given: str) -> NotConfirmed:
    return NotConfirmed(
        message,
        field="confirm",
        value=given or None,
        rule="a token of the same request with dry_run, used once, within five minutes",
        fix="call it with dry_run: true, then again with confirm",
    )


def shared_confirmations(context: OperationContext) -> Confirmations | None:
    """Return confirmations signed with the secret key that all processes of a store share, if it has one.

    A client may start one server for the dry run and another for the call. A key that cannot be read, or
    written where there is none, does not keep a server from confirming its own tokens.
    """
    try:
        return Confirmations(require_auth_cache(context).keyring.current.digest)
    except TimewrightError:
        return None


def _signer(secret: bytes) -> Callable[[str], str]:
    return lambda text: hmac.new(secret, text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()
