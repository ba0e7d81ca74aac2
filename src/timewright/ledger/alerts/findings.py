"""The registry of checks: functions over the store that return findings.

`doctor` prints the findings about now, `lint` those about the future.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.finding import Finding
from timewright.ledger.queues.policies import PolicyFile
from timewright.ports import Transaction
from timewright.ports.host_info import HostInfo
from timewright.settings import Settings

When = Literal["now", "future"]


class CheckScope(Struct, frozen=True, kw_only=True):
    """What the checks look at: a namespace at an instant, and the process and host, where they are known.

    Checks of the future look as far as `lookahead`.
    """

    namespace: str
    now: datetime
    lookahead: timedelta = timedelta(days=90)
    settings: Settings = Settings()
    host: HostInfo | None = None
    known_functions: frozenset[str] = frozenset()
    broken_functions: Mapping[str, str] = {}
    policy_file: PolicyFile | None = None


Check = Callable[[Transaction, CheckScope], Iterable[Finding]]


class CheckRegistry:
    """All checks, in the order in which they were added."""

    def __init__(self) -> None:
        self._checks: dict[When, list[Check]] = {"now": [], "future": []}

    def add(self, when: When = "now") -> Callable[[Check], Check]:
        """Register a check of what is so now, or of what will be."""

        def register(check: Check) -> Check:
            self._checks[when].append(check)
            return check

        return register

    def find(self, tx: Transaction, scope: CheckScope, *, when: When = "now") -> tuple[Finding, ...]:
        """Run all checks; each reads only what is stored."""
        return tuple(one for check in self._checks[when] for one in check(tx, scope))


checks = CheckRegistry()
