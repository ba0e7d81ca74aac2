"""The in-memory store: caches without expiry checks, and backups."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from timewright.ids import TimedIds
from timewright.operations import OperationContext, operations
from timewright.ports.schedules import SchedulesNamed, SchedulesWithIds
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.bench import DEFAULT_START
from timewright.testing.clock import ManualClock


def ask(store: SqliteStore, operation: str, **payload: Any) -> Any:
    return operations[operation](
        OperationContext(store=store, ids=TimedIds(), notify=lambda facts: None), payload
    )


def has_budgets(store: SqliteStore) -> bool:
    return not store.read(lambda tx: tx.read_budgets()).is_empty


def test_a_budget_is_visible_after_its_commit_and_never_after_a_rollback() -> None:
    store = SqliteStore(":memory:")
    assert not has_budgets(store)
    tokens = {"budget": "tokens", "unit": "tokens", "limit": "1000", "period": "day"}
    ask(store, "budget set", **tokens, dry_run=True)
    assert not has_budgets(store)
    ask(store, "budget set", **tokens)
    assert has_budgets(store)
    ask(store, "budget delete", budget="tokens", dry_run=True)
    assert has_budgets(store)
    ask(store, "budget delete", budget="tokens")
    assert not has_budgets(store)
    store.close()


def test_a_copy_of_it_knows_how_far_its_clock_came(tmp_path: Path) -> None:
    clock = ManualClock(DEFAULT_START)
    store = SqliteStore(":memory:", clock=clock)
    store.write(lambda tx: tx.put_meta("a", "b"))
    came_to = store.now()
    store.backup(tmp_path / "copy.db")
    store.close()
    clock.step(-timedelta(hours=1))
    copy = SqliteStore(tmp_path / "copy.db", clock=clock)
    assert copy.now() == came_to
    copy.close()


def test_a_list_of_one_value_matches_like_a_longer_list() -> None:
    store = SqliteStore(":memory:")
    ask(store, "schedule create", name="a", every="1h", note="x")
    (head,) = store.read(lambda tx: tx.select(SchedulesNamed("default", ["a"])))
    for ids in ([head.id], [head.id, "sch_none"]):
        assert store.read(lambda tx, ids=ids: tx.select(SchedulesWithIds(ids))) == [head]  # type: ignore[misc]
    for text in ("sch_\ud800", "sch_\0"):
        assert store.read(lambda tx, one=text: tx.select(SchedulesWithIds([one]))) == []  # type: ignore[misc]
    store.close()
