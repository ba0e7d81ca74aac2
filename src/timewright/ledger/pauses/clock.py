"""Pauses the installation while the store's clock cannot be right, and repairs what a wrong clock left."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from timewright.core.moments import DAY, SECOND
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.pauses import Pause
from timewright.ledger.lookups import load_calendars
from timewright.ledger.schedule_progress import progress_after_clock_return
from timewright.ports import (
    AuditEntry,
    Ids,
    Page,
    ProgressUpdate,
    RunFilter,
    ScheduleFilter,
    Store,
    Transaction,
)
from timewright.ports.objects import GLOBAL_NAMESPACE
from timewright.ports.store import ClockDoubt

# The actor and the origin of such a pause.
CLOCK = "clock"
ACCEPT_CLOCK = "set the clock right, or timewright clock accept if it is right now"
# What is left of a lease that a wrong clock granted: enough for its holder to renew it.
LEASE_LEFT = 30 * SECOND


def clock_pauses(tx: Transaction) -> list[Pause]:
    """The pauses by the clock that nobody has ended."""
    return [pause for pause in tx.open_pauses() if pause.origin == CLOCK]


def pause_for_clock(store: Store, doubt: ClockDoubt, *, ids: Ids, now: datetime) -> None:
    """Admit and lease nothing until the doubt ends; runs under way continue."""
    pause = Pause(
        id=ids.new("pause", now=now), actor=CLOCK, origin=CLOCK, reason=doubt.describe(), at=doubt.since
    )

    def work(tx: Transaction) -> None:
        if not clock_pauses(tx):
            tx.add_pause(pause)
            tx.add_audit([_entry("pause", reason=pause.reason, now=now)])

    store.write(work)


def end_clock_pauses(store: Store, *, by: str = CLOCK, now: datetime) -> None:
    """End the pauses by the clock, if there are any."""

    def work(tx: Transaction) -> None:
        for pause in clock_pauses(tx):
            tx.end_pause(pause.id, by=by, now=max(now, pause.at))
            tx.add_audit([_entry("resume", reason=f"ended by {by}", now=now)])

    if store.read(clock_pauses):
        store.write(work)


def pull_back_schedules(store: Store, *, now: datetime) -> int:
    """Let schedules go on that were decided up to a time which the clock has taken back.

    What was recorded as missed or skipped at such a time is deleted; what ran keeps its row. Returns how many
    schedules there were.
    """
    until, latest = now + LEASE_LEFT, now + DAY
    store.write(lambda tx: tx.shorten_leases(now=now, until=until, latest=latest))
    count, cursor = 0, ""
    while True:
        which = ScheduleFilter(limit=1000, cursor=cursor)
        page = store.read(partial(_page, which=which))
        ahead = [one.schedule.id for one in page.rows if one.progress.cursor > now + DAY]
        count += store.write(partial(_pull_back, ids=ahead, now=now)) if ahead else 0
        cursor = page.cursor
        if not cursor:
            return count


def _page(tx: Transaction, which: ScheduleFilter) -> Page:
    return tx.find_schedules(which)


def _pull_back(tx: Transaction, *, ids: Sequence[str], now: datetime) -> int:
    records = tx.get_schedules(ids, lock=True)
    calendars = load_calendars(tx, [one.schedule for one in records.values()])
    updates = []
    for record in records.values():
        later, before = _rows_after(tx, record.schedule.id, now=now)
        # Without a row from that time, a person has skipped occurrences ahead.
        if later:
            ran = [run for run in later if run.state is not RunState.SKIPPED]
            tx.delete_runs([run.id for run in later if run.state is RunState.SKIPPED])
            chain = [before.id if before is not None else "", *(run.id for run in ran)]
            tx.relink_runs(list(zip(chain[1:], chain, strict=False)))
            decided = min(before.last_of or before.planned_at, now) if before is not None else now
            progress = progress_after_clock_return(record, calendars, decided=decided)
            updates.append(ProgressUpdate(record.schedule.id, progress, chain[-1]))
    tx.save_progress(updates)
    return len(updates)


def _rows_after(tx: Transaction, schedule_id: str, *, now: datetime) -> tuple[list[Run], Run | None]:
    """The occurrences of a schedule that are dated after now, oldest first, and the one before them."""
    later: list[Run] = []
    which = RunFilter(schedule_id=schedule_id, limit=1000)
    while True:
        page = tx.find_runs(which)
        for run in page.rows:
            if run.is_manual:
                continue
            if run.created_at <= now:
                return later[::-1], run
            later.append(run)
        if not page.cursor:
            return later[::-1], None
        which = replace(which, cursor=page.cursor)


def _entry(action: str, *, reason: str, now: datetime) -> AuditEntry:
    return AuditEntry(
        at=now,
        namespace=GLOBAL_NAMESPACE,
        actor=CLOCK,
        origin=CLOCK,
        action=f"installation.{action}",
        subject="installation",
        reason=reason,
    )
