"""The audit log records every write of a remote caller with its name and origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.operations.harness import OperationsHarness, sample_harness
from timewright.operations import Operation, operations
from timewright.operations.access.authentication import ALL_SCOPES, Caller, context_for, start_session
from timewright.operations.quotas import LEASE_OPERATIONS
from timewright.ports import Transaction
from timewright.ports.rows import AuditFilter

AGENT = Caller(actor="night-agent", origin="agent", scopes=ALL_SCOPES, key="aaaaaaaaaaaa")
# Operations without an audit entry, and why.
ELSEWHERE = {
    **dict.fromkeys(LEASE_OPERATIONS, "its attempt names the holder"),
    **dict.fromkeys(
        ("approval approve", "approval reject", "workflow approve", "workflow reject", "run answer"),
        "an agent is refused",
    ),
    "clock accept": "the clock of the example is not in doubt, so nothing changes",
    "calendar refresh": "the calendar of the example is as its source, so nothing changes",
    **dict.fromkeys(("resume", "group resume"), "the example is not paused, so nothing changes"),
    "schedule resume": "an agent is refused, because a person paused the schedule of the example",
    "queue add": "its run names who made it",
    "schedule test": "it tries, and keeps nothing",
    "session end": "nobody has signed in to the sample, so nothing changes; see the test of it below",
    "workflow resume": "the run of the example is not paused, so nothing changes",
}
WRITES = [
    pytest.param(one, example, id=f"{one.name} {number}")
    for one in operations
    if not one.read_only and one.name not in ELSEWHERE
    for number, example in enumerate(one.examples)
    # A backfill of what never ran finds nothing in the sample, so nothing is written.
    if "only" not in example
]


def lines(harness: OperationsHarness) -> list[tuple[str, str]]:
    """Return actor and origin of each audit entry, in all namespaces."""

    def work(tx: Transaction) -> list[tuple[str, str]]:
        return [(row.actor, row.origin) for row in tx.find(AuditFilter(limit=1000)).rows]

    return harness.store.read(work)


@pytest.mark.parametrize(("one", "example"), WRITES)
def test_a_secret_in_the_reason_of_a_write_is_not_recorded(
    one: Operation[Any], example: Mapping[str, Any]
) -> None:
    harness = sample_harness()
    one(harness.context, {**example, "dry_run": False, "reason": "moved, password=hunter2"})
    written = harness.store.read(lambda tx: tx.find(AuditFilter(limit=1000)).rows)
    # A ping keeps no reason: its text says what happened.
    assert one.name == "ping send" or any(row.reason.startswith("moved, password=") for row in written)
    assert [row.action for row in written if "hunter2" in str(row)] == []


@pytest.mark.parametrize(("one", "example"), WRITES)
def test_writes_by_an_agent_are_recorded_as_an_agents(
    one: Operation[Any], example: Mapping[str, Any]
) -> None:
    harness = sample_harness()
    before = len(lines(harness))
    one(context_for(harness.context, AGENT), {**example, "dry_run": False})
    found = lines(harness)
    new = found[: len(found) - before]
    assert set(new) == {("night-agent", "agent")}


def test_entries_and_leases_name_their_creator_and_holder() -> None:
    harness = sample_harness()
    context = context_for(harness.context, AGENT)
    (entry,) = operations["queue add"](context, {"queue": "new", "payload": 1})["entries"]
    operations["queue lease"](context, {"queue": "new"})
    run = harness.store.read(lambda tx: tx.get_runs([entry["id"]])[entry["id"]])
    assert run.made_by == "night-agent"
    assert run.holder == "night-agent"


def test_the_end_of_a_session_is_recorded_with_who_ended_it() -> None:
    harness = sample_harness()
    before = len(lines(harness))
    session = start_session(harness.context, "bbbbbbbbbbbb", client="a browser", now=harness.context.now())
    operations["session end"](context_for(harness.context, AGENT), {"session": session})
    found = lines(harness)
    assert found[: len(found) - before] == [("night-agent", "agent")]


def test_every_listed_exception_is_an_existing_operation() -> None:
    assert set(ELSEWHERE) <= {one.name for one in operations}
