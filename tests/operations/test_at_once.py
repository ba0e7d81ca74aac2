"""Many who ask at the same moment get what one after another would have got."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.conformance.together import all_at_once
from tests.operations.house import House
from timewright.errors import Conflict, OverQuota

MANY = 6


@pytest.fixture(params=["sqlite", "postgres"])
def street(request: pytest.FixtureRequest) -> House:
    """A place of one's own; on PostgreSQL a namespace in a shared one."""
    if request.param == "sqlite":
        return House()
    shared: House = request.getfixturevalue("postgres_street")
    return shared.elsewhere(f"street-{request.node.name[:40]}")


def at_once(house: House, operation: str, **fields: Any) -> list[Any]:
    return all_at_once([partial(house.ask, operation, fields) for _ in range(MANY)])


def test_one_client_key_makes_one_entry(street: House) -> None:
    answers = at_once(street, "queue add", queue="mail", payload=1, client_key="order-1")
    assert len({answer["entries"][0]["id"] for answer in answers}) == 1
    assert [answer["known"] for answer in answers].count(False) == 1
    assert street.ask("queue show", queue="mail")["queue"]["counts"] == {"ready": 1}


def test_one_client_key_makes_one_run(street: House) -> None:
    street.ask("schedule create", name="report", every="1h", note="x")
    answers = at_once(street, "schedule run", schedule="report", client_key="ticket-17")
    assert len({answer["run"]["id"] for answer in answers}) == 1


def test_one_name_makes_one_schedule(street: House) -> None:
    answers = at_once(street, "schedule create", name="report", every="1h", note="x")
    assert sum(isinstance(answer, dict) for answer in answers) == 1
    assert sum(isinstance(answer, Conflict) for answer in answers) == MANY - 1


def test_one_revision_is_replaced_once(street: House) -> None:
    street.ask("schedule create", name="report", every="1h", note="x")
    answers = at_once(street, "schedule update", schedule="report", grace="5m", revision=1)
    assert sum(isinstance(answer, dict) for answer in answers) == 1
    assert sum(isinstance(answer, Conflict) for answer in answers) == MANY - 1


def test_a_ceiling_holds_against_all_who_lease(street: House) -> None:
    street.ask("queue policy set", queue="mail", max_concurrent=2)
    street.ask("queue add", queue="mail", payloads=list(range(20)))
    answers = at_once(street, "queue lease", queue="mail", limit=5)
    assert sum(len(answer["leases"]) for answer in answers) <= 2
    street.ask("queue lease", queue="mail", limit=5)
    assert street.ask("queue show", queue="mail")["queue"]["in_flight"] == 2


def test_every_change_of_a_hint_is_counted(street: House) -> None:
    street.ask("schedule create", name="poll", every="1h", call="x", adaptive=True)
    first = at_once(street, "hint interval", schedule="poll", interval="1m")
    second = at_once(street, "hint interval", schedule="poll", interval="1m")
    third = at_once(street, "hint interval", schedule="poll", interval="1m")
    assert all(isinstance(answer, dict) for answer in first + second)
    assert all(isinstance(answer, OverQuota) for answer in third)
