"""Statistics over finished runs: counts per outcome, durations, start delays and trends."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import median_high, median_low

from msgspec import Struct

from timewright.core.moments import HOUR, ZERO
from timewright.errors import InvalidInput

MAX_POINTS = 200

SUCCESSES = frozenset({"succeeded"})
FAILURES = frozenset({"failed", "timed_out", "lost", "parked"})


class RunSample(Struct, frozen=True):
    """One finished run; one that never started has no `started_at`."""

    planned_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str


class DurationStats(Struct, frozen=True):
    """Median, 95th percentile, maximum and average of a set of durations; None if the set is empty."""

    median: timedelta | None = None
    p95: timedelta | None = None
    longest: timedelta | None = None
    average: timedelta | None = None


class HistoryStats(Struct, frozen=True, kw_only=True):
    """Statistics of the runs in a time window.

    `success_rate` covers only runs that succeeded or failed, not skipped or cancelled ones. `streak` is the
    number of failures at the end of the window.
    """

    since: datetime
    until: datetime
    total: int = 0
    outcomes: dict[str, int] = {}
    success_rate: float | None = None
    streak: int = 0
    duration: DurationStats = DurationStats()
    delay: DurationStats = DurationStats()
    per_hour: float = 0.0
    last_at: datetime | None = None


def compute_stats(samples: Sequence[RunSample], *, since: datetime, until: datetime) -> HistoryStats:
    """Compute the statistics of runs that ended from `since` (inclusive) to `until` (exclusive)."""
    if until <= since:
        raise InvalidInput(
            f"a window from {since.isoformat()} to {until.isoformat()} is empty",
            field="until",
            value=until.isoformat(),
            rule="until is after since",
            fix="swap them",
        )
    inside = sorted((sample for sample in samples if since <= _end_time(sample) < until), key=_sort_key)
    if not inside:
        return HistoryStats(since=since, until=until)
    ran = [sample for sample in inside if sample.started_at is not None]
    return HistoryStats(
        since=since,
        until=until,
        total=len(inside),
        outcomes=dict(sorted(Counter(sample.outcome for sample in inside).items())),
        success_rate=_success_rate(inside),
        streak=_streak(inside),
        duration=duration_stats([_duration(sample) for sample in ran if sample.finished_at is not None]),
        delay=duration_stats(
            [sample.started_at - sample.planned_at for sample in ran if sample.started_at is not None]
        ),
        per_hour=len(ran) / ((until - since) / HOUR),
        last_at=_end_time(inside[-1]),
    )


def duration_stats(durations: Sequence[timedelta]) -> DurationStats:
    """Compute median, 95th percentile, maximum and average; percentiles are values from the list."""
    if not durations:
        return DurationStats()
    ordered = sorted(durations)
    return DurationStats(
        median=percentile(ordered, 50),
        p95=percentile(ordered, 95),
        longest=ordered[-1],
        average=sum(ordered, ZERO) / len(ordered),
    )


def percentile(ordered: Sequence[timedelta], percent: int) -> timedelta:
    """Return the nearest-rank percentile of a sorted list."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def trend(values: Sequence[float], *, positions: Sequence[float] | None = None) -> float:
    """Return the slope of the values per step: the median slope over all pairs of the newest 200.

    With `positions`, a step is one unit of them, such as a minute; pairs at the same position are ignored.

    This is the Theil-Sen estimator: one outlier in five does not change it. Non-finite values are ignored but
    keep their position. With fewer than two values the slope is 0.
    """
    x_values = positions if positions is not None else range(len(values))
    newest = zip(x_values[-MAX_POINTS:], values[-MAX_POINTS:], strict=True)
    points = [(x, y) for x, y in newest if math.isfinite(y)]
    pairs = [(x2 - x1, b - a) for n, (x1, a) in enumerate(points) for x2, b in points[n + 1 :]]
    slopes = [rise / step for step, rise in pairs if step]
    finite = [slope for slope in slopes if math.isfinite(slope)]
    # Halve before adding, because the sum of two large slopes may overflow to infinity.
    return median_low(finite) / 2 + median_high(finite) / 2 if finite else 0.0


def _end_time(sample: RunSample) -> datetime:
    """Return when the run ended; an occurrence that never ran counts at its planned instant."""
    return sample.finished_at or sample.started_at or sample.planned_at


def _sort_key(sample: RunSample) -> tuple[datetime, datetime, str]:
    return _end_time(sample), sample.planned_at, sample.outcome


def _duration(sample: RunSample) -> timedelta:
    # The difference is negative if the clock was set back during the run.
    return (
        max(ZERO, sample.finished_at - sample.started_at)
        if sample.finished_at and sample.started_at
        else ZERO
    )


def _success_rate(samples: Sequence[RunSample]) -> float | None:
    good = sum(sample.outcome in SUCCESSES for sample in samples)
    bad = sum(sample.outcome in FAILURES for sample in samples)
    return good / (good + bad) if good + bad else None


def _streak(ordered: Sequence[RunSample]) -> int:
    """Return the failures since the last success; other outcomes are ignored."""
    streak = 0
    for sample in reversed(ordered):
        if sample.outcome in SUCCESSES:
            break
        streak += sample.outcome in FAILURES
    return streak
