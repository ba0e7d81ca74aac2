"""The launch of workflow runs and their retries, and the end of leases of steps and external executors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import Fact, RunReset
from timewright.core.moments import format_duration
from timewright.core.run.lifecycle import RunEvent, restart_run
from timewright.core.run.run import Cancelled, Failed, Lost, Outcome, Reason, Run, RunState, Succeeded
from timewright.core.target import Workflow
from timewright.errors import NotAllowed, TimewrightError
from timewright.ledger.fact_builders import run_fields
from timewright.ledger.lookups import RunTerms
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.workflow_runs.advance import (
    CLOSED,
    NO_CHANGES,
    FinishedWorkflow,
    WorkflowChanges,
    save_stepper,
    stop_workflows,
)
from timewright.ledger.workflow_runs.records import (
    HELD_BY_EXECUTOR,
    HELD_BY_WAIT,
    HELD_BY_WORKFLOW,
    WorkflowContext,
    WorkflowPlan,
    workflow_context,
)
from timewright.ledger.workflow_runs.stepper import STARTED, WorkflowStepper, fan_out_state
from timewright.ledger.workflow_runs.versions import is_past_deadline, pin_version, workflow_end
from timewright.ledger.workflow_runs.waits import wait_over
from timewright.ports import AuditEntry, ExternalId, RunChange, StoredObject, Transaction
from timewright.ports.rows import StepRuns
from timewright.ports.workflow import LeaseTransfer, StepRow

REASON_WORKFLOW_ENDED = "the workflow has ended"
MAX_EXTERNAL_ID = 255

_NO_PROCESS = (HELD_BY_WORKFLOW, HELD_BY_EXECUTOR)


class LaunchedWorkflows(Struct, frozen=True, kw_only=True):
    """The results that are still to be settled, the runs that continue instead, and what they changed."""

    results: dict[str, AttemptResult]
    done: frozenset[str] = frozenset()
    changes: WorkflowChanges = NO_CHANGES


def launch_workflows(
    tx: Transaction, results: dict[str, AttemptResult], terms: Mapping[str, RunTerms], *, now: datetime
) -> LaunchedWorkflows:
    """Start the steps of launched workflow runs, and correct outcomes that differ for a workflow.

    Results of other runs are returned unchanged.
    """
    workflow_ids = [i for i in results if isinstance(terms[i].terms.target, Workflow)]
    parents = {result.run.parent for result in results.values() if result.run.parent}
    if not workflow_ids and not parents:
        return LaunchedWorkflows(results=results)
    totals = tx.lock_parents({*parents, *workflow_ids})
    rows = tx.get_runs(workflow_ids, lock=True) if workflow_ids else {}
    launches = _Launches(tx, dict(results), terms, now=now)
    for i in workflow_ids:
        launches.add(results[i], rows.get(i), totals.get(i))
    for i, result in results.items():
        if result.run.holder == HELD_BY_WAIT and isinstance(result.outcome, Lost):
            launches.results[i] = replace(result, outcome=wait_over(tx, result.run))
    changes = WorkflowChanges(tuple(launches.facts), tuple(launches.finished))
    return LaunchedWorkflows(results=launches.results, done=frozenset(launches.done), changes=changes)


class _Launches:
    """Handles the results of workflow runs one by one."""

    def __init__(
        self,
        tx: Transaction,
        results: dict[str, AttemptResult],
        terms: Mapping[str, RunTerms],
        *,
        now: datetime,
    ) -> None:
        self.results = results
        self.facts: list[Fact] = []
        self.finished: list[FinishedWorkflow] = []
        self.done: set[str] = set()
        self._tx = tx
        self._terms = terms
        self._now = now

    def add(self, result: AttemptResult, row: Run | None, total: StepRow | None) -> None:
        """Start a launched workflow, or correct the end of a lease that no process holds.

        All other results are left to the check of the fence.
        """
        run = result.run
        is_running = row is not None and row.holder in _NO_PROCESS
        is_held = row is not None and (row.state, row.fence) == (RunState.LEASED, run.fence)
        was_launched = isinstance(result.outcome, Succeeded) and run.holder not in _NO_PROCESS
        if was_launched and (is_running or not is_held or row is None):
            # The launcher lost the lease; or the steps run already, and the answer to its commit was lost.
            del self.results[run.id]
            if is_running and is_held:
                self.done.add(run.id)
        elif was_launched and row is not None:
            self._start(result, row, total)
        elif is_held and row is not None and (is_running or run.holder == HELD_BY_EXECUTOR):
            self._correct_end(result, row)

    def _start(self, result: AttemptResult, row: Run, total: StepRow | None) -> None:
        """After a successful launch, pass the lease on to the steps or to an external executor."""
        tx, now, terms = self._tx, self._now, self._terms[row.id].terms
        target = terms.target
        assert isinstance(target, Workflow)
        if row.cancel_at is not None:
            self._set_outcome(result, Cancelled(reason=row.reason or Reason.BY_HAND.value))
            return
        try:
            context, pin, plan = pin_version(tx, row, target, known=total is not None)
        except TimewrightError as error:
            self._set_outcome(result, Failed(error=error.message, unresolved=True))
            return
        if total is not None:
            pin = take_changed_input(tx, row, pin)
        is_external = plan.spec.executor is not None
        is_step = context is not None and bool(context.step)
        payload = replace(context, runs=pin) if context is not None and is_step else pin
        running = replace(
            row,
            holder=HELD_BY_EXECUTOR if is_external else HELD_BY_WORKFLOW,
            started_at=row.started_at if is_external else result.started_at,
            lease_until=workflow_end(row, plan.spec, terms.lease, outside=is_external, now=now),
            payload=payload.to_payload(),
        )
        tx.transfer_leases([LeaseTransfer(run=running, previous_holder=row.holder)])
        del self.results[row.id]
        self.done.add(row.id)
        if is_external:
            self._keep_external_id(result, row)
        else:
            stepper = WorkflowStepper(tx, running, pin, plan, now=now)
            if total is None:
                stepper.start_steps(plan.roots)
            else:
                retry_workflow(tx, running, stepper, plan, round_number=total.round + 1, now=now)
            self._add_changes(save_stepper(tx, running, stepper))

    def _keep_external_id(self, result: AttemptResult, row: Run) -> None:
        """Keep what the executor calls the run, if its answer says so."""
        answer = result.outcome.result
        body = answer.get("body") if isinstance(answer, dict) else None
        name = body.get("run_id") if isinstance(body, dict) else None
        if isinstance(name, str) and 0 < len(name) <= MAX_EXTERNAL_ID and name != row.id:
            self._tx.put_run_rows([ExternalId(row.id, row.fence, name)])

    def _correct_end(self, result: AttemptResult, row: Run) -> None:
        """Set the outcome of an expired lease: the time limit of the steps, or an executor's silence."""
        is_lost = isinstance(result.outcome, Lost) and row.cancel_at is None
        if HELD_BY_EXECUTOR in (row.holder, result.run.holder):
            if is_lost:
                self._set_outcome(result, _outcome_without_report(row))
            elif isinstance(result.outcome, Failed):
                # The launch succeeded and the work failed: only the executor could try it again.
                self._set_outcome(result, replace(result.outcome, final=True))
            return
        if is_lost:
            duration = format_duration(self._now - (row.started_at or self._now))
            what = "deadline" if is_past_deadline(self._tx, row) else "time limit"
            error = f"the {what} of the workflow was reached after {duration}"
            self._set_outcome(result, Failed(error=error, final=True), started_at=row.started_at)
        self._add_changes(
            stop_workflows(self._tx, [row], reason=REASON_WORKFLOW_ENDED, now=self._now, state=CLOSED)
        )

    def _set_outcome(self, result: AttemptResult, outcome: Outcome, **fields: Any) -> None:
        self.results[result.run.id] = replace(result, outcome=outcome, **fields)

    def _add_changes(self, changes: WorkflowChanges) -> None:
        self.facts += changes.facts
        self.finished += changes.finished


