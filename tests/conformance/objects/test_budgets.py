"""Budgets: cached definitions, locked accounts, and charges that add up."""

from __future__ import annotations

from concurrent.futures import wait
from datetime import datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import NOON, add, make_run
from tests.conformance.support.concurrency import held_open, meanwhile
from tests.conformance.support.databases import Database
from timewright.core.budgets.budgets import EMPTY_CATALOG, Budget, BudgetUsage, Charge, ProviderWindow, Unit
from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.core.run.run import RunState
from timewright.ports import PruneRequest, Store, StoredObject
from timewright.ports.objects import UsageByPeriod
from timewright.ports.overview import DeferredRuns

DAILY = Budget(name="daily", namespace="default", unit=Unit.REQUESTS, limit=3)
TODAY = DAILY.period_at(NOON).start
PLACE = (DAILY.account_name, TODAY)


def keep(store: Store, kind: str, name: str, body: bytes) -> None:
    row = StoredObject(kind=kind, namespace="default", name=name, body=body, at=NOON)

    store.write(lambda tx: tx.put_objects([row]))


def drop(store: Store, kind: str, name: str) -> None:
    store.write(lambda tx: tx.delete_object(kind, namespace="default", name=name))


def charge(run_id: str = "run_1", fence: int = 1, *, at: datetime = NOON, **fields: Any) -> Charge:
    return Charge(run_id=run_id, fence=fence, budget=DAILY.account_name, period=TODAY, at=at, **fields)


def account(store: Store, place: tuple[str, datetime] = PLACE) -> BudgetUsage:
    return store.read(lambda tx: tx.get_accounts([place]))[place]


def test_there_are_no_budgets_before_the_first_and_after_the_last(store: Store) -> None:
    assert store.read(lambda tx: tx.read_budgets()) is EMPTY_CATALOG
    assert store.write(lambda tx: tx.read_budgets(needed=lambda: False)) is EMPTY_CATALOG
    keep(store, "budget", "daily", msgspec.json.encode(DAILY))
    keep(store, "provider", "openai", msgspec.json.encode(ProviderWindow(until=NOON)))
    catalog = store.write(lambda tx: tx.read_budgets(needed=lambda: False))
    assert catalog.budgets == {"default": (DAILY,)}
    assert catalog.windows == {("default", "openai"): ProviderWindow(until=NOON)}
    assert store.read(lambda tx: tx.read_budgets()) == catalog
    drop(store, "budget", "daily")
    drop(store, "provider", "openai")
    assert store.read(lambda tx: tx.read_budgets()) is EMPTY_CATALOG


def test_a_committed_budget_change_is_visible_everywhere_and_a_rolled_back_one_nowhere(
    database: Database,
) -> None:
    store, other = database.open(), database.open()
    keep(store, "budget", "daily", msgspec.json.encode(DAILY))
    assert other.read(lambda tx: tx.read_budgets()).budgets == {"default": (DAILY,)}

    def undone(tx: Any) -> None:
        row = StoredObject(kind="budget", namespace="default", name="daily", body=b"{}", at=NOON)
        tx.put_objects([row])
        assert not tx.read_budgets().budgets
        raise LookupError

    with pytest.raises(LookupError):
        store.write(undone)
    larger = replace(DAILY, limit=9)
    keep(other, "budget", "daily", msgspec.json.encode(larger))
    for one in (store, other):
        assert one.read(lambda tx: tx.read_budgets()).budgets == {"default": (larger,)}


def test_an_unreadable_budget_is_listed_by_name(store: Store) -> None:
    keep(store, "budget", "garbled", b'{"host": "example.com"}')
    keep(store, "budget", "worse", b"3")
    keep(store, "provider", "openai", b'{"until": "soon"}')
    catalog = store.read(lambda tx: tx.read_budgets())
    assert [(one.name, one.scope) for one in catalog.unreadable["default"]] == [
        ("garbled", {"host": "example.com"}),
        ("worse", None),
    ]
    assert catalog.windows["default", "openai"].unreadable


