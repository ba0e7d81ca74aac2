"""Operations: the one list of everything a caller can do; every interface derives from it.

`operations` is the registry; importing a module below registers its operations. Each folder is a feature:
`schedules`, `runs`, `queues`, `hints`, `workflows`, `budgets`, `calendars`, `explain`, `access`, `alerts` and
`health`. Modules named like their package have an alias, because otherwise they would hide the package here.
"""
# ruff: noqa: F401

from __future__ import annotations

from timewright.operations.access import audit, authentication, keys, namespaces, secrets
from timewright.operations.alerts import channels, incidents, pings
from timewright.operations.budgets import budgets as _budgets
from timewright.operations.calendars import calendars as _calendars
from timewright.operations.context import OperationContext
from timewright.operations.definitions import export, plan, programs
from timewright.operations.explain import explain as _explain
from timewright.operations.health import doctor, lint, load_forecast, overdue, overview, pauses, verify
from timewright.operations.hints import analyses
from timewright.operations.hints import hints as _hints
from timewright.operations.queues import lease_results, leases, limits, policies
from timewright.operations.queues import queues as _queues
from timewright.operations.registry import Operation, OperationRegistry, OperationRequest, operations
from timewright.operations.runs import failures, logs
from timewright.operations.runs import runs as _runs
from timewright.operations.schedules import (
    approvals,
    backfills,
    manual_runs,
    notes,
    pause_archive,
    queries,
    reminders,
    upcoming,
    writes,
)
from timewright.operations.workflows import waits, workflow_runs
from timewright.operations.workflows import workflows as _workflows

__all__ = ["Operation", "OperationContext", "OperationRegistry", "OperationRequest", "operations"]
