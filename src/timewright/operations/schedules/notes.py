"""Notes on one occurrence, shown before it runs and after."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.moments import check_storable, format_instant
from timewright.errors import InvalidInput, NotFound
from timewright.ledger.records.notes import occurrence_notes, write_note
from timewright.operations.context import OperationContext
from timewright.operations.explain.future import explain_unrecorded
from timewright.operations.lookup import find_editable_schedule
from timewright.operations.registry import ObjectName, WriteRequest, operations
from timewright.ports import RunFilter, ScheduleRecord, Transaction

MAX_NOTE_CHARS = 1_000

_NO_OCCURRENCE = frozenset({"not_planned", "ended", "forgotten"})


class WriteNote(WriteRequest, frozen=True, kw_only=True):
    """A note on the occurrence at `at`, by default the next one; `remove` deletes it."""

    schedule: ObjectName
    at: datetime | None = None
    text: Annotated[str, Meta(max_length=MAX_NOTE_CHARS)] = ""
    remove: bool = False


class WrittenNote(Struct, frozen=True, kw_only=True):
    """A note on an occurrence; an empty text means that it was removed."""

    schedule: str
    at: datetime
    text: str
    by: str
    revision: int


@operations.write(
    "schedule note",
    scope="trigger",
    examples=(
        {"schedule": "nightly-report", "text": "the auditors read this one"},
        {"schedule": "nightly-report", "at": "2026-03-12T03:00:00Z", "text": "month end"},
    ),
)
def note_occurrence(context: OperationContext, tx: Transaction, request: WriteNote) -> WrittenNote:
    """Write or remove a note on one occurrence; it is shown before it runs and after."""
    now = context.now()
    if bool(request.text.strip()) is request.remove:
        raise InvalidInput(
            "the note has no text" if not request.remove else "give a text or remove, not both",
            field="text",
            rule=f"a text of 1 to {MAX_NOTE_CHARS} characters, or remove: true",
            fix="text: month end",
        )
    record = find_editable_schedule(tx, context.namespace, request.schedule)
    at = _occurrence_instant(tx, context, record, request, now=now)
    if request.remove and not occurrence_notes(tx, record.schedule.id, [at], namespace=context.namespace):
        raise NotFound(
            f"{record.schedule.name} has no note at {format_instant(at)}",
            field="at",
            value=format_instant(at),
            fix="schedule next shows the notes of the next occurrences",
        )
    note = write_note(tx, record.schedule, at, request.text.strip(), by=context.by, now=now)
    return WrittenNote(
        schedule=record.schedule.name,
        at=at,
        text=note.text if note is not None else "",
        by=note.by if note is not None else "",
        revision=note.revision if note is not None else 0,
    )


def _occurrence_instant(
    tx: Transaction, context: OperationContext, record: ScheduleRecord, request: WriteNote, *, now: datetime
) -> datetime:
    """Return the instant of the occurrence; an instant without an occurrence is rejected."""
    at = request.at or record.progress.next_at
    if at is None:
        raise NotFound(
            f"{record.schedule.name} has no next occurrence",
            field="at",
            rule="a note belongs to an occurrence",
            fix="at: the instant of a run that schedule get or run list shows",
        )
    check_storable(at, field="at")
    if request.remove or tx.find_occurrence(record.schedule.id, at) is not None:
        return at
    if tx.find(RunFilter(schedule_id=record.schedule.id, since=at, until=at, limit=1)).rows:
        return at
    found = explain_unrecorded(tx, record, at, settings=context.settings, now=now)
    if found.status in _NO_OCCURRENCE:
        near = found.next_at or found.previous_at or record.progress.next_at
        raise InvalidInput(
            f"{record.schedule.name} has no occurrence at {format_instant(at)}",
            field="at",
            value=format_instant(at),
            rule="a note belongs to an occurrence: " + "; ".join(found.because),
            fix=f"at: {format_instant(near)}"
            if near is not None
            else "schedule next shows the next occurrences",
        )
    return at
