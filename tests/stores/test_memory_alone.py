"""A store in memory is nobody else's: what it need not look at again, and what a copy of it must know."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from timewright.ids import TimedIds
from timewright.operations import Context, operations
from timewright.stores.sqlite import SqliteStore
from timewright.testing.bench import START
from timewright.testing.clock import ManualClock


def ask(store: SqliteStore, operation: str, **payload: Any) -> Any:
    return operations[operation](Context(store=store, ids=TimedIds(), tell=lambda facts: None), payload)


def has_book(store: SqliteStore) -> bool:
    return not store.read(lambda tx: tx.book()).is_empty


def test_a_book_of_budgets_is_seen_as_soon_as_it_is_kept_and_never_when_it_was_only_rehearsed() -> None:
    store = SqliteStore(":memory:")
    assert not has_book(store)
    tokens = {"budget": "tokens", "unit": "tokens", "limit": "1000", "period": "day"}
    ask(store, "budget set", **tokens, dry_run=True)
    assert not has_book(store)
    ask(store, "budget set", **tokens)
    assert has_book(store)
    ask(store, "budget delete", budget="tokens", dry_run=True)
    assert has_book(store)
    ask(store, "budget delete", budget="tokens")
    assert not has_book(store)
    store.close()


def test_a_copy_of_it_knows_how_far_its_clock_came(tmp_path: Path) -> None:
    clock = ManualClock(START)
    store = SqliteStore(":memory:", clock=clock)
    store.write(lambda tx: tx.put_meta("a", "b"))
    came_to = store.now()
    store.backup(tmp_path / "copy.db")
    store.close()
    clock.step(-timedelta(hours=1))
    copy = SqliteStore(tmp_path / "copy.db", clock=clock)
    assert copy.now() == came_to
    copy.close()


def test_one_value_is_found_as_in_a_list_of_many_and_half_a_character_nowhere() -> None:
    store = SqliteStore(":memory:")
    ask(store, "schedule create", name="a", every="1h", note="x")
    found = store.read(lambda tx: tx.find_schedule("default", "a"))
    assert found is not None
    assert set(store.read(lambda tx: tx.schedule_names([found]))) == {found}
    assert set(store.read(lambda tx: tx.schedule_names([found, "sch_none"]))) == {found}
    assert store.read(lambda tx: tx.schedule_names(["sch_\ud800"])) == {}
    assert store.read(lambda tx: tx.schedule_names(["sch_\0"])) == {}
    store.close()
