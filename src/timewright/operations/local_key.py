"""The key of the local administrator: made at the first start, in a file that only its owner may read."""

from __future__ import annotations

import platform
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from timewright.errors import Unauthorized
from timewright.ledger.key_shelf import Key, all_keys, put_key
from timewright.ledger.keyring import claim
from timewright.ledger.private_file import read_private, write_private
from timewright.ledger.tokens import new_token
from timewright.operations.access import EVERYTHING, authenticate, doorkeeper_of
from timewright.operations.context import Context
from timewright.ports import Transaction

NAME = "local-admin"


def local_key(context: Context, path: Path) -> str:
    """The token of the local administrator: the one in the file, or a new one if that opens nothing."""
    token = read_private(path)
    if token and _opens(context, token):
        return token
    token = _made(context, where=f"{platform.node()}:{path.resolve()}"[:1000], now=context.now())
    write_private(path, token, replace=True)
    return token


def find_local_key(path: Path) -> str | None:
    """The token of the local administrator, for a command line on this machine; nothing if there is none."""
    return read_private(path)


def _opens(context: Context, token: str) -> bool:
    try:
        return authenticate(context, token).local
    except Unauthorized:
        return False


def _made(context: Context, *, where: str, now: datetime) -> str:
    """A key for everything everywhere that does not expire; one whose file was lost is revoked."""
    keeper = doorkeeper_of(context)
    keyring = keeper.keyring
    prefix, token = new_token(keeper.random)
    key = Key(
        prefix=prefix,
        name=NAME,
        mark=keyring.current.mark,
        digest=keyring.current.digest(token),
        scopes=tuple(sorted(EVERYTHING)),
        role="admin",
        local=True,
        where=where,
        created_at=now,
        created_by=context.by.actor,
    )

    def work(tx: Transaction) -> None:
        claim(tx, keyring)
        for old in all_keys(tx):
            # Another machine on the same database has a file of its own.
            if old.local and old.where == where and old.revoked_at is None:
                lost = replace(old, revoked_at=now, revision=old.revision + 1)
                put_key(tx, lost, replaces=old.revision, now=now)
        put_key(tx, key, replaces=0, now=now)
        tx.add_audit(
            [
                context.because("the first start, or the file was lost").entry(
                    "key.create", namespace=context.namespace, subject=f"tw_{prefix}", now=now
                )
            ]
        )

    context.store.write(work)
    return token
