"""Finds what a request names, in the caller's namespace and nowhere else."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from difflib import get_close_matches

from timewright.core.run import Run
from timewright.core.schedule import ScheduleState
from timewright.errors import NotAllowed, NotFound
from timewright.ports import Due, ScheduleFilter, Transaction
from timewright.ports.looks import Look

MOST_COMPARED = 1000
MOST_SHOWN = 3

_ID_LENGTH = 26


def find_schedule(
    tx: Transaction, namespace: str, wanted: str, *, unless_known: Callable[[], None] | None = None
) -> Due:
    """A schedule by its id or its name; one of another namespace is as unknown as one that never was.

    A name that nobody has is compared with those that someone has, which takes a while; `unless_known` is
    called before.
    """
    found = tx.get_schedules([wanted]).get(wanted) if _is_id(wanted, "sch_") else None
    if found is None or found.schedule.namespace != namespace:
        found = tx.get_named(namespace, unicodedata.normalize("NFC", wanted))
    if found is not None:
        return found
    if unless_known is not None:
        unless_known()
    raise no_such("schedule", wanted, schedule_names(tx, namespace), lister="schedule list")


def look_for(tx: Transaction, namespace: str, wanted: str, *, unless_known: Callable[[], None]) -> Look:
    """The same with a look at what else there is about it: one by its name costs one statement."""
    named = None if _is_id(wanted, "sch_") else tx.look_at(namespace, unicodedata.normalize("NFC", wanted))
    return named or Look(find_schedule(tx, namespace, wanted, unless_known=unless_known))


def find_living(tx: Transaction, namespace: str, wanted: str) -> Due:
    """A schedule that may be changed; an archived one is history, and is refused."""
    due = find_schedule(tx, namespace, wanted)
    if due.standing.state is ScheduleState.ARCHIVED:
        raise NotAllowed(
            f"schedule {due.schedule.name} is archived",
            field="state",
            value=due.standing.state.value,
            rule="an archived schedule never changes again",
            fix=f"schedule create another {due.schedule.name}: it takes the name",
        )
    return due


def find_run(tx: Transaction, namespace: str, wanted: str) -> Run:
    """A run by its id."""
    run = tx.get_runs([wanted]).get(wanted) if is_run_id(wanted) else None
    if run is None or run.namespace != namespace:
        raise no_such("run", wanted, (), lister="run list")
    return run


def schedule_names(tx: Transaction, namespace: str) -> list[str]:
    """The first thousand names of a namespace, to compare a misspelt one with."""
    page = tx.find_schedules(ScheduleFilter(namespace=namespace, limit=MOST_COMPARED))
    return [due.schedule.name for due in page.rows]


def no_such(noun: str, wanted: str, known: Iterable[str], *, lister: str, field: str = "") -> NotFound:
    """The refusal for a name nobody has, with the nearest that someone has."""
    near = get_close_matches(wanted[:255], list(known), n=MOST_SHOWN, cutoff=0.5)
    return NotFound(
        f"no {noun} {wanted[:255]!r}",
        field=field or noun,
        value=wanted[:255],
        rule=f"a {noun} of this namespace",
        fix=f"did you mean {' or '.join(near)}?" if near else f"{lister} shows what there is",
    )


def is_run_id(text: str) -> bool:
    """Whether a text is spelled as the ids of runs are."""
    return _is_id(text, "run_")


def _is_id(text: str, prefix: str) -> bool:
    return text.startswith(prefix) and len(text) == len(prefix) + _ID_LENGTH
