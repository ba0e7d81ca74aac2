"""Notes beside one occurrence: shown wherever that occurrence is, before it runs and after."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.moments import check_stored, spell_instant
from timewright.errors import InvalidInput, NotFound
from timewright.ledger.notes import notes_of, write_note
from timewright.operations.context import Context, together
from timewright.operations.find import find_living
from timewright.operations.foresight import unwritten
from timewright.operations.registry import Named, Write, operations
from timewright.ports import Due, RunFilter, Transaction

LONGEST_NOTE = 1_000

_NO_OCCURRENCE = frozenset({"not_planned", "over", "forgotten"})


class WriteNote(Write, frozen=True, kw_only=True):
    """Beside which occurrence to write what, the next one unless an instant is given; or to take it away."""

    schedule: Named
    at: datetime | None = None
    text: Annotated[str, Meta(max_length=LONGEST_NOTE)] = ""
    remove: bool = False


class Noted(Struct, frozen=True, kw_only=True):
    """A note beside an occurrence; without a text it is gone."""

    schedule: str
    at: datetime
    text: str
    by: str
    revision: int


@operations.add(
    "schedule",
    "note",
    WriteNote,
    scope="trigger",
    examples=(
        {"schedule": "nightly-report", "text": "the auditors read this one"},
        {"schedule": "nightly-report", "at": "2026-03-12T03:00:00Z", "text": "month end"},
    ),
)
def note_occurrence(context: Context, ask: WriteNote) -> Noted:
    """Write a note beside one occurrence, or take it away; it is shown before it runs and after."""
    now = context.now()
    if bool(ask.text.strip()) is ask.remove:
        raise InvalidInput(
            "a note without words" if not ask.remove else "a note to write, or to take away?",
            field="text",
            rule=f"a text of 1 to {LONGEST_NOTE} characters, or remove: true",
            fix="text: month end",
        )

    def work(inside: Context) -> Noted:
        def write(tx: Transaction) -> Noted:
            due = find_living(tx, inside.namespace, ask.schedule)
            at = _instant(tx, inside, due, ask, now=now)
            if ask.remove and not notes_of(tx, due.schedule.id, [at], namespace=inside.namespace):
                raise NotFound(
                    f"{due.schedule.name} has no note at {spell_instant(at)}",
                    field="at",
                    value=spell_instant(at),
                    fix="schedule next shows the notes of what is ahead",
                )
            by = inside.because(ask.reason)
            note = write_note(tx, due.schedule, at, ask.text.strip(), by=by, now=now)
            return Noted(
                schedule=due.schedule.name,
                at=at,
                text=note.text if note is not None else "",
                by=note.by if note is not None else "",
                revision=note.revision if note is not None else 0,
            )

        return inside.store.write(write)

    return together(context, work)


def _instant(tx: Transaction, context: Context, due: Due, ask: WriteNote, *, now: datetime) -> datetime:
    """The instant of the occurrence that is meant; one that is none is refused."""
    at = ask.at or due.standing.next_at
    if at is None:
        raise NotFound(
            f"{due.schedule.name} has no next time to write beside",
            field="at",
            rule="a note stands beside an occurrence",
            fix="at: the instant of a run that schedule get or run list shows",
        )
    check_stored(at, field="at")
    if ask.remove or tx.find_occurrence(due.schedule.id, at) is not None:
        return at
    if tx.find_runs(RunFilter(schedule_id=due.schedule.id, since=at, until=at, limit=1)).rows:
        return at
    found = unwritten(tx, due, at, settings=context.settings, now=now)
    if found.fate in _NO_OCCURRENCE:
        near = found.next_at or found.previous_at or due.standing.next_at
        raise InvalidInput(
            f"{due.schedule.name} has no occurrence at {spell_instant(at)}",
            field="at",
            value=spell_instant(at),
            rule="a note stands beside an occurrence: " + "; ".join(found.because),
            fix=f"at: {spell_instant(near)}" if near is not None else "schedule next shows what is ahead",
        )
    return at
