"""Turns: those who take many go one after another, and whoever keeps a turn keeps nobody for long."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from tests.conformance.builders import NOON, add, make_run, make_schedule, put, revised
from tests.conformance.databases import Database
from tests.conformance.together import held_open, meanwhile
from timewright.core.moments import HOUR, SECOND
from timewright.ids import TimedIds
from timewright.ledger.lease import Leased, lease_ready
from timewright.ports import Turn
from timewright.testing.clock import ManualClock

IDS = TimedIds()


def ready(store: Any, count: int) -> list[str]:
    schedule = make_schedule()
    put(store, revised(schedule))
    instants = [NOON - number * HOUR for number in range(count)]
    runs = [make_run(schedule.id, planned_at=at, revision=1, alone=False) for at in instants]
    return sorted(add(store, *runs))


def test_a_turn_is_free_when_nobody_has_it_and_again_when_the_transaction_ends(store: Any) -> None:
    for _ in range(2):
        assert store.write(lambda tx: tx.take_turn(patience=SECOND)) == Turn(had=True, at=NOON)


@pytest.mark.parametrize("kind", ["postgres"])
def test_who_comes_second_waits_until_the_first_has_ended(database: Database) -> None:
    first, second = database.open(), database.open()
    with held_open(first, lambda tx: tx.take_turn(patience=SECOND)) as held:
        with meanwhile(lambda: second.write(lambda tx: tx.take_turn(patience=SECOND))) as waits:
            held.release()
        assert waits.result().had
    assert held.first.had


@pytest.mark.parametrize("kind", ["postgres"])
def test_who_waits_in_vain_goes_on_without_and_keeps_all_it_did(database: Database) -> None:
    first, second = database.open(), database.open()
    runs = ready(first, 3)
    with held_open(first, lambda tx: tx.take_turn(patience=SECOND)):
        leased = lease_ready(second, ids=IDS, holder="ins_b", capacity=10, now=NOON, turn=SECOND)
        assert leased.out_of_turn
        assert sorted(one.run.id for one in leased.leases) == runs
    held = second.read(lambda tx: tx.leased_runs(holder="ins_b"))
    assert sorted(run.id for run in held) == runs


@pytest.mark.parametrize("kind", ["postgres"])
def test_patience_with_locks_is_the_same_after_a_turn_as_before(database: Database) -> None:
    first, second = database.open(), database.open()

    def patience(tx: Any) -> str:
        return str(tx._speaker._connection.execute("SHOW lock_timeout").fetchone()[0])

    def after_turn(tx: Any) -> tuple[bool, str]:
        return tx.take_turn(patience=SECOND).had, patience(tx)

    assert second.write(after_turn) == (True, "5s")
    with held_open(first, lambda tx: tx.take_turn(patience=SECOND)):
        assert second.write(after_turn) == (False, "5s")


def test_a_lease_counts_from_the_end_of_the_wait_for_its_turn(store: Any, clock: ManualClock) -> None:
    ready(store, 1)
    clock.advance(seconds=1)
    (lease,) = lease_ready(store, ids=IDS, holder="ins_a", capacity=1, now=NOON, turn=SECOND).leases
    assert lease.run.leased_at == NOON + SECOND
    assert lease.run.lease_until == NOON + SECOND + lease.terms.lease.length


@pytest.mark.parametrize("kind", ["postgres"])
def test_who_waits_in_vain_waits_as_long_as_it_said(database: Database) -> None:
    first, second = database.open(), database.open()
    with held_open(first, lambda tx: tx.take_turn(patience=SECOND)):
        began = monotonic()
        assert not second.write(lambda tx: tx.take_turn(patience=SECOND / 5)).had
        assert monotonic() - began >= 0.2


def test_who_missed_its_turn_and_found_only_what_must_wait_does_not_wait_again(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[None] = []

    def deferred(*_: Any) -> Leased:
        asked.append(None)
        return Leased(more=True, deferred=1, out_of_turn=True)

    monkeypatch.setattr("timewright.ledger.lease._lease", deferred)
    assert lease_ready(store, ids=IDS, holder="ins_a", capacity=1, now=NOON, turn=SECOND).out_of_turn
    assert len(asked) == 1


def test_runs_are_leased_in_turn_as_they_are_without(store: Any) -> None:
    runs = ready(store, 5)
    leased = lease_ready(store, ids=IDS, holder="ins_a", capacity=3, now=NOON, turn=SECOND)
    assert (len(leased.leases), leased.more, leased.out_of_turn) == (3, True, False)
    rest = lease_ready(store, ids=IDS, holder="ins_a", capacity=3, now=NOON, turn=SECOND)
    assert {one.run.id for one in (*leased.leases, *rest.leases)} == set(runs)
