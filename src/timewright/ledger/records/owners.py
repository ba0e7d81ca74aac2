"""Owners of definitions: who declared each one, as what, and which revision that made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from timewright.core.input.encoding import to_json_value
from timewright.core.moments import MINUTE
from timewright.ledger.records.instances import read_instances
from timewright.ports import StoredObject, Transaction

# Owners are text: `app:payments`, `file:payments`, `workflow:nightly`; what is made by hand has none.
EditRule = Literal["warn", "refuse"]

DECLARED_SET = "declared_set"
DECLARER = "declarer"
MAX_INSTANCES = 1000
# An instance sends its first heartbeat within this time after it has declared its schedules.
STARTING = MINUTE
SILENT_AFTER = MINUTE


class Ownership(Struct, frozen=True, kw_only=True):
    """The owner of a definition, the digest of what it declared, and the id and revision that this made.

    Another current id or revision means that someone else has changed the definition since: drift.
    """

    owner: str
    digest: str
    id: str = ""
    revision: int = 0
    edits: EditRule = "warn"


class _Declarer(Struct, frozen=True):
    """An instance of a program, and the digest of the set of names that it declares."""

    owner: str
    instance: str
    names: str


def definition_digest(*parts: Any) -> str:
    """Return a digest of a definition as it was declared, to recognise it without decoding it."""
    return hashlib.sha256(msgspec.json.encode(parts, enc_hook=to_json_value)).hexdigest()[:32]


def read_owned(
    tx: Transaction, kind: str, namespace: str, names: Iterable[str] | None = None
) -> dict[str, Ownership]:
    """Return the ownership of definitions of one kind, by name."""
    rows = tx.get_objects(f"owned.{kind}", namespace=namespace, names=names)
    return {row.name: row.decode(Ownership) for row in rows}


def save_owned(
    tx: Transaction, kind: str, namespace: str, owned: Mapping[str, Ownership], *, now: datetime
) -> None:
    """Write the ownership of definitions."""
    rows = [
        StoredObject.of(f"owned.{kind}", name, one, namespace=namespace, at=now)
        for name, one in owned.items()
    ]
    tx.put_objects(rows)


def release_owned(tx: Transaction, kind: str, namespace: str, names: Iterable[str]) -> None:
    """Forget the owner of definitions that no longer exist."""
    for name in names:
        tx.delete_object(f"owned.{kind}", namespace=namespace, name=name)


def record_declarer(
    tx: Transaction, owner: str, instance: str, names: Iterable[str], *, namespace: str, now: datetime
) -> None:
    """Record what an instance of a program declares; forget instances of it that are gone."""
    listed = sorted(names)
    digest = definition_digest(listed)
    keep = {*_live_declarers(tx, owner, namespace=namespace, now=now), _Declarer(owner, instance, digest)}
    for row in tx.get_objects(DECLARER, namespace=namespace):
        one = row.decode(_Declarer)
        if one.owner == owner and one not in keep:
            tx.delete_object(DECLARER, namespace=namespace, name=row.name)
            if one.names not in {other.names for other in keep}:
                tx.delete_object(DECLARED_SET, namespace=namespace, name=f"{owner}/{one.names}")
    mine = _Declarer(owner, instance, digest)
    tx.put_objects(
        [
            StoredObject.of(DECLARER, f"{owner}/{instance}", mine, namespace=namespace, at=now),
            StoredObject.of(DECLARED_SET, f"{owner}/{digest}", listed, namespace=namespace, at=now),
        ]
    )


def names_declared_by_live_instances(
    tx: Transaction, owner: str, *, namespace: str, now: datetime, but: str = ""
) -> frozenset[str]:
    """Return the names that live instances of a program declare, without those of instance `but`."""
    live = _live_declarers(tx, owner, namespace=namespace, now=now)
    digests = sorted({f"{owner}/{one.names}" for one in live if one.instance != but})
    rows = tx.get_objects(DECLARED_SET, namespace=namespace, names=digests) if digests else []
    return frozenset(name for row in rows for name in row.decode(list[str]))


def _live_declarers(tx: Transaction, owner: str, *, namespace: str, now: datetime) -> list[_Declarer]:
    """Return the instances of a program that send heartbeats or are starting."""
    seen = {one.instance.id: one for one in read_instances(tx, limit=MAX_INSTANCES)}
    live = []
    for row in tx.get_objects(DECLARER, namespace=namespace):
        one = row.decode(_Declarer)
        beat = seen.get(one.instance)
        is_starting = beat is None and now - row.at <= STARTING
        is_alive = beat is not None and not beat.instance.stopped and now - beat.at <= SILENT_AFTER
        if one.owner == owner and (is_starting or is_alive):
            live.append(one)
    return live
