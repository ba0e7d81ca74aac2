"""Who did it: every write by a caller from outside is in the audit log under its own name and origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.operations.house import House, furnished
from timewright.operations import Operation, operations
from timewright.operations.access import EVERYTHING, Caller, acting
from timewright.operations.quotas import WORKING
from timewright.ports import Transaction

AGENT = Caller(actor="night-agent", origin="agent", scopes=EVERYTHING, key="aaaaaaaaaaaa")
# What has no line of its own, and why.
ELSEWHERE = {
    **dict.fromkeys(WORKING, "its attempt names the holder"),
    **dict.fromkeys(("approval approve", "approval reject"), "an agent is refused"),
    "calendar refresh": "the calendar of the example is as its source, so nothing changes",
    "queue add": "its run names who made it",
    "schedule test": "it tries, and keeps nothing",
    "workflow resume": "the run of the example is not paused, so nothing changes",
}
WRITES = [
    pytest.param(one, example, id=f"{one.name} {number}")
    for one in operations
    if not one.reads_only and one.name not in ELSEWHERE
    for number, example in enumerate(one.examples)
]


def lines(house: House) -> list[tuple[str, str]]:
    """Who wrote each line of the audit log and through what, whatever its namespace."""

    def work(tx: Transaction) -> list[tuple[str, str]]:
        return [(row.actor, row.origin) for row in tx.find_audit(limit=1000).rows]

    return house.store.read(work)


@pytest.mark.parametrize(("one", "example"), WRITES)
def test_what_an_agent_does_is_written_down_as_an_agents(
    one: Operation[Any], example: Mapping[str, Any]
) -> None:
    house = furnished()
    before = len(lines(house))
    one(acting(house.context, AGENT), {**example, "dry_run": False})
    found = lines(house)
    new = found[: len(found) - before]
    assert set(new) == {("night-agent", "agent")}


def test_entries_and_leases_name_who_made_and_who_holds_them() -> None:
    house = furnished()
    context = acting(house.context, AGENT)
    (entry,) = operations["queue add"](context, {"queue": "new", "payload": 1})["entries"]
    operations["queue lease"](context, {"queue": "new"})
    run = house.store.read(lambda tx: tx.get_runs([entry["id"]])[entry["id"]])
    assert run.made_by == "night-agent"
    assert run.holder == "night-agent"


def test_every_exception_is_an_operation_that_there_is() -> None:
    assert set(ELSEWHERE) <= {one.name for one in operations}
