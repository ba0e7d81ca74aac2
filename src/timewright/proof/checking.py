"""The list of promises, and the one way to check them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from timewright.errors import InvalidInput
from timewright.proof.report import MOST_SHOWN, Finding, Report, Violation
from timewright.proof.rows import History
from timewright.proof.spans import MINUTE, SECOND, spelled
from timewright.proof.view import View

GRACE = 2 * MINUTE
SKEW = 2 * SECOND
MOST_COUNTED = 10_000
MOST_ROWS = 5
INSTANTS = ("_at", "_until")


class Seen:
    """How much of a promise was looked at, and what is missing to look at the rest."""

    def __init__(self) -> None:
        self.count = 0
        self.missing = ""


Predicate = Callable[[View, Seen], Iterator[tuple[str, tuple[Struct, ...]]]]


class Invariant(Struct, frozen=True, kw_only=True):
    """One promise: its number, its name, what it counts, and the predicate that looks for what breaks it."""

    id: str
    name: str
    counts: str
    predicate: Predicate

    @property
    def promise(self) -> str:
        """The promise in a sentence."""
        return (self.predicate.__doc__ or "").strip().splitlines()[0]


INVARIANTS: dict[str, Invariant] = {}


def invariant(number: str, name: str, *, counts: str) -> Callable[[Predicate], Predicate]:
    """Put a predicate on the list; it yields what breaks the promise, in words and with its rows."""

    def adding(predicate: Predicate) -> Predicate:
        INVARIANTS[number] = Invariant(id=number, name=name, counts=counts, predicate=predicate)
        return predicate

    return adding


def check(
    history: History, *, now: int, only: Iterable[str] = (), grace: int = GRACE, skew: int = SKEW
) -> Report:
    """Check every promise, or only some, over a history.

    `now` is the store's clock at the picture. `grace` is how long something may be under way before it
    counts; `skew` is how far apart two transactions that follow each other may have read the clock.
    """
    wanted = [_named(number) for number in only] or list(INVARIANTS.values())
    view = View(history, now=now, grace=grace, skew=skew)
    return Report(
        now=now,
        since=history.since,
        cut=history.cut,
        schedules=len(history.schedules),
        occurrences=sum(len(rows) for rows in view.occurrences.values()),
        runs=len(history.runs),
        attempts=len(history.attempts),
        findings=tuple(_checked(one, view) for one in sorted(wanted, key=lambda one: int(one.id[1:]))),
    )


def _checked(one: Invariant, view: View) -> Finding:
    seen = Seen()
    found = list(islice(one.predicate(view, seen), MOST_COUNTED))
    violations = tuple(
        Violation(invariant=one.id, message=message, rows=tuple(_shown(row) for row in rows[:MOST_ROWS]))
        for message, rows in found[:MOST_SHOWN]
    )
    return Finding(
        invariant=one.id,
        name=one.name,
        promise=one.promise,
        looked_at=seen.count,
        of_what=one.counts,
        count=len(found),
        violations=violations,
        not_checked=seen.missing,
    )


def _shown(row: Struct) -> dict[str, Any]:
    """A row as plain data, without what is empty."""
    kind = type(row).__name__.removesuffix("Row").lower()
    said = msgspec.to_builtins(row).items()
    told = {name: _told(name, value) for name, value in said if value}
    return {"kind": kind, **told}


def _told(name: str, value: Any) -> Any:
    """An instant as one: a number of microseconds says nothing to a person."""
    is_instant = isinstance(value, int) and (name in ("at", "cursor", "last_of") or name.endswith(INSTANTS))
    return spelled(value) if is_instant else value


def _named(number: str) -> Invariant:
    spelled = number.strip().upper()
    if spelled not in INVARIANTS:
        raise InvalidInput(
            f"no promise {number[:16]!r}",
            field="only",
            value=number[:16],
            rule=f"one of {', '.join(sorted(INVARIANTS, key=lambda one: int(one[1:])))}",
            fix="only: I1",
        )
    return INVARIANTS[spelled]
