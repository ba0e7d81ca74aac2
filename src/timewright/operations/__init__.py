"""Says. Every thing anyone can ask, once; each door reads this list."""

from __future__ import annotations

from timewright.operations import (
    answers,
    audit,
    by_hand,
    calendars,
    drafts,
    explain,
    groups,
    health,
    hints,
    leases,
    limits,
    pauses,
    queue_policies,
    queues,
    revisions,
    runs,
    schedules,
)
from timewright.operations.context import Context
from timewright.operations.registry import Operation, Registry, Request, operations

__all__ = [
    "Context",
    "Operation",
    "Registry",
    "Request",
    "answers",
    "audit",
    "by_hand",
    "calendars",
    "drafts",
    "explain",
    "groups",
    "health",
    "hints",
    "leases",
    "limits",
    "operations",
    "pauses",
    "queue_policies",
    "queues",
    "revisions",
    "runs",
    "schedules",
]
