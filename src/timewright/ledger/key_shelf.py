"""Keys as they are kept: found by their prefix, never with anything that would open a door."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import Struct

from timewright.ports import Stored, Transaction

KEY = "key"
KEY_USE = "key_use"
# Keys belong to the installation: a token names no namespace before it is read.
EVERYWHERE = "*"


class Key(Struct, frozen=True, kw_only=True):
    """What is kept of a key: whose it is, what it permits, and the digest of its token.

    A local key says in which file of which machine its token is.
    """

    prefix: str
    name: str
    mark: str
    digest: str
    scopes: tuple[str, ...]
    role: str = ""
    namespaces: tuple[str, ...] = ()
    origin: str = "human"
    local: bool = False
    where: str = ""
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revision: int = 1

    def opens(self, *, now: datetime) -> bool:
        """Whether the key is in force."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def find_key(tx: Transaction, prefix: str) -> Key | None:
    """A key by the part of its token that is no secret."""
    rows = tx.get_objects(KEY, namespace=EVERYWHERE, names=[prefix])
    return _read(rows[0]) if rows else None


def all_keys(tx: Transaction) -> list[Key]:
    """Every key, by prefix."""
    return [_read(row) for row in tx.get_objects(KEY, namespace=EVERYWHERE)]


def put_key(tx: Transaction, key: Key, *, replaces: int, now: datetime) -> None:
    """Write a key; a stale revision is a Conflict."""
    body = msgspec.json.encode(key)
    row = Stored(kind=KEY, namespace=EVERYWHERE, name=key.prefix, revision=key.revision, body=body, at=now)
    tx.put_objects([row], replaces={key.prefix: replaces})


def last_uses(tx: Transaction) -> dict[str, datetime]:
    """When each key was last used, as far as it is written down."""
    return {row.name: row.at for row in tx.get_objects(KEY_USE, namespace=EVERYWHERE)}


def put_uses(tx: Transaction, uses: Mapping[str, datetime]) -> None:
    """Write down when keys were last used."""
    tx.put_objects(
        [
            Stored(kind=KEY_USE, namespace=EVERYWHERE, name=prefix, body=b"{}", at=at)
            for prefix, at in uses.items()
        ]
    )


def _read(row: Stored) -> Key:
    return msgspec.json.decode(row.body, type=Key)
