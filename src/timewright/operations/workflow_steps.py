"""What a run of a workflow, or of one of its steps, has to tell: whose it is, and what it waited for."""

from __future__ import annotations

from collections.abc import Mapping

from timewright.core.moments import spell_instant
from timewright.core.run import Run, RunState
from timewright.ledger.unfold_parts import EXECUTOR, UNFOLDED, Part, part_of, plan_of
from timewright.ports import Transaction
from timewright.ports.steps import StepRow

MOST_NAMED = 10


def called(run: Run) -> str:
    """What a run without a schedule goes by: its workflow and step, or its queue."""
    part = part_of(run) if run.parent or not run.queue else None
    if part is None:
        return f"queue {run.queue}"
    return f"{part.workflow}.{part.step}" if part.step else part.workflow


def tell_workflow(tx: Transaction, run: Run) -> list[str]:
    """Sentences about the place of a run in a workflow; none if it has none."""
    part = part_of(run)
    if part is None:
        return []
    told = _tell_step(tx, run, part) if run.parent and part.step else []
    if run.state is RunState.LEASED and run.holder == EXECUTOR:
        until = f" by {spell_instant(run.lease_until)}" if run.lease_until is not None else ""
        told.append(f"it was handed to the executor of workflow {part.workflow}, which may report{until}")
    if run.state is RunState.LEASED and run.holder == UNFOLDED and part.pin is not None:
        told += _tell_whole(tx, run, part.pin)
    return told


def _tell_step(tx: Transaction, run: Run, part: Part) -> list[str]:
    item = f", item {part.item}" if part.item is not None else ""
    told = [
        f"it is step {part.step}{item} of workflow {part.workflow} version {part.version}, in {run.parent}"
    ]
    plan = plan_of(tx, run.namespace, part)
    needs = plan.steps[part.step].needs if plan is not None else ()
    if not needs:
        return [*told, "it needs no other step, so it waited for nothing"]
    rows = tx.get_steps(run.parent, needs)
    ends = tx.get_runs([row.run_id for row in rows.values() if row.run_id])
    named = ", ".join(_need(name, rows, ends) for name in needs[:MOST_NAMED])
    more = f" and {len(needs) - MOST_NAMED} more" if len(needs) > MOST_NAMED else ""
    return [*told, f"it waited for {named}{more}"]


def _need(name: str, rows: Mapping[str, StepRow], ends: Mapping[str, Run]) -> str:
    row = rows.get(name)
    run = ends.get(row.run_id) if row is not None else None
    at = f" at {spell_instant(run.finished_at)}" if run is not None and run.finished_at is not None else ""
    return f"{name} ({row.state if row is not None else 'waiting'}{at})"


def _tell_whole(tx: Transaction, run: Run, pin: Part) -> list[str]:
    whole = tx.get_steps(run.id, [""]).get("")
    plan = plan_of(tx, run.namespace, pin)
    if whole is None or plan is None:
        return []
    told = [f"{whole.met} of {len(plan.steps)} steps are settled, {whole.live} runs of steps are under way"]
    if whole.parked:
        told.append(f"{whole.parked} runs of steps are parked, and wait for a person")
    if whole.state in ("paused", "stopping"):
        told.append(f"the workflow is {whole.state}")
    return told
