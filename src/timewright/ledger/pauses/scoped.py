"""Which pauses hold for schedules and runs: they are set aside, and due again when the pause ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from timewright.core.budgets.spending import Deferral
from timewright.core.moments import MAX_STORED_INSTANT, format_instant
from timewright.core.run.leasing import WaitReason
from timewright.core.run.run import Run
from timewright.core.schedule.pauses import (
    NO_PAUSES,
    Pause,
    Pauses,
    pause_need,
    skipping_spans,
)
from timewright.core.schedule.schedule import Schedule, ScheduleProgress
from timewright.ledger.budgets.owners import find_owners
from timewright.ledger.lookups import RunTerms
from timewright.ports import ScheduleRecord, Transaction


class PauseLookup:
    """The pauses that may hold for some schedules or runs, read in one query."""

    def __init__(self, pauses: Sequence[Pause], *, now: datetime) -> None:
        self._pauses = pauses
        self._open = [one for one in pauses if not one.is_over(now=now)]
        self._now = now

    @property
    def any_open(self) -> bool:
        """Whether a pause holds now."""
        return bool(self._open)

    @property
    def holds_installation(self) -> bool:
        """Whether the whole installation is paused now."""
        return any(one.scope == "installation" for one in self._open)

    def open_for(self, namespace: str, *, queue: str | None, schedule: Schedule | None) -> Pause | None:
        """The pause that holds now and ends last, if any."""
        found = (one for one in self._open if one.covers(namespace, queue=queue, schedule=schedule))
        return max(found, key=_end, default=None)

    def describe(self, schedule: Schedule) -> str:
        """Which pause holds for a schedule, by whom, until when and why; "" if none does."""
        pause = self.open_for(schedule.namespace, queue=schedule.queue, schedule=schedule)
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
    return PauseLookup(tx.open_pauses(since=since), now=now)


def set_aside_paused(
    tx: Transaction, due: Sequence[ScheduleRecord], pauses: PauseLookup
) -> list[ScheduleRecord]:
    """Set aside the due schedules that are paused until the pause ends; return the others."""
    if not pauses.any_open:
        return list(due)
    able, waiting = [], dict[str, tuple[Pause, list[str]]]()
    for record in due:
        schedule = record.schedule
        pause = pauses.open_for(schedule.namespace, queue=schedule.queue, schedule=schedule)
        if pause is None:
            able.append(record)
        else:
            waiting.setdefault(pause.id, (pause, []))[1].append(schedule.id)
    for pause, ids in waiting.values():
        tx.set_aside([(one, (pause_need(pause.id),)) for one in ids], until=_end(pause))
    return able


def find_paused(
    tx: Transaction, runs: Sequence[Run], terms: Mapping[str, RunTerms], pauses: PauseLookup
) -> list[Deferral]:
    """The runs that are paused, deferred until the pause ends."""
    if not pauses.any_open:
        return []
    owners = find_owners(tx, runs, terms)
    held = (
        (run, pauses.open_for(run.namespace, queue=run.queue, schedule=owners[run.id].schedule))
        for run in runs
    )
    return [_deferral(run, pause) for run, pause in held if pause is not None]


def _deferral(run: Run, pause: Pause) -> Deferral:
    why = f"{pause.describe()} is paused by {pause.actor}{f': {pause.reason}' if pause.reason else ''}"
    return Deferral(run=run, wait_reason=WaitReason.PAUSE, name=pause.id, until=_end(pause), why=why)


def _end(pause: Pause) -> datetime:
    return pause.end or MAX_STORED_INSTANT
