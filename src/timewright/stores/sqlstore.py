"""One transaction over either database: every verb, in terms of the book of statements."""

from __future__ import annotations

from timewright.stores.budget_verbs import SqlBudgetVerbs
from timewright.stores.count_verbs import CountVerbs
from timewright.stores.glance_verbs import SqlGlanceVerbs
from timewright.stores.lease_verbs import LeaseVerbs
from timewright.stores.link_verbs import SqlLinkVerbs
from timewright.stores.memory_verbs import MemoryVerbs
from timewright.stores.object_verbs import SqlObjectVerbs
from timewright.stores.proof_verbs import ProofVerbs
from timewright.stores.quota_verbs import QuotaVerbs
from timewright.stores.run_verbs import RunVerbs
from timewright.stores.said_verbs import SqlSaidVerbs
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
    SqlLinkVerbs,
    SqlSaidVerbs,
    SqlBudgetVerbs,
):
    """The verbs of `ports.Transaction`; what differs between databases is the speaker it is given."""
