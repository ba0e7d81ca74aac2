"""What would happen: a fleet, changes to it, a span, outages and durations, decided by the real engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.definitions import Definition
from timewright.core.facts import Fact
from timewright.core.run.simulation import Outages, SimulationRecorder, SimulationReport, WorkModel
from timewright.ids import TimedIds
from timewright.ledger.snapshot import copy_fleet, read_fleet
from timewright.operations import OperationContext, operations
from timewright.operations.definitions.objects import OBJECT_KINDS
from timewright.operations.definitions.schedules import SCHEDULE
from timewright.ports import Store, Transaction
from timewright.settings import Settings
from timewright.wiring.simulation import Simulation, VirtualClock

SAMPLED_RUNS = 20

Change = Callable[[OperationContext], object]


class WhatIf(Struct, frozen=True, kw_only=True):
    """The question: from when to when, without which schedules, with which definitions and changes.

    With `restart`, schedules begin at `since` as if just created; otherwise with their present progress.
    """

    since: datetime
    until: datetime
    restart: bool = False
    outages: Outages = ()
    without: tuple[str, ...] = ()
    add: tuple[Definition, ...] = ()
    changes: tuple[tuple[datetime, Change], ...] = ()
    work: WorkModel = WorkModel()
    workers: int = 10
    max_rows: int = 0


def what_if(
    question: WhatIf,
    *,
    source: Store | None = None,
    load: Callable[[Store], object] | None = None,
    namespace: str = "default",
    settings: Settings = Settings(),  # noqa: B008 - a frozen value
    progress: Callable[[float, str], None] | None = None,
) -> SimulationReport:
    """Copy the fleet of a store into memory, change it, and run the engine on a virtual clock.

    With `load`, that function fills the store instead.
    """
    from timewright.stores.sqlite.store import SqliteStore

    clock = VirtualClock(question.since)
    store = SqliteStore(":memory:", clock=clock)
    try:
        context = OperationContext(
            store=store, ids=TimedIds(), namespace=namespace, settings=settings, notify=lambda _: None
        )
        if source is not None:
            copy_fleet(
                source,
                store,
                namespace=namespace,
                now=question.since,
                restart=question.restart,
                without=question.without,
            )
        if load is not None:
            load(store)
        for one in question.add:
            if one.name not in question.without:
                put_definition(context, one)
        return _simulate(question, context, clock, progress)
    finally:
        store.close()


def put_definition(context: OperationContext, definition: Definition) -> None:
    """Write one definition of a file, as `apply` does."""
    if definition.kind == SCHEDULE:
        operations["schedule put"](context, {"name": definition.name, **definition.fields})
    else:
        OBJECT_KINDS[definition.kind].put(context, definition.name, definition.fields)


def fleet_names(source: Store | None, *, namespace: str, add: Iterable[Definition]) -> set[str]:
    """Return the names of the schedules of a store and of definitions."""
    stored = source.read(lambda tx: read_fleet(tx, namespace)) if source is not None else ()
    return {one.schedule.name for one in stored} | {one.name for one in add if one.kind == SCHEDULE}


def measured_durations(
    store: Store, *, namespace: str, given: Mapping[str, timedelta]
) -> dict[str, tuple[timedelta, ...]]:
    """Return how long the last runs of each schedule took, by name; `given` replaces what was measured."""

    def read(tx: Transaction) -> dict[str, tuple[timedelta, ...]]:
        names = {one.schedule.id: one.schedule.name for one in read_fleet(tx, namespace)}
        marks = tx.recent_runs(names, limit_each=SAMPLED_RUNS) if names else {}
        found = {}
        for schedule_id, runs in marks.items():
            took = [one.finished_at - one.started_at for one in runs if one.finished_at and one.started_at]
            found[names[schedule_id]] = tuple(took)
        return found

    return {**store.read(read), **{name: (length,) for name, length in given.items()}}


def _simulate(
    question: WhatIf,
    context: OperationContext,
    clock: VirtualClock,
    progress: Callable[[float, str], None] | None,
) -> SimulationReport:
    store = context.store

    def read(tx: Transaction) -> tuple[list[Any], dict[str, int | None]]:
        schedules = [one.schedule for one in read_fleet(tx, context.namespace)]
        keys = sorted({key for one in schedules for key in one.limit_keys})
        return schedules, {key: usage.capacity for key, usage in tx.get_limits(keys).items()}

    schedules, capacities = store.read(read)
    recorder = SimulationRecorder(
        since=question.since,
        until=question.until,
        workers=question.workers,
        max_rows=question.max_rows,
        outages=question.outages,
    )
    recorder.add_schedules(schedules, capacities)
    simulation = Simulation(
        store,
        clock,
        ids=context.ids,
        recorder=recorder,
        work=question.work,
        workers=question.workers,
        schedules=schedules,
    )

    def record_facts(facts: Iterable[Fact]) -> None:
        for fact in facts:
            simulation.notify(fact)

    # A change may decide occurrences too.
    changing = replace(context, notify=record_facts)
    changes = [(at, lambda change=change: change(changing)) for at, change in question.changes]
    simulation.run(question.until, outages=question.outages, changes=changes, progress=progress)
    return recorder.report()


def merge_outages(outages: Iterable[tuple[datetime, datetime]]) -> Outages:
    """Return outages in order, with overlapping ones joined."""
    found: list[tuple[datetime, datetime]] = []
    for since, until in sorted(outages):
        if found and since <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], until))
        else:
            found.append((since, until))
    return tuple(found)
