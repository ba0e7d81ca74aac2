"""Instances tell of themselves: who is alive, how full, how true the clock, and who has gone."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from tests.operations.house import NOON, House
from timewright.engine.presence import TELL_EVERY, Presence
from timewright.ledger.key_shelf import EVERYWHERE
from timewright.ledger.roster import Instance, tell_of
from timewright.ports import Stored, Transaction
from timewright.testing.clock import ManualClock


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> House:
    return House() if request.param == "sqlite" else request.getfixturevalue("postgres_street")


def present(place: House, name: str, *, clock: ManualClock | None = None, busy: int = 0) -> Presence:
    return Presence(place.store, name, clock=clock or place.bench.clock, capacity=20, work=[None] * busy)


def told(place: House) -> dict[str, str]:
    return {one["instance"]: one["state"] for one in place.ask("instance list")["instances"]}


def test_an_instance_is_alive_until_it_was_not_heard_three_times(place: House) -> None:
    before = told(place)
    present(place, "ins_1", busy=3).beat()
    one = next(row for row in place.ask("instance list")["instances"] if row["instance"] == "ins_1")
    assert (one["state"], one["capacity"], one["under_way"], one["clock_offset"]) == ("alive", 20, 3, "0s")
    assert one["version"]
    place.bench.clock.advance(timedelta(seconds=3 * TELL_EVERY))
    assert told(place) == {**before, "ins_1": "alive"}
    place.bench.clock.advance(timedelta(seconds=TELL_EVERY))
    assert told(place)["ins_1"] == "silent"


def test_an_instance_tells_no_more_often_than_it_should() -> None:
    place = House()
    one = present(place, "ins_1")
    one.beat()
    place.bench.clock.advance(timedelta(seconds=TELL_EVERY - 1))
    one.beat()
    assert place.ask("instance list")["instances"][0]["seen_at"] == "2026-03-10T12:00:00Z"
    place.bench.clock.advance(timedelta(seconds=1))
    one.beat()
    assert place.ask("instance list")["instances"][0]["seen_at"] == "2026-03-10T12:00:15Z"


def test_one_that_leaves_says_so_and_one_that_never_came_does_not() -> None:
    place = House()
    one, never = present(place, "ins_1"), present(place, "ins_2")
    one.beat()
    one.leave()
    never.leave()
    assert told(place) == {"ins_1": "stopped"}


def test_a_clock_that_is_behind_the_store_is_seen() -> None:
    place = House()
    slow = ManualClock(NOON - timedelta(seconds=7))
    present(place, "ins_1", clock=slow).beat()
    assert place.ask("instance list")["instances"][0]["clock_offset"] == "7s"
    present(place, "ins_2", clock=ManualClock(NOON + timedelta(milliseconds=1))).beat()
    offsets = {one["instance"]: one["clock_offset"] for one in place.ask("instance list")["instances"]}
    assert offsets["ins_2"] == "-0.001s", "one that is ahead, too"


def test_whoever_was_silent_for_a_day_is_forgotten() -> None:
    place = House()
    present(place, "ins_1").beat()
    place.bench.clock.advance(timedelta(days=1, seconds=1))
    present(place, "ins_2").beat()
    assert told(place) == {"ins_2": "alive"}


def test_one_that_is_long_gone_is_forgotten_however_many_live_longer(place: House) -> None:
    old, later = NOON - timedelta(days=2), "ins_z"

    def work(tx: Transaction) -> None:
        names = [*(f"ins_a{number:03}" for number in range(120)), later]
        row = partial(Stored, kind="instance", namespace=EVERYWHERE, revision=1, body=b"{}")
        tx.put_objects([row(name=name, at=old if name == later else NOON) for name in names])
        one = Instance(id="ins_b", host="h", version="1", started_at=NOON, capacity=1)
        tell_of(tx, one, now=NOON)

    place.store.write(work)
    newest = place.store.read(lambda tx: tx.newest_objects("instance", namespace=EVERYWHERE, limit=1))
    assert newest[0].name == "ins_b"
