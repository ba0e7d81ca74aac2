"""Queries for displaying schedules: pages and overviews, one statement each."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

import msgspec

from timewright.core.moments import EPOCH, from_micros, to_micros
from timewright.core.run.admission import InFlightCounts
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import UnreadableRow
from timewright.ports import Page, ScheduleFilter, ScheduleRecord, Unreadable
from timewright.ports.overview import (
    RecentRun,
    RunCountChange,
)
from timewright.ports.schedules import ScheduleListRow, ScheduleSnapshot
from timewright.stores.queries.base import LAST_KEY, SqlQueries, page_limit
from timewright.stores.queries.runs import since_parameters
from timewright.stores.queries.schedules import NOTHING_IN_FLIGHT, SqlScheduleQueries
from timewright.stores.rows import Row, struct_reader, struct_row
from timewright.stores.schedule_rows import read_progress, read_schedule

# Longer pages are not cached, because few clients ask for them.
MAX_CACHED_PAGE_CHARS = 32_768
# Sorts after every name, and after every name with a given prefix when appended to it: names are shorter.
_END = LAST_KEY * 255

_read_row = msgspec.json.Decoder(list[Any]).decode

MAX_RECOUNTS = 10_000
MAX_TAG_ROWS = 100
COUNTED = ("succeeded", "failed", "parked", "cancelled", "skipped", "missed")


class SqlOverviewQueries(SqlQueries):
    """Implements most of `ports.overview.OverviewQueries`."""

    def recent_runs(
        self, schedule_ids: Iterable[str], *, limit_each: int, since: datetime | None = None
    ) -> dict[str, tuple[RecentRun, ...]]:
        """Return the newest runs of schedules, oldest first, at most `limit_each` per schedule."""
        ids, first = list(schedule_ids), since_parameters(since)["from"]
        found: dict[str, list[RecentRun]] = {}
        for row in self._query("recent_runs", {"ids": ids, "limit_each": limit_each, "from": first}):
            found.setdefault(row[1], []).append(_recent_run(row))
        manual: dict[str, list[RecentRun]] = {}
        wanted = [(schedule_id, first, limit_each) for schedule_id in ids]
        for row in self._execute_many("recent_manual_runs", wanted) if wanted else ():
            manual.setdefault(row[1], []).append(_recent_run(row))
        for schedule_id, runs in manual.items():
            both = merge(found.get(schedule_id, ()), runs, key=lambda one: one.run, reverse=True)
            found[schedule_id] = list(islice(both, limit_each))
        return {schedule_id: tuple(reversed(runs)) for schedule_id, runs in found.items()}

    def read_counted_until(self) -> tuple[datetime | None, dict[int, datetime]]:
        """Return until when runs are counted, and the minutes to count again, by the id of the request."""
        rows = self._query("get_meta", {"name": "runs_counted_until"})
        requested = self._query("get_recounts", {"limit": MAX_RECOUNTS})
        until = from_micros(int(rows[0][0])) if rows else None
        return until, {row[0]: from_micros(row[1]) for row in requested}

    def save_run_counts(self, change: RunCountChange) -> bool:
        """Store counts; false, and nothing is stored, if another instance has counted meanwhile."""
        was = "" if change.expected_until is None else str(to_micros(change.expected_until))
        until = str(to_micros(change.counted_until))
        if not self._query("claim_run_counts", {"until": until, "was": was}):
            return False
        for since, end in (*change.minutes, (EPOCH, change.keep_since)):
            self._query("delete_run_counts", {"since": to_micros(since), "until": to_micros(end)})
        if change.counts:
            self._execute_many(
                "insert_run_counts",
                [(*struct_row(one)[:-1], msgspec.json.encode(one.delays).decode()) for one in change.counts],
            )
        if change.recount_ids:
            self._execute_many("delete_recounts", [(one,) for one in change.recount_ids])
        return True


_recent_run = struct_reader(RecentRun)


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
            schedule = known.get((row[0], row[1])) or read_schedule(row[22] or "")
            snapshot = _snapshot(
                row, ScheduleRecord(schedule, read_progress(row[2:19]), _in_flight(row), row[19])
            )
            if not self._executor.has_uncommitted_revisions:
                cache.keep_snapshot(row, snapshot)
        return snapshot

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
    return InFlightCounts(row[20], row[21]) if row[20] or row[21] else NOTHING_IN_FLIGHT


def _snapshot(row: Row, record: ScheduleRecord) -> ScheduleSnapshot:
    return ScheduleSnapshot(
        record,
        has_downstream=bool(row[23]),
        has_manual_runs=bool(row[24]),
        has_notes=bool(row[25]),
        has_skips=bool(row[26]),
    )
