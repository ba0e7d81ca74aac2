"""What a list of finished runs says: how many ended how, how long they took, how late they started."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import median_high, median_low

from msgspec import Struct

from timewright.core.moments import HOUR, ZERO
from timewright.errors import InvalidInput

MOST_POINTS = 200

SUCCESSES = frozenset({"succeeded"})
FAILURES = frozenset({"failed", "timed_out", "lost", "parked"})


class Sample(Struct, frozen=True):
    """One run as history keeps it; one that never started has no start."""

    planned_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str


class Spread(Struct, frozen=True):
    """Where a set of durations lies; nothing in it means there were none."""

    median: timedelta | None = None
    p95: timedelta | None = None
    longest: timedelta | None = None
    average: timedelta | None = None


class Tally(Struct, frozen=True, kw_only=True):
    """A window of history in numbers.

    `success_rate` is over the runs that succeeded or failed; skipped and cancelled ones say nothing about
    the work. `streak` is how many failures the window ends with.
    """

    since: datetime
    until: datetime
    total: int = 0
    outcomes: dict[str, int] = {}
    success_rate: float | None = None
    streak: int = 0
    duration: Spread = Spread()
    delay: Spread = Spread()
    per_hour: float = 0.0
    last_at: datetime | None = None


def tally(samples: Sequence[Sample], *, since: datetime, until: datetime) -> Tally:
    """Count the runs that ended from `since` up to, but not including, `until`, whatever their order."""
    if until <= since:
        raise InvalidInput(
            f"a window from {since.isoformat()} to {until.isoformat()} holds nothing",
            field="until",
            value=until.isoformat(),
            rule="until is after since",
            fix="swap them",
        )
    inside = sorted((one for one in samples if since <= _ended(one) < until), key=_in_order)
    if not inside:
        return Tally(since=since, until=until)
    ran = [one for one in inside if one.started_at is not None]
    return Tally(
        since=since,
        until=until,
        total=len(inside),
        outcomes=dict(sorted(Counter(one.outcome for one in inside).items())),
        success_rate=_success_rate(inside),
        streak=_streak(inside),
        duration=spread([_duration(one) for one in ran if one.finished_at is not None]),
        delay=spread([one.started_at - one.planned_at for one in ran if one.started_at is not None]),
        per_hour=len(ran) / ((until - since) / HOUR),
        last_at=_ended(inside[-1]),
    )


def spread(durations: Sequence[timedelta]) -> Spread:
    """Median, 95th percentile, longest and average; percentiles are durations that occurred."""
    if not durations:
        return Spread()
    ordered = sorted(durations)
    return Spread(
        median=percentile(ordered, 50),
        p95=percentile(ordered, 95),
        longest=ordered[-1],
        average=sum(ordered, ZERO) / len(ordered),
    )


def percentile(ordered: Sequence[timedelta], percent: int) -> timedelta:
    """The smallest of a sorted list that so many percent do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def trend(values: Sequence[float], *, places: Sequence[float] | None = None) -> float:
    """How much the values rise a step: the median slope over all pairs of the newest 200.

    With `places` a step is one unit of them, such as a minute; two values in one place say nothing.

    One outlier in five does not move it (Theil and Sen). What is not a finite number is left out and keeps
    its place. Fewer than two values have no trend: 0.
    """
    where = places if places is not None else range(len(values))
    newest = zip(where[-MOST_POINTS:], values[-MOST_POINTS:], strict=True)
    points = [(x, y) for x, y in newest if math.isfinite(y)]
    pairs = [(x2 - x1, b - a) for n, (x1, a) in enumerate(points) for x2, b in points[n + 1 :]]
    slopes = [rise / step for step, rise in pairs if step]
    finite = [slope for slope in slopes if math.isfinite(slope)]
    # Halves first, because the sum of two large slopes may not be a number any more.
    return median_low(finite) / 2 + median_high(finite) / 2 if finite else 0.0


def _ended(one: Sample) -> datetime:
    """When its fate was known; an occurrence that never ran is taken at its planned instant."""
    return one.finished_at or one.started_at or one.planned_at


def _in_order(one: Sample) -> tuple[datetime, datetime, str]:
    return _ended(one), one.planned_at, one.outcome


def _duration(one: Sample) -> timedelta:
    # A clock that was set back between start and end would make it negative.
    return max(ZERO, one.finished_at - one.started_at) if one.finished_at and one.started_at else ZERO


def _success_rate(samples: Sequence[Sample]) -> float | None:
    good = sum(one.outcome in SUCCESSES for one in samples)
    bad = sum(one.outcome in FAILURES for one in samples)
    return good / (good + bad) if good + bad else None


def _streak(ordered: Sequence[Sample]) -> int:
    """Failures since the last success; what neither succeeded nor failed does not count."""
    streak = 0
    for one in reversed(ordered):
        if one.outcome in SUCCESSES:
            break
        streak += one.outcome in FAILURES
    return streak