def _outcome_without_report(row: Run) -> Outcome:
    """An executor that never reported counts as launched; one that reported only its start has failed."""
    if row.started_at is None:
        return Succeeded(result={"launched": True, "reported": False})
    return Failed(error="the executor reported its start and never its end", final=True)


# Input that a retry from a step sets; kept from the request until the workflow run starts again.
CHANGED_INPUT = "changed_input"
WORKFLOW_ACTOR = "workflow"
# The state of a step row from which on the next retry runs the steps again, also if they succeeded.
REPEAT = "repeat"

_LIVE = (RunState.READY, RunState.LEASED, RunState.HELD)
_EVENTS = {
    RunState.FAILED: RunEvent.REOPEN,
    RunState.CANCELLED: RunEvent.REOPEN,
    RunState.PARKED: RunEvent.RESET,
}


def retry_workflow(
    tx: Transaction,
    parent: Run,
    stepper: WorkflowStepper,
    plan: WorkflowPlan,
    *,
    round_number: int,
    now: datetime,
) -> None:
    """Rebuild the step counts from the existing runs: failed runs become ready, skipped steps undecided."""
    newest = {run.dedupe_scope.partition("~")[0]: run for run in tx.select(StepRuns(parent.id))}
    repeated = _steps_to_repeat(tx, parent, plan)
    kept = [
        run
        for run in newest.values()
        if run.state is not RunState.SKIPPED and not _starts_anew(run, plan, repeated)
    ]
    after = _reopened(tx, kept, now=now)
    stepper.facts += [
        RunReset(actor=WORKFLOW_ACTOR, **run_fields(run, now=now))
        for run in after
        if run.state is RunState.READY
    ]
    tx.delete_run_rows(StepRow, [parent.id])
    stepper.round = round_number
    stepper.add_counts(round=round_number, live=sum(run.state in _LIVE for run in after))
    ends = _write_steps(tx, parent, _by_step(after), plan)
    stepper.settle_steps(ends)
    known = _by_step(after)
    stepper.start_steps([name for name in plan.roots if name not in known])


