"""Notes on single occurrences: stored by instant, with a revision and an audit entry."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import format_instant
from timewright.core.run.run import Run
from timewright.core.schedule.schedule import Schedule
from timewright.ledger.replan import Actor, schedule_audit_entry
from timewright.ports import StoredObject, Transaction

NOTE = "note"


class OccurrenceNote(Struct, frozen=True, kw_only=True):
    """A note on one occurrence: its text, author and time."""

    text: str
    by: str
    at: datetime
    revision: int = 1


def occurrence_notes(
    tx: Transaction, schedule_id: str, instants: Iterable[datetime], *, namespace: str
) -> dict[datetime, OccurrenceNote]:
    """The notes on occurrences of a schedule, by instant."""
    found = notes_of_schedules(tx, ((schedule_id, at) for at in instants), namespace=namespace)
    return {at: note for (_, at), note in found.items()}


def notes_of_schedules(
    tx: Transaction, occurrences: Iterable[tuple[str, datetime]], *, namespace: str
) -> dict[tuple[str, datetime], OccurrenceNote]:
    """The notes on occurrences of several schedules, by schedule id and instant."""
    names = {_name(schedule_id, at): (schedule_id, at) for schedule_id, at in occurrences}
    rows = tx.get_objects(NOTE, namespace=namespace, names=sorted(names)) if names else []
    return {names[row.name]: replace(row.decode(OccurrenceNote), revision=row.revision) for row in rows}


def write_note(
    tx: Transaction, schedule: Schedule, at: datetime, text: str, *, by: Actor, now: datetime
) -> OccurrenceNote | None:
    """Write or replace the note on an occurrence; an empty text deletes it."""
    before = occurrence_notes(tx, schedule.id, [at], namespace=schedule.namespace).get(at)
    name = _name(schedule.id, at)
    note = None
    if text:
        revision = before.revision + 1 if before is not None else 1
        note = OccurrenceNote(text=text, by=by.name, at=now, revision=revision)
        row = StoredObject.of(NOTE, name, note, namespace=schedule.namespace, revision=revision, at=now)
        tx.put_objects([row], replaces={name: revision - 1})
    elif before is not None:
        tx.delete_object(NOTE, namespace=schedule.namespace, name=name)
    was = before.text if before is not None else ""
    entry = f"{format_instant(at)}: {text}" if text else f"{format_instant(at)}: removed"
    tx.add_audit([schedule_audit_entry(schedule, "note", by=by, now=now, before=was, after=entry)])
    return note


def move_note(
    tx: Transaction, schedule: Schedule, at: datetime, *, to: datetime, by: Actor, now: datetime
) -> None:
    """Move a note with its occurrence."""
    note = occurrence_notes(tx, schedule.id, [at], namespace=schedule.namespace).get(at)
    if note is not None:
        write_note(tx, schedule, at, "", by=by, now=now)
        write_note(tx, schedule, to, note.text, by=by, now=now)


def _name(schedule_id: str, at: datetime) -> str:
    return f"{schedule_id}/{format_instant(at)}"


def run_note(tx: Transaction, run: Run) -> str:
    """Return the note on the run's occurrence."""
    if not run.schedule_id:
        return ""
    found = occurrence_notes(tx, run.schedule_id, [run.planned_at], namespace=run.namespace)
    return found[run.planned_at].text if found else ""
