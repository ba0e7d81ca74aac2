"""The record of a backfill, and how its next runs are handed out when others end.

A backfill lists its instants with their run ids in parts. Only `max_running` runs exist at a time: each run
that ends hands out the next one in the same transaction, so a pause needs no change of runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.moments import from_micros
from timewright.core.policies.policies import Overlap
from timewright.core.run.admission import Fire, Hold, InFlightCounts
from timewright.core.run.build import build_schedule_run
from timewright.core.run.run import Run
from timewright.core.schedule.decision import Source
from timewright.core.schedule.schedule import ScheduleState
from timewright.ledger.fact_builders import new_run_facts
from timewright.ledger.queues.limits import LimitResolver
from timewright.ports import ProgressUpdate, ScheduleRecord, StoredObject, Transaction

BACKFILL = "backfill"
BACKFILL_PART = "backfill_part"
PART_ENTRIES = 200
SCOPE_PREFIX = "backfill:"
# Where overlap is allowed and no number is given.
DEFAULT_MAX_RUNNING = 100


class BackfillState(StrEnum):
    """The states of a backfill."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FINISHED = "finished"


class BackfillEntry(Struct, frozen=True, array_like=True, gc=False):
    """One instant of a backfill: the id of its run, the instant, and the row that it runs again."""

    run_id: str
    planned_micros: int
    backfill_of: str = ""

    @property
    def planned_at(self) -> datetime:
        """The instant."""
        return from_micros(self.planned_micros)


class Backfill(Struct, frozen=True, kw_only=True):
    """A backfill: what it runs, at which pace, how many it handed out, and which of them have not ended."""

    id: str
    namespace: str
    schedule_id: str
    since: datetime
    until: datetime
    only: str = "all"
    newest_first: bool = False
    max_running: int = 1
    every: timedelta = timedelta(0)
    created_at: datetime
    created_by: str = ""
    state: BackfillState = BackfillState.RUNNING
    total: int
    handed_out: int = 0
    open: tuple[str, ...] = ()
    last_fire_at: datetime | None = None
    revision: int = 1

    @property
    def ended(self) -> int:
        """How many runs have ended."""
        return self.handed_out - len(self.open)


def put_backfill(tx: Transaction, backfill: Backfill, *, now: datetime) -> None:
    """Write the record of a backfill."""
    row = StoredObject.of(
        BACKFILL, backfill.id, backfill, namespace=backfill.namespace, revision=backfill.revision, at=now
    )
    tx.put_objects([row])


