"""Find the objects that a request names, in the caller's namespace only."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches

from timewright.core.run.run import Run
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import InvalidInput, NotAllowed, NotFound, UnreadableRow
from timewright.ports import ScheduleFilter, ScheduleRecord, StoredObject, Transaction
from timewright.ports.schedules import ScheduleHead, SchedulesNamed, ScheduleSnapshot, SchedulesWithIds

MAX_NAMES_COMPARED = 1000
MAX_SUGGESTIONS = 3

_ID_LENGTH = 26


def find_schedule(
    tx: Transaction, namespace: str, wanted: str, *, before_suggesting: Callable[[], None] | None = None
) -> ScheduleRecord:
    """Return a schedule by id or name; one of another namespace is not found.

    For an unknown name, similar names are suggested, which reads up to 1000 rows; `before_suggesting` is
    called before that.
    """
    found = tx.get_schedules([wanted]).get(wanted) if _is_id(wanted, "sch_") else None
    if found is None or found.schedule.namespace != namespace:
        snapshot = tx.get_schedule_snapshot(namespace, unicodedata.normalize("NFC", wanted))
        found = snapshot.record if snapshot is not None else None
    if found is not None:
        return found
    if before_suggesting is not None:
        before_suggesting()
    raise not_found("schedule", wanted, schedule_names(tx, namespace), list_command="schedule list")


def find_schedule_snapshot(
    tx: Transaction, namespace: str, wanted: str, *, before_suggesting: Callable[[], None]
) -> ScheduleSnapshot:
    """Return a schedule and what else exists for it; by name this costs one statement."""
    named = (
        None
        if _is_id(wanted, "sch_")
        else tx.get_schedule_snapshot(namespace, unicodedata.normalize("NFC", wanted))
    )
    return named or ScheduleSnapshot(
        find_schedule(tx, namespace, wanted, before_suggesting=before_suggesting)
    )


def find_editable_schedule(tx: Transaction, namespace: str, wanted: str) -> ScheduleRecord:
    """Return a schedule that may be changed; an archived one raises NotAllowed."""
    record = find_schedule(tx, namespace, wanted)
    if record.progress.state is ScheduleState.ARCHIVED:
        raise NotAllowed(
            f"schedule {record.schedule.name} is archived",
            field="state",
            value=record.progress.state.value,
            rule="an archived schedule cannot be changed",
            fix=f"schedule create {record.schedule.name}: a new schedule may reuse the name",
        )
    return record


def schedules_by_name(tx: Transaction, namespace: str, names: Collection[str]) -> dict[str, ScheduleHead]:
    """Return the schedules with these names that exist, in any state."""
    return {one.name: one for one in tx.select(SchedulesNamed(namespace, names))}


def names_by_id(tx: Transaction, ids: Collection[str]) -> dict[str, str]:
    """Return the current names of schedules, by id."""
    return {one.id: one.name for one in tx.select(SchedulesWithIds(ids))}


def find_run(tx: Transaction, namespace: str, wanted: str) -> Run:
    """Return a run by its id."""
    run = tx.get_runs([wanted]).get(wanted) if is_run_id(wanted) else None
    if run is None or run.namespace != namespace:
        if not is_run_id(wanted) and tx.select(SchedulesNamed(namespace, [wanted])):
            raise NotFound(
                f"no run {wanted!r}, which is a schedule",
                field="run",
                value=wanted,
                rule="a run has an id of its own",
                fix=f"run list with schedule: {shlex.quote(wanted)}",
            )
        raise not_found("run", wanted, (), list_command="run list")
    return run


def find_object(tx: Transaction, kind: str, namespace: str, name: str) -> StoredObject:
    """Return an object whose kind is a noun of the operations: a calendar, a limit, a budget, a provider."""
    rows = tx.get_objects(kind, namespace=namespace, names=[name])
    if not rows:
        known = [row.name for row in tx.get_objects(kind, namespace=namespace)]
        raise not_found(kind, name, known, list_command=f"{kind} list")
    return rows[0]


def check_own_namespace(namespace: str, wanted: str) -> None:
    """Reject an object that names another namespace than that of its request."""
    if wanted != namespace:
        raise InvalidInput(
            f"namespace {wanted!r} is not the namespace of this request",
            field="namespace",
            value=wanted,
            rule="a request writes to its own namespace",
            fix="leave it out",
        )


def schedule_names(tx: Transaction, namespace: str) -> list[str]:
    """Return the first thousand schedule names of a namespace, for suggestions."""
    page = tx.find(ScheduleFilter(namespace=namespace, limit=MAX_NAMES_COMPARED))
    return [record.schedule.name for record in page.rows]


def not_found(
    noun: str, wanted: str, known: Iterable[str], *, list_command: str, field: str = ""
) -> NotFound:
    """Build the NotFound error for an unknown name, with similar names as a suggestion."""
    by_folded = {name.casefold(): name for name in known}
    folded = get_close_matches(wanted[:255].casefold(), list(by_folded), n=MAX_SUGGESTIONS, cutoff=0.5)
    near = [by_folded[name] for name in folded]
    return NotFound(
        f"no {noun} {wanted[:255]!r}",
        field=field or noun,
        value=wanted[:255],
        rule=f"{'an' if noun[0] in 'aeio' else 'a'} {noun} of this namespace",
        fix=f"did you mean {' or '.join(near)}?"
        if near
        else f"{list_command} shows the {'ids' if noun == 'run' else 'names'}",
    )


def is_run_id(text: str) -> bool:
    """Return whether a text has the form of a run id."""
    return _is_id(text, "run_")


def _is_id(text: str, prefix: str) -> bool:
    return text.startswith(prefix) and len(text) == len(prefix) + _ID_LENGTH


def readable_schedules(tx: Transaction, ids: Sequence[str]) -> dict[str, ScheduleRecord]:
    """Return schedules by id, without those that cannot be read."""
    if not ids:
        return {}
    try:
        return tx.get_schedules(ids)
    except UnreadableRow:
        if len(ids) == 1:
            return {}
        half = len(ids) // 2
        return {**readable_schedules(tx, ids[:half]), **readable_schedules(tx, ids[half:])}
