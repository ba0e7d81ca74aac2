"""Stored browser sessions: who signed in, with which browser, and when the session was last used."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.ports import StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE

SESSION = "session"
SESSION_USE = "session_use"

# A session ends when it was not used for this long, and at the latest after its maximum.
MAX_IDLE = timedelta(hours=12)
MAX_LIFETIME = timedelta(days=30)


class Identity(Struct, frozen=True, kw_only=True):
    """A person whom an OpenID Connect provider has named: scopes and namespaces come from the groups."""

    actor: str
    scopes: tuple[str, ...]
    namespaces: tuple[str, ...] = ()


class BrowserSession(Struct, frozen=True, kw_only=True):
    """A session of a key, or of a person with an identity; `key` tells whose sessions belong together."""

    id: str
    key: str
    created_at: datetime
    client: str = ""
    identity: Identity | None = None
    ended: bool = False
    last_used_at: datetime | None = None

    @property
    def expires_at(self) -> datetime:
        """When the session ends if it is not used again."""
        return min((self.last_used_at or self.created_at) + MAX_IDLE, self.created_at + MAX_LIFETIME)

    def is_active(self, *, now: datetime) -> bool:
        """Whether the session was neither ended nor has expired."""
        return not self.ended and now < self.expires_at


def put_session(tx: Transaction, session: BrowserSession, *, now: datetime) -> None:
    """Write a session, and forget the oldest that have expired."""
    body = msgspec.json.encode(replace(session, last_used_at=None))
    row = StoredObject(
        kind=SESSION, namespace=GLOBAL_NAMESPACE, name=session.id, body=body, at=session.created_at
    )
    tx.put_objects([row])
    tx.prune_objects(SESSION, namespace=GLOBAL_NAMESPACE, older_than=now - MAX_LIFETIME)
    tx.prune_objects(SESSION_USE, namespace=GLOBAL_NAMESPACE, older_than=now - MAX_LIFETIME)


def read_sessions(tx: Transaction, ids: list[str] | None = None) -> list[BrowserSession]:
    """Some or all sessions with their last use, by id."""
    rows = tx.get_objects(SESSION, namespace=GLOBAL_NAMESPACE, names=ids)
    uses = {row.name: row.at for row in tx.get_objects(SESSION_USE, namespace=GLOBAL_NAMESPACE, names=ids)}
    found = (msgspec.json.decode(row.body, type=BrowserSession) for row in rows)
    return [replace(session, last_used_at=uses.get(session.id)) for session in found]
