"""Failed runs by cause, and counts of runs by minute."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.facts import Fact
from timewright.core.moments import DAY, EPOCH, HOUR, MINUTE, ZERO, check_storable, format_duration
from timewright.core.run.run import Run, RunState
from timewright.errors import InvalidInput, TimewrightError
from timewright.ledger.records.run_counts import floor_minute
from timewright.ledger.settle import reopen, reset
from timewright.ledger.snapshot import all_runs
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule
from timewright.operations.registry import OperationRequest, WriteRequest, operations
from timewright.operations.request_parsing import check_length
from timewright.operations.views import schedule_names_of
from timewright.ports import RunFilter, Transaction
from timewright.ports.overview import MinuteCounts, StoredRunCounts
from timewright.ports.rows import IncidentFilter

PAGE_ROWS = 1000
MAX_RUNS_READ = 5000
MAX_CAUSE_CHARS = 200
MAX_RETRIED = 500
_STATES = (RunState.FAILED, RunState.PARKED)
_COUNTED = ("succeeded", "failed", "parked", "cancelled", "skipped", "missed")
# What differs between two failures of the same cause: instants, ids, hexadecimal and other numbers. Codes are
# kept, because `HTTP 404` and `HTTP 503` are two causes.
_VARIABLE = re.compile(
    r"""(?P<code>^\d{3}(?=[ ]) | \b(?i:HTTP(?:/[\d.]+)?|status|code|errno|exit|signal)[ ]?[:=]?[ ]?-?\d+\b)
    | \d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?   # an instant
    | \b[a-z]{2,12}_[0-9A-HJKMNP-TV-Z]{26}\b                                   # an id of ours
    | \b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b                 # a UUID
    | \b0x[0-9a-fA-F]+\b
    | \b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b                        # a hash
    | \d+(?:[.,]\d+)*""",
    re.VERBOSE,
)

MAX_PERIOD = 7 * DAY
MAX_BINS = 1440
_MICROSECOND = timedelta(microseconds=1)


class ListFailures(OperationRequest, frozen=True, kw_only=True):
    """Since when (a day ago if left out), of which schedule, and how many causes."""

    since: datetime | None = None
    schedule: str = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class FailureCause(Struct, frozen=True, kw_only=True):
    """Runs of one schedule or queue that ended with the same message, in which numbers and ids are `#`.

    `since` and `last_at` are the ends of the first and of the last of them; `run` and `error` are those of
    the last. `incident` is the open incident of the schedule, if there is one.
    """

    cause: str
    schedule: str
    schedule_id: str
    queue: str
    count: int
    parked: int
    since: datetime
    last_at: datetime
    run: str
    error: str
    incident: str = ""


class FailureCauses(Struct, frozen=True, kw_only=True):
    """Causes, the most frequent first. `runs` were read; `more` means that there are further ones."""

    since: datetime
    causes: tuple[FailureCause, ...]
    runs: int
    more: bool


class RetryFailures(WriteRequest, frozen=True, kw_only=True):
    """Which runs: those of a cause that `run failures` has listed, or all of a schedule or queue.

    Failed runs are retried and parked ones reset, the oldest first, at most 500 of them.
    """

    schedule: str = ""
    queue: str = ""
    cause: Annotated[str, Meta(max_length=MAX_CAUSE_CHARS)] = ""
    since: datetime | None = None


class RetriedFailures(Struct, frozen=True, kw_only=True):
    """How many runs were restarted, the runs that were not and why, and whether further ones match."""

    retried: int
    refused: dict[str, str]
    more: bool


@operations.read("run failures", scope="read", examples=({}, {"schedule": "nightly-report"}))
def list_failures(context: OperationContext, tx: Transaction, request: ListFailures) -> FailureCauses:
    """List failed and parked runs by cause: the schedule and the message without its numbers and ids."""
    since = request.since or context.now() - DAY
    runs, more = _failed_runs(tx, context.namespace, schedule=request.schedule, since=since)
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.schedule_id, run.queue, cause_of(run)), []).append(run)
    largest = sorted(groups.items(), key=lambda one: (-len(one[1]), one[1][0].id))[: request.limit]
    names = schedule_names_of(tx, [rows[0] for _, rows in largest])
    open_incidents = IncidentFilter(namespace=context.namespace, open_only=True, limit=PAGE_ROWS)
    incidents = {one.schedule_id: one.id for one in tx.find(open_incidents).rows if one.schedule_id}
    return FailureCauses(
        since=since,
        causes=tuple(
            _cause(cause, rows, schedule=names.get(schedule_id, ""), incident=incidents.get(schedule_id, ""))
            for (schedule_id, _, cause), rows in largest
        ),
        runs=len(runs),
        more=more,
    )


@operations.add(
    "run retry-failures",
    scope="trigger",
    examples=({"schedule": "nightly-report", "reason": "the disk has space again"},),
)
def retry_failures(context: OperationContext, request: RetryFailures) -> RetriedFailures:
    """Retry the failed runs of a cause, a schedule or a queue, and reset the parked ones."""
    if not (request.schedule or request.queue or request.cause):
        raise InvalidInput(
            "a cause, a schedule or a queue is missing",
            field="cause",
            rule="at least one of cause, schedule and queue",
            fix="timewright run failures lists the causes",
        )
    now = context.now()
    since = request.since or now - DAY

    def matching(tx: Transaction) -> tuple[list[Run], bool]:
        runs, more = _failed_runs(tx, context.namespace, schedule=request.schedule, since=since)
        return [
            run for run in runs if request.queue in ("", run.queue) and request.cause in ("", cause_of(run))
        ], more

    found, more = context.store.read(matching)
    by = context.by
    facts: list[Fact] = []
    retried, refused = 0, {}
    chosen = list(reversed(found))[:MAX_RETRIED]
    for run in chosen:
        restart = reset if run.state is RunState.PARKED else reopen
        try:
            facts += restart(
                context.store, run.id, actor=by.name, origin=by.origin, reason=by.reason, now=now
            )
            retried += 1
        except TimewrightError as error:
            refused[run.id] = error.message
    context.notify(facts)
    return RetriedFailures(retried=retried, refused=refused, more=more or len(found) > len(chosen))


def cause_of(run: Run) -> str:
    """The first line of a run's error with `#` for what differs each time, or its reason."""
    text = run.error.strip() or run.reason or "no message"
    line = text.splitlines()[0].strip()[: 2 * MAX_CAUSE_CHARS]
    return _VARIABLE.sub(lambda found: found["code"] or "#", line)[:MAX_CAUSE_CHARS]


