"""Store queries for incidents and channels."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from timewright.core.alerts.channels import Channel
from timewright.core.alerts.incidents import Incident
from timewright.ports.rows import Page


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


class StoredChannel(NamedTuple):
    """A channel with its namespace and name; None if its row cannot be read."""

    namespace: str
    name: str
    channel: Channel | None


class AlertQueries(Protocol):
    """Queries for incidents and channels."""

    def claim_alert_check(self, *, now: datetime, before: datetime) -> bool:
        """Take the right to look for incidents; false if another process looked after `before`."""
        ...

    def alert_rows(
        self, *, late: datetime, missed: datetime, recent: datetime, max_rows: int
    ) -> list[AlertRow]:
        """Return everything that incidents are decided from, with one query."""
        ...

    def save_incidents(self, rows: Sequence[Incident], *, new: bool) -> set[str]:
        """Insert incidents, or change open ones; returns the ids that were written."""
        ...

    def find_incidents(
        self, namespace: str | None, *, open_only: bool, limit: int = 50, cursor: str = ""
    ) -> Page:
        """Return a page of incidents, newest first."""
        ...

    def get_incident(self, incident_id: str) -> Incident | None:
        """Return an incident by its id."""
        ...

    def prune_incidents(self, *, before: datetime) -> None:
        """Delete incidents that closed before an instant."""
        ...

    def read_channels(self) -> tuple[StoredChannel, ...]:
        """Return all channels; a change by another process is seen within a second."""
        ...
