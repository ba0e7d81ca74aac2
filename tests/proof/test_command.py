"""`timewright verify`: what it prints, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.doors.terminal import ask
from tests.operations.house import House
from tests.proof.busy import START
from timewright.stores.sqlite import SqliteStore
from timewright.testing.clock import ManualClock


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    clock = ManualClock(START)
    store = SqliteStore(tmp_path / "store.db", clock=clock)
    house = House(store=store, clock=clock)
    house.ask("schedule create", name="job", every="10m", note="x")
    house.advance(hours=1)
    yield house
    store.close()


@pytest.fixture
def broken(house: House, tmp_path: Path) -> House:
    """The same with an occurrence that someone took away."""
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute("DELETE FROM runs WHERE id = (SELECT id FROM runs ORDER BY id LIMIT 1 OFFSET 2)")
    connection.close()
    return house


def test_whoever_keeps_every_promise_ends_well(house: House) -> None:
    said = ask(house, "verify")
    assert said.code == 0
    assert "✔ I1" in said.out
    assert "6 occurrences, 6 runs, 6 ended leases of 1 schedules" in said.lines[-1]
    assert "not checked here: needs" in said.out


def test_a_broken_promise_is_named_with_its_rows_and_ends_in_one(broken: House) -> None:
    said = ask(broken, "verify")
    assert said.code == 1
    assert "✘ I3" in said.out
    assert "job: nothing is recorded for 2026-03-29T00:30:00Z" in said.out
    assert "cursor: 2026-03-29T01:00:00Z" in said.out
    assert "promises broken" in said.lines[-1]


def test_only_some_promises_are_asked_for(broken: House) -> None:
    said = ask(broken, "verify", "--only", "I1", "--only", "i14", "-o", "json")
    assert said.code == 0
    assert [one["promise"] for one in said.data["promises"]] == ["I1", "I14"]
    assert ask(broken, "verify", "--only", "I3", "-o", "json").code == 1


def test_from_an_instant_on(broken: House) -> None:
    said = ask(broken, "verify", "--since", "2026-03-29T00:35:00Z", "-o", "json")
    assert said.code == 0
    assert said.data["runs"] == 3
    assert said.data["since"] == "2026-03-29T00:35:00Z"


def test_a_promise_that_does_not_exist_is_refused(house: House) -> None:
    said = ask(house, "verify", "--only", "I99")
    assert said.code == 1
    assert "no promise 'I99'" in said.err
    assert "I40" in said.err
