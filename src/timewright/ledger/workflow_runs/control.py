"""Starts, pauses and resumes workflow runs by hand, and records reports of external executors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.run.build import build_standalone_run
from timewright.core.run.run import Run, RunState
from timewright.core.target import Workflow
from timewright.errors import NotAllowed
from timewright.ledger.fact_builders import new_run_facts
from timewright.ledger.lookups import load_terms
from timewright.ledger.manual_runs import CreatedRuns
from timewright.ledger.replan import Actor
from timewright.ledger.settle import settle_workflows
from timewright.ledger.workflow_runs.advance import PAUSED, RUNNING, open_stepper, save_stepper
from timewright.ledger.workflow_runs.records import (
    HELD_BY_EXECUTOR,
    HELD_BY_WORKFLOW,
    WorkflowContext,
    plan_of,
)
from timewright.ledger.workflow_runs.versions import workflow_end, workflow_time_limit
from timewright.ports import Ids, Store, Transaction
from timewright.ports.workflow import StepRow

MAX_PAUSE = timedelta(days=365)


def start_workflow(
    store: Store,
    context: WorkflowContext,
    *,
    namespace: str,
    ids: Ids,
    by: Actor,
    now: datetime,
    client_key: str = "",
) -> CreatedRuns:
    """Create a workflow run; the same client key returns the same run."""
    client_key_name = f"client:{namespace}/{context.workflow}:{client_key}"

    def work(tx: Transaction) -> CreatedRuns:
        known = tx.get_meta(client_key_name) if client_key else None
        found = tx.get_runs([known]).get(known) if known else None
        if found is not None:
            return CreatedRuns(runs=(found,))
        run_id = ids.new("run", now=now)
        run = build_standalone_run(
            run_id=run_id,
            namespace=namespace,
            dedupe_scope=run_id,
            planned_at=now,
            fire_at=now,
            created_at=now,
            made_by=by.name,
            payload=context.to_payload(),
        )
        tx.add_runs([run])
        if client_key:
            tx.put_meta(client_key_name, run.id)
        action = "workflow.run"
        tx.add_audit(
            [by.audit_entry(action, namespace=namespace, subject=context.workflow, now=now, after=run.id)]
        )
        return CreatedRuns(runs=(run,), facts=tuple(new_run_facts(run, now=now)))

    return store.write(work)


def pause_workflow_run(store: Store, run: Run, *, by: Actor, now: datetime) -> None:
    """Start no further steps; ready and running ones continue. The time limit is suspended."""

    def work(tx: Transaction) -> None:
        _lock_running(tx, run)
        tx.add_to_steps([StepRow(parent=run.id, step="", state=PAUSED)])
        tx.extend_lease(run.id, until=now + MAX_PAUSE)
        tx.add_audit([by.audit_entry("workflow.pause", namespace=run.namespace, subject=run.id, now=now)])

    store.write(work)


def resume_workflow_run(store: Store, run: Run, *, by: Actor, now: datetime) -> tuple[Fact, ...]:
    """Start the steps that became due during the pause; the time limit starts again."""

    def work(tx: Transaction) -> tuple[Fact, ...]:
        total = _lock_running(tx, run)
        stepper = open_stepper(tx, run, total, now=now)
        if stepper is None or total.state != PAUSED:
            return ()
        stepper.starts_steps = True
        rows = tx.get_steps(run.id)
        stepper.start_steps(_due(rows, {name: len(step.needs) for name, step in stepper.plan.steps.items()}))
        changes = save_stepper(tx, run, stepper, state=RUNNING)
        lease = load_terms(tx, [run])[run.id].terms.lease
        tx.extend_lease(run.id, until=workflow_end(run, stepper.plan.spec, lease, outside=False, now=now))
        tx.add_audit([by.audit_entry("workflow.resume", namespace=run.namespace, subject=run.id, now=now)])
        return tuple(settle_workflows(tx, changes, now=now))

    return store.write(work)


def record_executor_start(store: Store, run: Run, *, now: datetime) -> None:
    """Record that an external executor started a run; its time limit starts again."""

    def work(tx: Transaction) -> None:
        lease = load_terms(tx, [run])[run.id].terms.lease
        plan = plan_of(tx, run) if run.holder == HELD_BY_EXECUTOR else None
        length = workflow_time_limit(plan.spec, lease, outside=True) if plan is not None else lease.length
        tx.extend_lease(run.id, until=now + length, started_at=run.started_at or now)

    store.write(work)


def as_reported_run(tx: Transaction, run: Run) -> Run:
    """The run as an external executor reports it, which may happen before the launch is written."""
    target = load_terms(tx, [run])[run.id].terms.target
    return (
        replace(run, holder=HELD_BY_EXECUTOR)
        if isinstance(target, Workflow) and run.holder != HELD_BY_WORKFLOW
        else run
    )


def _due(rows: Mapping[str, StepRow], needs: Mapping[str, int]) -> list[str]:
    """Steps whose needs are met and that were not started."""
    nothing = StepRow(parent="", step="")
    progress = {name: rows.get(name, nothing) for name in needs}
    return [name for name, row in progress.items() if not row.state and row.met == needs[name]]


def _lock_running(tx: Transaction, run: Run) -> StepRow:
    total = tx.lock_parents([run.id]).get(run.id)
    if total is None or run.state is not RunState.LEASED or run.holder != HELD_BY_WORKFLOW:
        raise NotAllowed(
            f"run {run.id} is not a workflow run with running steps",
            field="run",
            value=run.state.value,
            rule="only a workflow run whose steps run here can be paused or resumed",
            fix="see `run get` for its state",
        )
    return total
