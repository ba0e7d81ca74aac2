"""The dangers that a simulation must have met: one that was never seen proves nothing about it."""

from __future__ import annotations

from collections.abc import Mapping

DANGERS = (
    "crash injected",
    "everyone killed at once",
    "killed by its own work",
    "process stopped",
    "process stopped at a store call",
    "stopped gracefully",
    "store away",
    "store outage",
    "store clock stepped",
    "clock step seen: hold",
    "clock step seen: outage",
    "answer lost before commit",
    "answer lost after commit",
    "stale answer refused",
    "stale heartbeat refused",
    "lease expired while its holder was alive",
    "holder asked to stop",
    "parked by crash budget",
    "parked: unknown",
    "refund used",
    "gap written",
    "catch-up limit reached",
    "hint clamped",
    "client key known already",
    "source: ai-interval",
    "source: ai-oneshot",
    "source: backfill",
    "clock change: gap decided",
    "clock change: fold decided",
    "skipped: overlap",
    "skipped: missed",
    "skipped: paused",
    "skipped: deadline",
    "skipped: queue_full",
    "skipped: superseded",
)

# What others count and we cannot meet, and why.
WITHOUT = {
    "unique-key conflict": "the row of a schedule is locked from look to write, so nobody decides twice",
    "slot reconciled": "a place under a ceiling is written and freed in the transaction of its lease",
    "epoch hold entered": "a restored or copied store is not told from its original yet",
}


def unmet(counts: Mapping[str, int]) -> list[str]:
    """The dangers that were not met."""
    return [danger for danger in DANGERS if not counts.get(danger)]
