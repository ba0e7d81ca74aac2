"""One transaction on either database: all queries of the store interface."""

from __future__ import annotations

from timewright.ports.rows import AuditFilter, IncidentFilter, Page, RunFilter, ScheduleFilter
from timewright.stores.queries.alerts import SqlAlertQueries
from timewright.stores.queries.objects import SqlObjectQueries
from timewright.stores.queries.overview import SqlOverviewQueries, SqlScheduleViews
from timewright.stores.queries.run_rows import SqlRunRowQueries
from timewright.stores.queries.tick import SqlAdmissionQueries, SqlPendingWorkQueries
from timewright.stores.queries.verification import SqlVerificationQueries
from timewright.stores.queries.workflow import SqlLinkQueries, SqlWorkflowQueries


class SqlTransaction(
    SqlScheduleViews,
    SqlPendingWorkQueries,
    SqlAdmissionQueries,
    SqlObjectQueries,
    SqlVerificationQueries,
    SqlWorkflowQueries,
    SqlOverviewQueries,
    SqlLinkQueries,
    SqlRunRowQueries,
    SqlAlertQueries,
):
    """Implements `ports.Transaction`; the databases differ only in the executor."""

    def find(self, which: ScheduleFilter | RunFilter | AuditFilter | IncidentFilter) -> Page:
        """Return a page of schedules, runs, audit entries or incidents."""
        match which:
            case RunFilter():
                return self.find_runs(which)
            case ScheduleFilter():
                return self.find_schedules(which)
            case AuditFilter():
                return self.find_audit(which)
            case IncidentFilter():
                return self.find_incidents(which)
