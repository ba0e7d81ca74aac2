"""One transaction over either database: every verb, in terms of the book of statements."""

from __future__ import annotations

from timewright.stores.count_verbs import CountVerbs
from timewright.stores.glance_verbs import SqlGlanceVerbs
from timewright.stores.lease_verbs import LeaseVerbs
from timewright.stores.memory_verbs import MemoryVerbs
from timewright.stores.object_verbs import SqlObjectVerbs
from timewright.stores.proof_verbs import ProofVerbs
from timewright.stores.quota_verbs import QuotaVerbs
from timewright.stores.run_verbs import RunVerbs
from timewright.stores.schedule_verbs import ScheduleVerbs
from timewright.stores.step_verbs import SqlStepVerbs


class SqlTransaction(
    ScheduleVerbs,
    RunVerbs,
    LeaseVerbs,
    CountVerbs,
    QuotaVerbs,
    MemoryVerbs,
    ProofVerbs,
    SqlStepVerbs,
    SqlGlanceVerbs,
    SqlObjectVerbs,
):
    """The verbs of `ports.Transaction`; what differs between databases is the speaker it is given."""
