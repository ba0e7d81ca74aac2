"""How much one caller may have under way at once, so that nobody takes every thread for themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from timewright.errors import OverQuota
from timewright.operations.access import Caller

MOST_AT_ONCE = 16


class Turns:
    """Requests under way by caller; kept by the loop's own thread, so it needs no lock."""

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._most = most
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def one_for(self, caller: Caller) -> Iterator[None]:
        """Take a turn, or be refused while all of them are taken."""
        whose = caller.key or caller.actor
        if self._under_way[whose] >= self._most:
            raise OverQuota(
                "too many requests at once",
                field="requests",
                value=self._most,
                rule=f"at most {self._most} under way for one key",
                fix="wait for an answer before the next question",
            )
        self._under_way[whose] += 1
        try:
            yield
        finally:
            self._under_way[whose] -= 1
            if not self._under_way[whose]:
                del self._under_way[whose]
