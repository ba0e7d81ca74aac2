"""`queue add` with `unique`: at most one waiting entry of a key, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.operations.harness import OperationsHarness
from timewright.errors import InvalidInput


class Queue:
    """One queue, to which entries of one key are added."""

    def __init__(self, harness: OperationsHarness, name: str) -> None:
        self.harness = harness
        self.name = name

    def add(self, payload: Any, **fields: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.harness.ask(
            "queue add", queue=self.name, payload=payload, unique="ada", **fields
        )
        return found

    def waiting(self) -> list[Any]:
        runs = self.harness.ask("queue show", queue=self.name)["entries"]
        ids = [run["id"] for run in runs if run["state"] == "ready"]
        return [self.harness.ask("run get", run=run)["payload"] for run in ids]

    def lease(self) -> str:
        found: str = self.harness.ask("queue lease", queue=self.name, holder="w1")["leases"][0]["lease"]
        return found


@pytest.fixture(params=["sqlite", "postgres"])
def queue(request: pytest.FixtureRequest) -> Queue:
    if request.param == "sqlite":
        return Queue(OperationsHarness(), "mail")
    harness = request.getfixturevalue("empty_postgres_harness")
    # The database is shared by the tests of a session.
    return Queue(harness, f"mail-{request.node.originalname}")


def test_a_second_entry_of_a_waiting_key_is_not_added(queue: Queue) -> None:
    first = queue.add(1)
    again = queue.add(2)
    assert (first["known"], again["known"]) == (False, True)
    assert again["entries"][0]["id"] == first["entries"][0]["id"]
    assert queue.waiting() == [1]


def test_replace_cancels_the_waiting_entry_and_adds_the_new_one(queue: Queue) -> None:
    first = queue.add(1)
    again = queue.add(2, on_conflict="replace")
    assert not again["known"]
    assert queue.waiting() == [2]
    old = queue.harness.ask("run get", run=first["entries"][0]["id"])["run"]
    assert (old["state"], old["reason"]) == ("cancelled", "superseded")


def test_an_entry_under_way_is_kept_and_replace_adds_one_that_waits(queue: Queue) -> None:
    first = queue.add(1)
    queue.lease()
    assert queue.add(2)["entries"][0]["id"] == first["entries"][0]["id"]
    queue.add(3, on_conflict="replace")
    queue.add(4, on_conflict="replace")
    assert queue.waiting() == [4]


def test_a_finished_entry_does_not_count(queue: Queue) -> None:
    queue.add(1)
    queue.harness.ask("queue complete", lease=queue.lease())
    assert not queue.add(2)["known"]
    assert queue.waiting() == [2]


def test_of_many_at_once_one_is_added(queue: Queue) -> None:
    with ThreadPoolExecutor(12) as pool:
        found = [one.result() for one in [pool.submit(partial(queue.add, n)) for n in range(24)]]
    assert sum(not one["known"] for one in found) == 1
    assert len(queue.waiting()) == 1


@pytest.mark.parametrize(
    "fields",
    [{"unique": "ada", "payloads": [1, 2]}, {"unique": "ada", "client_key": "x"}, {"on_conflict": "replace"}],
)
def test_unique_is_for_one_entry_without_a_client_key_and_replace_needs_it(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        OperationsHarness().ask("queue add", queue="mail", **fields)
