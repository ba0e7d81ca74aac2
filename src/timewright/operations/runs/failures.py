"""Failures by cause: failed and parked runs grouped by schedule and message, and retried together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.facts import Fact
from timewright.core.run.run import Run, RunState
from timewright.errors import InvalidInput, TimewrightError
from timewright.ledger.settle import reopen, reset
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule
from timewright.operations.registry import OperationRequest, WriteRequest, operations
from timewright.operations.views import schedule_names_of
from timewright.ports import RunFilter, Transaction

DAY = timedelta(days=1)
PAGE_ROWS = 1000
MAX_RUNS_READ = 5000
MAX_CAUSE_CHARS = 200
MAX_RETRIED = 500
_STATES = (RunState.FAILED, RunState.PARKED)
# What differs between two failures of the same cause: instants, ids, hexadecimal and other numbers.
_VARIABLE = re.compile(
    r"""\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?   # an instant
    | \b[a-z]{2,12}_[0-9A-HJKMNP-TV-Z]{26}\b                                   # an id of ours
    | \b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b                 # a UUID
    | \b0x[0-9a-fA-F]+\b
    | \b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b                        # a hash
    | \d+(?:[.,]\d+)*""",
    re.VERBOSE,
)


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
    incidents = {
        one.schedule_id: one.id
        for one in tx.find_incidents(context.namespace, open_only=True, limit=PAGE_ROWS).rows
        if one.schedule_id
    }
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
    by = context.actor_with_reason(request.reason)
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
    return _VARIABLE.sub("#", text.splitlines()[0].strip()[: 2 * MAX_CAUSE_CHARS])[:MAX_CAUSE_CHARS]


def _failed_runs(
    tx: Transaction, namespace: str, *, schedule: str, since: datetime
) -> tuple[Sequence[Run], bool]:
    """The newest failed and parked runs, at most 5000, newest first, and whether there are more."""
    schedule_id = find_schedule(tx, namespace, schedule).schedule.id if schedule else None
    found: list[Run] = []
    more = False
    for state in _STATES:
        cursor = ""
        for _ in range(MAX_RUNS_READ // PAGE_ROWS):
            page = tx.find_runs(
                RunFilter(
                    namespace=namespace,
                    schedule_id=schedule_id,
                    state=state,
                    since=since,
                    limit=PAGE_ROWS,
                    cursor=cursor,
                )
            )
            found += page.rows
            cursor = page.cursor
            if not cursor:
                break
        more = more or bool(cursor)
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
