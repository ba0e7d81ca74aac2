"""Runs give way: to a newer run of their schedule, or because the schedule is retired."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import CancelRequested, Fact, RunCancelled
from timewright.core.lifecycle import RunEvent, run_after
from timewright.core.run import Reason, Run, RunState
from timewright.core.schedule import Schedule
from timewright.ledger.following import pass_on
from timewright.ledger.telling import about, skipped
from timewright.ledger.unfold import stop
from timewright.ports import Change, RunFilter, Transaction

PAGE = 1_000

# One that could have started is cancelled; one that only waited its turn is skipped.
_EVENTS = {
    Reason.REPLACED: RunEvent.CANCEL,
    Reason.SUPERSEDED: RunEvent.SKIP,
    Reason.BY_HAND: RunEvent.CANCEL,
}


class Way(Struct, frozen=True):
    """Whether the newer run may start at once, and what happened to those before it."""

    clear: bool
    facts: tuple[Fact, ...] = ()


def make_way(tx: Transaction, schedule: Schedule, *, now: datetime) -> Way:
    """Ask what is under way to stop within its grace, cancel what waits to start, pass over what was held."""
    live = tx.live_runs([schedule.id])
    # Read again under lock: between the two someone may have leased or freed one of them.
    current = list(tx.get_runs([run.id for run in live], lock=True).values()) if live else []
    leased = [run for run in current if run.state is RunState.LEASED]
    asked = _ask_to_stop(tx, leased, schedule, now=now)
    asked += stop(tx, leased, reason=Reason.REPLACED.value, now=now).facts
    ready = [run for run in current if run.state is RunState.READY]
    held = [run for run in current if run.state is RunState.HELD]
    gone = _withdraw(tx, ready, now=now, reason=Reason.REPLACED)
    gone += _withdraw(tx, held, now=now, reason=Reason.SUPERSEDED)
    return Way(not leased, (*asked, *gone))


def withdraw_all(tx: Transaction, schedule_id: str, *, now: datetime) -> list[Fact]:
    """Cancel every run of a schedule that nobody has started."""
    facts: list[Fact] = []
    for state in (RunState.HELD, RunState.READY):
        which = RunFilter(schedule_id=schedule_id, state=state, limit=PAGE)
        while True:
            page = tx.find_runs(which)
            facts += _withdraw(tx, page.rows, now=now, reason=Reason.BY_HAND)
            if not page.cursor:
                break
            which = replace(which, cursor=page.cursor)
    return facts


def _ask_to_stop(tx: Transaction, runs: Sequence[Run], schedule: Schedule, *, now: datetime) -> list[Fact]:
    reason = Reason.REPLACED.value
    # One may have been leased since our clock was read: the grace counts from its beginning at least.
    ends = [(run.id, max(now, run.leased_at or now) + schedule.lease.grace) for run in runs]
    asked = tx.ask_to_cancel(ends, at=now, reason=reason)
    return [CancelRequested(reason=reason, **about(run, now=now)) for run in runs if run.id in asked]


def _withdraw(tx: Transaction, runs: Sequence[Run], *, now: datetime, reason: Reason) -> list[Fact]:
    after = [
        replace(run, state=run_after(run.state, _EVENTS[reason]), reason=reason.value, finished_at=now)
        for run in runs
    ]
    gone = tx.change_runs([Change(a, run.state, run.fence) for a, run in zip(after, runs, strict=True)])
    facts = [_told(run, now=now) for run in after if run.id in gone]
    # One that was tried already and waited to be tried again has ended now; the others never began.
    ended = [run for run in after if run.id in gone and run.started_at is not None]
    if ended and tx.what_waits().linked:
        facts += pass_on(tx, ended, now=now)
    return facts


def _told(run: Run, *, now: datetime) -> Fact:
    if run.state is RunState.SKIPPED:
        return skipped(run, now=now)
    return RunCancelled(reason=run.reason, **about(run, now=now))
