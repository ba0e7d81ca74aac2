"""How much one caller may have under way at once, so that nobody takes every thread for themselves."""

from __future__ import annotations

from timewright.errors import OverQuota
from timewright.operations.access import Caller

MOST_AT_ONCE = 16


class Turns:
    """Requests under way by caller; kept by the loop's own thread, so it needs no lock."""

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._most = most
        self._under_way: dict[str, int] = {}

    def take(self, caller: Caller) -> str:
        """Take a turn, or be refused while all of them are taken; gives back whose it is."""
        whose = caller.key or caller.actor
        if self._under_way.get(whose, 0) >= self._most:
            raise OverQuota(
                "too many requests at once",
                field="requests",
                value=self._most,
                rule=f"at most {self._most} under way for one key",
                fix="wait for an answer before the next question",
            )
        self._under_way[whose] = self._under_way.get(whose, 0) + 1
        return whose

    def leave(self, whose: str) -> None:
        """Give a turn back."""
        left = self._under_way[whose] - 1
        if left:
            self._under_way[whose] = left
        else:
            del self._under_way[whose]
