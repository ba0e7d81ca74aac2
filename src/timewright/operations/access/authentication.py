"""Authentication: the caller of a token or a browser session, the context it may act in, and its sessions."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.access.credentials import (
    MAX_LIFETIME,
    MAX_TOKEN_CHARS,
    RUN_TOKEN_PREFIX,
    SESSION_USE,
    BrowserSession,
    Identity,
    Key,
    find_key,
    put_session,
    read_keys,
    read_run_token,
    read_sessions,
    record_uses,
    token_prefix,
)
from timewright.access.keyring import check_keyring
from timewright.core.input.input_errors import check_name
from timewright.errors import Forbidden, NotAllowed, Unauthorized
from timewright.ledger.records.namespaces import Namespace, read_namespace
from timewright.ledger.replan import Actor
from timewright.operations.access.auth_cache import AuthCache, CachedCaller
from timewright.operations.access.callers import (
    ALL_SCOPES,
    LOCAL_CALLER,
    ROLES,
    RUN_ORIGIN,
    Caller,
    Role,
    Scope,
    require_scope,
)
from timewright.operations.context import OperationContext, check_may_block
from timewright.operations.registry import OperationRequest, WriteRequest, operations
from timewright.ports import Transaction

__all__ = [
    "ALL_SCOPES",
    "LOCAL_CALLER",
    "MAX_LIFETIME",
    "ROLES",
    "Caller",
    "EndSession",
    "Identity",
    "Role",
    "Scope",
    "authenticate",
    "authenticate_session",
    "context_for",
    "end_session",
    "list_sessions",
    "require_auth_cache",
    "require_scope",
    "resolve_token",
    "save_key_uses",
    "start_session",
    "unauthorized_error",
]

MAX_CLIENT_CHARS = 200

SessionId = Annotated[str, Meta(min_length=1, max_length=64)]


def authenticate(context: OperationContext, token: str) -> Caller:
    """Return the caller of a token; unknown, wrong, expired and revoked tokens raise the same error."""
    return resolve_token(context, token).caller


def resolve_token(context: OperationContext, token: str, *, at: float | None = None) -> CachedCaller:
    """Return the caller of a token with its quotas; with `at`, a monotonic time, it is cached for 2 s."""
    auth = require_auth_cache(context)
    known = auth.get_caller(token, at=at) if at is not None else None
    if known is None:
        generation = auth.generation
        known = _read_caller(context, auth, token)
        if at is not None:
            auth.put_caller(token, known, at=at, generation=generation)
    return known


def _read_caller(context: OperationContext, auth: AuthCache, token: str) -> CachedCaller:
    """Verify a token; reads the store at most once."""
    if auth.service_tokens is not None and token.count(".") == 2:
        check_may_block(context)
        now = context.now()
        service = auth.service_tokens.authenticate(token, now=now)
        if service is None:
            raise unauthorized_error()
        # A service token is verified without the store, so it is not cached.
        return CachedCaller(caller=service, expires_at=now, now=now)
    now = context.now()
    if token.startswith(RUN_TOKEN_PREFIX):
        # Not cached: it ends with the attempt.
        run_caller = _caller_of_run(context, auth, token, now=now)
        return CachedCaller(caller=run_caller, expires_at=now, now=now)
    prefix = token_prefix(token)

    def work(tx: Transaction) -> tuple[Key | None, Namespace | None]:
        check_keyring(tx, auth.keyring)
        key = find_key(tx, prefix)
        quotas = read_namespace(tx, _default_namespace(context, caller_of(key))) if key is not None else None
        return key, quotas

    key, quotas = context.store.read(work)
    # Compare even for an unknown key, so that the timing does not reveal which keys exist.
    mark, digest = (key.secret_key_id, key.digest) if key is not None else ("", "")
    valid = auth.keyring.verify_token(token[:MAX_TOKEN_CHARS], key_id=mark, digest=digest)
    if key is None or not valid or not key.is_active(now=now):
        raise unauthorized_error()
    auth.record_use(prefix, now=now)
    return CachedCaller(caller=caller_of(key), quotas=quotas, expires_at=key.expires_at, now=now)


def _caller_of_run(context: OperationContext, auth: AuthCache, token: str, *, now: datetime) -> Caller:
    """Return the run that a token belongs to, as a caller that may change its own schedule."""
    claims = read_run_token(auth.keyring, token)
    run = None
    if claims is not None:
        run = context.store.read(lambda tx: tx.get_runs([claims.run_id])).get(claims.run_id)
    if claims is None or run is None or not claims.is_valid(run, now=now) or not run.schedule_id:
        raise unauthorized_error()
    return Caller(
        actor=f"run {run.id}",
        origin=RUN_ORIGIN,
        scopes=frozenset({"write"}),
        namespaces=(run.namespace,),
        key=f"run {run.id}",
        own_schedule=run.schedule_id,
    )


def authenticate_session(context: OperationContext, session_id: str) -> Caller:
    """Return the caller of an active session: its key, or the identity that a provider has named."""
    now = context.now()

    def work(tx: Transaction) -> tuple[BrowserSession | None, Key | None]:
        session = next(iter(read_sessions(tx, [session_id])), None)
        by_key = session is not None and session.identity is None
        return session, find_key(tx, session.key) if session is not None and by_key else None

    session, key = context.store.read(work)
    if session is None or not session.is_active(now=now):
        raise unauthorized_error()
    auth = require_auth_cache(context)
    auth.record_use(f"{SESSION_USE}:{session.id}", now=now)
    if session.identity is not None:
        return Caller(
            actor=session.identity.actor,
            scopes=frozenset(scope for scope in ALL_SCOPES if scope in session.identity.scopes),
            namespaces=session.identity.namespaces,
            key=session.key,
        )
    if key is None or not key.is_active(now=now):
        raise unauthorized_error()
    auth.record_use(key.prefix, now=now)
    return caller_of(key)


def context_for(context: OperationContext, caller: Caller, namespace: str | None = None) -> OperationContext:
    """Return the context of this caller; a namespace that the caller may not access raises Forbidden."""
    chosen = (
        _default_namespace(context, caller)
        if namespace is None
        else check_name(namespace, field="namespace", max_length=64)
    )
    if not caller.can_access(chosen):
        raise Forbidden(
            f"this key has no access to namespace {chosen!r}",
            field="namespace",
            value=chosen,
            rule=f"one of: {', '.join(caller.namespaces)}",
            fix=f"namespace {caller.namespaces[0]}",
        )
    by = Actor(name=caller.actor, origin=caller.origin)
    return replace(context, caller=caller, by=by, namespace=chosen)


def caller_of(key: Key) -> Caller:
    """Return the caller that a key stands for."""
    return Caller(
        actor=key.name,
        origin=key.origin,
        scopes=frozenset(scope for scope in ALL_SCOPES if scope in key.scopes),
        namespaces=key.namespaces,
        key=key.prefix,
        local=key.local,
        zone=key.zone,
    )


def save_key_uses(context: OperationContext) -> int:
    """Save the unsaved last-used times of keys and sessions; interfaces call this about once a minute."""
    if context.auth_cache is None:
        return 0
    uses = context.auth_cache.take_unsaved_uses(now=context.now())
    prefix = f"{SESSION_USE}:"
    sessions = {name.removeprefix(prefix): at for name, at in uses.items() if name.startswith(prefix)}
    keys = {name: at for name, at in uses.items() if not name.startswith(prefix)}

    def work(tx: Transaction) -> None:
        record_uses(tx, keys)
        record_uses(tx, sessions, kind=SESSION_USE)

    if uses:
        context.store.write(work)
    return len(uses)


def require_auth_cache(context: OperationContext) -> AuthCache:
    """Return the AuthCache of this context; raises NotAllowed if there is none."""
    if context.auth_cache is None:
        raise NotAllowed(
            "this context has no keyring",
            field="secret_key",
            rule="API keys and secrets need the installation's secret key",
            fix="open the store with timewright.wiring, which finds it",
        )
    return context.auth_cache


def unauthorized_error() -> Unauthorized:
    """Build the one error for every invalid token, so that it does not tell what is wrong."""
    return Unauthorized(
        "API key missing or invalid",
        field="authorization",
        rule="Authorization: Bearer tw_… with an active key",
        fix="on the server: timewright key create NAME --role viewer",
    )


def _default_namespace(context: OperationContext, caller: Caller) -> str:
    return context.namespace if caller.can_access(context.namespace) else caller.namespaces[0]


class ListSessions(OperationRequest, frozen=True, kw_only=True):
    """List your own sessions; `all` lists those of everybody, for administrators."""

    all: bool = False


class EndSession(WriteRequest, frozen=True, kw_only=True):
    """Which session to end; administrators may end any."""

    session: SessionId


class SessionSummary(Struct, frozen=True, kw_only=True):
    """A session: whose it is, its browser, and until when it lasts if it is not used again."""

    id: str
    actor: str
    client: str
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime


class SessionList(Struct, frozen=True, kw_only=True):
    """The sessions that have not ended, the one used last first."""

    sessions: tuple[SessionSummary, ...]


def start_session(
    context: OperationContext, key: str, *, client: str, now: datetime, identity: Identity | None = None
) -> str:
    """Store a session of a key, or of a person with an identity, and return its id."""
    session = BrowserSession(
        id=secrets.token_urlsafe(16),
        key=key,
        created_at=now,
        client=client[:MAX_CLIENT_CHARS],
        identity=identity,
    )
    context.store.write(lambda tx: put_session(tx, session, now=now))
    return session.id


@operations.read("session list", scope="read", examples=({}, {"all": True}))
def list_sessions(context: OperationContext, tx: Transaction, request: ListSessions) -> SessionList:
    """List the browser sessions that have not ended."""
    now = context.now()
    shown = [one for one in _visible(context, tx, all_keys=request.all) if one.is_active(now=now)]
    names = {key.prefix: key.name for key in read_keys(tx)}
    rows = [_summarize(one, names.get(one.key, one.key)) for one in shown]
    return SessionList(sessions=tuple(sorted(rows, key=lambda row: row.last_used_at, reverse=True)))


@operations.write("session end", scope="trigger", examples=({"session": "mUQZ8Nn2yq0H3cV1x9sKfA"},))
def end_session(context: OperationContext, tx: Transaction, request: EndSession) -> SessionList:
    """End a browser session at once, in every process and for every copy of its cookie.

    A session that has ended already, or that is not yours, does not change.
    """
    now = context.now()
    found = next((one for one in _visible(context, tx, all_keys=True) if one.id == request.session), None)
    if found is not None and not found.ended:
        put_session(tx, replace(found, ended=True), now=now)
        context.audit(tx, "session.end", found.id)
    return list_sessions(context, ListSessions())


def _visible(context: OperationContext, tx: Transaction, *, all_keys: bool) -> list[BrowserSession]:
    """The sessions of the caller, or all if an administrator of every namespace asks for them."""
    caller = context.caller
    sees_all = all_keys and "admin" in caller.scopes and not caller.namespaces
    return [one for one in read_sessions(tx) if sees_all or one.key == caller.key]


def _summarize(session: BrowserSession, key_name: str) -> SessionSummary:
    return SessionSummary(
        id=session.id,
        actor=session.identity.actor if session.identity is not None else key_name,
        client=session.client,
        created_at=session.created_at,
        last_used_at=session.last_used_at or session.created_at,
        expires_at=session.expires_at,
    )
