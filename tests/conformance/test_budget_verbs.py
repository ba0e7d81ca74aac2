"""Budgets in a store: one book that is read when it changed, accounts that are held, charges that add up."""

from __future__ import annotations

from concurrent.futures import wait
from datetime import datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.conformance.builders import NOON, add, make_run
from tests.conformance.databases import Database
from tests.conformance.together import held_open, meanwhile
from timewright.core.budgets import EMPTY, Account, Budget, Charge, Unit, Window
from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.core.run import RunState
from timewright.ports import Prune, Store, Stored

DAILY = Budget(name="daily", namespace="default", unit=Unit.REQUESTS, limit=3)
TODAY = DAILY.at(NOON).start
PLACE = (DAILY.key, TODAY)


def keep(store: Store, kind: str, name: str, body: bytes) -> None:
    row = Stored(kind=kind, namespace="default", name=name, body=body, at=NOON)

    def work(tx: Any) -> None:
        tx.put_objects([row])
        tx.change_book()

    store.write(work)


def drop(store: Store, kind: str, name: str) -> None:
    def work(tx: Any) -> None:
        tx.delete_object(kind, namespace="default", name=name)
        tx.change_book()

    store.write(work)


def charge(run_id: str = "run_1", fence: int = 1, *, at: datetime = NOON, **fields: Any) -> Charge:
    return Charge(run_id=run_id, fence=fence, budget=DAILY.key, period=TODAY, at=at, **fields)


def account(store: Store, place: tuple[str, datetime] = PLACE) -> Account:
    return store.read(lambda tx: tx.read_accounts([place]))[place]


def test_there_is_no_book_until_someone_writes_into_it_and_none_when_all_is_gone(store: Store) -> None:
    assert store.read(lambda tx: tx.book()) is EMPTY
    assert store.write(lambda tx: tx.book(needed=lambda: False)) is EMPTY
    keep(store, "budget", "daily", msgspec.json.encode(DAILY))
    keep(store, "provider", "openai", msgspec.json.encode(Window(until=NOON)))
    book = store.write(lambda tx: tx.book(needed=lambda: False))
    assert book.budgets == {"default": (DAILY,)}
    assert book.windows == {("default", "openai"): Window(until=NOON)}
    assert store.read(lambda tx: tx.book()) == book
    drop(store, "budget", "daily")
    drop(store, "provider", "openai")
    assert store.read(lambda tx: tx.book()) is EMPTY


def test_a_change_of_the_book_is_seen_by_all_and_one_that_was_undone_by_nobody(database: Database) -> None:
    store, other = database.open(), database.open()
    keep(store, "budget", "daily", msgspec.json.encode(DAILY))
    assert other.read(lambda tx: tx.book()).budgets == {"default": (DAILY,)}

    def undone(tx: Any) -> None:
        row = Stored(kind="budget", namespace="default", name="daily", body=b"{}", at=NOON)
        tx.put_objects([row])
        tx.change_book()
        assert not tx.book().budgets
        raise LookupError

    with pytest.raises(LookupError):
        store.write(undone)
    larger = replace(DAILY, limit=9)
    keep(other, "budget", "daily", msgspec.json.encode(larger))
    for one in (store, other):
        assert one.read(lambda tx: tx.book()).budgets == {"default": (larger,)}


def test_what_cannot_be_read_is_in_the_book_under_its_name(store: Store) -> None:
    keep(store, "budget", "garbled", b'{"host": "example.com"}')
    keep(store, "budget", "worse", b"3")
    keep(store, "provider", "openai", b'{"until": "soon"}')
    book = store.read(lambda tx: tx.book())
    assert [(one.name, one.covers) for one in book.broken["default"]] == [
        ("garbled", {"host": "example.com"}),
        ("worse", None),
    ]
    assert book.windows["default", "openai"].unreadable


