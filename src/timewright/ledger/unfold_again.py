"""A workflow run that is tried again: what succeeded stays, what did not is looked at once more."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from timewright.core.facts import RunReset
from timewright.core.lifecycle import RunEvent, anew
from timewright.core.run import Run, RunState
from timewright.ledger.telling import about
from timewright.ledger.unfold_parts import Plan, part_of
from timewright.ledger.unfold_walk import STARTED, Walk, fan_state
from timewright.ports import Change, Entry, Transaction
from timewright.ports.steps import StepRow

UNNAMED = "workflow"

_LIVE = (RunState.READY, RunState.LEASED, RunState.HELD)
_EVENTS = {
    RunState.FAILED: RunEvent.REOPEN,
    RunState.CANCELLED: RunEvent.REOPEN,
    RunState.PARKED: RunEvent.RESET,
}


def again(tx: Transaction, parent: Run, walk: Walk, plan: Plan, *, round: int, now: datetime) -> None:  # noqa: A002
    """Count anew from the runs that are there: failed ones are ready again, skipped ones undecided."""
    newest = {run.lane.partition("~")[0]: run for run in tx.child_runs(parent.id)}
    kept = [run for run in newest.values() if run.state is not RunState.SKIPPED and not _was_never_run(run)]
    after = _reopened(tx, kept, now=now)
    walk.facts += [
        RunReset(actor=UNNAMED, **about(run, now=now)) for run in after if run.state is RunState.READY
    ]
    tx.delete_steps([parent.id])
    walk.round = round
    walk.note(round=round, live=sum(run.state in _LIVE for run in after))
    ends = _write_steps(tx, parent, _by_step(after), plan)
    walk.settle(ends)
    known = _by_step(after)
    walk.begin([name for name in plan.roots if name not in known])


def _was_never_run(run: Run) -> bool:
    """Whether the row only says that the step could not be started."""
    return run.state is RunState.FAILED and run.fence == 0


def _reopened(tx: Transaction, runs: Iterable[Run], *, now: datetime) -> list[Run]:
    changes: list[Change] = []
    after: list[Run] = []
    for run in runs:
        event = _EVENTS.get(run.state)
        if event is None:
            after.append(run)
        else:
            fresh = anew(run, event, now=now)
            changes.append(Change(fresh, run.state, run.fence))
            after.append(fresh)
    tx.change_runs(changes)
    tx.add_audit([_entry(change, now=now) for change in changes])
    return after


def _entry(change: Change, *, now: datetime) -> Entry:
    """A line for each run that has its attempts back; who asked is in the line of the workflow's run."""
    run, event = change.run, _EVENTS[change.was]
    return Entry(
        at=now,
        namespace=run.namespace,
        actor=UNNAMED,
        origin="workflow",
        action=f"run.{event}",
        subject=run.id,
        before=change.was.value,
        reason=f"{run.parent} is tried again",
    )


def _by_step(runs: Iterable[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        part = part_of(run)
        if part is not None:
            found.setdefault(part.step, []).append(run)
    return found


def _write_steps(
    tx: Transaction, parent: Run, runs: dict[str, list[Run]], plan: Plan
) -> list[tuple[str, RunState]]:
    """A row for every step that has runs; gives back the steps that are settled already."""
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
            ends.append((name, fan_state(row)))
    tx.add_to_steps(rows)
    return ends
