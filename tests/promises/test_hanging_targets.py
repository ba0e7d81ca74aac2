"""Targets that never answer do not take the whole capacity of an instance."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from timewright import Scheduler, Settings
from timewright.core.policies.policies import NORMAL_PRIORITY, PRIORITIES
from timewright.core.run.needs import ANYTHING, SlotCount, find_needs
from timewright.core.target import Http
from timewright.engine.in_flight import SlotLimits, SlotUse
from timewright.settings import EgressRules

TARGETS = 200
WAIT_S = 60


@pytest.fixture
def silent() -> Iterator[int]:
    """A port whose connections are accepted by the kernel and never answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        yield server.getsockname()[1]


def needs(host: str) -> tuple[str, ...]:
    return find_needs(Http(url=f"https://{host}/x"))


def slot_of(needs: tuple[str, ...]) -> str:
    return needs[0] if needs else ""


def starts(capacity: int, *hosts: str, priority: int = NORMAL_PRIORITY, per_host: int = 0) -> Counter[str]:
    """How many runs of each host start, if they are asked for in this order."""
    limits = SlotLimits(slot_of=slot_of, per_host=per_host)
    slots = SlotCount(SlotUse(limits).lease_offer(ANYTHING, capacity=capacity, free=capacity))
    return Counter(host for host in hosts if slots.take(needs(host), priority=priority))


def test_one_host_takes_at_most_a_share_and_several_leave_slots_for_another() -> None:
    assert starts(100, *["a"] * 200) == {"a": 72}
    assert starts(100, *["a"] * 200, *["b"] * 200, *["c"] * 200)["c"] > 0
    many = starts(100, *[f"host-{n}" for n in range(300)])
    assert sum(many.values()) == 90, "what is no request finds a tenth of the capacity"


def test_a_host_has_at_most_its_own_limit() -> None:
    assert starts(100, *["a"] * 200, *["b"] * 3, per_host=4) == {"a": 4, "b": 3}
    assert starts(5, *["a"] * 200, per_host=4) == {"a": 4}


def test_a_small_capacity_is_not_shared() -> None:
    assert SlotUse(SlotLimits()).lease_offer(ANYTHING, capacity=4, free=4).shares is None


def test_a_run_of_higher_priority_finds_a_reserve() -> None:
    offer = SlotUse(SlotLimits()).lease_offer(ANYTHING, capacity=100, free=100)
    slots = SlotCount(offer)
    assert sum(slots.take(()) for _ in range(200)) == 95
    assert sum(slots.take((), priority=PRIORITIES["high"]) for _ in range(10)) == 5


def wait_until(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends, f"waited {WAIT_S} s for {what}"
        time.sleep(0.05)


@pytest.mark.parametrize("per_host", [0, 4])
def test_200_targets_that_never_answer_leave_slots_for_a_healthy_schedule(
    tmp_path: Path, silent: int, per_host: int
) -> None:
    app = Scheduler(tmp_path / "app.db", settings=Settings(egress=EgressRules(per_host=per_host)))
    done: list[float] = []
    app.schedule(every="1s", name="healthy")(lambda: done.append(time.monotonic()))
    for n in range(TARGETS):
        request = {"url": f"http://127.0.0.1:{silent}/", "timeout": "5m"}
        app.schedules.create(name=f"hang-{n}", manual=True, http=request)
        app.schedules.run(schedule=f"hang-{n}")
    with app:
        wait_until(lambda: len(done) >= 3, "three starts of the healthy schedule")
        runs = app.runs.list(limit=1000).runs
        states = Counter(str(run.state) for run in runs if run.schedule != "healthy")
        findings = [one for one in app.call("doctor").findings if "127.0.0.1" in str(one)]
        app.stop(wait="0s")
    assert set(states) <= {"leased", "ready"}, "none of them has ended"
    assert states["leased"] <= (per_host or 72)
    if not per_host:
        assert findings, "doctor names the host"
