"""The local administrator's key: created at the first start, in a file that only its owner can read."""

from __future__ import annotations

import platform
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from timewright.access.key_records import Key, new_token, put_key, read_keys
from timewright.access.keyring import record_keyring
from timewright.access.private_file import read_private, write_private
from timewright.errors import Unauthorized
from timewright.operations.access.authentication import ALL_SCOPES, authenticate, require_auth_cache
from timewright.operations.context import OperationContext
from timewright.ports import Transaction

LOCAL_KEY_NAME = "local-admin"


def ensure_local_key(context: OperationContext, path: Path) -> str:
    """Return the token in the file, or create a new key if that token is missing or invalid."""
    token = read_private(path)
    if token and _is_valid(context, token):
        return token
    token = _create(context, where=f"{platform.node()}:{path.resolve()}"[:1000], now=context.now())
    write_private(path, token, replace=True)
    return token


def read_local_key(path: Path) -> str | None:
    """Return the token in the file, for a command line on this machine; None if there is no file."""
    return read_private(path)


def _is_valid(context: OperationContext, token: str) -> bool:
    try:
        return authenticate(context, token).local
    except Unauthorized:
        return False


def _create(context: OperationContext, *, where: str, now: datetime) -> str:
    """Create an admin key without expiry; revoke the one whose file was lost."""
    auth = require_auth_cache(context)
    keyring = auth.keyring
    prefix, token = new_token(auth.random_bytes)
    key = Key(
        prefix=prefix,
        name=LOCAL_KEY_NAME,
        secret_key_id=keyring.current.id,
        digest=keyring.current.digest(token),
        scopes=tuple(sorted(ALL_SCOPES)),
        role="admin",
        local=True,
        token_file=where,
        created_at=now,
        created_by=context.by.name,
    )

    def work(tx: Transaction) -> None:
        record_keyring(tx, keyring)
        for old in read_keys(tx):
            # Another machine on the same database has its own file and key.
            if old.local and old.token_file == where and old.revoked_at is None:
                lost = replace(old, revoked_at=now, revision=old.revision + 1)
                put_key(tx, lost, replaces=old.revision, now=now)
        put_key(tx, key, replaces=0, now=now)
        tx.add_audit(
            [
                context.actor_with_reason("first start, or the key file was lost").audit_entry(
                    "key.create", namespace=context.namespace, subject=f"tw_{prefix}", now=now
                )
            ]
        )

    context.store.write(work)
    return token
