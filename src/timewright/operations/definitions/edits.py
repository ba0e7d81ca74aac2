"""Edits by hand of definitions that have an owner: refused, or warned about, as the owner says."""

from __future__ import annotations

from timewright.core.schedule.schedule import Schedule
from timewright.errors import NotAllowed
from timewright.ledger.records.owners import read_owned
from timewright.operations.context import OperationContext

_RESTORES = {
    "app": "its next start restores the declaration",
    "file": "the next apply of the file restores it",
    "workflow": "the next version of the workflow restores it",
}


def check_edit_by_hand(context: OperationContext, schedule: Schedule) -> tuple[str, ...]:
    """Return a warning for an edit of a schedule that has an owner; raises if the owner refuses edits."""
    if not schedule.owner:
        return ()
    owned = context.store.read(
        lambda tx: read_owned(tx, "schedule", schedule.namespace, [schedule.name])
    ).get(schedule.name)
    if owned is None:
        return ()
    if owned.edits == "refuse":
        raise NotAllowed(
            f"schedule {schedule.name} belongs to {owned.owner}, which refuses edits by hand",
            field="schedule",
            value=schedule.name,
            rule="a definition is changed where its owner declares it",
            fix=f"change the declaration in {owned.owner}; pause, resume, skip and move are allowed",
        )
    kind = owned.owner.partition(":")[0]
    return (f"{schedule.name} belongs to {owned.owner}: {_RESTORES.get(kind, 'its owner restores it')}",)
