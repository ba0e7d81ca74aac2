"""Reads the queue file of another program: its entries as values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.input.aliases import snake_case
from timewright.core.input.input_errors import input_error, join_path, missing_field
from timewright.core.input.scalars import check_size
from timewright.core.input.struct_decoder import read_value, type_info
from timewright.core.policies.policies import NORMAL_PRIORITY, Priority
from timewright.core.run.run import RunState

FILE_VERSIONS = (1,)
MAX_ENTRIES = 20_000

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
    """One entry of a queue file; unknown fields are kept in `payload`."""

    id: Annotated[str, Meta(min_length=1, max_length=255)]
    priority: Priority = NORMAL_PRIORITY
    enqueued_at: datetime
    state: RunState = RunState.READY
    attempts: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    lease_id: str = ""
    lease_until: datetime | None = None
    next_eligible_at: datetime | None = None
    reason: str = ""
    payload: dict[str, Any] = {}


def decode_queue_file(raw: Any, *, field: str = "queue") -> tuple[QueueEntry, ...]:
    """Read a queue file; an unknown version, an invalid entry or a duplicate id refuses the whole file."""
    check_size(raw, field)
    rows = _rows(raw, field)
    entries = tuple(_entry(row, f"{field}.entries[{i}]") for i, row in enumerate(rows))
    seen: set[str] = set()
    for i, entry in enumerate(entries):
        if entry.id in seen:
            rule = "entry ids are unique"
            raise input_error(
                f"{field}.entries[{i}].id", entry.id, "is used twice", rule=rule, fix="another id"
            )
        seen.add(entry.id)
    return entries


def _rows(raw: Any, field: str) -> list[Any]:
    rows = raw
    if isinstance(raw, Mapping):
        words = {snake_case(str(key)): value for key, value in raw.items()}
        version = words.get("schema_version", FILE_VERSIONS[-1])
        if version not in FILE_VERSIONS or isinstance(version, bool):
            rule = f"schema version {', '.join(map(str, FILE_VERSIONS))}"
            where = join_path(field, "schemaVersion")
            raise input_error(
                where, version, "is not known", rule=rule, fix="export it with a supported version"
            )
        rows = words.get("entries", words.get("queue"))
    if not isinstance(rows, list) or len(rows) > MAX_ENTRIES:
        rule = f"a list of at most {MAX_ENTRIES} entries"
        raise input_error(
            join_path(field, "entries"), rows, "is not a queue", rule=rule, fix='{"entries": []}'
        )
    return rows


def _entry(raw: Any, path: str) -> QueueEntry:
    if not isinstance(raw, Mapping):
        rule = "an entry is a mapping with id, enqueuedAt and status"
        raise input_error(path, raw, "is not an entry", rule=rule, fix='{"id": "a", "enqueuedAt": "…Z"}')
    known: dict[str, Any] = {}
    payload: dict[Any, Any] = {}
    for key, value in raw.items():
        name = _NAMES.get(snake_case(key)) if isinstance(key, str) else None
        if name is None:
            payload[key] = value
        elif value is not None:
            known[name] = value
    entry: QueueEntry = read_value({**known, "payload": payload}, type_info(QueueEntry), path)
    if entry.state is RunState.LEASED and entry.lease_until is None:
        where, rule = join_path(path, "leaseExpiresAt"), "a lease has an end"
        raise missing_field(where, rule=rule, fix="the instant at which the lease ends")
    return entry
