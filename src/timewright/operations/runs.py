"""Runs: looked at, cancelled, tried again, reset, and told about by whoever executes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from timewright.core.facts import Fact
from timewright.core.run import Outcome, Run, RunState, Started
from timewright.core.schedule import Schedule
from timewright.ledger.settle import cancel, reopen, reset
from timewright.operations.answers import Ended, Fence, answer_lease, start_lease
from timewright.operations.context import Context, together
from timewright.operations.examples import FAILED_RUN, LEASED_RUN, PARKED_RUN
from timewright.operations.find import find_run, find_schedule
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Request, Write, operations
from timewright.operations.schedules import has_metadata
from timewright.operations.views import (
    RunDetail,
    RunRow,
    names_of_schedules,
    readable_schedules,
    run_detail,
    run_row,
)
from timewright.ports import Page, RunFilter, Transaction, Unreadable


class List(Listing, frozen=True, kw_only=True):
    """Which runs; every filter that is given must fit. `metadata`, `group` and `tag` are the schedule's."""

    schedule: str = ""
    state: RunState | None = None
    queue: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    group: str | None = None
    tag: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class Runs(Struct, frozen=True, kw_only=True):
    """A page of runs, newest first."""

    runs: tuple[RunRow, ...]
    cursor: str = ""
    unreadable: tuple[Unreadable, ...] = ()


class Get(Request, frozen=True, kw_only=True):
    """Which run."""

    run: Named


class Ask(Write, frozen=True, kw_only=True):
    """Which run."""

    run: Named


class Report(Write, frozen=True, kw_only=True):
    """Which run, the fence it was started with, and that it began or how it ended."""

    run: Named
    fence: Fence
    outcome: Outcome | Started


@operations.add(
    "run",
    "list",
    List,
    scope="read",
    examples=(
        {},
        {"schedule": "nightly-report", "state": "succeeded", "limit": 10},
        {"metadata": {"team": "finance"}, "since": "2026-03-01T00:00:00Z"},
    ),
)
def list_runs(context: Context, ask: List) -> Runs:
    """List runs, newest first: those that ran and those that did not."""

    def work(tx: Transaction) -> Runs:
        schedule_id = None
        if ask.schedule:
            schedule_id = find_schedule(tx, context.namespace, ask.schedule).schedule.id

        lost: dict[str, Unreadable] = {}

        def find(limit: int, place: str) -> Page:
            page = tx.find_runs(
                RunFilter(
                    namespace=context.namespace,
                    schedule_id=schedule_id,
                    queue=ask.queue,
                    state=ask.state,
                    since=ask.since,
                    until=ask.until,
                    limit=limit,
                    cursor=place,
                )
            )
            lost.update({one.id: one for one in page.unreadable})
            return page

        sifts = bool(ask.metadata or ask.group is not None or ask.tag is not None)
        rows, cursor = paged(context, ask, find, fits=(lambda rows: _fits(tx, rows, ask)) if sifts else None)
        names = names_of_schedules(tx, rows)
        shown = tuple(run_row(run, schedule=names.get(run.schedule_id, "")) for run in rows)
        return Runs(runs=shown, cursor=cursor, unreadable=tuple(lost.values()))

    return context.store.read(work)


@operations.add("run", "get", Get, scope="read", examples=({"run": FAILED_RUN},))
def get_run(context: Context, ask: Get) -> RunDetail:
    """Show one run with its identity, the decision behind it, and every attempt."""
    return context.store.read(lambda tx: run_detail(tx, find_run(tx, context.namespace, ask.run)))


@operations.add(
    "run",
    "cancel",
    Ask,
    scope="trigger",
    examples=({"run": LEASED_RUN, "reason": "wrong numbers"},),
)
def cancel_run(context: Context, ask: Ask) -> RunDetail:
    """Stop a run: at once if nobody holds it, otherwise its holder is asked and has its grace."""
    return _change(context, ask, cancel)


@operations.add("run", "retry", Ask, scope="trigger", examples=({"run": FAILED_RUN},))
def retry_run(context: Context, ask: Ask) -> RunDetail:
    """Try a failed or cancelled run again: the same row, and the fence goes on."""
    return _change(context, ask, reopen)


@operations.add(
    "run",
    "reset",
    Ask,
    scope="trigger",
    examples=({"run": PARKED_RUN, "reason": "mailbox mended"},),
)
def reset_run(context: Context, ask: Ask) -> RunDetail:
    """Give a parked run its attempts back; the only way out of park."""
    return _change(context, ask, reset)


@operations.add(
    "run",
    "report",
    Report,
    scope="trigger",
    examples=(
        {"run": LEASED_RUN, "fence": 1, "outcome": "started"},
        {"run": LEASED_RUN, "fence": 1, "outcome": "succeeded"},
        {
            "run": LEASED_RUN,
            "fence": 1,
            "outcome": {"kind": "failed", "error": "no route to the printer"},
        },
    ),
)
def report_run(context: Context, ask: Report) -> Ended:
    """Tell how a run goes that someone outside executes; an answer from a lost lease changes nothing."""
    if isinstance(ask.outcome, Started):
        return start_lease(context, ask.run, ask.fence)
    return answer_lease(context, ask.run, ask.fence, ask.outcome)


def _change(context: Context, ask: Ask, change: Callable[..., Sequence[Fact]]) -> RunDetail:
    now = context.now()

    def work(inside: Context) -> RunDetail:
        run = inside.store.read(lambda tx: find_run(tx, inside.namespace, ask.run))
        by = inside.because(ask.reason)
        inside.tell(change(inside.store, run.id, actor=by.actor, origin=by.origin, reason=by.reason, now=now))
        return inside.store.read(lambda tx: run_detail(tx, find_run(tx, inside.namespace, run.id)))

    return together(context, work)


def _fits(tx: Transaction, runs: Sequence[Run], ask: List) -> list[bool]:
    schedules = _schedules_of(tx, runs)
    return [_schedule_fits(schedules.get(run.schedule_id), ask) for run in runs]


def _schedule_fits(schedule: Schedule | None, ask: List) -> bool:
    return (
        schedule is not None
        and (ask.group is None or schedule.group == ask.group)
        and (ask.tag is None or ask.tag in schedule.tags)
        and has_metadata(schedule.metadata, ask.metadata)
    )


def _schedules_of(tx: Transaction, runs: Sequence[Run]) -> dict[str, Schedule]:
    ids = sorted({run.schedule_id for run in runs if run.schedule_id})
    return {i: due.schedule for i, due in readable_schedules(tx, ids).items()}
