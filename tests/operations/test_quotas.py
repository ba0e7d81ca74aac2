"""Quotas of remote callers; local callers have none."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.operations.harness import OperationsHarness, dump
from timewright.core.run.run import Succeeded
from timewright.errors import InvalidInput, InvalidZone, OverQuota, TimewrightError
from timewright.operations import OperationContext, operations
from timewright.operations.access.auth_cache import RateLimit, RateLimiter, TokenBucket
from timewright.operations.access.authentication import ALL_SCOPES, Caller, context_for
from timewright.operations.quotas import charge_request
from timewright.ports import Launch
from timewright.settings import Settings

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgres"])
def harness(request: pytest.FixtureRequest) -> OperationsHarness:
    """An empty harness; on PostgreSQL a separate namespace of a shared one."""
    if request.param == "sqlite":
        return OperationsHarness()
    shared: OperationsHarness = request.getfixturevalue("empty_postgres_harness")
    return shared.in_namespace(f"quota-{request.node.name[:40]}")


def remote(harness: OperationsHarness, *, origin: str = "human", **quotas: Any) -> OperationContext:
    """Return the context of a remote caller in a namespace with these quotas."""
    name = harness.context.namespace
    harness.ask("namespace create", name=name, **quotas)
    caller = Caller(actor="ci", origin=origin, scopes=ALL_SCOPES, namespaces=(name,), key="aaaaaaaaaaaa")
    return context_for(harness.context, caller)


def create(context: OperationContext, name: str, **fields: Any) -> Any:
    wanted = {"every": "1h"} if not {"every", "cron", "at", "after", "trigger"} & set(fields) else {}
    return operations["schedule create"](context, {"name": name, "note": "hi", **wanted, **fields})


def refused(context: OperationContext, operation: str, **fields: Any) -> OverQuota:
    with pytest.raises(OverQuota) as error:
        operations[operation](context, fields)
    assert error.value.rule
    assert error.value.fix
    return error.value


# Schedules.


def test_the_schedule_quota_of_a_namespace_is_enforced(harness: OperationsHarness) -> None:
    context = remote(harness, schedules=2)
    create(context, "a")
    create(context, "b")
    before = dump(harness.store)
    assert refused(context, "schedule create", name="c", every="1h", note="x").field == "schedules"
    assert dump(harness.store) == before
    operations["schedule update"](context, {"schedule": "a", "every": "2h"})
    operations["schedule archive"](context, {"schedule": "b"})
    create(context, "c")


def test_a_dry_run_respects_quotas_and_stores_nothing(harness: OperationsHarness) -> None:
    context = remote(harness, schedules=1)
    before = dump(harness.store)
    create(context, "a", dry_run=True)
    assert dump(harness.store) == before
    create(context, "a")
    for verb in ("create", "put"):
        refused(context, f"schedule {verb}", name="b", every="1h", note="x", dry_run=True)


def test_quotas_do_not_apply_to_local_callers(harness: OperationsHarness) -> None:
    context = remote(harness, schedules=1, shortest_interval="1h", backlog=0, triggers_per_minute=0)
    local = context_for(harness.context, replace(context.caller, local=True))
    for number, one in enumerate((harness.context, local)):
        create(one, f"{number} a", every="1s")
        create(one, f"{number} b", every="1s")
        operations["queue add"](one, {"queue": "mail", "payloads": [1, 2]})


def any_of(*expressions: str) -> dict[str, Any]:
    return {"kind": "any_of", "triggers": [{"kind": "cron", "expression": one} for one in expressions]}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"every": "4s"}, "shortest_interval"),
        ({"cron": "*/2 * * * * *"}, "shortest_interval"),
        ({"trigger": any_of("0 0 * * * *", "2 0 * * * *")}, "shortest_interval"),
        ({"trigger": any_of("0 0 * * * *", "* * 3 1 1 *")}, "shortest_interval"),
        ({"every": "5s"}, "emissions_per_minute"),
        ({"cron": "*/10 * 3 * * *"}, "emissions_per_minute"),
        ({"every": "15s"}, ""),
        ({"cron": "*/5 * * * *"}, ""),
        ({"at": "2026-12-01T00:00:00Z"}, ""),
        ({"after": "20s"}, ""),
    ],
)
def test_a_schedule_that_would_run_too_often_is_refused_when_it_is_written(
    fields: dict[str, Any], field: str
) -> None:
    harness = OperationsHarness()
    context = remote(harness, shortest_interval="5s", emissions_per_minute=5)
    create(context, "edited", every="1h")
    if not field:
        create(context, "new", **fields)
        operations["schedule update"](context, {"schedule": "edited", **fields})
        return
    assert refused(context, "schedule create", name="new", note="x", **fields).field == field
    assert refused(context, "schedule update", schedule="edited", **fields).field == field
    assert [row["name"] for row in harness.ask("schedule list")["schedules"]] == ["edited"]


def test_agents_have_a_longer_minimum_interval_than_people(harness: OperationsHarness) -> None:
    name = harness.context.namespace
    person = remote(harness)
    agent = context_for(
        harness.context, Caller(actor="agent", origin="agent", scopes=ALL_SCOPES, namespaces=(name,))
    )
    create(person, "by person", every="5s")
    assert "for an agent" in (refused(agent, "schedule create", name="x", every="5s", note="x").rule or "")
    create(agent, "by agent", every="10s")


# Runs, bodies, requests.


def test_the_backlog_quota_is_enforced(harness: OperationsHarness) -> None:
    context = remote(harness, backlog=3)
    add = operations["queue add"]
    add(context, {"queue": "mail", "payloads": [1, 2]})
    assert refused(context, "queue add", queue="mail", payloads=[3, 4]).field == "backlog"
    add(context, {"queue": "mail", "payload": 3})
    assert harness.ask("namespace get")["waiting"] == 3


def test_the_trigger_rate_is_limited_and_recovers(harness: OperationsHarness) -> None:
    context = remote(harness, triggers_per_minute=2)
    create(context, "a")
    run = operations["schedule run"]
    for _ in range(2):
        run(context, {"schedule": "a", "force": True})
    error = refused(context, "schedule run", schedule="a", force=True)
    assert error.retry_after == pytest.approx(30)
    assert error.problem()["retry_after"] == pytest.approx(30)
    run(context, {"schedule": "a", "force": True, "dry_run": True})
    harness.sleep(seconds=30)
    run(context, {"schedule": "a", "force": True})


def test_lease_operations_do_not_count_as_triggers(harness: OperationsHarness) -> None:
    context = remote(harness, triggers_per_minute=1)
    operations["queue policy set"](context, {"queue": "mail", "max_running": 10})
    operations["queue add"](context, {"queue": "mail", "payloads": list(range(5))})
    for _ in range(5):
        (lease,) = operations["queue lease"](context, {"queue": "mail"})["leases"]
        operations["queue renew"](context, {"lease": lease["lease"]})
        operations["queue complete"](context, {"lease": lease["lease"]})


def test_a_target_test_counts_as_a_trigger_and_holds_no_transaction(harness: OperationsHarness) -> None:
    """The target may take minutes, so other writes must not wait for it."""
    context = remote(harness, triggers_per_minute=1)
    create(context, "a")

    def tries(launch: Launch, on_start: Any = None) -> Succeeded:
        create(harness.context, "made meanwhile")
        return Succeeded(result=launch.schedule_name)

    trying = replace(context, run_target_test=tries)
    assert operations["schedule test"](trying, {"schedule": "a"})["outcome"]
    assert refused(trying, "schedule test", schedule="a").field == "triggers"
    assert harness.ask("schedule get", schedule="made meanwhile")


def test_a_too_large_request_is_rejected_first(harness: OperationsHarness) -> None:
    context = remote(harness, body_bytes=1000)
    assert refused(context, "queue add", queue="mail", payload="x" * 1000).field == "body_bytes"
    operations["queue add"](context, {"queue": "mail", "payload": "x" * 900})
    harness.ask("queue add", queue="mail", payload="x" * 1000)


def test_requests_are_counted_for_each_key_and_not_for_the_local_one(harness: OperationsHarness) -> None:
    context = remote(harness, requests_per_minute=3)
    for _ in range(3):
        charge_request(context)
    with pytest.raises(OverQuota) as error:
        charge_request(context)
    assert error.value.retry_after == pytest.approx(20)
    charge_request(replace(context, caller=replace(context.caller, key="bbbbbbbbbbbb")))
    for _ in range(10):
        charge_request(harness.context)


@pytest.mark.parametrize(
    "quotas",
    [
        {"schedules": -1},
        {"schedules": 10**9},
        {"body_bytes": 1},
        {"shortest_interval": "-1s"},
        {"shortest_interval": "9999d"},
        {"backlog": "many"},
        {"unknown": 1},
        {"revision": 3},
        {"name": "*"},
        {"name": "a\nb"},
    ],
)
def test_invalid_quotas_are_rejected(quotas: dict[str, Any]) -> None:
    harness = OperationsHarness()
    for verb in ("create", "set"):
        with pytest.raises(TimewrightError) as error:
            harness.ask(f"namespace {verb}", {"name": "default", **quotas})
        assert error.value.field
        assert error.value.fix


# Zones.


def test_only_allowed_time_zones_may_be_used() -> None:
    harness = OperationsHarness()
    context = replace(harness.context, settings=Settings(allowed_zones=("Europe/Berlin", "UTC")))
    create(context, "berlin", cron="0 9 * * *", zone="Europe/Berlin")
    for fields in (
        {"cron": "0 9 * * *", "zone": "Asia/Tokyo"},
        {"cron": "0 9 * * *", "zone": "Europe/Paris"},
    ):
        with pytest.raises(InvalidZone) as error:
            create(context, "other", **fields)
        assert error.value.fix == "Europe/Berlin"
    with pytest.raises(InvalidZone):
        operations["schedule update"](context, {"schedule": "berlin", "zone": "Asia/Tokyo"})
    with pytest.raises(InvalidZone):
        operations["calendar put"](context, {"name": "days", "zone": "Asia/Tokyo", "yearly": ["12-25"]})
    create(harness.context, "tokyo", cron="0 9 * * *", zone="Asia/Tokyo")


def test_an_unknown_zone_in_the_allowed_list_is_rejected() -> None:
    with pytest.raises(InvalidInput):
        Settings(allowed_zones=("Europe/Berlino",))


# The bucket.


@given(st.integers(1, 1000), st.lists(st.integers(0, 20_000), max_size=200))
def test_a_bucket_never_gives_more_than_its_rate_and_burst_allow(per_minute: int, waits: list[int]) -> None:
    rate, limiter, now, given_out = RateLimit(per_minute=per_minute), RateLimiter(), NOON, 0
    for wait in waits:
        now += timedelta(milliseconds=wait)
        with suppress(OverQuota):
            limiter.take("k", now, rate=rate)
            given_out += 1
    elapsed = (now - NOON).total_seconds()
    assert given_out <= rate.capacity + elapsed * per_minute / 60 + 1e-6


def test_waiting_for_retry_after_is_enough() -> None:
    rate, limiter = RateLimit(per_minute=7, burst=2), RateLimiter()
    take_all(limiter, rate)
    with pytest.raises(OverQuota) as error:
        limiter.take("k", NOON, rate=rate)
    assert error.value.retry_after is not None
    limiter.take("k", NOON + timedelta(seconds=error.value.retry_after + 0.001), rate=rate)
    limiter.take("other", NOON, rate=rate)


def test_a_rate_of_none_has_no_wait_and_a_clock_set_back_adds_nothing() -> None:
    rate, limiter = RateLimit(per_minute=5), RateLimiter()
    take_all(limiter, rate)
    with pytest.raises(OverQuota):
        limiter.take("k", NOON - timedelta(hours=1), rate=rate)
    assert TokenBucket(0.0, NOON).refill(rate, now=NOON - timedelta(hours=1)) == TokenBucket(0.0, NOON)
    none = RateLimit(per_minute=0)
    limiter.take("none", NOON, rate=none)
    with pytest.raises(OverQuota) as error:
        limiter.take("none", NOON, rate=none)
    assert error.value.retry_after is None


def take_all(limiter: RateLimiter, rate: RateLimit) -> None:
    for _ in range(int(rate.capacity)):
        limiter.take("k", NOON, rate=rate)


def test_a_rate_limiter_keeps_a_bounded_number_of_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timewright.operations.access.auth_cache.MAX_BUCKETS", 10)
    limiter = RateLimiter()
    for number in range(100):
        limiter.take(str(number), NOON, rate=RateLimit(per_minute=5))
    assert len(limiter) == 10
