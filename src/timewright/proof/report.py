"""What the checker says: each promise with how much of it was looked at, and what breaks it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

MOST_SHOWN = 20


class Violation(Struct, frozen=True, kw_only=True):
    """A promise that does not hold: which, in words, and the rows that show it."""

    invariant: str
    message: str
    rows: tuple[dict[str, Any], ...] = ()


class Finding(Struct, frozen=True, kw_only=True):
    """One promise: how many occurrences, runs or leases were looked at, and what breaks it.

    `violations` holds the first of them, `count` says how many there are. `not_checked` says what is missing.
    """

    invariant: str
    name: str
    promise: str
    looked_at: int = 0
    of_what: str = ""
    count: int = 0
    violations: tuple[Violation, ...] = ()
    not_checked: str = ""


class Report(Struct, frozen=True, kw_only=True):
    """What was looked at, and what was found."""

    now: int
    since: int | None = None
    cut: bool = False
    schedules: int = 0
    occurrences: int = 0
    runs: int = 0
    attempts: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Every violation that is shown, in the order of the promises."""
        return tuple(violation for finding in self.findings for violation in finding.violations)

    @property
    def holds(self) -> bool:
        """Whether every promise that was checked holds."""
        return all(not finding.count for finding in self.findings)
