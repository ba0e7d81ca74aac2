"""Counts the ended runs by minute, once a minute and in the background, so that charts read few rows.

The counts are made from the run rows, never kept up by settlements. Counting a minute again gives the same
result, so the last minutes are counted several times: a settlement may commit a moment after its instant.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from timewright.core.moments import MINUTE, SECOND
from timewright.ports import Store, Transaction
from timewright.ports.overview import FinishedRunCounts, FinishInstant, RunCountChange

# A settlement commits milliseconds after the instant it writes; a blocked process may take longer.
RECOUNTED = 3 * MINUTE
# A chart shows at most a week.
KEEP_COUNTS = timedelta(days=8)
MAX_ROWS_PER_PASS = 50_000
MAX_RECOUNTED_MINUTES = 60


def count_runs(store: Store, *, now: datetime) -> datetime | None:
    """Count the runs that ended in the minutes before `now`; return until when all are counted.

    Reads in one transaction and writes in another, which is short. None if another instance was faster.
    """
    change = store.read(lambda tx: _count(tx, now=now))
    if not change.minutes:
        return change.counted_until
    return change.counted_until if store.write(lambda tx: tx.save_run_counts(change)) else None


def _count(tx: Transaction, *, now: datetime) -> RunCountChange:
    counted, recounts = tx.read_counted_until()
    keep_since = floor_minute(now - KEEP_COUNTS)
    since = max(counted - RECOUNTED, keep_since) if counted is not None else keep_since
    until = _end(tx, since, now=now)
    if counted is not None and until <= counted:
        return RunCountChange(
            counted_until=counted, expected_until=counted, minutes=(), counts=(), keep_since=keep_since
        )
    again = sorted({at for at in recounts.values() if keep_since <= at and not since <= at < until})
    again = again[:MAX_RECOUNTED_MINUTES]
    minutes = ((since, until), *((at, at + MINUTE) for at in again))
    return RunCountChange(
        counted_until=until,
        expected_until=counted,
        minutes=minutes,
        counts=tuple(
            one for start, end in minutes for one in tx.select(FinishedRunCounts(since=start, until=end))
        ),
        # A minute at or after `until` is counted later anyway.
        recount_ids=tuple(i for i, at in recounts.items() if at < keep_since or at >= since or at in again),
        keep_since=keep_since,
    )


def _end(tx: Transaction, since: datetime, *, now: datetime) -> datetime:
    """The end of the minutes to count: now, or earlier if a large number of runs ended since."""
    last = floor_minute(now)
    crowded = tx.select(FinishInstant(since=since, offset=MAX_ROWS_PER_PASS))
    if not crowded:
        return last
    return min(last, max(floor_minute(crowded[0]), since + RECOUNTED + MINUTE))


def floor_minute(at: datetime) -> datetime:
    """Return the start of the minute of an instant."""
    return at - timedelta(seconds=at.second, microseconds=at.microsecond)


def is_counting_due(counted: datetime | None, *, now: datetime) -> bool:
    """Whether a whole minute has passed since; not in its first seconds, when most schedules are due."""
    return counted is None or now >= counted + MINUTE + 2 * SECOND
