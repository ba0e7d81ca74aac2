"""What is kept of workflow runs, and for how long; and what each verb of the store means for them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.conformance.databases import Database
from tests.workflows.stage import Stage, note
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run import Run, RunState
from timewright.errors import UnreadableRow
from timewright.ledger import unfold_parts
from timewright.ports import Grant, Prune, Transaction
from timewright.ports.steps import StepRow, TakeOver
from timewright.testing.targets import fail, succeed


def test_the_steps_of_a_workflow_are_not_forgotten_while_it_runs(stage: Stage) -> None:
    stage.put(
        note("a"),
        note("b", "a", time_limit="3h"),
        note("c", "b", "a", input={"x": {"$from": "steps.a.result"}}),
    )
    stage.script(a=succeed("kept"), b=succeed(after=2 * HOUR))
    run = stage.start()
    stage.advance(hours=1)
    everything = Prune(older_than=stage.now + HOUR)
    assert stage.store.write(lambda tx: tx.prune(everything)) == 0
    stage.advance(hours=2)
    assert stage.given("c") == [{"x": "kept"}]
    later = Prune(older_than=stage.now + HOUR)
    assert stage.store.write(lambda tx: tx.prune(later)) == 4
    assert stage.store.read(lambda tx: tx.get_steps(run)) == {}


def test_a_workflow_that_cannot_be_read_stops_its_own_runs_and_no_others(
    bare: Stage, database: Database
) -> None:
    bare.put(note("a"), name="torn")
    bare.put(note("a"), name="whole")
    torn = bare.ask("workflow run", workflow="torn")["run"]["id"]
    database.sql("UPDATE objects SET body = '[]' WHERE name = 'torn@1'")
    unfold_parts._plans.clear()
    whole = bare.start("whole")
    bare.advance(minutes=1)
    assert (bare.state(whole), bare.state(torn)) == ("succeeded", "failed")
    with pytest.raises(UnreadableRow, match="workflow_version torn@1 cannot be read"):
        bare.ask("workflow get", workflow="torn")


def test_a_step_whose_workflow_became_unreadable_is_parked(bare: Stage, database: Database) -> None:
    bare.put(note("a", retry={"max_attempts": 2, "backoff": "1m"}), name="torn")
    bare.script(a=fail())
    run = bare.start("torn")
    database.sql("UPDATE objects SET body = '[]' WHERE name = 'torn@1'")
    unfold_parts._plans.clear()
    bare.advance(minutes=2)
    assert (bare.step_run(run, "a").state, bare.step_run(run, "a").reason) == (RunState.PARKED, "unreadable")


def test_counts_of_steps_add_up_and_a_state_stays_until_another_is_named(bare: Stage) -> None:
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
    assert bare.store.write(lambda tx: tx.hold_wholes(["p"])) == {}
    bare.store.write(lambda tx: tx.delete_steps(["p"]))
    assert bare.store.read(lambda tx: tx.get_steps("p")) == {}


def _leased(bare: Stage) -> Run:
    run = Run(
        id=bare.bench.ids.new("run", now=bare.now),
        lane="x/a",
        planned_at=bare.now,
        fire_at=bare.now,
        state=RunState.READY,
        created_at=bare.now,
        alone=False,
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


def test_a_lease_passes_on_only_from_the_one_who_has_it(bare: Stage) -> None:
    run = _leased(bare)
    until = bare.now + HOUR
    taken = replace(run, holder="two", lease_until=until, payload={"x": 1}, started_at=bare.now)
    assert bare.store.write(lambda tx: tx.take_over([TakeOver(run=taken, was="three")])) == set()
    assert bare.store.write(lambda tx: tx.take_over([TakeOver(run=taken, was="one")])) == {run.id}
    assert bare.run(run.id) == taken
    stale = replace(taken, fence=run.fence + 1)
    assert bare.store.write(lambda tx: tx.take_over([TakeOver(run=stale, was="two")])) == set()


def test_a_lease_that_was_asked_to_end_is_not_prolonged(bare: Stage) -> None:
    run = _leased(bare)
    later = bare.now + HOUR
    assert bare.store.write(lambda tx: tx.prolong(run.id, until=later, started_at=bare.now))
    assert (bare.run(run.id).lease_until, bare.run(run.id).started_at) == (later, bare.now)
    asked = [(run.id, bare.now + MINUTE)]
    bare.store.write(lambda tx: tx.ask_to_cancel(asked, at=bare.now, reason="enough"))
    assert not bare.store.write(lambda tx: tx.prolong(run.id, until=later))
    assert bare.run(run.id).lease_until == bare.now + MINUTE


def test_runs_are_found_by_their_parent_and_by_their_lane(bare: Stage) -> None:
    run = _leased(bare)
    assert [one.id for one in bare.store.read(lambda tx: tx.child_runs("x"))] == [run.id]
    assert bare.store.read(lambda tx: tx.child_runs("")) == []
    found = bare.store.read(lambda tx: tx.lane_runs(bare.now, first="x/a", last="x/b"))
    assert [one.id for one in found] == [run.id]
    assert bare.store.read(lambda tx: tx.lane_runs(bare.now, first="x/b", last="x/c")) == []
    assert [one.id for one in bare.store.read(lambda tx: tx.child_runs("x", unfinished=True))] == [run.id]