def mark_to_repeat(tx: Transaction, run: Run, *, changed: dict[str, Any], now: datetime) -> None:
    """Let the next retry run a step again, with changed input, and all steps that need it."""
    context = workflow_context(run)
    parent = tx.get_runs([run.parent]).get(run.parent) if run.parent else None
    if context is None or not context.step or parent is None or parent.parent:
        raise NotAllowed(
            f"run {run.id} is not a step of a workflow run that stands alone",
            field="from_step",
            value=True,
            rule="retry from a step of a workflow that is not itself a step",
            fix=f"run retry {run.id} without from_step",
        )
    tx.add_to_steps([StepRow(parent=run.parent, step=context.step, state=REPEAT)])
    if changed:
        values = {context.step: changed}
        tx.put_objects([StoredObject.of(CHANGED_INPUT, run.parent, values, namespace=run.namespace, at=now)])


def take_changed_input(tx: Transaction, parent: Run, pin: WorkflowContext) -> WorkflowContext:
    """Move the input that was changed for this retry into the context of the workflow run."""
    rows = tx.get_objects(CHANGED_INPUT, namespace=parent.namespace, names=[parent.id])
    if not rows:
        return pin
    tx.delete_object(CHANGED_INPUT, namespace=parent.namespace, name=parent.id)
    return replace(pin, changed={**pin.changed, **msgspec.json.decode(rows[0].body)})


def _steps_to_repeat(tx: Transaction, parent: Run, plan: WorkflowPlan) -> set[str]:
    """The marked steps and every step behind them."""
    found: set[str] = set()
    todo = [name for name, row in tx.get_steps(parent.id).items() if row.state == REPEAT]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += plan.successors.get(name, ())
    return found


def _starts_anew(run: Run, plan: WorkflowPlan, repeated: Collection[str]) -> bool:
    """Whether the step gets a new run: it is repeated, could not be started, or waited and nothing came."""
    context = workflow_context(run)
    if run.state not in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED):
        return False
    if context is not None and context.step in repeated:
        return True
    if run.state is RunState.SUCCEEDED:
        return False
    step = plan.steps.get(context.step) if context is not None else None
    return (run.fence == 0 and run.state is RunState.FAILED) or (step is not None and step.wait is not None)


def _reopened(tx: Transaction, runs: Iterable[Run], *, now: datetime) -> list[Run]:
    changes: list[RunChange] = []
    after: list[Run] = []
    for run in runs:
        event = _EVENTS.get(run.state)
        if event is None:
            after.append(run)
        else:
            fresh = restart_run(run, event, now=now)
            changes.append(RunChange(fresh, run.state, run.fence))
            after.append(fresh)
    tx.change_runs(changes)
    tx.add_audit([_audit_entry(change, now=now) for change in changes])
    return after


def _audit_entry(change: RunChange, *, now: datetime) -> AuditEntry:
    """An audit entry for each reopened run; the actor is in the entry of the workflow run."""
    run, event = change.run, _EVENTS[change.expected_state]
    return AuditEntry(
        at=now,
        namespace=run.namespace,
        actor=WORKFLOW_ACTOR,
        origin="workflow",
        action=f"run.{event}",
        subject=run.id,
        before=change.expected_state.value,
        reason=f"retry of {run.parent}",
    )


def _by_step(runs: Iterable[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        context = workflow_context(run)
        if context is not None:
            found.setdefault(context.step, []).append(run)
    return found


def _write_steps(
    tx: Transaction, parent: Run, runs: dict[str, list[Run]], plan: WorkflowPlan
) -> list[tuple[str, RunState]]:
    """Write a row for every step that has runs; return the steps that are already settled."""
    rows: list[StepRow] = []
    ends: list[tuple[str, RunState]] = []
    for name, own in runs.items():
        live = sum(run.state in _LIVE for run in own)
        fan = plan.steps[name].each is not None
        row = StepRow(
            parent=parent.id,
            step=name,
            state=STARTED,
            live=live if fan else 0,
            run_id="" if fan else own[-1].id,
        )
        rows.append(row)
        if not live:
            ends.append((name, fan_out_state(row)))
    tx.add_to_steps(rows)
    return ends
