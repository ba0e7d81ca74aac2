"""The registry of invariants, `check`, which runs them over a history, and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from timewright.errors import InvalidInput
from timewright.verification.oracle.times import MINUTE, SECOND, format_instant
from timewright.verification.rows import History
from timewright.verification.view import HistoryView

DEFAULT_GRACE_US = 2 * MINUTE
DEFAULT_SKEW_US = 2 * SECOND
MAX_VIOLATIONS_COUNTED = 10_000
MAX_ROWS_PER_VIOLATION = 5
INSTANT_SUFFIXES = ("_at", "_until")

MAX_VIOLATIONS_SHOWN = 20


class Coverage:
    """How many items an invariant has checked, or why it could not be checked."""

    def __init__(self) -> None:
        self.count = 0
        self.not_checked_because = ""


# A message and the rows that show it, for each violation.
Violations = Iterator[tuple[str, tuple[Struct, ...]]]
Predicate = Callable[[HistoryView, Coverage], Violations]


class Invariant(Struct, frozen=True, kw_only=True):
    """One invariant: its id, its name, the unit it counts, and the predicate that yields violations."""

    id: str
    name: str
    unit: str
    predicate: Predicate

    @property
    def sentence(self) -> str:
        """The invariant in one sentence: the first line of the predicate's docstring."""
        return (self.predicate.__doc__ or "").strip().splitlines()[0]


INVARIANTS: dict[str, Invariant] = {}


def invariant(invariant_id: str, name: str, *, unit: str) -> Callable[[Predicate], Predicate]:
    """Register a predicate; it yields a message and the rows for each violation."""

    def register(predicate: Predicate) -> Predicate:
        assert invariant_id not in INVARIANTS, f"two invariants have the id {invariant_id}"
        INVARIANTS[invariant_id] = Invariant(id=invariant_id, name=name, unit=unit, predicate=predicate)
        return predicate

    return register


def check(
    history: History,
    *,
    now: int,
    only: Iterable[str] = (),
    grace: int = DEFAULT_GRACE_US,
    skew: int = DEFAULT_SKEW_US,
) -> Report:
    """Check all invariants, or only some, over a history.

    `now` is the store's clock when the history was read. Work under way is not judged before `grace` has
    passed; `skew` is the largest difference between the clock readings of two consecutive transactions.
    """
    selected = [_find_invariant(number) for number in only] or list(INVARIANTS.values())
    view = HistoryView(history, now=now, grace=grace, skew=skew)
    return Report(
        now=now,
        since=history.since,
        cut=history.cut,
        schedules=len(history.schedules),
        occurrences=sum(len(rows) for rows in view.occurrences.values()),
        runs=len(history.runs),
        attempts=len(history.attempts),
        findings=tuple(_run_check(one, view) for one in sorted(selected, key=lambda one: int(one.id[1:]))),
    )


def _run_check(one: Invariant, view: HistoryView) -> InvariantResult:
    coverage = Coverage()
    found = list(islice(one.predicate(view, coverage), MAX_VIOLATIONS_COUNTED))
    violations = tuple(
        Violation(
            invariant=one.id,
            message=message,
            rows=tuple(_row_fields(row) for row in rows[:MAX_ROWS_PER_VIOLATION]),
        )
        for message, rows in found[:MAX_VIOLATIONS_SHOWN]
    )
    return InvariantResult(
        invariant=one.id,
        name=one.name,
        sentence=one.sentence,
        checked=coverage.count,
        unit=one.unit,
        count=len(found),
        violations=violations,
        not_checked_because=coverage.not_checked_because,
    )


def _row_fields(row: Struct) -> dict[str, Any]:
    """Return a row as plain data without its empty fields."""
    kind = type(row).__name__.removesuffix("Row").lower()
    values = msgspec.to_builtins(row).items()
    fields = {name: _format_value(name, value) for name, value in values if value}
    return {"kind": kind, **fields}


def _format_value(name: str, value: Any) -> Any:
    """Format instants; other values stay as they are."""
    is_instant = isinstance(value, int) and (
        name in ("at", "cursor", "last_of") or name.endswith(INSTANT_SUFFIXES)
    )
    return format_instant(value) if is_instant else value


def _find_invariant(number: str) -> Invariant:
    spelled = number.strip().upper()
    if spelled not in INVARIANTS:
        raise InvalidInput(
            f"unknown invariant {number[:16]!r}",
            field="only",
            value=number[:16],
            rule=f"one of {', '.join(sorted(INVARIANTS, key=lambda one: int(one[1:])))}",
            fix="only: I1",
        )
    return INVARIANTS[spelled]


class Violation(Struct, frozen=True, kw_only=True):
    """One violation: the invariant, a message, and the rows that show it."""

    invariant: str
    message: str
    rows: tuple[dict[str, Any], ...] = ()


class InvariantResult(Struct, frozen=True, kw_only=True):
    """The result for one invariant.

    `checked` counts the items of `unit`, `count` all violations, and `violations` holds the first of them.
    """

    invariant: str
    name: str
    sentence: str
    checked: int = 0
    unit: str = ""
    count: int = 0
    violations: tuple[Violation, ...] = ()
    not_checked_because: str = ""


class Report(Struct, frozen=True, kw_only=True):
    """The result of a whole check."""

    now: int
    since: int | None = None
    cut: bool = False
    schedules: int = 0
    occurrences: int = 0
    runs: int = 0
    attempts: int = 0
    findings: tuple[InvariantResult, ...] = ()

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The violations shown, in the order of the invariants."""
        return tuple(violation for finding in self.findings for violation in finding.violations)

    @property
    def holds(self) -> bool:
        """Whether no checked invariant is violated."""
        return all(not finding.count for finding in self.findings)
