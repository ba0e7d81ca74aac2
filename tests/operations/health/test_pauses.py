"""Pause and resume of the installation, seen from outside: nothing starts, nothing is lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from timewright.core.run.run import RunState
from timewright.errors import Forbidden, InvalidInput
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import ALL_SCOPES, Caller, context_for
from timewright.testing.bench import Bench
from timewright.testing.targets import succeed


def states(bench: Bench, name: str) -> list[RunState]:
    return [run.state for run in bench.runs(name)]


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.schedule("hourly", "every 1h", catch_up="all")
    return made


def test_a_paused_installation_admits_nothing_and_catches_up_after_it(bench: Bench) -> None:
    answer = bench.call("pause", reason="maintenance")
    assert answer["paused"]
    bench.advance(hours=3)
    assert bench.runs("hourly") == []
    assert bench.call("verify")["violations"] == []
    assert not bench.call("resume")["paused"]
    bench.tick()
    assert states(bench, "hourly") == [RunState.SUCCEEDED] * 3
    assert bench.call("verify")["violations"] == []


def test_a_manual_run_waits_for_the_end_of_the_pause(bench: Bench) -> None:
    bench.call("pause")
    bench.call("schedule run", schedule="hourly")
    bench.advance(minutes=5)
    assert states(bench, "hourly") == [RunState.READY]
    bench.call("resume")
    bench.tick()
    assert states(bench, "hourly") == [RunState.SUCCEEDED]


def test_a_run_under_way_ends_while_the_installation_is_paused(bench: Bench) -> None:
    bench.target.script("hourly", succeed(after=timedelta(minutes=4)))
    bench.advance(hours=1)
    bench.call("pause")
    bench.advance(minutes=20)
    assert states(bench, "hourly") == [RunState.SUCCEEDED]


def test_a_pause_with_an_end_ends_by_itself(bench: Bench) -> None:
    bench.call("pause", until=(bench.now + timedelta(minutes=150)).isoformat())
    bench.advance(minutes=149)
    assert bench.runs("hourly") == []
    bench.advance(minutes=2)
    assert states(bench, "hourly") == [RunState.SUCCEEDED] * 2


def test_an_end_in_the_past_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="not in the future"):
        bench.call("pause", until="2020-01-01T00:00:00Z")


def test_doctor_names_the_pause_and_nothing_is_overdue(bench: Bench) -> None:
    bench.call("pause", reason="moving")
    bench.advance(hours=3)
    found: dict[str, Any] = {one["kind"]: one for one in bench.call("doctor")["findings"]}
    assert found["paused"]["sentence"].endswith("moving")
    assert not bench.call("overdue")["overdue"]
    bench.call("resume")
    assert "paused" not in {one["kind"] for one in bench.call("doctor")["findings"]}


def test_a_queue_leases_nothing_while_the_installation_is_paused(bench: Bench) -> None:
    bench.call("queue add", queue="mail", payload=1)
    bench.call("pause")
    assert bench.call("queue lease", queue="mail", holder="w")["leases"] == []
    bench.call("resume")
    assert len(bench.call("queue lease", queue="mail", holder="w")["leases"]) == 1


@pytest.mark.parametrize("operation", ["pause", "resume", "clock accept"])
def test_a_key_of_one_namespace_cannot_bind_the_whole_installation(bench: Bench, operation: str) -> None:
    context = OperationContext(store=bench.store, ids=bench.ids, notify=bench.loop.notify_observers)
    tenant = Caller(actor="tenant", scopes=ALL_SCOPES, namespaces=("default",))
    with pytest.raises(Forbidden, match="access to all namespaces"):
        operations[operation](context_for(context, tenant), {})
