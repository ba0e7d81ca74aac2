"""The result of a check: for each invariant, how much was checked and what violates it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

MAX_VIOLATIONS_SHOWN = 20


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
