"""Instances: liveness, load, clock offset, and removal of old ones."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pytest

from tests.operations.harness import NOON, OperationsHarness
from timewright.engine.constants import HEARTBEAT_INTERVAL_S
from timewright.engine.maintenance import Heartbeat
from timewright.ledger.records.instances import INSTANCE, InstanceRecord, record_heartbeat
from timewright.ports import StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE
from timewright.testing.clock import ManualClock


@pytest.fixture(params=["sqlite", "postgres"])
def harness(request: pytest.FixtureRequest) -> Iterator[OperationsHarness]:
    if request.param == "sqlite":
        yield OperationsHarness()
        return
    shared: OperationsHarness = request.getfixturevalue("empty_postgres_harness")
    yield shared
    shared.store.write(remove_instances)


def remove_instances(tx: Transaction) -> None:
    """Remove all instances, because they belong to no namespace and other tests share the store."""
    for row in tx.get_objects(INSTANCE, namespace=GLOBAL_NAMESPACE):
        tx.delete_object(INSTANCE, namespace=GLOBAL_NAMESPACE, name=row.name)


def present(
    harness: OperationsHarness, name: str, *, clock: ManualClock | None = None, busy: int = 0
) -> Heartbeat:
    return Heartbeat(
        harness.store, name, clock=clock or harness.bench.clock, capacity=20, in_flight=[None] * busy
    )


def answer(harness: OperationsHarness) -> dict[str, str]:
    return {one["instance"]: one["state"] for one in harness.ask("instance list")["instances"]}


def test_an_instance_is_silent_after_three_missed_heartbeats(harness: OperationsHarness) -> None:
    before = answer(harness)
    present(harness, "ins_1", busy=3).send_if_due()
    one = next(row for row in harness.ask("instance list")["instances"] if row["instance"] == "ins_1")
    assert (one["state"], one["capacity"], one["under_way"], one["clock_offset"]) == ("alive", 20, 3, "0s")
    assert one["version"]
    harness.bench.clock.advance(timedelta(seconds=3 * HEARTBEAT_INTERVAL_S))
    assert answer(harness) == {**before, "ins_1": "alive"}
    harness.bench.clock.advance(timedelta(seconds=HEARTBEAT_INTERVAL_S))
    assert answer(harness)["ins_1"] == "silent"


def test_an_instance_limits_its_heartbeat_rate() -> None:
    harness = OperationsHarness()
    one = present(harness, "ins_1")
    one.send_if_due()
    harness.bench.clock.advance(timedelta(seconds=HEARTBEAT_INTERVAL_S - 1))
    one.send_if_due()
    assert harness.ask("instance list")["instances"][0]["seen_at"] == "2026-03-10T12:00:00Z"
    harness.bench.clock.advance(timedelta(seconds=1))
    one.send_if_due()
    assert harness.ask("instance list")["instances"][0]["seen_at"] == "2026-03-10T12:00:15Z"


def test_a_stopping_instance_records_that_it_stopped() -> None:
    harness = OperationsHarness()
    one, never = present(harness, "ins_1"), present(harness, "ins_2")
    one.send_if_due()
    one.send_stopped()
    never.send_stopped()
    assert answer(harness) == {"ins_1": "stopped"}


def test_a_clock_that_is_behind_the_store_is_seen() -> None:
    harness = OperationsHarness()
    slow = ManualClock(NOON - timedelta(seconds=7))
    present(harness, "ins_1", clock=slow).send_if_due()
    assert harness.ask("instance list")["instances"][0]["clock_offset"] == "7s"
    present(harness, "ins_2", clock=ManualClock(NOON + timedelta(milliseconds=1))).send_if_due()
    offsets = {one["instance"]: one["clock_offset"] for one in harness.ask("instance list")["instances"]}
    assert offsets["ins_2"] == "-0.001s", "one that is ahead, too"


def test_an_instance_silent_for_a_day_is_removed() -> None:
    harness = OperationsHarness()
    present(harness, "ins_1").send_if_due()
    harness.bench.clock.advance(timedelta(days=1, seconds=1))
    present(harness, "ins_2").send_if_due()
    assert answer(harness) == {"ins_2": "alive"}


def test_a_long_silent_instance_is_removed_among_many_live_ones(harness: OperationsHarness) -> None:
    old, later = NOON - timedelta(days=8), "ins_z"

    def work(tx: Transaction) -> None:
        names = [*(f"ins_a{number:03}" for number in range(120)), later]
        row = partial(StoredObject, kind=INSTANCE, namespace=GLOBAL_NAMESPACE, revision=1, body=b"{}")
        tx.put_objects([row(name=name, at=old if name == later else NOON) for name in names])
        one = InstanceRecord(id="ins_b", host="h", version="1", started_at=NOON, capacity=1)
        record_heartbeat(tx, one, now=NOON)

    harness.store.write(work)
    newest = harness.store.read(lambda tx: tx.get_objects(INSTANCE, namespace=GLOBAL_NAMESPACE, newest=1))
    assert newest[0].name == "ins_b"


def test_health_counts_the_instances_that_run(harness: OperationsHarness) -> None:
    before = harness.ask("health")["instances"]
    present(harness, "ins_1").send_if_due()
    assert harness.ask("health")["instances"] == before + 1
    harness.bench.clock.advance(timedelta(seconds=4 * HEARTBEAT_INTERVAL_S))
    assert harness.ask("health")["instances"] == 0
