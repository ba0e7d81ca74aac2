"""How fast runs end here, and so how many may be leased ahead of those that are under way."""

from __future__ import annotations

# So much work is taken ahead as is done in this time, and never more runs than that.
AHEAD_SECONDS = 0.1
MOST_AHEAD = 1000
# Fewer than these say nothing about a pace.
HANDFUL = 32


class Pace:
    """Runs that end in no time would wait for the store between one handful and the next; so we take more."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._since = 0.0

    def begin(self, moment: float) -> None:
        """Something starts where nothing was under way: until now there was nothing to count."""
        self._since = moment

    def ended(self, count: int, *, moment: float) -> None:
        """So many ended since the last time; a slower pace is believed less quickly than a faster one."""
        seconds, self._since = moment - self._since, moment
        rate = count / seconds if seconds > 0 and count >= HANDFUL else 0.0
        self._rate = max(rate, self._rate / 2)

    @property
    def ahead(self) -> int:
        """How many runs end in a moment."""
        return min(int(self._rate * AHEAD_SECONDS), MOST_AHEAD)
