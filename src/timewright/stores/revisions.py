"""What schedules said, kept in memory for a while: a revision that is committed never changes."""

from __future__ import annotations

from time import monotonic

from timewright.core.schedule import Schedule

MOST_KEPT = 20_000
KEPT_SECONDS = 60.0

Pair = tuple[str, int]


class Revisions:
    """The schedules that were read lately, by id and revision; shared by the transactions of one store.

    All are forgotten once a minute, so a store that was restored behind our back is soon read anew.
    """

    def __init__(self) -> None:
        self._kept: dict[Pair, Schedule] = {}
        self._since = monotonic()

    def known(self) -> dict[Pair, Schedule]:
        """Those that need not be read again."""
        if monotonic() - self._since > KEPT_SECONDS:
            self._kept, self._since = {}, monotonic()
        return self._kept

    def keep(self, read: dict[Pair, Schedule]) -> None:
        """Remember what was read; where there is no room, the others are forgotten."""
        if len(self._kept) + len(read) > MOST_KEPT:
            self._kept = {}
        self._kept |= read