def test_a_locked_account_blocks_others_until_the_commit(database: Database) -> None:
    store, other = database.open(), database.open()
    taken = charge(used=2)
    with (
        held_open(
            store, lambda tx: tx.get_accounts([PLACE], lock=True), lambda tx, _: tx.add_charges([taken])
        ) as held,
        meanwhile(lambda: other.write(lambda tx: tx.get_accounts([PLACE], lock=True))) as second,
    ):
        assert held.first == {PLACE: BudgetUsage()}
        assert wait([second], timeout=0.1).not_done
        held.release()
    # The second transaction waited and read the result of the first.
    assert second.result() == {PLACE: BudgetUsage(2, 0)}


def charges(store: Store, *run_ids: str) -> list[Charge]:
    found = store.read(lambda tx: tx.get_run_rows(Charge, run_ids))
    return [one for run_id in run_ids for one in found.get(run_id, ())]


def test_charges_are_counted_when_they_are_made_and_again_when_they_are_known(store: Store) -> None:
    taken = [charge(used=1), charge("run_2", held=40, open=True), charge("run_3", held=2, open=True)]
    store.write(lambda tx: tx.add_charges(taken))
    assert account(store) == BudgetUsage(1, 42)
    assert charges(store, "run_1", "run_2") == taken[:2]
    store.write(lambda tx: tx.close_charges({taken[1]: charge("run_2", used=55)}))
    assert account(store) == BudgetUsage(56, 2)
    assert charges(store, "run_2") == [charge("run_2", used=55)]
    assert store.read(lambda tx: tx.select(UsageByPeriod(DAILY.account_name, limit=5))) == [
        (TODAY, BudgetUsage(56, 2))
    ]
    store.write(lambda tx: tx.add_charges([]))
    store.write(lambda tx: tx.close_charges({}))


def test_recounting_sums_the_charges_of_the_new_period(store: Store) -> None:
    early, late = charge(used=5, at=NOON - HOUR), charge("run_2", used=2, held=3, open=True)
    store.write(lambda tx: tx.add_charges([early, late]))
    hour = NOON - MINUTE
    store.write(lambda tx: tx.recount_budget(DAILY.account_name, since=hour))
    assert account(store, (DAILY.account_name, hour)) == BudgetUsage(2, 3)
    (moved,) = charges(store, "run_2")
    store.write(lambda tx: tx.close_charges({moved: replace(moved, used=4, held=0, open=False)}))
    assert account(store, (DAILY.account_name, hour)) == BudgetUsage(4, 0)
    store.write(lambda tx: tx.delete_object("budget", namespace="default", name="daily"))
    assert account(store) == account(store, (DAILY.account_name, hour)) == BudgetUsage()
    assert charges(store, "run_1", "run_2") == []


def test_releasing_deferred_runs_affects_only_their_reason(store: Store) -> None:
    later = NOON + DAY
    mine = make_run(fire_at=later, reason="budget: daily: used up")
    runs = [mine, make_run(fire_at=later, reason="budget: daily2: used up"), make_run(fire_at=later)]
    foreign = make_run(fire_at=later, reason="budget: daily: used up", namespace="other")
    add(store, *runs, foreign)
    assert store.read(lambda tx: tx.count(DeferredRuns(namespace="default", prefix="budget: daily:"))) == {
        "runs": 1
    }
    assert store.write(lambda tx: tx.release_deferred_runs("default", prefix="budget: daily:", now=NOON)) == 1
    ready = store.write(lambda tx: tx.ready_runs(now=NOON, limit=10))
    assert [run.id for run in ready] == [mine.id]
    assert (ready[0].fire_at, ready[0].reason) == (NOON, "")


def test_charges_go_with_their_run_and_the_account_stays(store: Store) -> None:
    old = make_run(state=RunState.SUCCEEDED, finished_at=NOON)
    add(store, old)
    store.write(lambda tx: tx.add_charges([charge(old.id, used=1)]))
    assert store.write(lambda tx: tx.prune(PruneRequest(keep_runs=0))) == 1
    assert charges(store, old.id) == []
    assert account(store) == BudgetUsage(1, 0)


def test_locked_budgets_cannot_be_changed_by_another_transaction(database: Database) -> None:
    store, other = database.open(), database.open()
    with (
        held_open(store, lambda tx: tx.lock("budgets")) as held,
        meanwhile(lambda: keep(other, "budget", "daily", b"{}")) as second,
    ):
        assert wait([second], timeout=0.1).not_done
        held.release()
    assert second.result() is None
