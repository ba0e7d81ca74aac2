"""A durable queue as another program keeps it in a file: its entries, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.decoding import check_size, read, type_of
from timewright.core.policies import NORMAL, Priority
from timewright.core.refusals import join, missing, refused
from timewright.core.run import RunState
from timewright.core.spellings import snake

FILE_VERSIONS = (1,)
MOST_ENTRIES = 20_000

_NAMES = {
    "id": "id",
    "priority": "priority",
    "enqueued_at": "enqueued_at",
    "status": "state",
    "attempts": "attempts",
    "lease_id": "lease_id",
    "lease_expires_at": "lease_until",
    "next_eligible_at": "next_eligible_at",
    "parked_reason": "reason",
}


class QueueEntry(Struct, frozen=True, kw_only=True):
    """One entry of a queue file; what we do not know of it is kept as it was, in `payload`."""

    id: Annotated[str, Meta(min_length=1, max_length=255)]
    priority: Priority = NORMAL
    enqueued_at: datetime
    state: RunState = RunState.READY
    attempts: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    lease_id: str = ""
    lease_until: datetime | None = None
    next_eligible_at: datetime | None = None
    reason: str = ""
    payload: dict[str, Any] = {}


def decode_queue_file(raw: Any, *, field: str = "queue") -> tuple[QueueEntry, ...]:
    """Read a queue file, old or new; another version, a broken entry or one id twice is refused whole."""
    check_size(raw, field)
    rows = _rows(raw, field)
    entries = tuple(_entry(row, f"{field}.entries[{i}]") for i, row in enumerate(rows))
    seen: set[str] = set()
    for i, entry in enumerate(entries):
        if entry.id in seen:
            rule = "every entry has an id of its own"
            raise refused(f"{field}.entries[{i}].id", entry.id, "is there twice", rule=rule, fix="another id")
        seen.add(entry.id)
    return entries


def _rows(raw: Any, field: str) -> list[Any]:
    rows = raw
    if isinstance(raw, Mapping):
        words = {snake(str(key)): value for key, value in raw.items()}
        version = words.get("schema_version", FILE_VERSIONS[-1])
        if version not in FILE_VERSIONS or isinstance(version, bool):
            rule = f"schema version {', '.join(map(str, FILE_VERSIONS))}"
            where = join(field, "schemaVersion")
            raise refused(where, version, "is not known", rule=rule, fix="export it with a version we know")
        rows = words.get("entries", words.get("queue"))
    if not isinstance(rows, list) or len(rows) > MOST_ENTRIES:
        rule = f"a list of at most {MOST_ENTRIES} entries"
        raise refused(join(field, "entries"), rows, "is not a queue", rule=rule, fix='{"entries": []}')
    return rows


def _entry(raw: Any, path: str) -> QueueEntry:
    if not isinstance(raw, Mapping):
        rule = "an entry is a mapping with id, enqueuedAt and status"
        raise refused(path, raw, "is not an entry", rule=rule, fix='{"id": "a", "enqueuedAt": "…Z"}')
    known: dict[str, Any] = {}
    payload: dict[Any, Any] = {}
    for key, value in raw.items():
        name = _NAMES.get(snake(key)) if isinstance(key, str) else None
        if name is None:
            payload[key] = value
        elif value is not None:
            known[name] = value
    entry: QueueEntry = read({**known, "payload": payload}, type_of(QueueEntry), path)
    if entry.state is RunState.LEASED and entry.lease_until is None:
        where, rule = join(path, "leaseExpiresAt"), "a lease has an end"
        raise missing(where, rule=rule, fix="the instant at which the lease ends")
    return entry