def test_an_account_that_is_held_is_nobody_elses_until_the_end(database: Database) -> None:
    store, other = database.open(), database.open()
    taken = charge(used=2)
    with (
        held_open(store, lambda tx: tx.hold_accounts([PLACE]), lambda tx, _: tx.add_charges([taken])) as held,
        meanwhile(lambda: other.write(lambda tx: tx.hold_accounts([PLACE]))) as second,
    ):
        assert held.first == {PLACE: Account()}
        assert wait([second], timeout=0.1).not_done
        held.release()
    # Whoever came second waited, and read what the first had left.
    assert second.result() == {PLACE: Account(2, 0)}


def test_charges_are_counted_when_they_are_made_and_again_when_they_are_known(store: Store) -> None:
    taken = [charge(used=1), charge("run_2", held=40, open=True), charge("run_3", held=2, open=True)]
    store.write(lambda tx: tx.add_charges(taken))
    assert account(store) == Account(1, 42)
    assert store.read(lambda tx: tx.open_charges(["run_1", "run_2"])) == [taken[1]]
    store.write(lambda tx: tx.close_charges({taken[1]: charge("run_2", used=55)}))
    assert account(store) == Account(56, 2)
    assert store.read(lambda tx: tx.open_charges(["run_2"])) == []
    assert store.read(lambda tx: tx.charges_of(["run_2"])) == [charge("run_2", used=55)]
    assert store.read(lambda tx: tx.accounts_of(DAILY.key, limit=5)) == [(TODAY, Account(56, 2))]
    store.write(lambda tx: tx.add_charges([]))
    store.write(lambda tx: tx.close_charges({}))


def test_another_period_is_counted_from_the_charges_since_it_began(store: Store) -> None:
    early, late = charge(used=5, at=NOON - HOUR), charge("run_2", used=2, held=3, open=True)
    store.write(lambda tx: tx.add_charges([early, late]))
    hour = NOON - MINUTE
    store.write(lambda tx: tx.recount(DAILY.key, since=hour))
    assert account(store, (DAILY.key, hour)) == Account(2, 3)
    (moved,) = store.read(lambda tx: tx.open_charges(["run_2"]))
    store.write(lambda tx: tx.close_charges({moved: replace(moved, used=4, held=0, open=False)}))
    assert account(store, (DAILY.key, hour)) == Account(4, 0)
    store.write(lambda tx: tx.forget_budget(DAILY.key))
    assert account(store) == account(store, (DAILY.key, hour)) == Account()
    assert store.read(lambda tx: tx.charges_of(["run_1", "run_2"])) == []


def test_those_who_wait_for_one_thing_are_let_go_and_nobody_else(store: Store) -> None:
    later = NOON + DAY
    mine = make_run(fire_at=later, reason="budget: daily: used up")
    runs = [mine, make_run(fire_at=later, reason="budget: daily2: used up"), make_run(fire_at=later)]
    foreign = make_run(fire_at=later, reason="budget: daily: used up", namespace="other")
    add(store, *runs, foreign)
    assert store.read(lambda tx: tx.count_deferred("default", prefix="budget: daily:")) == 1
    assert store.write(lambda tx: tx.undefer("default", prefix="budget: daily:", now=NOON)) == 1
    ready = store.write(lambda tx: tx.ready_runs(now=NOON, limit=10))
    assert [run.id for run in ready] == [mine.id]
    assert (ready[0].fire_at, ready[0].reason) == (NOON, "")


def test_charges_go_with_their_run_and_the_account_stays(store: Store) -> None:
    old = make_run(state=RunState.SUCCEEDED, finished_at=NOON)
    add(store, old)
    store.write(lambda tx: tx.add_charges([charge(old.id, used=1)]))
    assert store.write(lambda tx: tx.prune(Prune(keep_runs=0))) == 1
    assert store.read(lambda tx: tx.charges_of([old.id])) == []
    assert account(store) == Account(1, 0)


def test_a_book_that_is_held_is_changed_by_nobody_else(database: Database) -> None:
    store, other = database.open(), database.open()
    with (
        held_open(store, lambda tx: tx.hold_book()) as held,
        meanwhile(lambda: other.write(lambda tx: tx.change_book())) as second,
    ):
        assert wait([second], timeout=0.1).not_done
        held.release()
    assert second.result() is None
