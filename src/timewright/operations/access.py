"""Lets callers in: a token becomes a caller, a caller a context that is limited to what it may see."""

from __future__ import annotations

from msgspec.structs import replace

from timewright.core.names import check_name
from timewright.errors import Forbidden, NotAllowed, Unauthorized
from timewright.ledger.key_shelf import Key, find_key, put_uses
from timewright.ledger.keyring import check
from timewright.ledger.namespaces import Namespace, namespace_of
from timewright.ledger.replan import By
from timewright.ledger.tokens import LONGEST, prefix_of
from timewright.operations.callers import EVERYTHING, LOCAL, ROLES, Caller, Role, Scope, demand
from timewright.operations.context import Context
from timewright.operations.doorkeeper import Doorkeeper, Known
from timewright.ports import Transaction

__all__ = [
    "EVERYTHING",
    "LOCAL",
    "ROLES",
    "Caller",
    "Role",
    "Scope",
    "acting",
    "authenticate",
    "demand",
    "doorkeeper_of",
    "keep_uses",
    "look_up",
    "recall",
    "unauthorized",
]


def authenticate(context: Context, token: str) -> Caller:
    """Who a token belongs to; one that is unknown, wrong, over or revoked is refused in the same words."""
    return look_up(context, token).caller


def look_up(context: Context, token: str, *, at: float = 0.0) -> Known:
    """The same, with all that is needed to let it in again soon: one look at the store for both."""
    keeper = doorkeeper_of(context)
    now = context.now()
    if keeper.services is not None and token.count(".") == 2:
        service = keeper.services.caller(token, now=now)
        if service is None:
            raise unauthorized()
        # Such a token is judged without the store, and need not be remembered.
        return Known(caller=service, terms=None, expires_at=now, now=now, at=at)
    prefix = prefix_of(token)

    def work(tx: Transaction) -> tuple[Key | None, Namespace | None]:
        check(tx, keeper.keyring)
        key = find_key(tx, prefix)
        terms = namespace_of(tx, _home(context, caller_of(key))) if key is not None else None
        return key, terms

    key, terms = context.store.read(work)
    # An unknown key costs the same work as a wrong one.
    mark, digest = (key.mark, key.digest) if key is not None else ("", "")
    fits = keeper.keyring.opens(token[:LONGEST], mark=mark, digest=digest)
    if key is None or not fits or not key.opens(now=now):
        raise unauthorized()
    keeper.used(prefix, now=now)
    return Known(caller=caller_of(key), terms=terms, expires_at=key.expires_at, now=now, at=at)


def recall(context: Context, prefix: str) -> Caller:
    """Whom a key stands for that was shown before, for as long as it still opens."""
    key = context.store.read(lambda tx: find_key(tx, prefix))
    if key is None or not key.opens(now=context.now()):
        raise unauthorized()
    doorkeeper_of(context).used(prefix, now=context.now())
    return caller_of(key)


def acting(context: Context, caller: Caller, namespace: str | None = None) -> Context:
    """The context as this caller sees it; a namespace that is not the caller's is refused."""
    chosen = (
        _home(context, caller) if namespace is None else check_name(namespace, field="namespace", longest=64)
    )
    if not caller.may_enter(chosen):
        raise Forbidden(
            f"this key does not open namespace {chosen!r}",
            field="namespace",
            value=chosen,
            rule=f"one of: {', '.join(caller.namespaces)}",
            fix=f"namespace {caller.namespaces[0]}",
        )
    by = By(actor=caller.actor, origin=caller.origin)
    return replace(context, caller=caller, by=by, namespace=chosen)


def caller_of(key: Key) -> Caller:
    """Whom a key stands for."""
    return Caller(
        actor=key.name,
        origin=key.origin,
        scopes=frozenset(scope for scope in EVERYTHING if scope in key.scopes),
        namespaces=key.namespaces,
        key=key.prefix,
        local=key.local,
    )


def keep_uses(context: Context) -> int:
    """Write down the last uses of keys that are not written yet; for a door to call now and then."""
    if context.doorkeeper is None:
        return 0
    uses = context.doorkeeper.take_uses(now=context.now())
    if uses:
        context.store.write(lambda tx: put_uses(tx, uses))
    return len(uses)


def doorkeeper_of(context: Context) -> Doorkeeper:
    """Who keeps the door here; without one nobody comes in by a key."""
    if context.doorkeeper is None:
        raise NotAllowed(
            "this context has no keyring",
            field="secret_key",
            rule="keys and secrets need the secret key of the installation",
            fix="open the store with timewright.assembly, which finds it",
        )
    return context.doorkeeper


def unauthorized() -> Unauthorized:
    """The one refusal for every token that opens nothing."""
    return Unauthorized(
        "no key, or not one that opens anything",
        field="authorization",
        rule="Authorization: Bearer tw_… with a key that is in force",
        fix="key create makes one",
    )


def _home(context: Context, caller: Caller) -> str:
    return context.namespace if caller.may_enter(context.namespace) else caller.namespaces[0]
