"""What a tick reads before it writes: the work that is due, and when the next will be."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.run.run import Run


class PendingWork(Struct, frozen=True, kw_only=True):
    """The work that waits for an engine, and the next instants at which work may appear.

    The fields that cost more are read only on request.
    """

    schedule_due_at: datetime | None = None
    """When the next schedule is due here."""
    first_wake_at: datetime | None = None
    """The earliest wake-up of all schedules, where a scan may begin."""
    run_due_at: datetime | None = None
    """The earliest instant of a deferred run."""
    has_ready_runs: bool = False
    """Whether a run can be leased now."""
    cancel_requested: tuple[Run, ...] = ()
    """The holder's leased runs with a cancel request."""
    includes_lease_end: bool = False
    """Whether `lease_expires_at` was read."""
    lease_expires_at: datetime | None = None
    """The earliest end of a lease, if read."""
    has_releasable_runs: bool = False
    """Whether a held run can be released, if read."""
    complete_in: timedelta | None = None
    """If set, only recent instants were looked at; after this time all are looked at again."""
    has_wakeable_schedules: bool = False
    """Whether due schedules were set aside that the holder can run, if read."""

    @property
    def wake_at(self) -> datetime | None:
        """The first instant at which a schedule or a run is due."""
        schedule, run = self.schedule_due_at, self.run_due_at
        if schedule is None or run is None:
            return schedule or run
        return min(schedule, run)

    def has_due_schedule(self, *, now: datetime) -> bool:
        """Whether a schedule is due."""
        return self.schedule_due_at is not None and self.schedule_due_at <= now

    def has_runs_to_lease(self, *, now: datetime) -> bool:
        """Whether a run may be ready to lease."""
        return self.has_ready_runs or (self.run_due_at is not None and self.run_due_at <= now)

    def has_expired_lease(self, *, now: datetime) -> bool:
        """Whether a lease has expired, if that was read."""
        return self.lease_expires_at is not None and self.lease_expires_at <= now
