"""How much a caller from outside may ask for, and that whoever has the store itself is not counted."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.operations.house import House, dump
from timewright.core.run import Succeeded
from timewright.errors import InvalidInput, InvalidZone, OverQuota, TimewrightError
from timewright.operations import Context, operations
from timewright.operations.access import EVERYTHING, Caller, acting
from timewright.operations.limiter import Bucket, Limiter, Rate
from timewright.operations.quotas import take_request
from timewright.ports import Launch
from timewright.settings import Settings

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgres"])
def house(request: pytest.FixtureRequest) -> House:
    """A house of its own; on PostgreSQL a namespace of its own in a shared one."""
    if request.param == "sqlite":
        return House()
    shared: House = request.getfixturevalue("postgres_street")
    return shared.elsewhere(f"quota-{request.node.name[:40]}")


def remote(house: House, *, origin: str = "human", **quotas: Any) -> Context:
    """The context of a key from outside, in a namespace with these quotas."""
    name = house.context.namespace
    house.ask("namespace create", name=name, **quotas)
    caller = Caller(actor="ci", origin=origin, scopes=EVERYTHING, namespaces=(name,), key="aaaaaaaaaaaa")
    return acting(house.context, caller)


def create(context: Context, name: str, **fields: Any) -> Any:
    wanted = {"every": "1h"} if not {"every", "cron", "at", "after", "trigger"} & set(fields) else {}
    return operations["schedule create"](context, {"name": name, "note": "hi", **wanted, **fields})


def refused(context: Context, operation: str, **fields: Any) -> OverQuota:
    with pytest.raises(OverQuota) as refusal:
        operations[operation](context, fields)
    assert refusal.value.rule
    assert refusal.value.fix
    return refusal.value


# Schedules.


def test_a_namespace_has_so_many_schedules_and_not_one_more(house: House) -> None:
    context = remote(house, schedules=2)
    create(context, "a")
    create(context, "b")
    before = dump(house.store)
    assert refused(context, "schedule create", name="c", every="1h", note="x").field == "schedules"
    assert dump(house.store) == before
    operations["schedule update"](context, {"schedule": "a", "every": "2h"})
    operations["schedule archive"](context, {"schedule": "b"})
    create(context, "c")


def test_a_rehearsal_is_refused_like_the_real_thing_and_keeps_nothing(house: House) -> None:
    context = remote(house, schedules=1)
    before = dump(house.store)
    create(context, "a", dry_run=True)
    assert dump(house.store) == before
    create(context, "a")
    for verb in ("create", "put"):
        refused(context, f"schedule {verb}", name="b", every="1h", note="x", dry_run=True)


def test_counts_do_not_hold_for_the_store_itself_nor_for_the_local_key(house: House) -> None:
    context = remote(house, schedules=1, shortest_interval="1h", backlog=0, triggers_per_minute=0)
    local = acting(house.context, replace(context.caller, local=True))
    for number, one in enumerate((house.context, local)):
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
    house = House()
    context = remote(house, shortest_interval="5s", emissions_per_minute=5)
    create(context, "edited", every="1h")
    if not field:
        create(context, "new", **fields)
        operations["schedule update"](context, {"schedule": "edited", **fields})
        return
    assert refused(context, "schedule create", name="new", note="x", **fields).field == field
    assert refused(context, "schedule update", schedule="edited", **fields).field == field
    assert [row["name"] for row in house.ask("schedule list")["schedules"]] == ["edited"]


def test_agents_are_held_to_a_slower_pace_than_people(house: House) -> None:
    name = house.context.namespace
    person = remote(house)
    agent = acting(
        house.context, Caller(actor="agent", origin="agent", scopes=EVERYTHING, namespaces=(name,))
    )
    create(person, "by person", every="5s")
    assert "for an agent" in (refused(agent, "schedule create", name="x", every="5s", note="x").rule or "")
    create(agent, "by agent", every="10s")


# Runs, bodies, requests.


def test_what_waits_is_bounded(house: House) -> None:
    context = remote(house, backlog=3)
    add = operations["queue add"]
    add(context, {"queue": "mail", "payloads": [1, 2]})
    assert refused(context, "queue add", queue="mail", payloads=[3, 4]).field == "backlog"
    add(context, {"queue": "mail", "payload": 3})
    assert house.ask("namespace get")["waiting"] == 3


def test_so_many_triggers_a_minute_and_then_a_while_later_again(house: House) -> None:
    context = remote(house, triggers_per_minute=2)
    create(context, "a")
    run = operations["schedule run"]
    for _ in range(2):
        run(context, {"schedule": "a", "force": True})
    refusal = refused(context, "schedule run", schedule="a", force=True)
    assert refusal.retry_after == pytest.approx(30)
    assert refusal.problem()["retry_after"] == pytest.approx(30)
    run(context, {"schedule": "a", "force": True, "dry_run": True})
    house.sleep(seconds=30)
    run(context, {"schedule": "a", "force": True})


def test_a_worker_is_not_slowed_down_by_the_limit_on_triggers(house: House) -> None:
    context = remote(house, triggers_per_minute=1)
    operations["queue policy set"](context, {"queue": "mail", "max_concurrent": 10})
    operations["queue add"](context, {"queue": "mail", "payloads": list(range(5))})
    for _ in range(5):
        (lease,) = operations["queue lease"](context, {"queue": "mail"})["leases"]
        operations["queue renew"](context, {"lease": lease["lease"]})
        operations["queue complete"](context, {"lease": lease["lease"]})


def test_a_trial_is_counted_and_does_not_hold_the_store_while_it_waits(house: House) -> None:
    """What it starts may take minutes, and everyone else goes on writing."""
    context = remote(house, triggers_per_minute=1)
    create(context, "a")

    def tries(launch: Launch) -> Succeeded:
        create(house.context, "made meanwhile")
        return Succeeded(result=launch.schedule_name)

    trying = replace(context, trial=tries)
    assert operations["schedule test"](trying, {"schedule": "a"})["outcome"]
    assert refused(trying, "schedule test", schedule="a").field == "triggers"
    assert house.ask("schedule get", schedule="made meanwhile")


def test_a_request_that_is_too_large_is_refused_before_anything_is_done(house: House) -> None:
    context = remote(house, body_bytes=1000)
    assert refused(context, "queue add", queue="mail", payload="x" * 1000).field == "body_bytes"
    operations["queue add"](context, {"queue": "mail", "payload": "x" * 900})
    house.ask("queue add", queue="mail", payload="x" * 1000)


def test_requests_are_counted_for_each_key_and_not_for_the_local_one(house: House) -> None:
    context = remote(house, requests_per_minute=3)
    for _ in range(3):
        take_request(context)
    with pytest.raises(OverQuota) as refusal:
        take_request(context)
    assert refusal.value.retry_after == pytest.approx(20)
    take_request(replace(context, caller=replace(context.caller, key="bbbbbbbbbbbb")))
    for _ in range(10):
        take_request(house.context)


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
def test_quotas_that_cannot_be_meant_are_refused(quotas: dict[str, Any]) -> None:
    house = House()
    for verb in ("create", "set"):
        with pytest.raises(TimewrightError) as refusal:
            house.ask(f"namespace {verb}", {"name": "default", **quotas})
        assert refusal.value.field
        assert refusal.value.fix


# Zones.


def test_only_the_zones_on_the_list_may_be_named() -> None:
    house = House()
    context = replace(house.context, settings=Settings(zones=("Europe/Berlin", "UTC")))
    create(context, "berlin", cron="0 9 * * *", zone="Europe/Berlin")
    for fields in (
        {"cron": "0 9 * * *", "zone": "Asia/Tokyo"},
        {"cron": "0 9 * * *", "zone": "Europe/Paris"},
    ):
        with pytest.raises(InvalidZone) as refusal:
            create(context, "other", **fields)
        assert refusal.value.fix == "Europe/Berlin"
    with pytest.raises(InvalidZone):
        operations["schedule update"](context, {"schedule": "berlin", "zone": "Asia/Tokyo"})
    with pytest.raises(InvalidZone):
        operations["calendar put"](context, {"name": "days", "zone": "Asia/Tokyo", "yearly": ["12-25"]})
    create(house.context, "tokyo", cron="0 9 * * *", zone="Asia/Tokyo")


def test_a_list_of_zones_with_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput):
        Settings(zones=("Europe/Berlino",))


# The bucket.


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, 120_000), st.integers(1, 20)), max_size=60),
)
def test_a_bucket_never_gives_more_than_its_rate_and_burst_allow(
    per_minute: int, asked: list[tuple[int, int]]
) -> None:
    rate, limiter, now, given_out = Rate(per_minute=per_minute), Limiter(), NOON, 0
    for wait, cost in asked:
        now += timedelta(milliseconds=wait)
        with suppress(OverQuota):
            limiter.take("k", cost, now, rate=rate)
            given_out += cost
    elapsed = (now - NOON).total_seconds()
    assert given_out <= rate.most + elapsed * per_minute / 60 + 1e-6


def test_who_waits_as_long_as_told_gets_in() -> None:
    rate, limiter = Rate(per_minute=7, burst=2), Limiter()
    limiter.take("k", 2, NOON, rate=rate)
    with pytest.raises(OverQuota) as refusal:
        limiter.take("k", 1, NOON, rate=rate)
    assert refusal.value.retry_after is not None
    limiter.take("k", 1, NOON + timedelta(seconds=refusal.value.retry_after + 0.001), rate=rate)
    limiter.take("other", 2, NOON, rate=rate)


def test_what_never_fits_says_no_time_and_a_clock_that_goes_back_gives_nothing() -> None:
    rate, limiter = Rate(per_minute=5), Limiter()
    with pytest.raises(OverQuota) as refusal:
        limiter.take("k", 6, NOON, rate=rate)
    assert refusal.value.retry_after is None
    limiter.take("k", 5, NOON, rate=rate)
    with pytest.raises(OverQuota):
        limiter.take("k", 1, NOON - timedelta(hours=1), rate=rate)
    assert Bucket(0.0, NOON).refilled(rate, now=NOON - timedelta(hours=1)) == Bucket(0.0, NOON)


def test_a_limiter_remembers_a_bounded_number_of_keys() -> None:
    limiter = Limiter(most=10)
    for number in range(100):
        limiter.take(str(number), 1, NOON, rate=Rate(per_minute=5))
    assert len(limiter) == 10
