"""Backfills: start, list, pause, resume and cancel them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.input.input_errors import input_error
from timewright.core.moments import HOUR, MINUTE, SECOND, ZERO, format_instant
from timewright.errors import InvalidInput
from timewright.ledger.backfills.records import Backfill, BackfillState, get_backfill, list_backfills
from timewright.ledger.backfills.start import (
    BackfillTerms,
    Only,
    change_backfill,
    start_backfill,
    unknown_backfill,
)
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule, names_by_id
from timewright.operations.pagination import paginate
from timewright.operations.registry import (
    BACKFILL,
    ListRequest,
    ObjectName,
    OperationRequest,
    WriteRequest,
    answer_from,
    operations,
)
from timewright.operations.schedules.agent_rules import check_approved
from timewright.operations.views import RunSummary, summarize_run
from timewright.ports import Page, Transaction

MAX_RUNS_SHOWN = 1000
_RATE = re.compile(r"\s*(\d{1,6})\s*/\s*(s|sec|second|m|min|minute|h|hour)\s*")
_UNITS = {"s": SECOND, "m": MINUTE, "h": HOUR}


class BackfillSchedule(WriteRequest, frozen=True, kw_only=True):
    """Which past occurrences to run, from `since` to `until` inclusive; the default end is now.

    `only` selects those that were missed, that failed, or that never ran. `rate` is the most starts in a
    time, such as `10/m`. `max_running` needs overlap: allow.
    """

    schedule: ObjectName
    since: datetime
    until: datetime | None = None
    only: Only = "all"
    rate: Annotated[str, Meta(max_length=32)] = ""
    newest_first: bool = False
    max_running: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class BackfillSummary(Struct, frozen=True, kw_only=True):
    """A backfill: its state, and how many of its runs have ended or are under way."""

    backfill: str
    schedule: str
    state: str
    total: int
    ended: int
    running: int
    since: datetime
    until: datetime
    only: str
    newest_first: bool
    max_running: int
    every: timedelta
    created_at: datetime
    created_by: str


class BackfillResult(Struct, frozen=True, kw_only=True):
    """The backfill and its runs, in order; the answer contains the first `shown` of them."""

    schedule: str
    count: int
    shown: int
    runs: tuple[RunSummary, ...]
    backfill: BackfillSummary | None = None


class ListBackfills(ListRequest, frozen=True, kw_only=True):
    """Which page of backfills, newest first."""


class BackfillList(Struct, frozen=True, kw_only=True):
    """A page of backfills."""

    backfills: tuple[BackfillSummary, ...]
    cursor: str = ""


class GetBackfill(OperationRequest, frozen=True, kw_only=True):
    """Which backfill."""

    backfill: ObjectName


class ChangeBackfill(WriteRequest, frozen=True, kw_only=True):
    """Which backfill to change."""

    backfill: ObjectName


@operations.write(
    "schedule backfill",
    scope="trigger",
    examples=(
        {"schedule": "nightly-report", "since": "2026-03-07T00:00:00Z", "until": "2026-03-09T00:00:00Z"},
        {"schedule": "nightly-report", "since": "2026-03-09T00:00:00Z", "only": "never", "dry_run": True},
    ),
)
def backfill_schedule(
    context: OperationContext, tx: Transaction, request: BackfillSchedule
) -> BackfillResult:
    """Run past occurrences, again or for the first time; their existing records stay."""
    now = context.now()
    if request.since > (request.until or now):
        raise InvalidInput(
            f"since {format_instant(request.since)} is after until {format_instant(request.until or now)}",
            field="since",
            value=request.since,
            rule="until is not before since; a backfill runs past occurrences, so without until it is now",
            fix="swap them, or an earlier since",
        )
    terms = BackfillTerms(
        since=request.since,
        until=request.until if request.until is not None else now,
        only=request.only,
        newest_first=request.newest_first,
        max_running=request.max_running,
        every=_interval(request.rate),
    )
    record = find_schedule(tx, context.namespace, request.schedule)
    check_approved(record)
    name = record.schedule.name
    started = start_backfill(
        context.store,
        record.schedule.id,
        terms,
        ids=context.ids,
        by=context.by,
        now=now,
    )
    context.notify(started.facts)
    rows = tuple(summarize_run(run, schedule=name) for run in started.runs[:MAX_RUNS_SHOWN])
    made = _summary(started.backfill, name) if started.backfill is not None else None
    return BackfillResult(schedule=name, count=len(started.runs), shown=len(rows), runs=rows, backfill=made)


@operations.read("backfill list", scope="read", examples=({},))
def list_all_backfills(context: OperationContext, tx: Transaction, request: ListBackfills) -> BackfillList:
    """List backfills, newest first, with their progress."""

    def find(limit: int, place: str) -> Page:
        rows = list_backfills(tx, context.namespace, before=place, limit=limit + 1)
        return Page(tuple(rows[:limit]), rows[limit - 1].id if len(rows) > limit else "")

    page, cursor = paginate(context, request, find)
    names = names_by_id(tx, {one.schedule_id for one in page})
    found = tuple(_summary(one, names.get(one.schedule_id, one.schedule_id)) for one in page)
    return BackfillList(backfills=found, cursor=cursor)


@operations.read("backfill get", scope="read", examples=({"backfill": BACKFILL},))
def show_backfill(context: OperationContext, tx: Transaction, request: GetBackfill) -> BackfillSummary:
    """Show one backfill with its progress."""
    return _found(tx, context.namespace, request.backfill)


@operations.write("backfill pause", scope="trigger", examples=({"backfill": BACKFILL},))
def pause_backfill(context: OperationContext, tx: Transaction, request: ChangeBackfill) -> BackfillSummary:
    """Pause a backfill: it hands out no more runs; those it handed out still run."""
    return _change(context, tx, request, BackfillState.PAUSED)


@operations.write("backfill resume", scope="trigger", examples=({"backfill": BACKFILL},))
def resume_backfill(context: OperationContext, tx: Transaction, request: ChangeBackfill) -> BackfillSummary:
    """Resume a paused backfill."""
    return _change(context, tx, request, BackfillState.RUNNING)


@operations.write("backfill cancel", scope="trigger", examples=({"backfill": BACKFILL},))
def cancel_backfill(context: OperationContext, tx: Transaction, request: ChangeBackfill) -> BackfillSummary:
    """Cancel a backfill and its runs that have not started."""
    return _change(context, tx, request, BackfillState.CANCELLED)


def _change(
    context: OperationContext, tx: Transaction, request: ChangeBackfill, to: BackfillState
) -> BackfillSummary:
    now, namespace = context.now(), context.namespace
    _, facts = change_backfill(context.store, namespace, request.backfill, to, by=context.by, now=now)
    context.notify(facts)
    return _found(tx, namespace, request.backfill)


def _found(tx: Transaction, namespace: str, backfill_id: str) -> BackfillSummary:
    backfill = get_backfill(tx, namespace, backfill_id)
    if backfill is None:
        raise unknown_backfill(backfill_id)
    names = names_by_id(tx, [backfill.schedule_id])
    return _summary(backfill, names.get(backfill.schedule_id, backfill.schedule_id))


def _summary(backfill: Backfill, schedule: str) -> BackfillSummary:
    return answer_from(
        BackfillSummary,
        backfill,
        backfill=backfill.id,
        schedule=schedule,
        state=backfill.state.value,
        running=len(backfill.open),
    )


def _interval(rate: str) -> timedelta:
    """Return the time between two starts at a rate such as `10/m`."""
    if not rate:
        return ZERO
    match = _RATE.fullmatch(rate)
    if match is None or int(match[1]) == 0:
        rule = "a number per second, minute or hour"
        raise input_error("rate", rate, "is not a rate", rule=rule, fix="10/m")
    return _UNITS[match[2][0]] / int(match[1])
