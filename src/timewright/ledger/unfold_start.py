"""Workflow runs that people start, hold up and let go on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from timewright.core.decision import Source
from timewright.core.facts import Fact
from timewright.core.run import Run, RunState
from timewright.core.target import Workflow
from timewright.errors import NotAllowed
from timewright.ledger.by_hand import Made
from timewright.ledger.replan import By
from timewright.ledger.settle import go_on
from timewright.ledger.shelf import terms_for
from timewright.ledger.telling import new_run
from timewright.ledger.unfold import PAUSED, RUNNING, finish, walk_of
from timewright.ledger.unfold_parts import EXECUTOR, LONGEST_RUN, UNFOLDED, Part, part_of, plan_of
from timewright.ledger.unfold_pin import time_limit
from timewright.ports import Ids, Store, Transaction
from timewright.ports.steps import StepRow

LONGEST_PAUSE = timedelta(days=365)


def start(
    store: Store, part: Part, *, namespace: str, ids: Ids, by: By, now: datetime, client_key: str = ""
) -> Made:
    """Make a run of a workflow by hand; the same client key gives the same run."""
    known_by = f"client:{namespace}/{part.workflow}:{client_key}"

    def work(tx: Transaction) -> Made:
        known = tx.get_meta(known_by) if client_key else None
        found = tx.get_runs([known]).get(known) if known else None
        if found is not None:
            return Made(runs=(found,))
        run = _run(part, ids.new("run", now=now), namespace=namespace, by=by, now=now)
        tx.add_runs([run])
        if client_key:
            tx.put_meta(known_by, run.id)
        action = "workflow.run"
        tx.add_audit([by.entry(action, namespace=namespace, subject=part.workflow, now=now, after=run.id)])
        return Made(runs=(run,), facts=tuple(new_run(run, now=now)))

    return store.write(work)


def pause(store: Store, run: Run, *, by: By, now: datetime) -> None:
    """Start no further steps; what is ready or under way goes on, and the time limit does not run."""

    def work(tx: Transaction) -> None:
        _must_unfold(tx, run)
        tx.add_to_steps([StepRow(parent=run.id, step="", state=PAUSED)])
        tx.prolong(run.id, until=now + LONGEST_PAUSE)
        tx.add_audit([by.entry("workflow.pause", namespace=run.namespace, subject=run.id, now=now)])

    store.write(work)


def resume(store: Store, run: Run, *, by: By, now: datetime) -> tuple[Fact, ...]:
    """Start what became due while the run was paused; its time limit begins anew."""

    def work(tx: Transaction) -> tuple[Fact, ...]:
        whole = _must_unfold(tx, run)
        walk = walk_of(tx, run, whole, now=now)
        if walk is None or whole.state != PAUSED:
            return ()
        walk.goes_on = True
        rows = tx.get_steps(run.id)
        walk.begin(_due(rows, {name: len(step.needs) for name, step in walk.plan.steps.items()}))
        moved = finish(tx, run, walk, state=RUNNING)
        tx.prolong(run.id, until=now + (walk.plan.spec.time_limit or LONGEST_RUN))
        tx.add_audit([by.entry("workflow.resume", namespace=run.namespace, subject=run.id, now=now)])
        return tuple(go_on(tx, moved, now=now))

    return store.write(work)


def started(store: Store, run: Run, *, now: datetime) -> None:
    """Someone outside says that a run began: it has its whole time again, and must tell its end."""

    def work(tx: Transaction) -> None:
        lease = terms_for(tx, [run])[run.id].terms.lease
        part = part_of(run) if run.holder == EXECUTOR else None
        plan = plan_of(tx, run.namespace, part.pin) if part is not None and part.pin is not None else None
        length = time_limit(plan.spec, lease, outside=True) if plan is not None else lease.length
        tx.prolong(run.id, until=now + length, started_at=run.started_at or now)

    store.write(work)


def reported(tx: Transaction, run: Run) -> Run:
    """The run as whoever reports from outside has it: it may be done before its launch is written."""
    target = terms_for(tx, [run])[run.id].terms.target
    return replace(run, holder=EXECUTOR) if isinstance(target, Workflow) and run.holder != UNFOLDED else run


def _due(rows: Mapping[str, StepRow], needs: Mapping[str, int]) -> list[str]:
    """Steps that wait for nothing any more and were not looked at."""
    nothing = StepRow(parent="", step="")
    standing = {name: rows.get(name, nothing) for name in needs}
    return [name for name, row in standing.items() if not row.state and row.met == needs[name]]


def _must_unfold(tx: Transaction, run: Run) -> StepRow:
    whole = tx.hold_wholes([run.id]).get(run.id)
    if whole is None or run.state is not RunState.LEASED or run.holder != UNFOLDED:
        raise NotAllowed(
            f"run {run.id} is no workflow that is under way here",
            field="run",
            value=run.state.value,
            rule="a workflow run whose steps are under way",
            fix="run get shows its state",
        )
    return whole


def _run(part: Part, run_id: str, *, namespace: str, by: By, now: datetime) -> Run:
    fields: dict[str, Any] = {"id": run_id, "lane": run_id, "namespace": namespace, "made_by": by.actor}
    return Run(
        **fields,
        planned_at=now,
        fire_at=now,
        created_at=now,
        state=RunState.READY,
        source=Source.MANUAL,
        alone=False,
        payload=part.told(),
    )
