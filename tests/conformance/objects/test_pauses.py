"""A pause of the installation: nothing is admitted and nothing is leased while it holds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

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
from timewright.core.budgets.spending import reason_prefix
from timewright.core.moments import HOUR, MAX_STORED_INSTANT, MINUTE
from timewright.core.run.leasing import WaitReason
from timewright.core.run.needs import LeaseOffer
from timewright.core.run.run import Run
from timewright.core.schedule.pauses import Pause, pause_need
from timewright.ports import RunChange, Store, Transaction
from timewright.ports.objects import OpenPauses
from timewright.ports.schedules import SetAsideSchedules


def pause(store: Store, *, until: datetime | None = None, origin: str = "human") -> Pause:
    made = Pause(id=new_id("pause"), actor="ada", origin=origin, reason="move", at=NOON, until=until)
    store.write(lambda tx: tx.add_pause(made))
    return made


def delivery(**fields: Any) -> Run:
    """A ready message to a channel."""
    fields = {"queue": "channel.ops", "handoff": False, "needs": ("queue:channel.ops",), **fields}
    return make_run(schedule_id="", limit_keys=(), **fields)


def with_work(store: Store) -> None:
    """Add a due schedule and a ready run."""
    progress = make_progress(next_at=NOON)
    store.write(lambda tx: tx.put_schedules([schedule_write(make_schedule(), progress)]))
    add(store, make_run())


def due(store: Store, *, now: datetime = NOON) -> int:
    def find(part: tuple[int, int]) -> int:
        return len(store.write(lambda tx: tx.due_schedules(until=now, limit=9, shard=part)))

    assert find((1, 1)) == find((1, 2)) + find((2, 2))
    return find((1, 1))


def leased(store: Store, *, now: datetime = NOON) -> int:
    (run,) = store.write(lambda tx: tx.ready_runs(now=now, limit=9))
    return len(store.write(lambda tx: tx.lease_runs([grant(run, at=now)])))


def test_an_open_pause_is_listed_with_who_set_it_and_why(store: Store) -> None:
    made = pause(store, until=NOON + HOUR)
    assert store.read(lambda tx: tx.select(OpenPauses())) == [made]
    assert store.write(lambda tx: tx.end_pause(made.id, by="bob", now=NOON))
    assert not store.write(lambda tx: tx.end_pause(made.id, by="bob", now=NOON))
    assert store.read(lambda tx: tx.select(OpenPauses())) == []


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


def test_a_pause_that_ended_is_listed_with_those_since_an_instant(store: Store) -> None:
    made = pause(store)
    store.write(lambda tx: tx.end_pause(made.id, by="bob", now=NOON + HOUR))
    assert store.read(lambda tx: tx.select(OpenPauses(NOON + HOUR))) == []
    (found,) = store.read(lambda tx: tx.select(OpenPauses(NOON)))
    assert (found.id, found.end) == (made.id, NOON + HOUR)


def test_a_pause_that_is_over_keeps_its_end_when_it_is_ended(store: Store) -> None:
    made = pause(store, until=NOON + MINUTE)
    store.write(lambda tx: tx.end_pause(made.id, by="bob", now=NOON + HOUR))
    (found,) = store.read(lambda tx: tx.select(OpenPauses(NOON)))
    assert found.end == NOON + MINUTE


def test_a_new_pause_closes_those_that_have_reached_their_end(store: Store) -> None:
    pause(store, until=NOON - HOUR)
    made = pause(store)
    assert store.read(lambda tx: tx.select(OpenPauses())) == [made]


def test_a_schedule_that_a_pause_set_aside_is_due_when_it_ends(store: Store) -> None:
    with_work(store)
    made = Pause(
        id=new_id("pause"), scope="namespace", namespace="default", actor="ada", origin="human", at=NOON
    )
    store.write(lambda tx: tx.add_pause(made))
    (record,) = store.write(lambda tx: tx.due_schedules(until=NOON, limit=9))
    (run,) = store.write(lambda tx: tx.ready_runs(now=NOON, limit=9))
    reason = f"{reason_prefix(WaitReason.PAUSE, made.id)} namespace default is paused by ada"
    change = RunChange(replace(run, fire_at=MAX_STORED_INSTANT, reason=reason), run.state, run.fence)

    def set_aside(tx: Transaction) -> None:
        tx.set_aside([(record.schedule.id, (pause_need(made.id),))], until=MAX_STORED_INSTANT)
        tx.change_runs([change])

    store.write(set_aside)
    assert due(store) == 0
    assert store.read(lambda tx: tx.select(SetAsideSchedules(9))) == []
    assert not store.read(lambda tx: tx.read_pending_work(holder="w0")).has_ready_runs
    store.write(lambda tx: tx.end_pause(made.id, by="bob", now=NOON))
    assert due(store) == 1
    assert leased(store) == 1


def test_messages_are_leased_while_the_installation_is_paused(store: Store) -> None:
    with_work(store)
    pause(store)
    add(store, delivery())
    assert store.read(lambda tx: tx.read_pending_work(holder="w0")).has_ready_runs
    offer = LeaseOffer(messages_only=True)
    found = store.write(lambda tx: tx.ready_runs(now=NOON, limit=9, offer=offer))
    assert [run.queue for run in found] == ["channel.ops"]
    assert len(store.write(lambda tx: tx.lease_runs([grant(found[0])]))) == 1
    assert not store.read(lambda tx: tx.read_pending_work(holder="w0")).has_ready_runs


def test_a_message_that_is_sent_again_later_is_due_at_that_time_under_a_pause(store: Store) -> None:
    pause(store)
    add(store, delivery(fire_at=NOON + MINUTE))
    assert store.read(lambda tx: tx.read_pending_work(holder="w0")).run_due_at == NOON + MINUTE
    later = NOON + MINUTE
    offer = LeaseOffer(messages_only=True)
    (run,) = store.write(lambda tx: tx.ready_runs(now=later, limit=9, offer=offer))
    assert len(store.write(lambda tx: tx.lease_runs([grant(run, at=later)]))) == 1


@pytest.mark.parametrize("origin", ["restore", "move"])
def test_a_copied_store_sends_no_messages_while_it_is_paused(store: Store, origin: str) -> None:
    pause(store)
    pause(store, origin=origin)
    add(store, delivery())
    pending = store.read(lambda tx: tx.read_pending_work(holder="w0"))
    assert (pending.wake_at, pending.has_ready_runs) == (None, False)
    assert leased(store) == 0
