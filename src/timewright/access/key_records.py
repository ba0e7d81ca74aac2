"""Stored API keys, found by the prefix of their token, and the form of a token."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec
from msgspec import Struct

from timewright.ports import StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE

KEY = "key"
KEY_USE = "key_use"

TOKEN_SCHEME = "tw"  # noqa: S105 - no secret
PREFIX_LENGTH = 12
MAX_TOKEN_CHARS = 200

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


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


def record_uses(tx: Transaction, uses: Mapping[str, datetime], *, kind: str = KEY_USE) -> None:
    """Record when keys, or objects of another kind, were last used."""
    tx.put_objects(
        [
            StoredObject(kind=kind, namespace=GLOBAL_NAMESPACE, name=name, body=b"{}", at=at)
            for name, at in uses.items()
        ]
    )


def _read(row: StoredObject) -> Key:
    return msgspec.json.decode(row.body, type=Key)


def new_token(random: Callable[[int], bytes]) -> tuple[str, str]:
    """A new random prefix, and the token that contains it."""
    prefix = "".join(_LETTERS[byte % 32] for byte in random(PREFIX_LENGTH))
    return prefix, f"{TOKEN_SCHEME}_{prefix}_{base64.urlsafe_b64encode(random(32)).decode().rstrip('=')}"


def token_prefix(token: str) -> str:
    """The prefix of a token, by which its key is found; empty if it is not a token."""
    if len(token) > MAX_TOKEN_CHARS or not token.isascii():
        return ""
    start, _, rest = token.partition("_")
    prefix, _, secret = rest.partition("_")
    well_formed = start == TOKEN_SCHEME and bool(secret) and len(prefix) == PREFIX_LENGTH
    return prefix if well_formed and set(prefix) <= set(_LETTERS) else ""
