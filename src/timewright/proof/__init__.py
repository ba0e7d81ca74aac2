"""The checker: what was promised, as predicates over plain rows.

It shares nothing with the code it judges: the plan is found by looking at every minute, and rows are
numbers and texts as a table keeps them.
"""

from __future__ import annotations

from timewright.proof import ceilings, charged, decided, followed, kept, leased, needed, ruled, said
from timewright.proof.checking import INVARIANTS, check
from timewright.proof.report import Finding, Report, Violation
from timewright.proof.rows import History

__all__ = [
    "INVARIANTS",
    "Finding",
    "History",
    "Report",
    "Violation",
    "ceilings",
    "charged",
    "check",
    "decided",
    "followed",
    "kept",
    "leased",
    "needed",
    "ruled",
    "said",
]
