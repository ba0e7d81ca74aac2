"""Browser sessions: start, list and end."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.access.credentials import (
    MAX_LIFETIME,
    BrowserSession,
    Identity,
    put_session,
    read_keys,
    read_sessions,
)
from timewright.operations.context import OperationContext
from timewright.operations.registry import OperationRequest, WriteRequest, operations
from timewright.ports import Transaction

__all__ = ["MAX_LIFETIME", "EndSession", "Identity", "end_session", "list_sessions", "start_session"]

MAX_CLIENT_CHARS = 200

SessionId = Annotated[str, Meta(min_length=1, max_length=64)]


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
