"""Operations: the one list of everything a caller can do; every interface derives from it.

`operations` is the registry, filled by importing the modules below. Each folder is a feature: `schedules`,
`runs`, `queues`, `hints`, `workflows`, `budgets`, `calendars`, `explain`, `access`, `alerts` and `health`.
"""

from __future__ import annotations

from timewright.operations.access import audit, keys, namespaces, secrets, sessions
from timewright.operations.alerts import channels, incidents, pings
from timewright.operations.budgets import budgets as _budgets
from timewright.operations.budgets import providers
from timewright.operations.calendars import calendars as _calendars
from timewright.operations.calendars import feed
from timewright.operations.context import OperationContext
from timewright.operations.definitions import export, plan, put_many, schema
from timewright.operations.explain import explain as _explain
from timewright.operations.health import (
    doctor,
    lint,
    load_forecast,
    overdue,
    overview,
    pauses,
    verify,
)
from timewright.operations.health import health as _health
from timewright.operations.hints import analyses
from timewright.operations.hints import hints as _hints
from timewright.operations.queues import activity, import_file, lease_results, leases, limits, policies
from timewright.operations.queues import queues as _queues
from timewright.operations.registry import Operation, OperationRegistry, OperationRequest, operations
from timewright.operations.runs import artifacts, counts, failures, logs, search
from timewright.operations.runs import runs as _runs
from timewright.operations.schedules import (
    approvals,
    backfills,
    manual_runs,
    notes,
    pause_archive,
    queries,
    reminders,
    revisions,
    target_test,
    writes,
)
from timewright.operations.workflows import waits, workflow_approvals, workflow_runs
from timewright.operations.workflows import workflows as _workflows

__all__ = ["Operation", "OperationContext", "OperationRegistry", "OperationRequest", "operations"]

# Importing a module registers its operations. Modules named like their package have an alias, because
# otherwise they would hide the package here.
_REGISTERED = (
    _budgets,
    _calendars,
    _explain,
    _health,
    _hints,
    _queues,
    _runs,
    _workflows,
    activity,
    analyses,
    approvals,
    artifacts,
    audit,
    backfills,
    channels,
    counts,
    doctor,
    export,
    failures,
    feed,
    import_file,
    incidents,
    keys,
    lease_results,
    leases,
    limits,
    lint,
    load_forecast,
    logs,
    manual_runs,
    namespaces,
    notes,
    overdue,
    overview,
    pause_archive,
    pauses,
    pings,
    plan,
    policies,
    providers,
    put_many,
    queries,
    reminders,
    revisions,
    schema,
    search,
    secrets,
    sessions,
    target_test,
    verify,
    waits,
    workflow_approvals,
    workflow_runs,
    writes,
)
