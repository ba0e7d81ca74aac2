"""The queue document, sentence by sentence: order, a hard ceiling, leases, backoff and parking."""

from __future__ import annotations

from typing import Any

import pytest

from timewright.core.moments import parse_instant
from timewright.errors import Stale
from timewright.testing.bench import Bench


@pytest.fixture
def bench() -> Bench:
    """A queue with the cautious defaults, and three entries."""
    bench = Bench()
    for name, priority in (("low", "low"), ("first", "normal"), ("urgent", "high")):
        bench.call("queue add", queue="mail", payload=name, priority=priority)
        bench.clock.advance("1s")
    return bench


def lease(bench: Bench, count: int = 10) -> list[Any]:
    leased: list[Any] = bench.call("queue lease", queue="mail", holder="host", limit=count)["leases"]
    return leased


def fail_once(bench: Bench) -> Any:
    (one,) = lease(bench)
    return bench.call("queue release", lease=one["lease"], failed=True, error="no")["run"]


def test_the_defaults_are_cautious(bench: Bench) -> None:
    policy = bench.call("queue show", queue="mail")["policy"]
    assert (policy["max_running"], policy["max_attempts"], policy["lease"]) == (1, 3, "5m")
    assert policy["backoff"]["kind"] == "exponential"
    assert (policy["backoff"]["base"], policy["backoff"]["cap"]) == ("1s", "1m")
    assert policy["backoff"]["jitter"] == 0


def test_the_ceiling_is_never_exceeded_and_the_rest_stays_ready(bench: Bench) -> None:
    assert [one["payload"] for one in lease(bench)] == ["urgent"]
    assert lease(bench) == []
    plan = bench.call("queue plan", queue="mail")
    assert (plan["in_flight"], plan["available"], plan["leases"]) == (1, 0, [])


def test_the_plan_reads_only_and_answers_the_same_twice(bench: Bench) -> None:
    first = bench.call("queue plan", queue="mail", now="2026-03-10T13:00:00Z")
    assert bench.call("queue plan", queue="mail", now="2026-03-10T13:00:00Z") == first
    assert len(first["leases"]) == 1
    assert bench.call("queue show", queue="mail")["queue"]["counts"] == {"ready": 3}


def test_an_expired_lease_is_reclaimed_and_costs_one_attempt(bench: Bench) -> None:
    (one,) = lease(bench)
    bench.clock.advance("5m")
    bench.call("queue reclaim", queue="mail")
    run = bench.call("run get", run=one["run"])["run"]
    assert (run["state"], run["attempts"]) == ("ready", 1)


def test_backoff_is_computed_and_not_random(bench: Bench) -> None:
    for wait in ("1s", "2s"):
        run = fail_once(bench)
        bench.clock.advance(wait)
        assert parse_instant(run["fire_at"]) == bench.now


def test_past_its_attempts_an_entry_is_parked_until_someone_resets_it(bench: Bench) -> None:
    for _ in range(3):
        run = fail_once(bench)
        bench.clock.advance("1m")
    assert run["state"] == "parked"
    assert all(one["run"] != run["id"] for one in lease(bench))
    assert bench.call("queue reset", run=run["id"], reason="mended")["run"]["state"] == "ready"


def test_a_completed_entry_is_final_and_its_lease_cannot_answer_again(bench: Bench) -> None:
    (one,) = lease(bench)
    answered = {"run": one["run"], "fence": one["fence"]}
    done = bench.call("queue complete", **answered, result="sent")["run"]
    assert done["state"] == "succeeded"
    with pytest.raises(Stale):
        bench.call("queue release", **answered, failed=True)


def test_the_plan_lists_what_is_finished_only_when_asked(bench: Bench) -> None:
    bench.call("queue drain", queue="mail")
    reasons = {one["reason"] for one in bench.call("queue plan", queue="mail")["waiting"]}
    assert "terminal" not in reasons
    every = bench.call("queue plan", queue="mail", all=True)["waiting"]
    assert [one["reason"] for one in every].count("terminal") == 1
