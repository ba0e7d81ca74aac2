"""What can become of an occurrence: it fires, is held, replaces, is skipped, or is counted with others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby

from msgspec import Struct

from timewright.core.decision import Candidate, Decision, Source
from timewright.core.run import Reason
from timewright.core.schedule import Standing

MOST_SKIP_ROWS = 1_000


class Fire(Struct, frozen=True, kw_only=True, gc=False):
    """Becomes a run now; it may start at `fire_at`."""

    planned_at: datetime
    fire_at: datetime
    source: Source
    trail: tuple[Candidate, ...] = ()
    missed: int = 0
    fired_by: tuple[int, ...] = ()


class Hold(Struct, frozen=True, kw_only=True):
    """Becomes a run that waits for its predecessor."""

    planned_at: datetime
    fire_at: datetime
    source: Source
    trail: tuple[Candidate, ...] = ()
    missed: int = 0
    fired_by: tuple[int, ...] = ()


class Replace(Struct, frozen=True, kw_only=True):
    """Becomes a run that waits while the one under way is cancelled; those held before it give way."""

    planned_at: datetime
    fire_at: datetime
    source: Source
    trail: tuple[Candidate, ...] = ()
    missed: int = 0
    fired_by: tuple[int, ...] = ()


class Skip(Struct, frozen=True, kw_only=True):
    """Does not run, and says why."""

    planned_at: datetime
    reason: Reason
    source: Source = Source.BASELINE_CRON


class Drop(Struct, frozen=True, kw_only=True):
    """Many instants that do not run, in one row: first, last, count."""

    planned_at: datetime
    last_of: datetime
    count: int
    reason: Reason
    source: Source = Source.BASELINE_CRON


Started = Fire | Hold | Replace
Verdict = Fire | Hold | Replace | Skip | Drop


class Admission(Struct, frozen=True, gc=False):
    """Every verdict of one pass, where the schedule stands after it, and what comes next."""

    verdicts: tuple[Verdict, ...]
    standing: Standing
    decision: Decision
    more: bool = False


def collapsed(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Oldest first; beyond a thousand skips, those in a row with one reason become a row that counts them."""
    ordered = sorted(verdicts, key=lambda verdict: verdict.planned_at)
    if (
        len(ordered) <= MOST_SKIP_ROWS
        or sum(isinstance(verdict, Skip) for verdict in ordered) <= MOST_SKIP_ROWS
    ):
        return tuple(ordered)
    return tuple(_counted(ordered))


def _counted(ordered: list[Verdict]) -> Iterator[Verdict]:
    # What started breaks a row of skips: a drop may not span an instant that has a row of its own.
    for reason, group in groupby(ordered, key=lambda verdict: getattr(verdict, "reason", None)):
        row = list(group)
        if reason is None or len(row) == 1:
            yield from row
            continue
        first, last = row[0], row[-1]
        yield Drop(
            planned_at=first.planned_at,
            last_of=last.planned_at,
            count=len(row),
            reason=reason,
            source=first.source,
        )
