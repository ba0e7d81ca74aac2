"""A decision: an instant, its source, and the trail of candidates that lost."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from timewright.core.moments import spell_instant

LONGEST_TRAIL = 16


class Source(StrEnum):
    """Why an instant was chosen."""

    BASELINE_CRON = "baseline-cron"
    BASELINE_INTERVAL = "baseline-interval"
    BASELINE_ONCE = "baseline-once"
    BASELINE_AFTER = "baseline-after"
    AI_INTERVAL = "ai-interval"
    AI_ONESHOT = "ai-oneshot"
    CLAMPED_MIN = "clamped-min"
    CLAMPED_MAX = "clamped-max"
    PAUSED = "paused"
    MANUAL = "manual"
    BACKFILL = "backfill"
    RETRY = "retry"


class Candidate(Struct, frozen=True):
    """An instant that was considered and lost, and why."""

    at: datetime | None
    source: Source
    why: str


class Decision(Struct, frozen=True, gc=False):
    """The instant that won, what it came from, and what it won against."""

    at: datetime | None
    source: Source
    trail: tuple[Candidate, ...] = ()

    def over(self, at: datetime | None, source: Source, *, why: str) -> Decision:
        """A new decision that beats this one; this one joins the trail with the reason it lost."""
        return Decision(at, source, (*self.trail, Candidate(self.at, self.source, why))[-LONGEST_TRAIL:])

    def against(self, at: datetime | None, source: Source, *, why: str) -> Decision:
        """The same decision, with one more candidate that lost to it."""
        return Decision(self.at, self.source, (*self.trail, Candidate(at, source, why))[-LONGEST_TRAIL:])

    def explain(self) -> str:
        """The decision in a few lines: what was chosen, and each loser with its reason."""
        chosen = spell_instant(self.at) if self.at else "nothing further"
        lines = [f"{chosen}  ({self.source})"]
        for lost in self.trail:
            when = spell_instant(lost.at) if lost.at else "nothing"
            lines.append(f"  over {when}  ({lost.source}): {lost.why}")
        return "\n".join(lines)
