"""A workflow run becomes step runs; each that ends sets others free, and the last one settles the workflow.

A workflow run is launched like any other. Settling its launch does not end it: the lease passes to its own
steps, with its fence, until its time limit. Everything here happens in the transaction that settles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import CancelRequested, Fact, RunCancelled
from timewright.core.lifecycle import RunEvent, run_after
from timewright.core.policies import LeaseTerms
from timewright.core.run import Cancelled, Failed, Outcome, Reason, Run, RunState, Succeeded
from timewright.errors import NotAllowed
from timewright.ledger.telling import about
from timewright.ledger.unfold_parts import (
    UNFOLDED,
    Plan,
    part_of,
    plan_of,
)
from timewright.ledger.unfold_walk import Walk
from timewright.ports import Change, Transaction
from timewright.ports.steps import StepRow

STOPPING = "stopping"
CLOSED = "closed"
PAUSED = "paused"
RUNNING = "running"

LARGEST_RESULT = 64 * 1024
MOST_ENDS = 100


class Over(Struct, frozen=True):
    """A workflow run that is over, and how."""

    run: Run
    outcome: Outcome


class Moved(Struct, frozen=True):
    """What became of workflow runs: facts, and those that are over now."""

    facts: tuple[Fact, ...] = ()
    over: tuple[Over, ...] = ()


NOTHING = Moved()


def advance(tx: Transaction, ended: Sequence[Run], *, now: datetime, was_parked: bool = False) -> Moved:
    """Move workflow runs on whose steps ended; costs as much as those steps have dependents."""
    by_parent: dict[str, list[Run]] = {}
    for run in ended:
        if run.parent:
            by_parent.setdefault(run.parent, []).append(run)
    wholes = tx.hold_wholes(by_parent)
    parents = tx.get_runs(wholes) if wholes else {}
    facts: list[Fact] = []
    over: list[Over] = []
    for parent_id, whole in wholes.items():
        walk = walk_of(tx, parents[parent_id], whole, now=now) if parent_id in parents else None
        if walk is None:
            continue
        walk.take(by_parent[parent_id], was_parked=was_parked)
        moved = finish(tx, parents[parent_id], walk)
        facts += moved.facts
        over += moved.over
    return Moved(tuple(facts), tuple(over))


def stop(
    tx: Transaction, parents: Sequence[Run], *, reason: str, now: datetime, state: str = STOPPING
) -> Moved:
    """End what the steps of workflow runs have under way: at once, or by asking whoever holds it."""
    facts: list[Fact] = []
    over: list[Over] = []
    for parent in parents:
        whole = tx.hold_wholes([parent.id]).get(parent.id) if parent.holder == UNFOLDED else None
        walk = walk_of(tx, parent, whole, now=now) if whole is not None else None
        if walk is None:
            continue
        walk.goes_on = False
        left = tx.child_runs(parent.id, unfinished=True)
        facts += _cancel(tx, walk, left, reason=reason, now=now)
        leased = [run for run in left if run.state is RunState.LEASED]
        facts += _ask(tx, leased, reason=reason, now=now)
        inner = stop(tx, leased, reason=reason, now=now)
        moved = finish(tx, parent, walk, state=state)
        facts += (*inner.facts, *moved.facts)
        over += (*inner.over, *moved.over)
    return Moved(tuple(facts), tuple(over))


def walk_of(tx: Transaction, parent: Run, whole: StepRow, *, now: datetime) -> Walk | None:
    """A workflow run, ready to be moved on; nothing if its workflow cannot be found any more."""
    part = part_of(parent)
    pin = part.pin if part is not None else None
    plan = plan_of(tx, parent.namespace, pin) if pin is not None else None
    if pin is None or plan is None:
        return None
    walk = Walk(tx, parent, pin, plan, now=now)
    walk.goes_on = whole.state in ("", RUNNING)
    walk.round = whole.round
    return walk


def finish(tx: Transaction, parent: Run, walk: Walk, *, state: str = "") -> Moved:
    """Write what a walk changed, and say whether the workflow is over."""
    whole = walk.write(state=state)
    outcome = _outcome(tx, parent, walk, whole)
    if outcome is None:
        return Moved(tuple(walk.facts))
    tx.add_to_steps([StepRow(parent=parent.id, step="", state=CLOSED)])
    return Moved(tuple(walk.facts), (Over(parent, outcome),))


def reopened(tx: Transaction, run_id: str) -> str:
    """Which run to open again for one that is named: for a step, the workflow run that is over with it."""
    run = tx.get_runs([run_id]).get(run_id)
    while run is not None and run.parent:
        parent = tx.get_runs([run.parent]).get(run.parent)
        if parent is None or parent.state not in (RunState.FAILED, RunState.CANCELLED):
            state = parent.state.value if parent is not None else "gone"
            raise NotAllowed(
                f"the workflow run {run.parent} of this step is {state}",
                field="run_id",
                value=run_id,
                rule="a step is tried again with its workflow, once that failed or was cancelled",
                fix=f"run cancel {run.parent}, or wait for its end; then run retry {run.parent}",
            )
        run = parent
    return run.id if run is not None else run_id


def unparked(tx: Transaction, run: Run) -> None:
    """Count a step that was parked as one that moves again."""
    part = part_of(run) if run.parent and run.state is RunState.PARKED else None
    if part is not None:
        names = ["", part.step] if part.item is not None else [""]
        tx.add_to_steps([StepRow(parent=run.parent, step=name, live=1, parked=-1) for name in names])


def _cancel(tx: Transaction, walk: Walk, left: Sequence[Run], *, reason: str, now: datetime) -> list[Fact]:
    """Steps that nobody holds end at once."""
    facts: list[Fact] = []
    for state in (RunState.READY, RunState.HELD, RunState.PARKED):
        runs = [run for run in left if run.state is state]
        gone_to = run_after(state, RunEvent.CANCEL)
        after = [replace(run, state=gone_to, reason=reason, finished_at=now) for run in runs]
        gone = tx.change_runs([Change(a, state, a.fence) for a in after])
        walk.take([run for run in after if run.id in gone], was_parked=state is RunState.PARKED)
        facts += [RunCancelled(reason=reason, **about(run, now=now)) for run in after if run.id in gone]
    return facts


def _ask(tx: Transaction, leased: Sequence[Run], *, reason: str, now: datetime) -> list[Fact]:
    until = now + LeaseTerms().grace
    asked = tx.ask_to_cancel([(run.id, until) for run in leased], at=now, reason=reason)
    return [CancelRequested(reason=reason, **about(run, now=now)) for run in leased if run.id in asked]


def _outcome(tx: Transaction, parent: Run, walk: Walk, whole: StepRow) -> Outcome | None:
    if parent.state is not RunState.LEASED or parent.holder != UNFOLDED or whole.state == CLOSED:
        return None
    if whole.state == STOPPING:
        reason = parent.reason or Reason.BY_HAND.value
        return Cancelled(reason=reason) if whole.live < 1 else None
    if whole.met < len(walk.plan.steps):
        return None
    rows = tx.get_steps(parent.id)
    if whole.failed:
        return Failed(error=_failures(rows, walk.plan), final=True)
    if whole.cancelled:
        return Cancelled()
    return Succeeded(result=_result(walk, rows))


def _failures(rows: Mapping[str, StepRow], plan: Plan) -> str:
    failed = [name for name in plan.steps if rows[name].state == RunState.FAILED.value]
    more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
    return f"failed: {', '.join(failed[:5])}{more}"


def _result(walk: Walk, rows: Mapping[str, StepRow]) -> dict[str, Any] | None:
    """What the last steps answered, if it is little enough to be kept once more."""
    if len(walk.plan.ends) > MOST_ENDS:
        return None
    found = walk.results(walk.plan.ends, rows)
    found = {name: result for name, result in found.items() if result is not None}
    return found if found and len(msgspec.json.encode(found)) <= LARGEST_RESULT else None
