"""A pause of the installation: nothing is admitted and nothing is leased while it holds."""

from __future__ import annotations

from datetime import datetime

from tests.conformance.support.builders import (
    NOON,
    add,
    grant,
    make_progress,
    make_run,
    make_schedule,
    new_id,
    schedule_write,
)
from timewright.core.moments import HOUR, MINUTE
from timewright.core.schedule.pauses import Pause
from timewright.ports import Store


def pause(store: Store, *, until: datetime | None = None) -> Pause:
    made = Pause(id=new_id("pause"), actor="ada", origin="human", reason="move", at=NOON, until=until)
    store.write(lambda tx: tx.add_pause(made))
    return made


def with_work(store: Store) -> None:
    """Add a due schedule and a ready run."""
    progress = make_progress(next_at=NOON)
    store.write(lambda tx: tx.put_schedules([schedule_write(make_schedule(), progress)]))
    add(store, make_run())


def due(store: Store, *, now: datetime = NOON) -> int:
    def find(part: tuple[int, int]) -> int:
        return len(store.write(lambda tx: tx.due_schedules(now=now, limit=9, shard=part)))

    assert find((1, 1)) == find((1, 2)) + find((2, 2))
    return find((1, 1))


def leased(store: Store, *, now: datetime = NOON) -> int:
    (run,) = store.write(lambda tx: tx.ready_runs(now=now, limit=9))
    return len(store.write(lambda tx: tx.lease_runs([grant(run, at=now)])))


def test_an_open_pause_is_listed_with_who_set_it_and_why(store: Store) -> None:
    made = pause(store, until=NOON + HOUR)
    assert store.read(lambda tx: tx.open_pauses()) == [made]
    assert store.write(lambda tx: tx.end_pause(made.id, by="bob", now=NOON))
    assert not store.write(lambda tx: tx.end_pause(made.id, by="bob", now=NOON))
    assert store.read(lambda tx: tx.open_pauses()) == []


def test_while_the_installation_is_paused_nothing_is_due_and_nothing_is_leased(store: Store) -> None:
    with_work(store)
    made = pause(store)
    pending = store.read(lambda tx: tx.read_pending_work(holder="w0"))
    assert (pending.wake_at, pending.has_ready_runs) == (None, False)
    assert due(store) == 0
    assert leased(store) == 0
    store.write(lambda tx: tx.end_pause(made.id, by="bob", now=NOON))
    assert store.read(lambda tx: tx.read_pending_work(holder="w0")).has_ready_runs
    assert due(store) == 1
    assert leased(store) == 1


def test_a_pause_ends_at_its_instant(store: Store) -> None:
    with_work(store)
    pause(store, until=NOON + HOUR)
    pending = store.read(lambda tx: tx.read_pending_work(holder="w0"))
    assert (pending.schedule_due_at, pending.run_due_at) == (NOON + HOUR, NOON + HOUR)
    assert due(store, now=NOON + HOUR - MINUTE) == 0
    assert leased(store, now=NOON + HOUR - MINUTE) == 0
    assert due(store, now=NOON + HOUR) == 1
    assert leased(store, now=NOON + HOUR) == 1


def test_of_several_pauses_the_longest_counts(store: Store) -> None:
    with_work(store)
    forever = pause(store)
    pause(store, until=NOON + HOUR)
    assert store.read(lambda tx: tx.read_pending_work(holder="w0")).wake_at is None
    store.write(lambda tx: tx.end_pause(forever.id, by="bob", now=NOON))
    assert store.read(lambda tx: tx.read_pending_work(holder="w0")).wake_at == NOON + HOUR
