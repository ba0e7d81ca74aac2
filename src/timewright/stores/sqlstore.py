"""One transaction over either database: every verb, in terms of the book of statements."""

from __future__ import annotations

from timewright.stores.lease_verbs import LeaseVerbs
from timewright.stores.memory_verbs import MemoryVerbs
from timewright.stores.run_verbs import RunVerbs
from timewright.stores.schedule_verbs import ScheduleVerbs


class SqlTransaction(ScheduleVerbs, RunVerbs, LeaseVerbs, MemoryVerbs):
    """The verbs of `ports.Transaction`; what differs between databases is the speaker it is given."""
