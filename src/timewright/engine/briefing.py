"""What a target is told about the run that it starts."""

from __future__ import annotations

from timewright.core.triggers import ZONED
from timewright.ledger.lease import Lease
from timewright.ports import Launch


def launch_of(lease: Lease) -> Launch:
    """The launch of a lease; one without a schedule has no name, no trigger and no metadata."""
    run, schedule, terms = lease.run, lease.schedule, lease.terms
    trigger = schedule.trigger if schedule is not None else None
    return Launch(
        run_id=run.id,
        namespace=run.namespace,
        schedule_id=run.schedule_id,
        schedule_name=schedule.name if schedule is not None else "",
        target=terms.target,
        fence=run.fence,
        attempt=run.attempts + 1,
        planned_at=run.planned_at,
        fire_at=run.fire_at,
        lane=run.lane,
        trigger=trigger,
        zone=trigger.zone if isinstance(trigger, ZONED) else "UTC",
        missed=run.missed,
        fired_by=run.fired_by,
        source=run.source._value_,
        time_limit=terms.lease.time_limit,
        grace=terms.lease.grace,
        payload=run.payload,
        metadata=schedule.metadata if schedule is not None else {},
    )
