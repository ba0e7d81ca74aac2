"""A decision: the chosen instant, its source, and the rejected candidates."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from timewright.core.moments import format_instant

MAX_TRAIL = 16


class Source(StrEnum):
    """What an instant came from."""

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
    """A rejected instant, and why it was rejected."""

    at: datetime | None
    source: Source
    why: str


class Decision(Struct, frozen=True, gc=False):
    """The chosen instant, its source, and the rejected candidates in `trail`."""

    at: datetime | None
    source: Source
    trail: tuple[Candidate, ...] = ()

    def override(self, at: datetime | None, source: Source, *, why: str) -> Decision:
        """Return a decision for another instant; this one joins the trail with the reason it was rejected."""
        return Decision(at, source, (*self.trail, Candidate(self.at, self.source, why))[-MAX_TRAIL:])

    def with_rejected(self, at: datetime | None, source: Source, *, why: str) -> Decision:
        """Return the same decision with one more rejected candidate."""
        return Decision(self.at, self.source, (*self.trail, Candidate(at, source, why))[-MAX_TRAIL:])

    def explain(self) -> str:
        """Return the decision on a few lines: the chosen instant, and each rejected one with its reason."""
        chosen = format_instant(self.at) if self.at else "nothing further"
        lines = [f"{chosen}  ({self.source})"]
        for rejected in self.trail:
            when = format_instant(rejected.at) if rejected.at else "nothing"
            lines.append(f"  over {when}  ({rejected.source}): {rejected.why}")
        return "\n".join(lines)
