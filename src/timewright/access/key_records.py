"""Stored API keys: found by their prefix, without the token itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import Struct

from timewright.ports import StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE

KEY = "key"
KEY_USE = "key_use"
ENDED_SESSION = "ended_session"


class Key(Struct, frozen=True, kw_only=True):
    """The stored part of an API key: its owner, its permissions, and the digest of its token.

    For a local key, `token_file` says on which machine and in which file its token is.
    """

    prefix: str
    name: str
    secret_key_id: str
    digest: str
    scopes: tuple[str, ...]
    role: str = ""
    namespaces: tuple[str, ...] = ()
    origin: str = "human"
    zone: str = ""
    local: bool = False
    token_file: str = ""
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revision: int = 1

    def is_active(self, *, now: datetime) -> bool:
        """Whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def find_key(tx: Transaction, prefix: str) -> Key | None:
    """Find a key by the public part of its token."""
    rows = tx.get_objects(KEY, namespace=GLOBAL_NAMESPACE, names=[prefix])
    return _read(rows[0]) if rows else None


def read_keys(tx: Transaction) -> list[Key]:
    """All keys, by prefix."""
    return [_read(row) for row in tx.get_objects(KEY, namespace=GLOBAL_NAMESPACE)]


def put_key(tx: Transaction, key: Key, *, replaces: int, now: datetime) -> None:
    """Write a key; raises Conflict if the revision is stale."""
    body = msgspec.json.encode(key)
    row = StoredObject(
        kind=KEY, namespace=GLOBAL_NAMESPACE, name=key.prefix, revision=key.revision, body=body, at=now
    )
    tx.put_objects([row], replaces={key.prefix: replaces})


def last_uses(tx: Transaction) -> dict[str, datetime]:
    """When each key was last used, as far as it was recorded."""
    return {row.name: row.at for row in tx.get_objects(KEY_USE, namespace=GLOBAL_NAMESPACE)}


def record_uses(tx: Transaction, uses: Mapping[str, datetime]) -> None:
    """Record when keys were last used."""
    tx.put_objects(
        [
            StoredObject(kind=KEY_USE, namespace=GLOBAL_NAMESPACE, name=prefix, body=b"{}", at=at)
            for prefix, at in uses.items()
        ]
    )


def is_session_ended(tx: Transaction, session: str) -> bool:
    """Whether a browser session was ended before its expiry."""
    return bool(tx.get_objects(ENDED_SESSION, namespace=GLOBAL_NAMESPACE, names=[session]))


def record_ended_session(tx: Transaction, session: str, *, until: datetime, now: datetime) -> None:
    """Record the end of a session until it would have expired, and forget those that have expired."""
    row = StoredObject(kind=ENDED_SESSION, namespace=GLOBAL_NAMESPACE, name=session, body=b"{}", at=until)
    tx.put_objects([row])
    tx.prune_objects(ENDED_SESSION, namespace=GLOBAL_NAMESPACE, older_than=now)


def _read(row: StoredObject) -> Key:
    return msgspec.json.decode(row.body, type=Key)
