"""How fast runs end here, and so how many may be leased ahead of those that are under way."""

from __future__ import annotations

# So much work is taken ahead as is done in this time, and never more runs than that.
AHEAD_SECONDS = 0.2
MOST_AHEAD = 2000
# Fewer than these say nothing about a pace; where fewer may be under way, none are taken ahead.
HANDFUL = 32


class Pace:
    """Runs that end in no time would wait for the store between one handful and the next; so we take more.

    Time in which nothing was under way says nothing. Runs that took long and happened to end together are not
    quick: so many at once as may be, each taking as long as it took, is as fast as it goes.
    """

    def __init__(self) -> None:
        self._rate = 0.0
        self._since = 0.0
        self._ended = 0
        self._busy = 0.0
        self._taken = 0.0

    def begin(self, moment: float) -> None:
        """Something starts where nothing was under way."""
        self._since = moment

    def ended(self, *, moment: float, began: float, most: int) -> None:
        """A run ended that began then; a slower pace is believed less quickly than a faster one."""
        self._busy += max(moment - self._since, 0.0)
        self._since = moment
        self._ended += 1
        self._taken += moment - began
        is_handful = self._ended >= HANDFUL <= most
        if self._busy <= 0.0 or not (is_handful or self._busy >= AHEAD_SECONDS):
            return
        rate = self._ended / max(self._busy, self._taken / most) if is_handful else 0.0
        self._rate = max(rate, self._rate / 2)
        self._ended, self._busy, self._taken = 0, 0.0, 0.0

    @property
    def ahead(self) -> int:
        """How many runs end in a moment."""
        return min(int(self._rate * AHEAD_SECONDS), MOST_AHEAD)
