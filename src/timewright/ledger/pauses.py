"""Which pauses hold for schedules and runs, and the pause while the store's clock cannot be right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from timewright.core.budgets.spending import Deferral
from timewright.core.moments import DAY, MAX_STORED_INSTANT, SECOND, format_instant
from timewright.core.run.leasing import WaitReason
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.governor import end_expired_hint
from timewright.core.schedule.pauses import (
    NO_PAUSES,
    Pause,
    Pauses,
    pause_need,
    skipping_spans,
)
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.ledger.lookups import RunTerms, find_owners, load_calendars, lock_schedule
from timewright.ledger.schedule_progress import progress_after_clock_return
from timewright.ports import (
    AuditEntry,
    Ids,
    Page,
    ProgressUpdate,
    RunFilter,
    ScheduleFilter,
    ScheduleRecord,
    Store,
    Transaction,
)
from timewright.ports.objects import GLOBAL_NAMESPACE, LastPauses, OpenPauses
from timewright.ports.schedules import ScheduleListRow
from timewright.ports.store import ClockDoubt

# The actor and the origin of such a pause.
CLOCK = "clock"
ACCEPT_CLOCK = "set the clock right, or timewright clock accept if it is right now"
# What is left of a lease that a wrong clock granted: enough for its holder to renew it.
LEASE_LEFT = 30 * SECOND


def clock_pauses(tx: Transaction) -> list[Pause]:
    """The pauses by the clock that nobody has ended."""
    return [pause for pause in tx.select(OpenPauses()) if pause.origin == CLOCK]


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
    return tx.find(which)


def _pull_back(tx: Transaction, *, ids: Sequence[str], now: datetime) -> int:
    records = tx.get_schedules(ids, lock=True)
    calendars = load_calendars(tx, [one.schedule for one in records.values()])
    updates = []
    for record in records.values():
        later, before = _rows_after(tx, record.schedule.id, now=now)
        # Without a row from that time, a person has skipped occurrences ahead.
        if later:
            ran = [run for run in later if run.state is not RunState.SKIPPED]
            chain = [before.id if before is not None else "", *(run.id for run in ran)]
            tx.repair_history(
                delete=[run.id for run in later if run.state is RunState.SKIPPED],
                relink=list(zip(chain[1:], chain, strict=False)),
            )
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
        page = tx.find(which)
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


class PauseLookup:
    """The pauses that may hold for some schedules or runs, read in one query; an active one holds now."""

    def __init__(self, pauses: Sequence[Pause], *, now: datetime) -> None:
        self._pauses = pauses
        self._active = [one for one in pauses if not one.is_over(now=now)]
        self._now = now

    @property
    def any_active(self) -> bool:
        """Whether any pause holds now."""
        return bool(self._active)

    @property
    def holds_installation(self) -> bool:
        """Whether the whole installation is paused now."""
        return any(one.scope == "installation" for one in self._active)

    def active_for(self, namespace: str, *, queue: str | None, schedule: Schedule | None) -> Pause | None:
        """The pause that holds now and ends last, if any."""
        found = (one for one in self._active if one.covers(namespace, queue=queue, schedule=schedule))
        return max(found, key=_end, default=None)

    def describe(self, schedule: Schedule) -> str:
        """Which pause holds for a schedule, by whom, until when and why; "" if none does."""
        pause = self.active_for(schedule.namespace, queue=schedule.queue, schedule=schedule)
        if pause is None:
            return ""
        until = f" until {format_instant(pause.until.replace(microsecond=0))}" if pause.until else ""
        return f"{pause.describe()} by {pause.actor}{until}{f': {pause.reason}' if pause.reason else ''}"

    def skipping(self, schedule: Schedule, progress: ScheduleProgress) -> Pauses:
        """The pauses whose occurrences of a schedule are skipped."""
        if not self._pauses:
            return NO_PAUSES
        namespace, queue = schedule.namespace, schedule.queue
        covering = [one for one in self._pauses if one.covers(namespace, queue=queue, schedule=schedule)]
        return skipping_spans(covering, progress, now=self._now)


def load_pauses(tx: Transaction, *, now: datetime, records: Iterable[ScheduleRecord] = ()) -> PauseLookup:
    """Load the pauses that hold now, and those that ended since the next instants were planned."""
    since = min((one.progress.next_at or one.progress.cursor for one in records), default=None)
    return PauseLookup(tx.select(OpenPauses(since)), now=now)


def describe_pauses(
    tx: Transaction, found: Sequence[ScheduleRecord | ScheduleListRow], *, now: datetime
) -> list[str]:
    """Return who paused each schedule, and which pause of a scope holds for it; empty if none does."""
    paused = [one.schedule.id for one in found if one.progress.state is ScheduleState.PAUSED]
    scopes = load_pauses(tx, now=now)
    last = {one.schedule_id: one for one in tx.select(LastPauses(paused))} if paused else {}

    if not last and not scopes.any_active:
        return [""] * len(found)

    def describe(schedule: Schedule) -> str:
        own = last.get(schedule.id)
        by = f"{own.actor}: {own.reason}".removesuffix(": ") if own is not None else ""
        return "; ".join(part for part in (by, scopes.describe(schedule)) if part)

    return [describe(one.schedule) for one in found]


def set_aside_paused(
    tx: Transaction, due: Sequence[ScheduleRecord], pauses: PauseLookup
) -> list[ScheduleRecord]:
    """Set aside the paused ones of the due schedules, until their pause ends; return the others."""
    if not pauses.any_active:
        return list(due)
    not_paused, paused = [], dict[str, tuple[Pause, list[str]]]()
    for record in due:
        schedule = record.schedule
        pause = pauses.active_for(schedule.namespace, queue=schedule.queue, schedule=schedule)
        if pause is None:
            not_paused.append(record)
        else:
            paused.setdefault(pause.id, (pause, []))[1].append(schedule.id)
    for pause, ids in paused.values():
        tx.set_aside([(one, (pause_need(pause.id),)) for one in ids], until=_end(pause))
    return not_paused


def find_paused(
    tx: Transaction, runs: Sequence[Run], terms: Mapping[str, RunTerms], pauses: PauseLookup
) -> list[Deferral]:
    """The runs that are paused, deferred until the pause ends."""
    if not pauses.any_active:
        return []
    owners = find_owners(tx, runs, terms)
    held = (
        (run, pauses.active_for(run.namespace, queue=run.queue, schedule=owners[run.id].schedule))
        for run in runs
    )
    return [_deferral(run, pause) for run, pause in held if pause is not None]


def _deferral(run: Run, pause: Pause) -> Deferral:
    why = f"{pause.describe()} is paused by {pause.actor}{f': {pause.reason}' if pause.reason else ''}"
    return Deferral(run=run, wait_reason=WaitReason.PAUSE, name=pause.id, until=_end(pause), why=why)


def _end(pause: Pause) -> datetime:
    return pause.end or MAX_STORED_INSTANT


def shown_end(until: datetime) -> datetime | None:
    """The end of a pause as it is shown; the last instant there is stands for none."""
    return until if until < MAX_STORED_INSTANT else None


def lock_to_decide(tx: Transaction, schedule_id: str, *, now: datetime) -> ScheduleRecord:
    """Lock a schedule. One that no instance could run was set aside until later, but is due all the same.

    What the trigger decides since a hint expired is due too.
    """
    record = lock_schedule(tx, schedule_id)
    schedule, before = record.schedule, record.progress
    calendars = load_calendars(tx, [schedule]).for_schedule(schedule)
    progress = end_expired_hint(schedule, before, now=now, calendars=calendars)
    is_aside = before.wake_at is not None and before.wake_at > now
    if progress.next_at is None or not is_aside or progress.next_at > now:
        return replace(record, progress=progress)
    pauses = load_pauses(tx, now=now)
    is_paused = pauses.active_for(schedule.namespace, queue=schedule.queue, schedule=schedule) is not None
    return replace(
        record, progress=replace(progress, wake_at=before.wake_at if is_paused else progress.next_at)
    )
