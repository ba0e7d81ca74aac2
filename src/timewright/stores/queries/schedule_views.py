"""Queries for displaying schedules: one statement each, and unchanged rows are not decoded again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from timewright.core.run.admission import InFlightCounts
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import UnreadableRow
from timewright.ports import Page, ScheduleFilter, ScheduleRecord, Unreadable
from timewright.ports.schedules import ScheduleListRow, ScheduleSnapshot
from timewright.stores.queries.base import LAST_KEY, page_limit
from timewright.stores.queries.schedules import NOTHING_IN_FLIGHT, SqlScheduleQueries
from timewright.stores.rows import Row
from timewright.stores.schedule_rows import read_progress, read_schedule

# Longer pages are not cached, because few clients ask for them.
MAX_CACHED_PAGE_CHARS = 32_768
# Sorts after every name, and after every name with a given prefix when appended to it: names are shorter.
_END = LAST_KEY * 255

_read_row = msgspec.json.Decoder(list[Any]).decode


class SqlScheduleViews(SqlScheduleQueries):
    """Schedules for display, of `ports.schedules.ScheduleQueries`."""

    def get_schedule_snapshot(self, namespace: str, name: str) -> ScheduleSnapshot | None:
        """Return a schedule by its name."""
        rows = self._query("get_schedule_snapshot", {"namespace": namespace, "name": name})
        if not rows:
            return None
        row, cache = rows[0], self._executor.cache
        known = cache.revisions()
        snapshot = cache.get_snapshot(row)
        if snapshot is None:
            schedule = known.get((row[0], row[1])) or read_schedule(row[20] or "")
            snapshot = _snapshot(
                row, ScheduleRecord(schedule, read_progress(row[2:17]), _in_flight(row), row[17])
            )
            if not self._executor.has_uncommitted_revisions:
                cache.keep_snapshot(row, snapshot)
        return snapshot

    def get_schedule_names(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the names of schedules by id, also of unreadable ones."""
        wanted = sorted(set(ids))
        rows = self._query("get_schedule_names", {"ids": wanted}) if wanted else []
        return {row[0]: row[1] for row in rows}

    def list_schedules(self, which: ScheduleFilter) -> Page:
        """Return a page of `ScheduleListRow` of one namespace, by name; unreadable rows are listed apart."""
        limit = page_limit(which.limit)
        if not which.namespace:
            return Page(())
        inactive = which.state not in (None, ScheduleState.ACTIVE)
        after = which.cursor.partition("\n")[2]
        ((text,),) = self._query(
            "list_inactive_schedules" if inactive else "list_schedules",
            {
                "namespace": which.namespace,
                "after": after,
                "first": max(after, which.name_prefix),
                "last": which.name_prefix + _END,
                "state": which.state.value if which.state else "",
                "group_name": which.group or "",
                "prefix": which.name_prefix,
                "limit": limit + 1,
            },
        )
        cache = self._executor.cache
        cache.expire()
        key = (which.namespace, limit, text or "")
        page = cache.get_page(key)
        if page is None:
            page = self._decode_page(text.split("\n") if text else [], which.namespace, limit=limit)
            if not self._executor.has_uncommitted_revisions and len(key[2]) <= MAX_CACHED_PAGE_CHARS:
                cache.keep_page(key, page)
        return page

    def _decode_page(self, lines: list[str], namespace: str, *, limit: int) -> Page:
        known = self._executor.cache.list_rows
        new = {line: _read_row(line) for line in lines[:limit] if line not in known}
        read, unreadable = self._decode_lines(new) if new else ({}, ())
        listed = (known.get(line) or read.get(line) for line in lines[:limit])
        cursor = f"{namespace}\n{_read_row(lines[limit - 1])[-1]}" if len(lines) > limit else ""
        page = Page(tuple(row for row in listed if row is not None), cursor, tuple(unreadable))
        if not self._executor.has_uncommitted_revisions:
            self._executor.cache.keep_list_rows(read)
        return page

    def _decode_lines(
        self, rows: dict[str, list[Any]]
    ) -> tuple[dict[str, ScheduleListRow], list[Unreadable]]:
        pairs = [(row[0], row[1]) for row in rows.values()]
        schedules, bodies = self._decode_definitions(pairs)
        read: dict[str, ScheduleListRow] = {}
        unreadable: list[Unreadable] = []
        for pair, (line, row) in zip(pairs, rows.items(), strict=True):
            try:
                schedule = schedules.get(pair) or read_schedule(bodies.get(pair, ""))
                read[line] = ScheduleListRow(schedule, read_progress(row[2:-1]))
            except UnreadableRow as error:
                unreadable.append(Unreadable(row[0], row[-1], error.message))
        return read, unreadable


def _in_flight(row: Row) -> InFlightCounts:
    return InFlightCounts(row[18], row[19]) if row[18] or row[19] else NOTHING_IN_FLIGHT


def _snapshot(row: Row, record: ScheduleRecord) -> ScheduleSnapshot:
    return ScheduleSnapshot(
        record,
        has_downstream=bool(row[21]),
        has_manual_runs=bool(row[22]),
        has_notes=bool(row[23]),
        has_skips=bool(row[24]),
    )
