"""What people write beside one occurrence: kept by its instant, with a revision and an audit line."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import spell_instant
from timewright.core.schedule import Schedule
from timewright.ledger.replan import By, entry_of
from timewright.ports import Stored, Transaction

NOTE = "note"


class OccurrenceNote(Struct, frozen=True, kw_only=True):
    """A note beside one occurrence: its text, and who wrote it when."""

    text: str
    by: str
    at: datetime
    revision: int = 1


_decode = msgspec.json.Decoder(OccurrenceNote).decode


def notes_of(
    tx: Transaction, schedule_id: str, instants: Iterable[datetime], *, namespace: str
) -> dict[datetime, OccurrenceNote]:
    """The notes beside occurrences of a schedule, by their instants."""
    names = {_name(schedule_id, at): at for at in instants}
    rows = tx.get_objects(NOTE, namespace=namespace, names=sorted(names)) if names else []
    return {names[row.name]: replace(_decode(row.body), revision=row.revision) for row in rows}


def write_note(
    tx: Transaction, schedule: Schedule, at: datetime, text: str, *, by: By, now: datetime
) -> OccurrenceNote | None:
    """Write a note beside an occurrence, in place of the one before; no text takes it away."""
    before = notes_of(tx, schedule.id, [at], namespace=schedule.namespace).get(at)
    name = _name(schedule.id, at)
    note = None
    if text:
        revision = before.revision + 1 if before is not None else 1
        note = OccurrenceNote(text=text, by=by.actor, at=now, revision=revision)
        row = Stored(
            kind=NOTE,
            namespace=schedule.namespace,
            name=name,
            revision=revision,
            body=msgspec.json.encode(note),
            at=now,
        )
        tx.put_objects([row], replaces={name: revision - 1})
    elif before is not None:
        tx.delete_object(NOTE, namespace=schedule.namespace, name=name)
    was = before.text if before is not None else ""
    told = f"{spell_instant(at)}: {text}" if text else f"{spell_instant(at)}: removed"
    tx.add_audit([entry_of(schedule, "note", by=by, now=now, before=was, after=told)])
    return note


def carry_note(
    tx: Transaction, schedule: Schedule, at: datetime, *, to: datetime, by: By, now: datetime
) -> None:
    """Let a note go with an occurrence that is moved."""
    note = notes_of(tx, schedule.id, [at], namespace=schedule.namespace).get(at)
    if note is not None:
        write_note(tx, schedule, at, "", by=by, now=now)
        write_note(tx, schedule, to, note.text, by=by, now=now)


def _name(schedule_id: str, at: datetime) -> str:
    return f"{schedule_id}/{spell_instant(at)}"
