"""Concurrent writes with one idempotency key, on both stores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import postgres_template, postgres_url
from tests.operations.harness import NOON, OperationsHarness
from timewright.engine.maintenance import Pruner
from timewright.operations import operations
from timewright.operations.idempotency import run_once
from timewright.ports.objects import STORED_ANSWER
from timewright.stores.postgres.store import PostgresStore
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database

__all__ = ["postgres_template", "postgres_url"]

ADD = operations["queue add"]


@pytest.fixture(params=["sqlite", "postgres"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OperationsHarness]:
    clock = ManualClock(NOON)
    if request.param == "sqlite":
        store: Any = SqliteStore(str(tmp_path / "x.db"), clock=clock)
        yield OperationsHarness(store=store, clock=clock)
        store.close()
        return
    url, template = (request.getfixturevalue(name) for name in ("postgres_url", "postgres_template"))
    with fresh_database(url, template=template) as place:
        store = PostgresStore(place, clock=clock)
        yield OperationsHarness(store=store, clock=clock)
        store.close()


def test_concurrent_writes_with_one_idempotency_key_happen_once(harness: OperationsHarness) -> None:
    answers: list[tuple[dict[str, Any], bool]] = []
    start = threading.Barrier(8)

    def asking() -> None:
        start.wait()
        answers.append(run_once(harness.context, ADD, {"queue": "mail", "payload": 1}, key="k"))

    threads = [threading.Thread(target=asking) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert sum(not repeated for _, repeated in answers) == 1
    assert len({answer["entries"][0]["id"] for answer, _ in answers}) == 1
    assert len(harness.ask("queue show", queue="mail")["entries"]) == 1


def test_a_refused_write_does_not_use_its_idempotency_key(harness: OperationsHarness) -> None:
    with pytest.raises(Exception, match="payload"):
        run_once(harness.context, ADD, {"queue": "mail", "payload": 1, "payloads": [2]}, key="k")
    _, repeated = run_once(harness.context, ADD, {"queue": "mail", "payload": 1}, key="k")
    assert not repeated


def test_an_idempotency_key_counts_for_a_day_and_its_answer_is_deleted_after_that(
    harness: OperationsHarness,
) -> None:
    pruner = Pruner(harness.store, keep=timedelta(days=90))
    for number in range(3):
        run_once(harness.context, ADD, {"queue": "mail", "payload": number}, key=f"k{number}")
    harness.sleep(hours=20)
    pruner.run(now=harness.now)
    assert run_once(harness.context, ADD, {"queue": "mail", "payload": 0}, key="k0")[1]
    harness.sleep(hours=20)
    assert not run_once(harness.context, ADD, {"queue": "mail", "payload": 0}, key="k0")[1]
    pruner.run(now=harness.now)
    stored = harness.store.read(lambda tx: tx.get_objects(STORED_ANSWER))
    assert [row.at for row in stored] == [harness.now]
    assert run_once(harness.context, ADD, {"queue": "mail", "payload": 0}, key="k0")[1]
