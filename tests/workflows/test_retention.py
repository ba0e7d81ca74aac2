"""Retention of workflow runs, and the store queries for them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.conformance.support.databases import Database
from tests.workflows.workflow_kit import WorkflowHarness, call_step
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.run import Run, RunState
from timewright.errors import UnreadableRow
from timewright.ledger.workflow_runs import records
from timewright.ports import Grant, PruneRequest, Transaction
from timewright.ports.rows import RunsOfStep, StepRuns
from timewright.ports.workflow import LeaseTransfer, StepRow
from timewright.testing.targets import fail, succeed


def test_steps_of_a_running_workflow_are_not_pruned(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("a"),
        call_step("b", "a", time_limit="3h"),
        call_step("c", "b", "a", input={"x": {"$from": "steps.a.result"}}),
    )
    harness.script(a=succeed("kept"), b=succeed(after=2 * HOUR))
    run = harness.start()
    harness.advance(hours=1)
    everything = PruneRequest(older_than=harness.now + HOUR)
    assert harness.store.write(lambda tx: tx.prune(everything)) == 0
    harness.advance(hours=2)
    assert harness.given("c") == [{"x": "kept"}]
    later = PruneRequest(older_than=harness.now + HOUR)
    assert harness.store.write(lambda tx: tx.prune(later)) == 4
    assert harness.store.read(lambda tx: tx.get_steps(run)) == {}


def test_steps_of_a_workflow_are_pruned_with_it(harness: WorkflowHarness) -> None:
    """Workflow seed 110200008: I58. A step that ended early was pruned early, and a retry lacked it."""
    harness.put(
        call_step("a"), call_step("b", "a", time_limit="3h", input={"x": {"$from": "steps.a.result"}})
    )
    harness.script(a=succeed("kept"), b=fail(after=2 * HOUR))
    run = harness.start()
    harness.advance(hours=3)
    assert harness.state(run) == "failed"
    first_hour = PruneRequest(older_than=harness.now - 2 * HOUR)
    assert harness.store.write(lambda tx: tx.prune(first_hour)) == 0
    harness.script(b=succeed())
    harness.ask("run retry", run=run)
    harness.advance(minutes=1)
    assert (harness.state(run), harness.given("b")) == ("succeeded", [{"x": "kept"}] * 2)
    everything = PruneRequest(older_than=harness.now + HOUR)
    assert harness.store.write(lambda tx: tx.prune(everything)) == 3


def test_an_unreadable_workflow_stops_only_its_own_runs(bare: WorkflowHarness, database: Database) -> None:
    bare.put(call_step("a"), name="torn")
    bare.put(call_step("a"), name="whole")
    torn = bare.ask("workflow run", workflow="torn")["run"]["id"]
    database.sql("UPDATE objects SET body = '[]' WHERE name = 'torn@1'")
    records._plans.clear()
    whole = bare.start("whole")
    bare.advance(minutes=1)
    assert (bare.state(whole), bare.state(torn)) == ("succeeded", "failed")
    with pytest.raises(UnreadableRow, match="workflow_version torn@1 cannot be read"):
        bare.ask("workflow get", workflow="torn")


def test_a_step_whose_workflow_became_unreadable_is_parked(bare: WorkflowHarness, database: Database) -> None:
    bare.put(call_step("a", retry={"max_attempts": 2, "backoff": "1m"}), name="torn")
    bare.script(a=fail())
    run = bare.start("torn")
    database.sql("UPDATE objects SET body = '[]' WHERE name = 'torn@1'")
    records._plans.clear()
    bare.advance(minutes=2)
    assert (bare.step_run(run, "a").state, bare.step_run(run, "a").reason) == (RunState.PARKED, "unreadable")


def test_counts_of_steps_add_up_and_a_state_stays_until_another_is_named(bare: WorkflowHarness) -> None:
    def work(tx: Transaction) -> tuple[list[StepRow], list[StepRow]]:
        first = tx.add_to_steps([StepRow(parent="p", step="a", met=1, live=2, state="started", run_id="r")])
        return first, tx.add_to_steps(
            [StepRow(parent="p", step="a", met=1, live=-1), StepRow(parent="p", step="b")]
        )

    first, second = bare.store.write(work)
    assert first == [StepRow(parent="p", step="a", met=1, live=2, state="started", run_id="r")]
    assert second == [
        StepRow(parent="p", step="a", met=2, live=1, state="started", run_id="r"),
        StepRow(parent="p", step="b"),
    ]
    assert set(bare.store.read(lambda tx: tx.get_steps("p"))) == {"a", "b"}
    assert set(bare.store.read(lambda tx: tx.get_steps("p", ["b", "c"]))) == {"b"}
    assert bare.store.write(lambda tx: tx.lock_parents(["p"])) == {}
    bare.store.write(lambda tx: tx.delete_run_rows(StepRow, ["p"]))
    assert bare.store.read(lambda tx: tx.get_steps("p")) == {}


def _leased(bare: WorkflowHarness) -> Run:
    run = Run(
        id=bare.bench.ids.new("run", now=bare.now),
        dedupe_scope="x/a",
        planned_at=bare.now,
        fire_at=bare.now,
        state=RunState.READY,
        created_at=bare.now,
        exclusive=False,
        parent="x",
    )
    grant = Grant(
        run=run, lease_id="l", holder="one", leased_at=bare.now, lease_until=bare.now + timedelta(minutes=5)
    )

    def work(tx: Transaction) -> Run:
        tx.add_runs([run])
        (leased,) = tx.lease_runs([grant])
        return leased

    return bare.store.write(work)


def test_a_lease_is_transferred_only_from_its_holder(bare: WorkflowHarness) -> None:
    run = _leased(bare)
    until = bare.now + HOUR
    taken = replace(run, holder="two", lease_until=until, payload={"x": 1}, started_at=bare.now)
    assert (
        bare.store.write(lambda tx: tx.transfer_leases([LeaseTransfer(run=taken, previous_holder="three")]))
        == set()
    )
    assert bare.store.write(
        lambda tx: tx.transfer_leases([LeaseTransfer(run=taken, previous_holder="one")])
    ) == {run.id}
    assert bare.run(run.id) == taken
    stale = replace(taken, fence=run.fence + 1)
    assert (
        bare.store.write(lambda tx: tx.transfer_leases([LeaseTransfer(run=stale, previous_holder="two")]))
        == set()
    )


def test_a_lease_that_was_asked_to_end_is_not_prolonged(bare: WorkflowHarness) -> None:
    run = _leased(bare)
    later = bare.now + HOUR
    assert bare.store.write(lambda tx: tx.extend_lease(run.id, until=later, started_at=bare.now))
    assert (bare.run(run.id).lease_until, bare.run(run.id).started_at) == (later, bare.now)
    asked = [(run.id, bare.now + MINUTE)]
    bare.store.write(lambda tx: tx.request_cancel(asked, at=bare.now, reason="enough"))
    assert not bare.store.write(lambda tx: tx.extend_lease(run.id, until=later))
    assert bare.run(run.id).lease_until == bare.now + MINUTE


def test_runs_are_found_by_parent_and_by_dedupe_scope(bare: WorkflowHarness) -> None:
    run = _leased(bare)
    assert [one.id for one in bare.store.read(lambda tx: tx.select(StepRuns("x")))] == [run.id]
    assert bare.store.read(lambda tx: tx.select(StepRuns(""))) == []
    found = bare.store.read(lambda tx: tx.select(RunsOfStep(planned_at=bare.now, first="x/a", last="x/b")))
    assert [one.id for one in found] == [run.id]
    assert (
        bare.store.read(lambda tx: tx.select(RunsOfStep(planned_at=bare.now, first="x/b", last="x/c"))) == []
    )
    assert [one.id for one in bare.store.read(lambda tx: tx.select(StepRuns("x", unfinished=True)))] == [
        run.id
    ]