def put_entries(tx: Transaction, backfill: Backfill, entries: list[BackfillEntry], *, now: datetime) -> None:
    """Write the instants of a backfill, in parts."""
    rows = [
        StoredObject.of(
            BACKFILL_PART,
            _part_name(backfill.id, first // PART_ENTRIES),
            entries[first : first + PART_ENTRIES],
            namespace=backfill.namespace,
            at=now,
        )
        for first in range(0, len(entries), PART_ENTRIES)
    ]
    tx.put_objects(rows)


def get_backfill(tx: Transaction, namespace: str, backfill_id: str) -> Backfill | None:
    """Return a backfill by its id."""
    rows = tx.get_objects(BACKFILL, namespace=namespace, names=[backfill_id])
    return rows[0].decode(Backfill) if rows else None


def list_backfills(tx: Transaction, namespace: str, *, before: str, limit: int) -> list[Backfill]:
    """Return backfills, newest first."""
    rows = tx.get_objects(BACKFILL, namespace=namespace, before=before, newest=limit)
    return [row.decode(Backfill) for row in rows]


def dedupe_scope(backfill_id: str) -> str:
    """The dedupe scope of the runs of a backfill: it runs an instant once."""
    return f"{SCOPE_PREFIX}{backfill_id}"


def is_backfill_run(run: Run) -> bool:
    """Whether a run was handed out by a backfill."""
    return run.source is Source.BACKFILL and run.dedupe_scope.startswith(SCOPE_PREFIX)


def hand_out(
    tx: Transaction, backfill: Backfill, record: ScheduleRecord, *, now: datetime, holds: bool = False
) -> list[Fact]:
    """Create the next runs of a backfill, up to its `max_running`, and write its record."""
    free = backfill.max_running - len(backfill.open)
    if record.progress.state is ScheduleState.ARCHIVED and backfill.state is BackfillState.RUNNING:
        backfill = replace(backfill, state=BackfillState.CANCELLED)
    runs: list[Run] = []
    if backfill.state is BackfillState.RUNNING and free > 0:
        entries = list(
            _entries(tx, backfill, backfill.handed_out, min(free, backfill.total - backfill.handed_out))
        )
        fire_at = backfill.last_fire_at
        clear = record.in_flight == InFlightCounts() and not holds
        newest = record.last_run
        for entry in entries:
            fire_at = now if fire_at is None else max(now, fire_at + backfill.every)
            run = build_entry_run(
                record,
                entry,
                backfill,
                is_first=clear and not runs,
                fire_at=fire_at,
                now=now,
                previous=newest,
            )
            runs.append(run)
            newest = run.id
        tx.add_runs(LimitResolver(tx).resolve_all(runs, record.schedule))
        if runs:
            tx.save_progress([ProgressUpdate(record.schedule.id, record.progress, runs[-1].id)])
        backfill = replace(
            backfill,
            handed_out=backfill.handed_out + len(runs),
            open=(*backfill.open, *(run.id for run in runs)),
            last_fire_at=fire_at,
        )
    if (
        backfill.state is BackfillState.RUNNING
        and not backfill.open
        and backfill.handed_out == backfill.total
    ):
        backfill = replace(backfill, state=BackfillState.FINISHED)
    put_backfill(tx, replace(backfill, revision=backfill.revision + 1), now=now)
    return [fact for run in runs for fact in new_run_facts(run, now=now)]


def build_entry_run(
    record: ScheduleRecord,
    entry: BackfillEntry,
    backfill: Backfill,
    *,
    is_first: bool,
    fire_at: datetime,
    now: datetime,
    previous: str,
) -> Run:
    """Build the run of an instant; except with overlap `allow`, it waits behind other runs."""
    together = record.schedule.overlap is Overlap.ALLOW
    verdict_type = Fire if together or is_first else Hold
    verdict = verdict_type(planned_at=entry.planned_at, fire_at=fire_at, source=Source.BACKFILL)
    run = build_schedule_run(record.schedule, verdict, run_id=entry.run_id, now=now, previous=previous)
    return replace(
        run,
        dedupe_scope=dedupe_scope(backfill.id),
        made_by=backfill.created_by,
        backfill_of=entry.backfill_of,
    )


def continue_backfills(
    tx: Transaction, ended: Iterable[Run], *, now: datetime, holds: bool = False, ends: bool = False
) -> list[Fact]:
    """Hand out the next runs of the backfills whose runs have ended; their schedules are locked.

    With `holds` they wait, because a live run is about to start; with `ends` the backfill is cancelled.
    """
    by_backfill: dict[tuple[str, str], set[str]] = {}
    for run in ended:
        if is_backfill_run(run):
            key = (run.namespace, run.dedupe_scope.removeprefix(SCOPE_PREFIX))
            by_backfill.setdefault(key, set()).add(run.id)
    facts: list[Fact] = []
    for (namespace, backfill_id), run_ids in by_backfill.items():
        backfill = get_backfill(tx, namespace, backfill_id)
        if backfill is None or run_ids.isdisjoint(backfill.open):
            continue
        record = tx.get_schedules([backfill.schedule_id]).get(backfill.schedule_id)
        if record is None:
            continue
        left = tuple(one for one in backfill.open if one not in run_ids)
        state = BackfillState.CANCELLED if ends else backfill.state
        backfill = replace(backfill, open=left, state=state)
        facts += hand_out(tx, backfill, record, now=now, holds=holds)
    return facts


def _entries(tx: Transaction, backfill: Backfill, first: int, count: int) -> Iterator[BackfillEntry]:
    while count > 0:
        number, skip = divmod(first, PART_ENTRIES)
        rows = tx.get_objects(
            BACKFILL_PART, namespace=backfill.namespace, names=[_part_name(backfill.id, number)]
        )
        part = rows[0].decode(list[BackfillEntry])[skip : skip + count]
        yield from part
        first, count = first + len(part), count - len(part)


def _part_name(backfill_id: str, number: int) -> str:
    return f"{backfill_id}/{number:05}"
