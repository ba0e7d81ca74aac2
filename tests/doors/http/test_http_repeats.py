"""The same key at the same time: one write, one answer, on both stores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import postgres_template, postgres_url
from tests.operations.house import NOON, House
from timewright.operations import operations
from timewright.operations.repeats import Broom, forget, once
from timewright.stores.postgres import PostgresStore
from timewright.stores.sqlite import SqliteStore
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database

__all__ = ["postgres_template", "postgres_url"]

ADD = operations["queue add"]


@pytest.fixture(params=["sqlite", "postgres"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    clock = ManualClock(NOON)
    if request.param == "sqlite":
        store: Any = SqliteStore(str(tmp_path / "x.db"), clock=clock)
        yield House(store=store, clock=clock)
        store.close()
        return
    url, template = (request.getfixturevalue(name) for name in ("postgres_url", "postgres_template"))
    with fresh_database(url, template=template) as place:
        store = PostgresStore(place, clock=clock)
        yield House(store=store, clock=clock)
        store.close()


def test_many_at_once_with_one_key_are_one(house: House) -> None:
    answers: list[tuple[dict[str, Any], bool]] = []
    start = threading.Barrier(8)

    def asking() -> None:
        start.wait()
        answers.append(once(house.context, ADD, {"queue": "mail", "payload": 1}, key="k"))

    threads = [threading.Thread(target=asking) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert sum(not repeated for _, repeated in answers) == 1
    assert len({answer["entries"][0]["id"] for answer, _ in answers}) == 1
    assert len(house.ask("queue show", queue="mail")["entries"]) == 1


def test_a_write_that_is_refused_leaves_its_key_free(house: House) -> None:
    with pytest.raises(Exception, match="payload"):
        once(house.context, ADD, {"queue": "mail", "payload": 1, "payloads": [2]}, key="k")
    _, repeated = once(house.context, ADD, {"queue": "mail", "payload": 1}, key="k")
    assert not repeated


def test_what_is_over_is_swept_away_in_parts(house: House) -> None:
    broom = Broom()
    for number in range(3):
        once(house.context, ADD, {"queue": "mail", "payload": number}, key=f"k{number}")
    assert forget(house.context)
    house.sleep(hours=40)
    broom.sweep(house.context)
    assert not once(house.context, ADD, {"queue": "mail", "payload": 0}, key="k0")[1]
    house.sleep(hours=3)
    assert once(house.context, ADD, {"queue": "mail", "payload": 0}, key="k0")[1]
