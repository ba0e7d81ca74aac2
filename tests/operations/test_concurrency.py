"""Concurrent requests give the same results as sequential ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.conformance.support.concurrency import all_at_once
from tests.operations.harness import OperationsHarness
from timewright.errors import Conflict, OverQuota

MANY = 6


@pytest.fixture(params=["sqlite", "postgres"])
def shared_harness(request: pytest.FixtureRequest) -> OperationsHarness:
    """An empty harness; on PostgreSQL a separate namespace of a shared one."""
    if request.param == "sqlite":
        return OperationsHarness()
    shared: OperationsHarness = request.getfixturevalue("empty_postgres_harness")
    return shared.in_namespace(f"street-{request.node.name[:40]}")


def at_once(harness: OperationsHarness, operation: str, **fields: Any) -> list[Any]:
    return all_at_once([partial(harness.ask, operation, fields) for _ in range(MANY)])


def test_one_client_key_makes_one_entry(shared_harness: OperationsHarness) -> None:
    answers = at_once(shared_harness, "queue add", queue="mail", payload=1, client_key="order-1")
    assert len({answer["entries"][0]["id"] for answer in answers}) == 1
    assert [answer["known"] for answer in answers].count(False) == 1
    assert shared_harness.ask("queue show", queue="mail")["queue"]["counts"] == {"ready": 1}


def test_one_client_key_makes_one_run(shared_harness: OperationsHarness) -> None:
    shared_harness.ask("schedule create", name="report", every="1h", note="x")
    answers = at_once(shared_harness, "schedule run", schedule="report", client_key="ticket-17")
    assert len({answer["run"]["id"] for answer in answers}) == 1


def test_one_name_makes_one_schedule(shared_harness: OperationsHarness) -> None:
    answers = at_once(shared_harness, "schedule create", name="report", every="1h", note="x")
    assert sum(isinstance(answer, dict) for answer in answers) == 1
    assert sum(isinstance(answer, Conflict) for answer in answers) == MANY - 1


def test_one_revision_is_replaced_once(shared_harness: OperationsHarness) -> None:
    shared_harness.ask("schedule create", name="report", every="1h", note="x")
    answers = at_once(shared_harness, "schedule update", schedule="report", grace="5m", revision=1)
    assert sum(isinstance(answer, dict) for answer in answers) == 1
    assert sum(isinstance(answer, Conflict) for answer in answers) == MANY - 1


def test_a_concurrency_limit_holds_for_concurrent_leases(shared_harness: OperationsHarness) -> None:
    shared_harness.ask("queue policy set", queue="mail", max_running=2)
    shared_harness.ask("queue add", queue="mail", payloads=list(range(20)))
    answers = at_once(shared_harness, "queue lease", queue="mail", limit=5)
    assert sum(len(answer["leases"]) for answer in answers) <= 2
    shared_harness.ask("queue lease", queue="mail", limit=5)
    assert shared_harness.ask("queue show", queue="mail")["queue"]["in_flight"] == 2


def test_every_change_of_a_hint_is_counted(shared_harness: OperationsHarness) -> None:
    shared_harness.ask("schedule create", name="poll", every="1h", call="x", adaptive=True)
    first = at_once(shared_harness, "hint interval", schedule="poll", interval="1m")
    second = at_once(shared_harness, "hint interval", schedule="poll", interval="1m")
    third = at_once(shared_harness, "hint interval", schedule="poll", interval="1m")
    assert all(isinstance(answer, dict) for answer in first + second)
    assert all(isinstance(answer, OverQuota) for answer in third)
