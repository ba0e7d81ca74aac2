"""Check a store's history against the promised invariants.

The checker shares no code with what it checks: it finds planned instants by scanning every day, and reads
rows as plain numbers and texts.
"""

from __future__ import annotations

from timewright.verification.checker import INVARIANTS, InvariantResult, Report, Violation, check
from timewright.verification.invariants import (
    budgets,
    decisions,
    follow_ups,
    isolation,
    leases,
    limits,
    liveness,
    policies,
    progress,
    retention,
    run_states,
    workflows,
)
from timewright.verification.rows import History

__all__ = ["INVARIANTS", "History", "InvariantResult", "Report", "Violation", "check"]

# Importing a module registers its invariants.
_REGISTERED = (
    budgets,
    decisions,
    follow_ups,
    isolation,
    leases,
    limits,
    liveness,
    policies,
    progress,
    retention,
    run_states,
    workflows,
)
