"""Which instance admits due schedules: every one, the leader, or one per shard; orphans are admitted late."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from timewright.core.moments import SECOND
from timewright.core.schedule.shards import parse_shard, uncovered_shards
from timewright.engine.constants import LEADER_TERM, ORPHAN_AFTER
from timewright.errors import InvalidInput
from timewright.ledger.leader import last_term
from timewright.operations import operations
from timewright.settings import Settings
from timewright.testing.clock import ManualClock
from timewright.wiring import Instance, new_registry, open_store

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
JOBS = 24


class InstanceGroup:
    """Several instances on one store and one manual clock."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.clock = ManualClock(NOON)
        self.instances: list[Instance] = []

    def start_instance(self, **settings: Any) -> Instance:
        store = open_store(self.place, clock=self.clock)
        instance = Instance(store, settings=Settings(**settings), registry=new_registry(), clock=self.clock)
        instance.heartbeat.send_if_due()
        self.instances.append(instance)
        return instance

    def schedule(self, **fields: Any) -> None:
        for n in range(JOBS):
            self.ask("schedule create", name=f"job-{n}", every="1h", note="hello", **fields)

    def ask(self, operation: str, **request: Any) -> dict[str, Any]:
        return operations[operation](self.instances[-1].context(), request)

    def admitted(self, instance: Instance) -> int:
        """How many schedules one tick of an instance admits."""
        before = self._decided()
        instance.loop.step()
        return self._decided() - before

    def _decided(self) -> int:
        return len(self.ask("run list", limit=1000)["runs"])

    def close_all(self) -> None:
        for instance in self.instances:
            instance.free()
            instance.close()


@pytest.fixture
def group(place: str) -> Iterator[InstanceGroup]:
    group = InstanceGroup(place)
    yield group
    group.close_all()


def advance(group: InstanceGroup, seconds: float) -> None:
    group.clock.advance(seconds * SECOND)


def test_only_the_leader_decides_and_another_takes_over_within_ten_seconds(group: InstanceGroup) -> None:
    left, right = group.start_instance(admit="leader"), group.start_instance(admit="leader")
    group.schedule()
    assert left.loop.step() > 0
    right.loop.step()
    assert group.ask("health")["leader"] == left.instance_id
    led = {row["instance"]: row["leads"] for row in group.ask("instance list")["instances"]}
    assert led == {left.instance_id: True, right.instance_id: False}

    advance(group, 3600)
    left.admission_scope.renew_leadership(now=group.clock.now())
    shares = (group.admitted(right), group.admitted(left))
    assert shares == (0, JOBS), "the one that follows leaves it alone"

    advance(group, 3600)
    left.admission_scope.renew_leadership(now=group.clock.now())
    assert group.admitted(right) == 0, "the leader is killed here, and its term goes on"
    right.loop.step()  # starts the runs that the other has lost
    right.loop.step()
    assert 0.5 < right.loop.step() <= ORPHAN_AFTER.total_seconds(), (
        "the other looks again in time, and does not spin"
    )
    advance(group, ORPHAN_AFTER.total_seconds())
    assert group.admitted(right) == JOBS


def test_a_dead_leader_is_replaced_when_its_term_expires(group: InstanceGroup) -> None:
    left, right = group.start_instance(admit="leader"), group.start_instance(admit="leader")
    group.schedule()
    left.loop.step()
    right.loop.step()
    advance(group, (LEADER_TERM * 4 / 3).total_seconds())
    right.loop.step()
    assert group.ask("health")["leader"] == right.instance_id
    advance(group, 3600)
    assert group.admitted(right) == JOBS, "at once, for it leads now"


def test_a_leader_stays_while_it_renews_and_resigns_when_it_stops(group: InstanceGroup) -> None:
    left, right = group.start_instance(admit="leader"), group.start_instance(admit="leader")
    for _ in range(10):
        left.loop.step()
        right.loop.step()
        advance(group, LEADER_TERM.total_seconds() / 3)
    term = left.store.read(last_term)
    assert term is not None
    assert (term.holder, term.number) == (left.instance_id, 1)
    left.admission_scope.release_leadership()
    right.loop.step()
    assert group.ask("health")["leader"] == right.instance_id


def test_each_shard_is_decided_by_its_own_instance_at_once(group: InstanceGroup) -> None:
    instances = [group.start_instance(shard=f"{k}/3") for k in (1, 2, 3)]
    group.schedule()
    for instance in instances:
        instance.loop.step()
    advance(group, 3600)
    shares = [group.admitted(instance) for instance in instances]
    assert sum(shares) == JOBS
    assert max(shares) < JOBS
    for instance in instances:
        instance.heartbeat.send_if_due()
    assert [row["shard"] for row in group.ask("instance list")["instances"]].count("2/3") == 1
    assert "shards" not in {one["kind"] for one in group.ask("doctor")["findings"]}


def test_an_unserved_shard_is_decided_late_and_reported_by_the_doctor(group: InstanceGroup) -> None:
    instance = group.start_instance(shard="1/2")
    group.schedule()
    instance.loop.step()
    advance(group, 3600)
    mine = group.admitted(instance)
    assert 0 < mine < JOBS
    assert 0.5 < instance.loop.step() <= ORPHAN_AFTER.total_seconds(), "it does not spin on other shards"
    advance(group, ORPHAN_AFTER.total_seconds())
    assert group.admitted(instance) == JOBS - mine
    instance.heartbeat.send_if_due()
    (finding,) = [one for one in group.ask("doctor")["findings"] if one["kind"] == "shards"]
    assert finding["severity"] == "warn"
    assert "2/2" in finding["sentence"]
    assert finding["remedy"] == "start timewright worker --shard 2/2, or one without a shard"


def test_an_instance_without_a_shard_serves_all_shards(group: InstanceGroup) -> None:
    group.start_instance(shard="1/4")
    everything = group.start_instance()
    group.schedule()
    everything.loop.step()
    advance(group, 3600)
    assert group.admitted(everything) == JOBS
    everything.heartbeat.send_if_due()
    assert "shards" not in {one["kind"] for one in group.ask("doctor")["findings"]}


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
def test_unserved_shards_are_named(served: list[str], left: list[str]) -> None:
    assert [f"{which}/{of}" for which, of in uncovered_shards(map(parse_shard, served))] == left
