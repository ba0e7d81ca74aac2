"""Queries for incidents and channels."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from time import monotonic

import msgspec

from timewright.core.alerts.channels import Channel
from timewright.core.alerts.incidents import Incident
from timewright.core.moments import to_micros
from timewright.errors import TimewrightError
from timewright.ports import Page
from timewright.ports.objects import StoredChannel
from timewright.ports.rows import IncidentFilter
from timewright.stores.queries.base import LAST_KEY, SqlQueries, page_limit
from timewright.stores.rows import json_text, micros_or_none, storable_text

CHANNEL = "channel"
CHANNELS_TTL_S = 1.0

_read_incident = msgspec.json.Decoder(Incident).decode
_read_channel = msgspec.json.Decoder(Channel).decode


class SqlAlertQueries(SqlQueries):
    """Incidents and channels, of `ports.objects.ObjectQueries`."""

    def claim_alert_check(self, *, now: datetime, before: datetime) -> bool:
        """Take the right to look for incidents; false if another process looked after `before`."""
        parameters = {"now": str(to_micros(now)), "before": str(to_micros(before))}
        return bool(self._query("claim_alert_check", parameters))

    def save_incidents(self, rows: Sequence[Incident], *, new: bool) -> set[str]:
        """Insert incidents, or change open ones; returns the ids that were written."""
        if not rows:
            return set()
        if not new:
            changed = self._execute_many(
                "update_incidents", [(one.id, micros_or_none(one.closed_at), _body(one)) for one in rows]
            )
            return {row[0] for row in changed}
        self._execute_many(
            "insert_incidents",
            [
                (
                    one.id,
                    one.namespace,
                    one.kind,
                    storable_text(one.subject),
                    to_micros(one.opened_at),
                    micros_or_none(one.closed_at),
                    _body(one),
                )
                for one in rows
            ],
        )
        return {one.id for one in rows}

    def find_incidents(self, which: IncidentFilter) -> Page:
        """Return a page of incidents, newest first."""
        limit = page_limit(which.limit)
        parameters = {
            "id": which.incident_id,
            "before": which.cursor or LAST_KEY,
            "namespace": which.namespace or "",
            "open": int(which.open_only),
            "limit": limit + 1,
        }
        rows = [_read_incident(row[0]) for row in self._query("list_incidents", parameters)]
        return Page(tuple(rows[:limit]), rows[limit - 1].id if len(rows) > limit else "")

    def read_channels(self) -> tuple[StoredChannel, ...]:
        """Return all channels; a change by another process is seen within a second."""
        cache = self._executor.cache
        if cache.channels is not None and monotonic() - cache.channels[0] < CHANNELS_TTL_S:
            return cache.channels[1]
        parameters = {"kind": CHANNEL, "namespace": "", "all_names": 1, "names": []}
        rows = self._query("get_objects", parameters)
        found = tuple(StoredChannel(row[1], row[2], _decode_channel(row[4])) for row in rows)
        if not self._executor.has_uncommitted_revisions:
            cache.channels = (monotonic(), found)
        return found


def _body(incident: Incident) -> str:
    return storable_text(json_text(incident))


def _decode_channel(body: str) -> Channel | None:
    try:
        return _read_channel(body)
    except (msgspec.MsgspecError, TimewrightError):
        return None
