"""One transaction over either database: every verb, in terms of the book of statements."""

from __future__ import annotations

from timewright.stores.advance_verbs import AdvanceVerbs
from timewright.stores.budget_verbs import SqlBudgetVerbs
from timewright.stores.count_verbs import CountVerbs
from timewright.stores.glance_verbs import SqlGlanceVerbs
from timewright.stores.link_verbs import SqlLinkVerbs
from timewright.stores.look_verbs import SqlLookVerbs
from timewright.stores.memory_verbs import MemoryVerbs
from timewright.stores.object_verbs import SqlObjectVerbs
from timewright.stores.outlook_verbs import SqlOutlookVerbs
from timewright.stores.proof_verbs import ProofVerbs
from timewright.stores.quota_verbs import QuotaVerbs
from timewright.stores.said_verbs import SqlSaidVerbs
from timewright.stores.step_verbs import SqlStepVerbs


class SqlTransaction(
    SqlLookVerbs,
    SqlOutlookVerbs,
    AdvanceVerbs,
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
