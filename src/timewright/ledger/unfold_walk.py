"""One workflow run, moved on inside a transaction: what an ended step sets free, skips, and gives on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from timewright.core.facts import Fact, RunFailed
from timewright.core.run import Run, RunState
from timewright.core.workflow import Step, fate, items_of, resolve_input
from timewright.errors import InvalidWorkflow, TimewrightError
from timewright.ledger.telling import about, new_run
from timewright.ledger.unfold_parts import Part, Plan, part_of, step_run
from timewright.ports import Transaction
from timewright.ports.steps import StepRow

STARTED = "started"
LARGEST_INPUT = 256 * 1024
LARGEST_FAN = 16 * 1024 * 1024

End = tuple[str, RunState]


class Walk:
    """What changes about one workflow run in one transaction; it costs as much as there are dependents."""

    def __init__(self, tx: Transaction, parent: Run, pin: Part, plan: Plan, *, now: datetime) -> None:
        self.facts: list[Fact] = []
        self.goes_on = True
        self.round = 0
        self._tx = tx
        self._parent = parent
        self._pin = pin
        self.plan = plan
        self._now = now
        self._runs: list[Run] = []
        self._counts: Counter[str] = Counter()

    def begin(self, names: Iterable[str]) -> None:
        """Look at steps whose needs are all settled."""
        self.settle(self._look_at(list(names)))

    def take(self, ended: Sequence[Run], *, was_parked: bool = False) -> None:
        """Runs of steps that are over, or wait for a person now."""
        parts = [(run, part) for run in ended if (part := part_of(run)) is not None]
        self._counts["parked" if was_parked else "live"] -= len(parts)
        self._counts["parked"] += sum(run.state is RunState.PARKED for run, _ in parts)
        single = [
            (part.step, run.state)
            for run, part in parts
            if part.item is None and run.state is not RunState.PARKED
        ]
        items = [(part.step, run.state) for run, part in parts if part.item is not None]
        self.settle([*single, *self._whole_fans(items, was_parked=was_parked)])

    def settle(self, ends: Sequence[End]) -> None:
        """Settle steps, and whatever that skips in turn."""
        while ends:
            due = self._count(ends)
            ends = self._look_at(due) if self.goes_on and due else []

    def note(self, **counts: int) -> None:
        """Count something else about the run as a whole."""
        self._counts.update(counts)

    def write(self, *, state: str = "") -> StepRow:
        """Write the runs that were made, and give back how the whole stands."""
        self._tx.add_runs(self._runs)
        whole = replace(StepRow(parent=self._parent.id, step="", state=state), **self._counts)
        return self._tx.add_to_steps([whole])[0]

    def results(self, names: Iterable[str], rows: Mapping[str, StepRow]) -> dict[str, Any]:
        """What steps answered; a step that ran for each of a list answers with a list."""
        found: dict[str, Any] = {}
        fans = [name for name in names if self.plan.steps[name].each is not None]
        single = {name: rows[name].run_id for name in names if name in rows and rows[name].run_id}
        answers = self._answers(single.values())
        for name, run_id in single.items():
            found[name] = answers.get(run_id)
        for name in fans:
            found[name] = self._fan_results(name)
        return found

    def _whole_fans(self, items: Sequence[End], *, was_parked: bool) -> list[End]:
        """Steps with items of which the last one ended."""
        fans: dict[str, Counter[str]] = {}
        for name, state in items:
            counts = fans.setdefault(name, Counter())
            counts["parked" if was_parked else "live"] -= 1
            if state in (RunState.PARKED, RunState.FAILED, RunState.CANCELLED):
                counts[state.value] += 1
        rows = self._tx.add_to_steps(
            [replace(StepRow(parent=self._parent.id, step=name), **counts) for name, counts in fans.items()]
        )
        return [(row.step, fan_state(row)) for row in rows if not row.live and not row.parked]

    def _count(self, ends: Sequence[End]) -> list[str]:
        """Write that steps are settled; gives back those for which this was the last they waited for."""
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

    def _look_at(self, names: Sequence[str]) -> list[End]:
        """Start what may start; gives back what is settled without a run that could end."""
        steps = [self.plan.steps[name] for name in names]
        needs = {need for step in steps for need in step.needs}
        rows = self._tx.get_steps(self._parent.id, needs) if needs else {}
        states = {name: RunState(row.state) for name, row in rows.items() if row.state != STARTED}
        results = self.results({name for step in steps for name in self.plan.spoken_of(step)}, rows)
        scope = {
            "steps": {name: {"state": states[name].value, "result": results.get(name)} for name in states},
            "input": self._pin.input,
        }
        ends: list[End] = []
        started: list[StepRow] = []
        for step in steps:
            why = fate(step, states, scope)
            if why is not None:
                ends.append(self._end(step, RunState.SKIPPED, why))
                continue
            try:
                runs = self._started(step, results)
            except TimewrightError as error:
                ends.append(self._end(step, RunState.FAILED, f"it could not be started: {error.message}"))
                continue
            started.append(self._note_started(step, runs))
            if not runs:
                ends.append((step.name, RunState.SUCCEEDED))
        self._tx.add_to_steps(started)
        return ends

    def _note_started(self, step: Step, runs: Sequence[Run]) -> StepRow:
        self._runs += runs
        self._counts["live"] += len(runs)
        for run in runs:
            self.facts += new_run(run, now=self._now)
        if step.each is not None:
            return StepRow(parent=self._parent.id, step=step.name, state=STARTED, live=len(runs))
        return StepRow(parent=self._parent.id, step=step.name, state=STARTED, run_id=runs[0].id)

    def _started(self, step: Step, results: Mapping[str, Any]) -> list[Run]:
        given = self._pin.input
        if step.each is None:
            inputs = [resolve_input(step, results, given=given)]
        else:
            items = items_of(step, results, given=given)
            inputs = [resolve_input(step, results, given=given, item=item) for item in items]
        _check_sizes(step, inputs)
        one = step.each is None
        return [
            Run(**self._fields(step, item=None if one else n, given=values), state=RunState.READY)
            for n, values in enumerate(inputs)
        ]

    def _end(self, step: Step, state: RunState, why: str) -> End:
        """A row for a step that has nothing to run: skipped, or not possible."""
        run = Run(
            **self._fields(step, item=None, given={}), state=state, reason=why[:2000], finished_at=self._now
        )
        self._runs.append(run)
        if state is RunState.SKIPPED:
            self.facts += new_run(run, now=self._now)
        else:
            self.facts.append(RunFailed(fence=0, attempts=0, error=why, **about(run, now=self._now)))
        return step.name, state

    def _fields(self, step: Step, *, item: int | None, given: dict[str, Any]) -> dict[str, Any]:
        lane = f"{self._parent.id}/{step.name}" + ("" if item is None else f"[{item:05d}]")
        if self.round:
            lane += f"~{self.round}"
        part = Part(
            workflow=self._pin.workflow,
            version=self._pin.version,
            digest=self._pin.digest,
            step=step.name,
            item=item,
            depth=self._pin.depth,
            input=given,
        )
        return step_run(self._parent, part, lane=lane, now=self._now, plan=self.plan)

    def _fan_results(self, name: str) -> list[Any]:
        start = f"{self._parent.id}/{name}"
        runs = self._tx.lane_runs(self._parent.planned_at, first=f"{start}[", last=f"{start}\\")
        # A later round stands behind an earlier one, and takes its place.
        newest = {part.item: run.id for run in runs if (part := part_of(run)) is not None}
        answers = self._answers(newest.values())
        return [answers.get(run_id) for run_id in newest.values()]

    def _answers(self, run_ids: Iterable[str]) -> dict[str, Any]:
        wanted = list(run_ids)
        found = self._tx.get_attempts(wanted) if wanted else {}
        return {run_id: attempts[-1].result for run_id, attempts in found.items() if attempts}


def fan_state(row: StepRow) -> RunState:
    """What became of a step, by what became of its items."""
    if row.failed:
        return RunState.FAILED
    return RunState.CANCELLED if row.cancelled else RunState.SUCCEEDED


def _check_sizes(step: Step, inputs: Sequence[dict[str, Any]]) -> None:
    sizes = [len(msgspec.json.encode(one)) for one in inputs] if step.input else []
    if any(size > LARGEST_INPUT for size in sizes) or sum(sizes) > LARGEST_FAN:
        raise InvalidWorkflow(
            f"{step.name}.input: {max(sizes)} bytes for one run, {sum(sizes)} in all",
            field=f"{step.name}.input",
            value=max(sizes),
            rule=f"at most {LARGEST_INPUT // 1024} KiB for one run, {LARGEST_FAN // 1024} KiB for all items",
            fix="pass where the data is, not the data",
        )
