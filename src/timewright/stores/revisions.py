"""What schedules said, kept in memory for a while: a revision that is committed never changes."""

from __future__ import annotations

from time import monotonic

from timewright.core.budgets import Book
from timewright.core.schedule import Schedule
from timewright.ports import Due, Page
from timewright.ports.looks import Look, Shown
from timewright.stores.rows import Row

MOST_KEPT = 20_000
MOST_LOOKS = 4_096
MOST_PAGES = 128
KEPT_SECONDS = 60.0
NO_BOOK_SECONDS = 1.0

Pair = tuple[str, int]
# What a page depends on: the namespace, how many were asked for, and every row of it as one text.
Asked = tuple[str, int, str]


class Revisions:
    """The schedules that were read lately, by id and revision; shared by the transactions of one store.

    All are forgotten once a minute, so a store that was restored behind our back is soon read anew. `alone`
    says that nobody else can write there.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self.alone = alone
        self._kept: dict[Pair, Schedule] = {}
        self._looks: dict[str, tuple[Row, Due]] = {}
        self._close: dict[str, tuple[Row, Look]] = {}
        # What the lines of lists were read as; each says all that its row does.
        self.shown: dict[str, Shown] = {}
        self._pages: dict[Asked, Page] = {}
        self._since = monotonic()
        self.book: tuple[int, Book] | None = None
        self.no_book_since = -KEPT_SECONDS

    def known(self) -> dict[Pair, Schedule]:
        """Those that need not be read again."""
        if monotonic() - self._since > KEPT_SECONDS:
            self._kept, self._looks, self._since = {}, {}, monotonic()
            self._close, self.shown, self._pages = {}, {}, {}
            self.book = None
        return self._kept

    def has_no_book(self) -> bool:
        """Whether there was no book of budgets a moment ago: then there is most likely none now.

        Where nobody else writes there is none as long as we have made none.
        """
        return self.no_book_since > 0 if self.alone else monotonic() - self.no_book_since < NO_BOOK_SECONDS

    def look(self, row: Row) -> Due | None:
        """What a hot row was read as, if it reads now as it did then."""
        known = self._looks.get(row[0])
        return known[1] if known is not None and known[0] == row else None

    def keep_look(self, row: Row, due: Due) -> None:
        """Remember what a hot row was read as, beside the row itself."""
        if len(self._looks) >= MOST_LOOKS:
            self._looks = {}
        self._looks[row[0]] = (row, due)

    def look_before(self, row: Row) -> Look | None:
        """The same for a row with all that stands beside it."""
        known = self._close.get(row[0])
        return known[1] if known is not None and known[0] == row else None

    def keep_look_at(self, row: Row, look: Look) -> None:
        """Remember it."""
        if len(self._close) >= MOST_LOOKS:
            self._close = {}
        self._close[row[0]] = (row, look)

    def keep_shown(self, read: dict[str, Shown]) -> None:
        """Remember what lines were read as."""
        if len(self.shown) + len(read) > MOST_LOOKS:
            self.shown = {}
        self.shown |= read

    def page(self, asked: Asked) -> Page | None:
        """What the rows of a whole page were read as."""
        return self._pages.get(asked)

    def keep_page(self, asked: Asked, page: Page) -> None:
        """Remember it."""
        if len(self._pages) >= MOST_PAGES:
            self._pages = {}
        self._pages[asked] = page

    def keep(self, read: dict[Pair, Schedule]) -> None:
        """Remember what was read; where there is no room, the others are forgotten."""
        if len(self._kept) + len(read) > MOST_KEPT:
            self._kept = {}
        self._kept |= read
