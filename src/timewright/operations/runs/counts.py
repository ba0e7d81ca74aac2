"""How many runs ended by minute: throughput, failures and start delays of an hour, a day or a week."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.moments import EPOCH, HOUR, MINUTE, ZERO, check_storable, format_duration
from timewright.errors import InvalidInput
from timewright.ledger.records.run_counts import floor_minute
from timewright.operations.context import OperationContext
from timewright.operations.registry import OperationRequest, operations
from timewright.ports import Transaction
from timewright.ports.overview import MinuteCounts

DAY = timedelta(days=1)
MAX_PERIOD = 7 * DAY
MAX_BINS = 1440
_MICROSECOND = timedelta(microseconds=1)


class CountRuns(OperationRequest, frozen=True, kw_only=True):
    """How long a period, until when (now if left out), and the width of one bin.

    Without `step`, bins are one minute for up to two hours, five minutes for up to a day, and else an hour.
    """

    period: timedelta = DAY
    until: datetime | None = None
    step: timedelta | None = None


class CountBin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ended runs that were planned in one bin, by result, and how late they started first.

    `missed` are occurrences that no instance was there for. The median and the 95th percentile are rounded up
    to the next of some thirty bounds; `longest` is exact.
    """

    at: datetime
    succeeded: int = 0
    failed: int = 0
    parked: int = 0
    cancelled: int = 0
    skipped: int = 0
    missed: int = 0
    started: int = 0
    median: timedelta | None = None
    p95: timedelta | None = None
    longest: timedelta | None = None


class RunCountSeries(Struct, frozen=True, kw_only=True):
    """Counts of a period; bins without runs are left out.

    Runs are counted once a minute, after they ended: `counted_until` is the end of the last minute that is
    counted, None if no instance has counted yet.
    """

    since: datetime
    until: datetime
    step: timedelta
    counted_until: datetime | None
    total: CountBin
    bins: tuple[CountBin, ...]


@operations.read("run counts", scope="read", examples=({}, {"period": "1h"}, {"period": "7d", "step": "6h"}))
def count_runs_by_minute(context: OperationContext, tx: Transaction, request: CountRuns) -> RunCountSeries:
    """Count the ended runs of an hour, a day or a week by the minute they were planned in."""
    now = context.now()
    period = _check(request.period, "period", MINUTE, MAX_PERIOD, fix="period: 1d")
    step = _step(period) if request.step is None else request.step
    _check(
        step,
        "step",
        max(MINUTE, period / MAX_BINS),
        MAX_PERIOD,
        fix=f"step: {format_duration(_step(period))}",
    )
    if step % MINUTE:
        raise InvalidInput(
            "step is not a whole number of minutes",
            field="step",
            value=format_duration(step),
            rule="whole minutes",
            fix=f"step: {format_duration(_step(period))}",
        )
    end = (
        now + MINUTE - _MICROSECOND if request.until is None else check_storable(request.until, field="until")
    )
    until = floor_minute(end)
    # Bins begin at whole multiples of the step, so that they stay the same when the page asks again.
    since = EPOCH + (until - period - EPOCH) // step * step
    rows = tx.read_run_counts(context.namespace, since=since, until=until)
    counted, _ = tx.read_counted_until()
    groups: dict[datetime, list[MinuteCounts]] = {}
    for one in rows:
        groups.setdefault(since + (one.planned_minute - since) // step * step, []).append(one)
    return RunCountSeries(
        since=since,
        until=until,
        step=step,
        counted_until=counted,
        total=_bin(since, rows),
        bins=tuple(_bin(at, groups[at]) for at in sorted(groups)),
    )


def _step(period: timedelta) -> timedelta:
    return MINUTE if period <= 2 * HOUR else 5 * MINUTE if period <= DAY else HOUR


def _check(length: timedelta, field: str, least: timedelta, most: timedelta, *, fix: str) -> timedelta:
    if least <= length <= most:
        return length
    raise InvalidInput(
        f"{field} is out of range",
        field=field,
        value=format_duration(length),
        rule=f"{format_duration(least)} to {format_duration(most)}",
        fix=fix,
    )


def _bin(at: datetime, rows: Sequence[MinuteCounts]) -> CountBin:
    delays = Counter[int]()
    for one in rows:
        delays.update(one.delays)
    longest = max((one.delay_max for one in rows if one.started), default=None)
    return CountBin(
        at=at,
        succeeded=sum(one.succeeded for one in rows),
        failed=sum(one.failed for one in rows),
        parked=sum(one.parked for one in rows),
        cancelled=sum(one.cancelled for one in rows),
        skipped=sum(one.skipped for one in rows),
        missed=sum(one.missed for one in rows),
        started=delays.total(),
        median=_percentile(delays, 50, longest),
        p95=_percentile(delays, 95, longest),
        longest=longest,
    )


def _percentile(delays: Counter[int], percent: int, longest: timedelta | None) -> timedelta | None:
    """The bound below which the given percentage of delays lies, at most the longest of them."""
    if longest is None:
        return None
    rank, seen = -(-delays.total() * percent // 100), 0
    for bound in sorted(delays):
        seen += delays[bound]
        if seen >= rank:
            return max(min(bound * _MICROSECOND, longest), ZERO)
    return longest
