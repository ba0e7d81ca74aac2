"""On whose behalf a run runs: its schedule's, its maker's, or that of the workflow it is a step of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.run import Run
from timewright.core.schedule import Schedule
from timewright.ledger.shelf import Under, terms_for
from timewright.ports import Transaction

DEEPEST_PARENT = 16


class Owner(Struct, frozen=True):
    """On whose behalf a run runs: for a step, that of the run it is a part of."""

    schedule: Schedule | None
    principal: str


def owners_of(tx: Transaction, runs: Iterable[Run], under: Mapping[str, Under]) -> dict[str, Owner]:
    """For whom each run runs; a step runs for whoever its workflow runs for."""
    found: dict[str, Owner] = {}
    steps: list[Run] = []
    for run in runs:
        if run.parent:
            steps.append(run)
        else:
            found[run.id] = _owner(run, under[run.id].schedule)
    if steps:
        roots = _roots(tx, steps)
        terms = terms_for(tx, {root.id: root for root in roots.values()}.values())
        found |= {i: _owner(root, terms[root.id].schedule) for i, root in roots.items()}
    return found


def _owner(run: Run, schedule: Schedule | None) -> Owner:
    return Owner(schedule, schedule.created_by if schedule is not None else run.made_by)


def _roots(tx: Transaction, steps: Sequence[Run]) -> dict[str, Run]:
    """The run that each step is a part of, whatever lies between them."""
    found = {step.id: step for step in steps}
    for _ in range(DEEPEST_PARENT):
        parents = {run.parent for run in found.values() if run.parent}
        if not parents:
            break
        rows = tx.get_runs(sorted(parents))
        found = {
            i: rows.get(run.parent, replace(run, parent="")) if run.parent else run
            for i, run in found.items()
        }
    return found
