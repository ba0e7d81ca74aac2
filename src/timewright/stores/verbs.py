"""What every group of verbs stands on: a way to run statements, and the limits of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from timewright.core.run import Run
from timewright.errors import Conflict, InvalidInput
from timewright.ports import Turn
from timewright.stores.revisions import Revisions
from timewright.stores.rows import (
    Row,
)

LONGEST_PAGE = 1_000
LAST = "\U0010ffff"


class Speaker(Protocol):
    """Runs statements of the book in one open transaction.

    `drafting` says that revisions were written which nobody has committed yet: they may still be undone.
    `is_far` says that every statement is a journey to a server and back, and that others write there at the
    same time: near, whoever writes is alone, and rows need not be locked.
    """

    revisions: Revisions
    drafting: bool
    is_far: bool

    def ask(self, name: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run one statement; gives back its rows."""
        ...

    def tell(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run one statement for many rows; gives back what it returns."""
        ...

    def keep(self, name: str, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Run one statement for many rows that come as columns.

        Gives back the first column of those that took effect; all of it where the statement does not say.
        """
        ...

    def take_turn(self, *, patience: timedelta) -> Turn:
        """Be alone with something until the transaction ends, or not; the clock is read after the wait."""
        ...

    def now(self) -> datetime:
        """The store's clock."""
        ...

    def make_ready(self) -> None:
        """Leave to the commit as little as there can be."""
        ...


class Verbs:
    """A group of verbs in one open transaction."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._ask = speaker.ask
        self._tell = speaker.tell
        self._keep = speaker.keep

    def now(self) -> datetime:
        """The store's clock, read in this transaction: after all it waited for."""
        return self._speaker.now()

    def make_ready(self) -> None:
        """Bring what is written to the disk, uncommitted, where that leaves less for the commit to do."""
        self._speaker.make_ready()

    def _hold_for(self, runs: Sequence[Run]) -> None:
        rows = [(gate, run.id, run.fence) for run in runs for gate in run.gates]
        if rows:
            self._tell("insert_holds", rows)


def page_limit(asked: int) -> int:
    """The limit that was asked for; one out of range is refused."""
    if not 1 <= asked <= LONGEST_PAGE:
        raise InvalidInput(
            f"limit {asked} is out of range",
            field="limit",
            value=asked,
            rule=f"1 to {LONGEST_PAGE}",
            fix="limit: 50, and the cursor of the answer for the next page",
        )
    return asked


def stale_revision(what: str, asked: int, last: int) -> Conflict:
    """An edit that names another revision than the last."""
    return Conflict(
        f"{what} is at revision {last}, not {asked}",
        field="revision",
        value=asked,
        rule="an edit names the revision it replaces",
        fix=f"read it again and replace revision {last}",
    )
