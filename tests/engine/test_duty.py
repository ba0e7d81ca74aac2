"""Who decides what is due: everyone, a leader, or each its shard; and nobody's absence stops anything."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from timewright.assembly import House, new_registry, open_store
from timewright.core.moments import SECOND
from timewright.core.shards import read_shard, unserved
from timewright.engine.duty import PATIENCE, RENEW_EVERY, TERM
from timewright.errors import InvalidInput
from timewright.ledger.leader import last_term
from timewright.operations import operations
from timewright.settings import Settings
from timewright.testing.clock import ManualClock

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
JOBS = 24


class Street:
    """Several houses on one store and one clock, each looked after by hand."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.clock = ManualClock(NOON)
        self.houses: list[House] = []

    def move_in(self, **settings: Any) -> House:
        store = open_store(self.place, clock=self.clock)
        house = House(store, settings=Settings(**settings), registry=new_registry(), clock=self.clock)
        house.presence.beat()
        self.houses.append(house)
        return house

    def schedule(self, **fields: Any) -> None:
        for n in range(JOBS):
            self.ask("schedule create", name=f"job-{n}", every="1h", note="hello", **fields)

    def ask(self, operation: str, **request: Any) -> dict[str, Any]:
        return operations[operation](self.houses[-1].context(), request)

    def admitted(self, house: House) -> int:
        """How many schedules one look of a house decides."""
        before = self._decided()
        house.loop.step()
        return self._decided() - before

    def _decided(self) -> int:
        return len(self.ask("run list", limit=1000)["runs"])

    def leave(self) -> None:
        for house in self.houses:
            house.free()
            house.close()


@pytest.fixture
def street(place: str) -> Iterator[Street]:
    street = Street(place)
    yield street
    street.leave()


def rest(street: Street, seconds: float) -> None:
    street.clock.advance(seconds * SECOND)


def test_only_the_leader_decides_and_when_it_is_gone_another_does_within_ten_seconds(street: Street) -> None:
    left, right = street.move_in(admit="leader"), street.move_in(admit="leader")
    street.schedule()
    assert left.loop.step() > 0
    right.loop.step()
    assert street.ask("health")["leader"] == left.instance
    led = {row["instance"]: row["leads"] for row in street.ask("instance list")["instances"]}
    assert led == {left.instance: True, right.instance: False}

    rest(street, 3600)
    left.duty.beat(now=street.clock.now())
    shares = (street.admitted(right), street.admitted(left))
    assert shares == (0, JOBS), "the one that follows leaves it alone"

    rest(street, 3600)
    left.duty.beat(now=street.clock.now())
    assert street.admitted(right) == 0, "the leader is killed here, and its term goes on"
    assert 0.5 < right.loop.step() <= PATIENCE.total_seconds(), (
        "the other looks again in time, and does not spin"
    )
    rest(street, PATIENCE.total_seconds())
    assert street.admitted(right) == JOBS


def test_a_leader_that_is_gone_is_followed_when_its_term_is_over(street: Street) -> None:
    left, right = street.move_in(admit="leader"), street.move_in(admit="leader")
    street.schedule()
    left.loop.step()
    right.loop.step()
    rest(street, (TERM + RENEW_EVERY).total_seconds())
    right.loop.step()
    assert street.ask("health")["leader"] == right.instance
    rest(street, 3600)
    assert street.admitted(right) == JOBS, "at once, for it leads now"


def test_a_leader_stays_while_it_renews_and_lets_go_when_it_stops(street: Street) -> None:
    left, right = street.move_in(admit="leader"), street.move_in(admit="leader")
    for _ in range(10):
        left.loop.step()
        right.loop.step()
        rest(street, RENEW_EVERY.total_seconds())
    term = left.store.read(last_term)
    assert term is not None
    assert (term.holder, term.number) == (left.instance, 1)
    left.duty.leave()
    right.loop.step()
    assert street.ask("health")["leader"] == right.instance


def test_each_shard_is_decided_by_its_own_instance_at_once(street: Street) -> None:
    houses = [street.move_in(shard=f"{k}/3") for k in (1, 2, 3)]
    street.schedule()
    for house in houses:
        house.loop.step()
    rest(street, 3600)
    shares = [street.admitted(house) for house in houses]
    assert sum(shares) == JOBS
    assert max(shares) < JOBS
    for house in houses:
        house.presence.beat()
    assert [row["shard"] for row in street.ask("instance list")["instances"]].count("2/3") == 1
    assert "shards" not in {one["check"] for one in street.ask("doctor")["findings"]}


def test_a_shard_that_nobody_serves_is_decided_late_and_the_doctor_says_so(street: Street) -> None:
    house = street.move_in(shard="1/2")
    street.schedule()
    house.loop.step()
    rest(street, 3600)
    mine = street.admitted(house)
    assert 0 < mine < JOBS
    assert 0.5 < house.loop.step() <= PATIENCE.total_seconds(), "it does not spin on what is not its own"
    rest(street, PATIENCE.total_seconds())
    assert street.admitted(house) == JOBS - mine
    house.presence.beat()
    (finding,) = [one for one in street.ask("doctor")["findings"] if one["check"] == "shards"]
    assert finding["status"] == "warn"
    assert "nobody serves 2/2" in finding["says"]
    assert finding["fix"] == "timewright worker --shard 2/2, or one without a shard"


def test_one_without_a_shard_serves_them_all(street: Street) -> None:
    street.move_in(shard="1/4")
    everything = street.move_in()
    street.schedule()
    everything.loop.step()
    rest(street, 3600)
    assert street.admitted(everything) == JOBS
    everything.presence.beat()
    assert "shards" not in {one["check"] for one in street.ask("doctor")["findings"]}


@pytest.mark.parametrize(
    "text", ["0/2", "3/2", "1/0", "1/1025", "2", "a/b", "1/2/3", " 1/2", "-1/2", "1/99999"]
)
def test_a_shard_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="does not exist") as refusal:
        Settings(shard=text)
    assert refusal.value.field == "shard"
    assert refusal.value.fix


def test_a_leader_has_no_shard() -> None:
    with pytest.raises(InvalidInput, match="both given"):
        Settings(admit="leader", shard="1/2")
    assert Settings(admit="leader", shard="1/1").admit == "leader"


@pytest.mark.parametrize(
    ("served", "left"),
    [
        (["1/2", "2/2"], []),
        (["1/2"], ["2/2"]),
        (["1/2", "2/4"], ["4/4"]),
        (["1/2", "2/4", "4/4"], []),
        ([""], []),
        (["2/3", "1/1"], []),
        ([], ["1/1"]),
    ],
)
def test_what_nobody_serves_is_named(served: list[str], left: list[str]) -> None:
    assert [f"{which}/{of}" for which, of in unserved(map(read_shard, served))] == left
