"""The owner of a run, whose budgets it uses: its schedule's creator, its creator, or its workflow's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.run.run import Run
from timewright.core.schedule.schedule import Schedule
from timewright.ledger.lookups import RunTerms, load_terms
from timewright.ports import Transaction

MAX_NESTING = 16


class Owner(Struct, frozen=True):
    """The schedule and principal whose budgets a run uses; for a step, those of its workflow."""

    schedule: Schedule | None
    principal: str


def find_owners(tx: Transaction, runs: Iterable[Run], terms: Mapping[str, RunTerms]) -> dict[str, Owner]:
    """The owner of each run; a step has the owner of its workflow."""
    found: dict[str, Owner] = {}
    steps: list[Run] = []
    for run in runs:
        if run.parent:
            steps.append(run)
        else:
            found[run.id] = _owner(run, terms[run.id].schedule)
    if steps:
        roots = _roots(tx, steps)
        terms = load_terms(tx, {root.id: root for root in roots.values()}.values())
        found |= {i: _owner(root, terms[root.id].schedule) for i, root in roots.items()}
    return found


def _owner(run: Run, schedule: Schedule | None) -> Owner:
    return Owner(schedule, schedule.created_by if schedule is not None else run.made_by)


def _roots(tx: Transaction, steps: Sequence[Run]) -> dict[str, Run]:
    """The outermost run of each step."""
    found = {step.id: step for step in steps}
    for _ in range(MAX_NESTING):
        parents = {run.parent for run in found.values() if run.parent}
        if not parents:
            break
        rows = tx.get_runs(sorted(parents))
        found = {
            i: rows.get(run.parent, replace(run, parent="")) if run.parent else run
            for i, run in found.items()
        }
    return found