def _failed_runs(
    tx: Transaction, namespace: str, *, schedule: str, since: datetime
) -> tuple[Sequence[Run], bool]:
    """The newest failed and parked runs, at most 5000, newest first, and whether there are more."""
    schedule_id = find_schedule(tx, namespace, schedule).schedule.id if schedule else None
    found: list[Run] = []
    more = False
    for state in _STATES:
        which = RunFilter(namespace=namespace, schedule_id=schedule_id, state=state, since=since)
        read = list(islice(all_runs(tx, which), MAX_RUNS_READ + 1))
        found += read[:MAX_RUNS_READ]
        more = more or len(read) > MAX_RUNS_READ
    return sorted(found, key=lambda run: run.id, reverse=True), more


def _cause(cause: str, rows: Sequence[Run], *, schedule: str, incident: str) -> FailureCause:
    ends = [run.finished_at or run.planned_at for run in rows]
    newest = rows[0]
    return FailureCause(
        cause=cause,
        schedule=schedule,
        schedule_id=newest.schedule_id,
        queue=newest.queue,
        count=len(rows),
        parked=sum(run.state is RunState.PARKED for run in rows),
        since=min(ends),
        last_at=max(ends),
        run=newest.id,
        error=newest.error,
        incident=incident,
    )


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
    period = check_length(request.period, "period", MINUTE, MAX_PERIOD, fix="period: 1d")
    step = _step(period) if request.step is None else request.step
    check_length(
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
    rows = tx.select(StoredRunCounts(namespace=context.namespace, since=since, until=until))
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


def _bin(at: datetime, rows: Sequence[MinuteCounts]) -> CountBin:
    delays = Counter[int]()
    for one in rows:
        delays.update(one.delays)
    longest = max((one.delay_max for one in rows if one.started), default=None)
    return CountBin(
        at=at,
        **{name: sum(getattr(one, name) for one in rows) for name in _COUNTED},
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
