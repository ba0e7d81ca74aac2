"""The verdicts of admission: fire, hold, replace, skip, or drop (many skips in one row)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from itertools import groupby

from msgspec import Struct

from timewright.core.run.run import Reason
from timewright.core.schedule.decision import Candidate, Decision, Source
from timewright.core.schedule.schedule import ScheduleProgress

MAX_SKIP_ROWS = 1_000


class Fire(Struct, frozen=True, kw_only=True, gc=False):
    """The occurrence becomes a ready run that may start at `fire_at`."""

    planned_at: datetime
    fire_at: datetime
    source: Source
    trail: tuple[Candidate, ...] = ()
    missed: int = 0
    fired_by: tuple[int, ...] = ()


class Hold(Struct, frozen=True, kw_only=True):
    """The occurrence becomes a held run that waits for its predecessor."""

    planned_at: datetime
    fire_at: datetime
    source: Source
    trail: tuple[Candidate, ...] = ()
    missed: int = 0
    fired_by: tuple[int, ...] = ()


class Replace(Struct, frozen=True, kw_only=True):
    """The occurrence becomes a held run; the live run is cancelled and runs held before it are skipped."""

    planned_at: datetime
    fire_at: datetime
    source: Source
    trail: tuple[Candidate, ...] = ()
    missed: int = 0
    fired_by: tuple[int, ...] = ()


class Skip(Struct, frozen=True, kw_only=True):
    """The occurrence does not run, for a reason."""

    planned_at: datetime
    reason: Reason
    source: Source = Source.BASELINE_CRON


class Drop(Struct, frozen=True, kw_only=True):
    """Many consecutive skipped occurrences in one row: first, last and count."""

    planned_at: datetime
    last_of: datetime
    count: int
    reason: Reason
    source: Source = Source.BASELINE_CRON


Verdict = Fire | Hold | Replace | Skip | Drop


class Admission(Struct, frozen=True, gc=False):
    """The verdicts of one pass, the progress after it, and the next decision."""

    verdicts: tuple[Verdict, ...]
    progress: ScheduleProgress
    decision: Decision
    more: bool = False


def collapse_skips(verdicts: Iterable[Verdict], *, decided: Collection[datetime] = ()) -> tuple[Verdict, ...]:
    """Sort the verdicts; beyond 1000 skips, replace consecutive ones with the same reason by one `Drop`.

    A drop does not span the instants in `decided`, which have a row of their own.
    """
    ordered = sorted(verdicts, key=lambda verdict: verdict.planned_at)
    if (
        len(ordered) <= MAX_SKIP_ROWS
        or sum(isinstance(verdict, Skip) for verdict in ordered) <= MAX_SKIP_ROWS
    ):
        return tuple(ordered)
    return tuple(_group_skips(ordered, sorted(decided)))


def _group_skips(ordered: list[Verdict], decided: list[datetime]) -> Iterator[Verdict]:
    # A started run ends a group: a drop must not span an instant that has its own row.
    by_reason = groupby(ordered, key=lambda one: (_group_reason(one), bisect_left(decided, one.planned_at)))
    for (reason, _), group in by_reason:
        row = list(group)
        if reason is None or len(row) == 1:
            yield from row
            continue
        first, last = row[0], row[-1]
        yield Drop(
            planned_at=first.planned_at,
            last_of=last.last_of if isinstance(last, Drop) else last.planned_at,
            count=sum(verdict.count if isinstance(verdict, Drop) else 1 for verdict in row),
            reason=reason,
            source=first.source,
        )


def _group_reason(verdict: Verdict) -> Reason | None:
    """Return the reason of a skip. Missed and clamped instants alternate, so both count as missed."""
    if not isinstance(verdict, Skip | Drop):
        return None
    return Reason.MISSED if verdict.reason is Reason.CLAMPED else verdict.reason
