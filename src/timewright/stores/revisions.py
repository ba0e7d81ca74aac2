"""What schedules said, kept in memory for a while: a revision that is committed never changes."""

from __future__ import annotations

from time import monotonic

from timewright.core.budgets import Book
from timewright.core.schedule import Schedule
from timewright.ports import Due
from timewright.stores.rows import Row

MOST_KEPT = 20_000
MOST_LOOKS = 4_096
KEPT_SECONDS = 60.0
NO_BOOK_SECONDS = 1.0

Pair = tuple[str, int]


class Revisions:
    """The schedules that were read lately, by id and revision; shared by the transactions of one store.

    All are forgotten once a minute, so a store that was restored behind our back is soon read anew.
    """

    def __init__(self) -> None:
        self._kept: dict[Pair, Schedule] = {}
        self._looks: dict[str, tuple[Row, Due]] = {}
        self._since = monotonic()
        self.book: tuple[int, Book] | None = None
        self.no_book_since = -KEPT_SECONDS

    def known(self) -> dict[Pair, Schedule]:
        """Those that need not be read again."""
        if monotonic() - self._since > KEPT_SECONDS:
            self._kept, self._looks, self._since = {}, {}, monotonic()
            self.book = None
        return self._kept

    def has_no_book(self) -> bool:
        """Whether there was no book of budgets a moment ago: then there is most likely none now."""
        return monotonic() - self.no_book_since < NO_BOOK_SECONDS

    def look(self, row: Row) -> Due | None:
        """What a hot row was read as, if it reads now as it did then."""
        known = self._looks.get(row[0])
        return known[1] if known is not None and known[0] == row else None

    def keep_look(self, row: Row, due: Due) -> None:
        """Remember what a hot row was read as, beside the row itself."""
        if len(self._looks) >= MOST_LOOKS:
            self._looks = {}
        self._looks[row[0]] = (row, due)

    def keep(self, read: dict[Pair, Schedule]) -> None:
        """Remember what was read; where there is no room, the others are forgotten."""
        if len(self._kept) + len(read) > MOST_KEPT:
            self._kept = {}
        self._kept |= read
