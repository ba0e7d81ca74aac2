"""Store queries for named objects, budgets, incidents, channels, the audit log and single values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from timewright.core.alerts.channels import Channel
from timewright.core.alerts.incidents import Incident
from timewright.core.budgets.budgets import AccountKey, BudgetCatalog, BudgetUsage, Charge
from timewright.core.schedule.adjustments import Adjustment
from timewright.core.schedule.pauses import Pause
from timewright.ports.rows import (
    AuditCheck,
    AuditEntry,
    Selection,
    StoredObject,
)

# The namespace of objects that belong to the whole installation.
GLOBAL_NAMESPACE = "*"
# The answers of writes with an idempotency key, in that namespace; the engine removes them after a day.
STORED_ANSWER = "answer"


class AlertRow(NamedTuple):
    """A row that incidents are decided from; what the fields mean depends on `source`."""

    source: str
    namespace: str
    subject: str
    name: str
    group: str
    number: int
    at: datetime
    extra: str


class AlertRows(Selection[AlertRow], frozen=True, kw_only=True):
    """Everything that incidents are decided from, at most `max_rows` of each source."""

    late: datetime
    missed: datetime
    recent: datetime
    max_rows: int


class AdjustmentsOf(Selection[Adjustment], frozen=True):
    """The adjustments of a schedule, newest first."""

    schedule_id: str
    limit: int = 1000


class LastPauses(Selection[Adjustment], frozen=True):
    """The newest pause of each of these schedules that was paused by hand."""

    schedule_ids: Collection[str]


class OpenPauses(Selection[Pause], frozen=True):
    """The pauses that nobody ended, oldest first; with `since`, also those ended after it.

    A pause that has reached its end may still be open.
    """

    since: datetime | None = None


class PeriodUsage(NamedTuple):
    """The use of a budget in the period that begins at an instant."""

    start: datetime
    usage: BudgetUsage


class UsageByPeriod(Selection[PeriodUsage], frozen=True):
    """The use of an account in each period that has any, newest first."""

    budget: str
    limit: int


class StoredChannel(NamedTuple):
    """A channel with its namespace and name; None if its row cannot be read."""

    namespace: str
    name: str
    channel: Channel | None


class ObjectQueries(Protocol):
    """Queries for named objects, budgets, incidents, channels, the audit log and single values."""

    def put_objects(self, rows: Sequence[StoredObject], *, replaces: Mapping[str, int] | None = None) -> None:
        """Write objects. Raises Conflict if `replaces` names a revision other than the last.

        Limits, budgets, provider windows and channels are in force from the commit on.
        """
        ...

    def get_objects(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        names: Iterable[str] | None = None,
        newest: int | None = None,
        before: str = "",
    ) -> list[StoredObject]:
        """Return objects of one kind, by name.

        With `newest`, at most that many of a namespace, last name first; with `before`, only smaller names.
        """
        ...

    def delete_object(self, kind: str, *, namespace: str, name: str) -> bool:
        """Delete an object, a budget with its usage; returns whether it existed.

        Runs under a deleted limit start one at a time.
        """
        ...

    def read_budgets(self, *, needed: Callable[[], bool] | None = None) -> BudgetCatalog:
        """Return every budget and provider window, from a cache until one changes.

        If `needed` returns false, another process may see the very first budget up to a second late.
        """
        ...

    def get_accounts(
        self, keys: Iterable[AccountKey], *, lock: bool = False
    ) -> dict[AccountKey, BudgetUsage]:
        """Return the use of accounts; `lock` keeps it unchanged until the transaction ends."""
        ...

    def add_charges(self, charges: Sequence[Charge]) -> None:
        """Insert the charges of leases and add them to their accounts."""
        ...

    def close_charges(self, known: Mapping[Charge, Charge]) -> None:
        """Write the actual use of open charges and replace the held amount in the accounts."""
        ...

    def recount_budget(self, budget: str, *, since: datetime) -> None:
        """Recompute the account of the period that begins at `since` from its charges."""
        ...

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Append to the audit log; with several writers, `seal_audit` adds the entries to its hash chain."""
        ...

    def seal_audit(self, *, limit: int = 10_000) -> int:
        """Add entries to the hash chain of the audit log; returns how many."""
        ...

    def check_audit(self) -> AuditCheck:
        """Recompute the hash chain of the audit log."""
        ...

    def add_adjustments(self, adjustments: Sequence[Adjustment]) -> None:
        """Append adjustments of schedules; the caller has locked the schedules."""
        ...

    def add_pause(self, pause: Pause) -> None:
        """Insert a pause; it holds from this commit on."""
        ...

    def end_pause(self, pause_id: str, *, by: str, now: datetime) -> bool:
        """End a pause, and make due what waited for its end; returns whether it was open."""
        ...

    def get_meta(self, name: str) -> str | None:
        """Return a single value about the store."""
        ...

    def put_meta(self, name: str, value: str) -> None:
        """Write a single value about the store."""
        ...

    def lock(self, name: str) -> None:
        """Lock a name against other writers until the transaction ends: `links`, `budgets`, a caller's key.

        With the links locked, two writers cannot form a cycle together. A new name gets an empty value.
        """
        ...

    def claim_alert_check(self, *, now: datetime, before: datetime) -> bool:
        """Take the right to look for incidents; false if another process looked after `before`."""
        ...

    def save_incidents(self, rows: Sequence[Incident], *, new: bool) -> set[str]:
        """Insert incidents, or change open ones; returns the ids that were written."""
        ...

    def read_channels(self) -> tuple[StoredChannel, ...]:
        """Return all channels; a change by another process is seen within a second."""
        ...
