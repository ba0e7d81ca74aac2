"""What a tick asks before it writes, in one statement; more is asked only where that found something."""

from __future__ import annotations

from datetime import timedelta

from timewright.core.moments import ZERO
from timewright.ports.outlook import Outlook
from timewright.stores.lease_verbs import LeaseVerbs
from timewright.stores.rows import to_instant
from timewright.stores.run_verbs import RunVerbs
from timewright.stores.schedule_verbs import ScheduleVerbs


class SqlOutlookVerbs(ScheduleVerbs, RunVerbs, LeaseVerbs):
    """The verbs of `ports.outlook.OutlookVerbs`."""

    def outlook(
        self,
        *,
        holder: str,
        shard: tuple[int, int] | None = (1, 1),
        patience: timedelta = ZERO,
        ends: bool = False,
        held: bool = False,
    ) -> Outlook:
        """What there is to do for a holder, which serves a shard as `next_wake` says; writes nothing."""
        parameters = {"holder": holder, "ends": int(ends), "held": int(held)}
        ((due, asleep, ready, asked, lease_end, holds),) = self._ask("outlook", parameters)
        return Outlook(
            due=to_instant(self._due_for(shard, due, patience=patience)),
            asleep=to_instant(asleep),
            ready=ready is not None,
            asked=tuple(self.asked_to_stop(holder=holder)) if asked is not None else (),
            has_ends=ends,
            lease_end=to_instant(lease_end),
            freeable=holds is not None and bool(self.freeable_runs(limit=1)),
        )
