"""Advances one workflow run inside a transaction: starts, skips and settles steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from timewright.core.facts import Fact, RunFailed
from timewright.core.moments import format_instant
from timewright.core.run.run import Attempt, Run, RunState
from timewright.core.workflow import Step, skip_reason
from timewright.core.workflow.step_input import (
    each_items,
    render_question,
    render_target,
    resolve_input,
    template_values,
)
from timewright.errors import InvalidWorkflow, TimewrightError
from timewright.ledger.alerts.deliveries import deliver_questions
from timewright.ledger.fact_builders import new_run_facts, run_fields
from timewright.ledger.queues.limits import LimitResolver
from timewright.ledger.workflow_runs.records import (
    WorkflowContext,
    WorkflowPlan,
    build_step_run,
    workflow_context,
)
from timewright.ports import Transaction
from timewright.ports.rows import RunsOfStep
from timewright.ports.workflow import StepRow

STARTED = "started"
MAX_INPUT_BYTES = 256 * 1024
MAX_FAN_OUT_BYTES = 16 * 1024 * 1024

StepEnd = tuple[str, RunState]


class WorkflowStepper:
    """The changes to one workflow run in one transaction; the cost depends on the dependents of a step."""

    def __init__(
        self, tx: Transaction, parent: Run, pin: WorkflowContext, plan: WorkflowPlan, *, now: datetime
    ) -> None:
        self.facts: list[Fact] = []
        self.starts_steps = True
        self.is_stopping = False
        self.round = 0
        self._tx = tx
        self._parent = parent
        self._pin = pin
        self.plan = plan
        self._now = now
        self._runs: list[Run] = []
        self._counts: Counter[str] = Counter()
        self._limits = LimitResolver(tx)

    def start_steps(self, names: Iterable[str]) -> None:
        """Start or skip steps whose needs are all settled."""
        self.settle_steps(self._start_or_skip(list(names)))

    def record_ended(self, ended: Sequence[Run], *, was_parked: bool = False) -> None:
        """Record runs of steps that have ended or were parked."""
        contexts = [(run, context) for run in ended if (context := workflow_context(run)) is not None]
        self._counts["parked" if was_parked else "live"] -= len(contexts)
        self._counts["parked"] += sum(run.state is RunState.PARKED for run, _ in contexts)
        single = [
            (context.step, run.state)
            for run, context in contexts
            if context.item is None and run.state is not RunState.PARKED
        ]
        items = [(context.step, run.state) for run, context in contexts if context.item is not None]
        self.settle_steps([*single, *self._ended_fan_outs(items, was_parked=was_parked)])

    def settle_steps(self, ends: Sequence[StepEnd]) -> None:
        """Settle steps, then start or skip the steps behind them."""
        while ends:
            due = self._count_settled(ends)
            ends = self._start_or_skip(due) if self.starts_steps and due else []

    def add_counts(self, **counts: int) -> None:
        """Add to the totals of the workflow run."""
        self._counts.update(counts)

    def write(self, *, state: str = "") -> StepRow:
        """Write the new runs; return the totals of the workflow run."""
        self._tx.add_runs(self._runs)
        totals = replace(StepRow(parent=self._parent.id, step="", state=state), **self._counts)
        return self._tx.add_to_steps([totals])[0]

    def results(self, names: Iterable[str], rows: Mapping[str, StepRow]) -> dict[str, Any]:
        """The results of steps; a fan-out step has a list of results."""
        found: dict[str, Any] = {}
        fan_outs = [name for name in names if self.plan.steps[name].each is not None]
        single = {name: rows[name].run_id for name in names if name in rows and rows[name].run_id}
        results = self._run_results(single.values())
        for name, run_id in single.items():
            found[name] = results.get(run_id)
        for name in fan_outs:
            found[name] = self._fan_out_results(name)
        return found

    def _ended_fan_outs(self, items: Sequence[StepEnd], *, was_parked: bool) -> list[StepEnd]:
        """The fan-out steps whose last item has ended."""
        fan_outs: dict[str, Counter[str]] = {}
        for name, state in items:
            counts = fan_outs.setdefault(name, Counter())
            counts["parked" if was_parked else "live"] -= 1
            if state in (RunState.PARKED, RunState.FAILED, RunState.CANCELLED):
                counts[state.value] += 1
        rows = self._tx.add_to_steps(
            [
                replace(StepRow(parent=self._parent.id, step=name), **counts)
                for name, counts in fan_outs.items()
            ]
        )
        return [(row.step, fan_out_state(row)) for row in rows if not row.live and not row.parked]

    def _count_settled(self, ends: Sequence[StepEnd]) -> list[str]:
        """Write that steps are settled; return the steps whose needs are now all settled."""
        met = Counter(later for name, _ in ends for later in self.plan.successors[name])
        states = Counter(state.value for _, state in ends)
        self._counts.update(
            met=len(ends), failed=states[RunState.FAILED.value], cancelled=states[RunState.CANCELLED.value]
        )
        settled = {name: state.value for name, state in ends}
        rows = [
            StepRow(parent=self._parent.id, step=name, met=met[name], state=settled.get(name, ""))
            for name in sorted(settled.keys() | met.keys())
        ]
        after = self._tx.add_to_steps(rows)
        return [r.step for r in after if not r.state and r.met == len(self.plan.steps[r.step].needs)]

    def _start_or_skip(self, names: Sequence[str]) -> list[StepEnd]:
        """Start the steps that may start; return those that are settled without a run."""
        steps = [self.plan.steps[name] for name in names]
        needs = {need for step in steps for need in step.needs}
        rows = self._tx.get_steps(self._parent.id, needs) if needs else {}
        states = {name: RunState(row.state) for name, row in rows.items() if row.state != STARTED}
        scope = self._scope(steps, rows, states)
        ends: list[StepEnd] = []
        started: list[StepRow] = []
        for step in steps:
            is_too_late = self.is_stopping and not step.is_cleanup
            reason = "the workflow was cancelled" if is_too_late else skip_reason(step, states, scope)
            if reason is not None:
                ends.append(self._add_unstarted(step, RunState.SKIPPED, reason))
                continue
            try:
                runs = self._build_runs(step, scope)
            except TimewrightError as error:
                ends.append(
                    self._add_unstarted(step, RunState.FAILED, f"could not be started: {error.message}")
                )
                continue
            started.append(self._add_started(step, runs))
            if not runs:
                ends.append((step.name, RunState.SUCCEEDED))
        self._tx.add_to_steps(started)
        return ends

    def _add_started(self, step: Step, runs: Sequence[Run]) -> StepRow:
        self._runs += runs
        self._counts["live"] += len(runs)
        for run in runs:
            self.facts += new_run_facts(run, now=self._now)
        if step.wait is not None and step.wait.answer is not None:
            self.facts += deliver_questions(
                self._tx,
                [(run, render_question(step, run.payload.get("values", {}))) for run in runs],
                to=step.wait.answer.to,
                workflow=self._pin.workflow,
                now=self._now,
            )
        if step.each is not None:
            return StepRow(parent=self._parent.id, step=step.name, state=STARTED, live=len(runs))
        return StepRow(parent=self._parent.id, step=step.name, state=STARTED, run_id=runs[0].id)

    def _scope(
        self, steps: Sequence[Step], rows: Mapping[str, StepRow], states: Mapping[str, RunState]
    ) -> dict[str, Any]:
        """What the references of steps can see; only what one of them uses is read."""
        uses = [self.plan.uses(step) for step in steps]
        results = self.results({name for one in uses for name in one.results}, rows)
        wanted = {name: rows[name].run_id for one in uses for name in one.runs if name in rows}
        runs = self._tx.get_runs([run_id for run_id in wanted.values() if run_id]) if wanted else {}
        known: dict[str, dict[str, Any]] = {}
        for name, state in states.items():
            known[name] = {"state": state.value, "result": results.get(name)}
            run = runs.get(wanted.get(name, ""))
            if run is not None:
                # A run counts the attempts that failed, so a success is one more; a wait has none.
                attempts = run.attempts + (run.state is RunState.SUCCEEDED and run.fence > 0)
                known[name] |= {"error": run.error or run.reason, "attempts": attempts}
        parent = self._parent
        scope: dict[str, Any] = {
            "steps": known,
            "input": self._pin.input,
            "run": {"id": parent.id, "planned_at": format_instant(parent.planned_at)},
        }
        if any(one.schedule for one in uses):
            # A run that was started by hand has no schedule, and its templates work as well.
            record = self._tx.get_schedules([parent.schedule_id]).get(parent.schedule_id)
            scope["schedule"] = {"name": record.schedule.name if record is not None else ""}
        return scope

    def _build_runs(self, step: Step, scope: Mapping[str, Any]) -> list[Run]:
        if step.each is None:
            scopes = [scope]
        else:
            scopes = [{**scope, "item": item} for item in each_items(step, scope)]
        templates = self.plan.uses(step).templates
        changed = self._pin.changed.get(step.name, {})
        inputs = [resolve_input(step, one) | changed for one in scopes]
        values = [template_values(templates, one, f"{step.name}.target") for one in scopes]
        _check_sizes(step, [{**one, **value} for one, value in zip(inputs, values, strict=True)])
        is_single = step.each is None
        runs = []
        for n, (given, value) in enumerate(zip(inputs, values, strict=True)):
            if value:
                render_target(step.target, value)
            item = None if is_single else n
            runs.append(self._build_run(step, item=item, step_input=given, values=value))
        return runs

    def _add_unstarted(self, step: Step, state: RunState, reason: str) -> StepEnd:
        """Add a row for a step without a run: skipped, or failed to start."""
        run = self._build_run(step, item=None, step_input={}, state=state, reason=reason[:2000])
        self._runs.append(run)
        if state is RunState.SKIPPED:
            self.facts += new_run_facts(run, now=self._now)
        else:
            self.facts.append(RunFailed(fence=0, attempts=0, error=reason, **run_fields(run, now=self._now)))
        return step.name, state

    def _build_run(
        self,
        step: Step,
        *,
        item: int | None,
        step_input: dict[str, Any],
        values: dict[str, Any] | None = None,
        state: RunState = RunState.READY,
        reason: str = "",
    ) -> Run:
        dedupe_scope = f"{self._parent.id}/{step.name}" + ("" if item is None else f"[{item:05d}]")
        if self.round:
            dedupe_scope += f"~{self.round}"
        context = WorkflowContext(
            workflow=self._pin.workflow,
            version=self._pin.version,
            digest=self._pin.digest,
            step=step.name,
            item=item,
            depth=self._pin.depth,
            input=step_input,
            values=values or {},
        )
        run = build_step_run(
            self._parent,
            context,
            dedupe_scope=dedupe_scope,
            plan=self.plan,
            now=self._now,
            state=state,
            reason=reason,
        )
        return self._limits.resolve(run, step.limits, payload=step_input) if step.limits else run

    def _fan_out_results(self, name: str) -> list[Any]:
        start = f"{self._parent.id}/{name}"
        runs = self._tx.select(
            RunsOfStep(planned_at=self._parent.planned_at, first=f"{start}[", last=f"{start}\\")
        )
        # A retry sorts behind the earlier round, and replaces it.
        newest = {context.item: run.id for run in runs if (context := workflow_context(run)) is not None}
        results = self._run_results(newest.values())
        return [results.get(run_id) for run_id in newest.values()]

    def _run_results(self, run_ids: Iterable[str]) -> dict[str, Any]:
        wanted = list(run_ids)
        found = self._tx.get_run_rows(Attempt, wanted) if wanted else {}
        return {run_id: attempts[-1].result for run_id, attempts in found.items() if attempts}


def fan_out_state(row: StepRow) -> RunState:
    """The state of a fan-out step, from its items."""
    if row.failed:
        return RunState.FAILED
    return RunState.CANCELLED if row.cancelled else RunState.SUCCEEDED


def _check_sizes(step: Step, inputs: Sequence[dict[str, Any]]) -> None:
    sizes = [len(msgspec.json.encode(is_single)) for is_single in inputs if is_single]
    if any(size > MAX_INPUT_BYTES for size in sizes) or sum(sizes) > MAX_FAN_OUT_BYTES:
        raise InvalidWorkflow(
            f"{step.name}.input is too large: {max(sizes)} bytes for one run, {sum(sizes)} in total",
            field=f"{step.name}.input",
            value=max(sizes),
            rule=f"at most {MAX_INPUT_BYTES >> 10} KiB for one run, {MAX_FAN_OUT_BYTES >> 10} KiB in total",
            fix="pass a reference to the data instead of the data",
        )
