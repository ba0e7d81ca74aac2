"""A process that will be killed: it writes, and prints the number of each acknowledged commit.

`python -m tests.stores.crash_child write KIND PLACE SEED` does up to 200 random transactions, each of which
touches most tables; `... create FOLDER` makes one new store after the other. `check` runs in the parent.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.conformance.support.builders import (
    NOON,
    ended,
    entry,
    grant,
    make_progress,
    make_run,
    make_schedule,
    schedule_write,
    stored,
)
from tests.conformance.support.databases import open_store
from timewright.core.run.run import Attempt, RunState
from timewright.errors import OutcomeUnknown, StoreUnavailable
from timewright.ports import ProgressUpdate, RunFilter, Store, StoredObject, Transaction
from timewright.ports.rows import AuditFilter, LeasedRuns
from timewright.ports.schedules import SchedulesNamed
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.clock import ManualClock

TRANSACTIONS = 200
LIMIT_KEY = "limit:default/crash"


def moment(number: int) -> datetime:
    """The instant of a transaction; ids derive from it, so they differ between processes."""
    return NOON + timedelta(seconds=number)


def size(seed: str, number: int) -> int:
    """How many runs a transaction adds."""
    return random.Random(f"{seed}:{number}").randint(1, 4)


def last(store: Store) -> int:
    """Return the number of the last transaction that is in the store."""
    return int(store.read(lambda tx: tx.get_meta("last")) or 0)


def perform(tx: Transaction, seed: str, number: int) -> None:
    """Run one random transaction: admit, lease, settle, save progress, edit an object, audit."""
    chance = random.Random(f"{seed}:{number}:more")
    at = moment(number)
    text = "x" * chance.choice([10, 10, 10, 20_000])
    payloads = [{"tx": number, "text": text} for _ in range(size(seed, number))]
    tx.add_runs([make_run(planned_at=at, limit_keys=(LIMIT_KEY,), payload=payload) for payload in payloads])
    if chance.random() < 0.6:
        tx.get_limits([LIMIT_KEY], lock=True)
        tx.lease_runs([grant(run, at=at) for run in tx.ready_runs(now=at, limit=3)])
    if chance.random() < 0.6:
        tx.settle_runs([ended(run, at=at) for run in tx.select(LeasedRuns())])
    schedule_id = next((one.id for one in tx.select(SchedulesNamed("default", ["crash"]))), None)
    assert schedule_id is not None
    tx.save_progress([ProgressUpdate(schedule_id, make_progress(runs=number, cursor=at))])
    tx.put_objects([stored("crash", str(number).encode(), revision=number)])
    tx.add_audit([entry(f"tx-{number}", at=at)])
    tx.seal_audit()
    tx.put_meta("last", str(number))


def check(store: Store, seed: str, *, acknowledged: int) -> int:
    """Check that every acknowledged commit is complete; returns the last one in the store."""
    done = last(store)
    assert acknowledged <= done <= acknowledged + 1, f"{acknowledged} were acknowledged, {done} are there"
    store.read(lambda tx: _check_whole(tx, seed, done))
    return done


def _check_whole(tx: Transaction, seed: str, done: int) -> None:
    states, sizes = Counter[RunState](), Counter[int]()
    for run in _all_runs(tx):
        states[run.state] += 1
        sizes[run.payload["tx"]] += 1
    assert sizes == Counter({number: size(seed, number) for number in range(1, done + 1)})
    assert tx.check_audit().first_broken is None
    assert [line.action for line in tx.find(AuditFilter(limit=1)).rows] == ([f"tx-{done}"] if done else [])
    objects: list[StoredObject] = tx.get_objects("calendar")
    assert [(row.revision, row.body) for row in objects] == ([(done, str(done).encode())] if done else [])
    schedule_id = next((one.id for one in tx.select(SchedulesNamed("default", ["crash"]))), None)
    assert schedule_id is not None
    assert tx.get_schedules([schedule_id])[schedule_id].progress.runs == done
    held = tx.get_limits([LIMIT_KEY])[LIMIT_KEY].held
    assert held == len(tx.select(LeasedRuns())) == states[RunState.LEASED]


def _all_runs(tx: Transaction) -> list[Any]:
    runs: list[Any] = []
    cursor = ""
    while True:
        page = tx.find(RunFilter(limit=1000, cursor=cursor))
        runs += page.rows
        cursor = page.cursor
        if not cursor:
            break
    attempts = tx.get_run_rows(Attempt, [run.id for run in runs])
    done = [run.id for run in runs if run.state is RunState.SUCCEEDED]
    assert sorted(attempts) == sorted(done), "every end has its attempt, and every attempt its end"
    return runs


def prepare(store: Store) -> None:
    """Create the rows that every transaction expects."""

    def work(tx: Transaction) -> None:
        tx.put_schedules([schedule_write(make_schedule("crash"))])
        tx.set_limits({LIMIT_KEY: 100_000})

    store.write(work)


def write(kind: str, place: str, seed: str) -> None:
    """Run transactions until this process or the server is killed."""
    store = open_store(kind, place, clock=ManualClock(NOON))
    done = last(store)
    say("open")
    for number in range(done + 1, done + 1 + TRANSACTIONS):
        try:
            store.write(lambda tx, n=number: perform(tx, seed, n))  # type: ignore[misc]
        except (StoreUnavailable, OutcomeUnknown):
            return
        say(str(number))


def create(folder: str) -> None:
    """Create stores until this process is killed."""
    for number in range(TRANSACTIONS):
        SqliteStore(Path(folder) / f"{number:03}.db", clock=ManualClock(NOON)).close()
        say(str(number))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(*sys.argv[2:])
    else:
        create(sys.argv[2])
