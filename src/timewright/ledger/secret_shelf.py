"""Secrets as they are kept, bound to their namespace; opened only for a launch."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from timewright.errors import NotFound
from timewright.ledger.keyring import Keyring, check
from timewright.ledger.sealing import Sealed, resealed, unseal
from timewright.ports import Store, Stored, Transaction

SECRET = "secret"  # noqa: S105 - a kind of object


class Secret(Struct, frozen=True, kw_only=True):
    """A secret without its value."""

    namespace: str
    name: str
    sealed: Sealed
    created_at: datetime
    set_at: datetime
    set_by: str
    revision: int = 1

    @property
    def place(self) -> str:
        """Where it belongs, which its lock is bound to."""
        return place_of(self.namespace, self.name)


def place_of(namespace: str, name: str) -> str:
    """What the lock of a secret is bound to."""
    return f"{namespace}\0{name}"


def find_secrets(tx: Transaction, namespace: str | None, names: list[str] | None = None) -> list[Secret]:
    """The secrets of a namespace, or of all, by name."""
    rows = tx.get_objects(SECRET, namespace=namespace, names=names)
    return [msgspec.json.decode(row.body, type=Secret) for row in rows]


def put_secret(tx: Transaction, secret: Secret, *, replaces: int, now: datetime) -> None:
    """Write a secret; a stale revision is a Conflict."""
    row = Stored(
        kind=SECRET,
        namespace=secret.namespace,
        name=secret.name,
        revision=secret.revision,
        body=msgspec.json.encode(secret),
        at=now,
    )
    tx.put_objects([row], replaces={secret.name: replaces})


def reveal(store: Store, keyring: Keyring, *, namespace: str, name: str) -> str:
    """The value of a secret, for a launch of its own namespace and for nobody else."""

    def work(tx: Transaction) -> list[Secret]:
        check(tx, keyring)
        return find_secrets(tx, namespace, [name])

    found = store.read(work)
    if not found:
        raise NotFound(f"no secret {name}", field="secret", value=name, fix=f"secret set {name}")
    return unseal(keyring, found[0].sealed, place=found[0].place)


def reseal(keyring: Keyring, secret: Secret) -> Secret:
    """The same secret under the secret key in use."""
    sealed = resealed(keyring, secret.sealed, place=secret.place)
    return msgspec.structs.replace(secret, sealed=sealed, revision=secret.revision + 1)
