"""Queries for displaying schedules: pages and overviews, one statement each."""

from __future__ import annotations

import re
from collections import Counter
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
from timewright.ports import LiveCount, Page, ScheduleFilter, ScheduleRecord, Unreadable
from timewright.ports.overview import (
    GroupCounts,
    MinuteCounts,
    RecentRun,
    RunCountChange,
    RunCounts,
    SearchHit,
)
from timewright.ports.schedules import ScheduleListRow, ScheduleSnapshot
from timewright.stores.queries.base import LAST_KEY, SqlQueries, page_limit
from timewright.stores.queries.runs import since_parameters
from timewright.stores.queries.schedules import NOTHING_IN_FLIGHT, SqlScheduleQueries
from timewright.stores.rows import MICROSECOND, Row, to_instant
from timewright.stores.schedule_rows import read_progress, read_schedule

# Longer pages are not cached, because few clients ask for them.
MAX_CACHED_PAGE_CHARS = 32_768
# Sorts after every name, and after every name with a given prefix when appended to it: names are shorter.
_END = LAST_KEY * 255

_read_row = msgspec.json.Decoder(list[Any]).decode

MAX_RECOUNTS = 10_000
MAX_TAG_ROWS = 100
COUNTED = ("succeeded", "failed", "parked", "cancelled", "skipped", "missed")
_DELAYS = msgspec.json.Decoder(dict[int, int])


class SqlOverviewQueries(SqlQueries):
    """Implements most of `ports.overview.OverviewQueries`."""

    def count_live(self, *, now: datetime, max_rows: int) -> list[LiveCount]:
        """Count live rows by kind, reading at most `max_rows` of each kind."""
        oldest = {(row[0], row[1]): row[2] for row in self._query("oldest_ready", {"max_rows": max_rows})}
        rows = self._query("count_live", {"now": to_micros(now), "max_rows": max_rows})
        return [
            LiveCount(
                namespace=row[0],
                queue=row[1],
                kind=row[2],
                count=int(row[3]),
                oldest=to_instant(oldest.get((row[0], row[1])) if row[2] == "ready" else None),
            )
            for row in rows
        ]

    def count_namespace(self, namespace: str, *, max_schedules: int, max_runs: int) -> tuple[int, int]:
        """Count schedules in use and waiting runs, each up to its maximum."""
        parameters = {"namespace": namespace, "max_schedules": max_schedules, "max_runs": max_runs}
        ((schedules, waiting),) = self._query("count_namespace", parameters)
        return int(schedules), int(waiting)

    def recent_runs(
        self, schedule_ids: Iterable[str], *, limit_each: int, since: datetime | None = None
    ) -> dict[str, tuple[RecentRun, ...]]:
        """Return the newest runs of schedules, oldest first, at most `limit_each` per schedule."""
        ids, first = list(schedule_ids), since_parameters(since)["from"]
        found: dict[str, list[RecentRun]] = {}
        for row in self._query("recent_runs", {"ids": ids, "limit_each": limit_each, "from": first}):
            found.setdefault(row[0], []).append(_recent_run(row))
        manual: dict[str, list[RecentRun]] = {}
        wanted = [(schedule_id, first, limit_each) for schedule_id in ids]
        for row in self._execute_many("recent_manual_runs", wanted) if wanted else ():
            manual.setdefault(row[0], []).append(_recent_run(row))
        for schedule_id, runs in manual.items():
            both = merge(found.get(schedule_id, ()), runs, key=lambda one: one.run, reverse=True)
            found[schedule_id] = list(islice(both, limit_each))
        return {schedule_id: tuple(reversed(runs)) for schedule_id, runs in found.items()}

    def count_manual_runs(self, schedule_ids: Iterable[str]) -> dict[str, int]:
        """Return how many manual runs of schedules are kept; a schedule without one is left out."""
        rows = self._query("count_manual_runs", {"ids": list(schedule_ids)})
        return {row[0]: int(row[1]) for row in rows}

    def count_runs_by_state(self, namespace: str, *, failed_since: datetime, max_count: int) -> RunCounts:
        """Count runs by state, each up to `max_count`."""
        parameters = {"namespace": namespace, "max_count": max_count, **since_parameters(failed_since)}
        ((leased, ready, failed, parked),) = self._query("count_runs_by_state", parameters)
        return RunCounts(leased=leased, ready=ready, failed=failed, parked=parked)

    def list_groups(self, namespace: str, *, after: str, limit: int) -> list[GroupCounts]:
        """Return the groups after a name, in order. Scans the schedules of the namespace."""
        rows = self._query("list_groups", {"namespace": namespace, "after": after, "limit": limit})
        return [
            GroupCounts(name=row[0], schedules=row[1], active=row[2], paused=row[3], parked=row[4])
            for row in rows
        ]

    def ordered_schedule_ids(self, which: ScheduleFilter) -> tuple[list[str], int]:
        """Return ids of schedules of a namespace in an order, and how many there are. Scans the schedules."""
        parameters = {
            "namespace": which.namespace or "",
            "state": which.state.value if which.state else "",
            "group_name": which.group or "",
            "pattern": f"{_escape_like(which.name_prefix)}%{_escape_like(which.name_contains)}%".lower(),
        }
        ordered = {"order": which.order, "limit": which.limit, "offset": which.offset}
        rows = self._query("ordered_schedule_ids", {**parameters, **ordered})
        ((total,),) = self._query("count_schedules", parameters)
        return [row[0] for row in rows], int(total)

    def search(self, namespace: str, text: str, *, limit: int, max_rows: int) -> list[SearchHit]:
        """Find schedules by a part of their name, id or a tag, and runs by a part of their id or error."""
        escaped = _escape_like(text.lower())
        common = {"namespace": namespace, "pattern": f"%{escaped}%"}
        rows = self._query("search_schedules", {**common, "begins": f"{escaped}%", "limit": limit})
        hits = [SearchHit("schedule", *row) for row in rows]
        if len(hits) < limit:
            parameters = {**common, "pattern": f'%"tags":[%{escaped}%', "limit": MAX_TAG_ROWS}
            hits += [SearchHit("tagged", *row) for row in self._query("search_tags", parameters)]
        runs = self._query("search_runs", {**common, "limit": 2 * limit, "max_rows": max_rows})
        names = {row[0]: SearchHit("run", row[0], row[2], row[1], row[3]) for row in reversed(runs)}
        return hits + list(reversed(names.values()))[:limit]

    def count_finished_runs(self, *, since: datetime, until: datetime) -> list[MinuteCounts]:
        """Count the runs that ended in a range of whole minutes, from the run rows."""
        rows = self._query("count_finished_runs", {"since": to_micros(since), "until": to_micros(until)})
        groups: dict[tuple[str, int, int], list[Row]] = {}
        for namespace, planned, finished, *rest in rows:
            groups.setdefault((namespace, planned, finished), []).append(tuple(rest))
        return [_minute_counts(*key, group) for key, group in groups.items()]

    def finished_instant(self, *, since: datetime, offset: int) -> datetime | None:
        """Return when the run ended that is `offset` rows after the first one since an instant."""
        rows = self._query("nth_finished_run", {"since": to_micros(since), "offset": offset})
        return to_instant(rows[0][0]) if rows else None

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
            self._execute_many("insert_run_counts", [_count_row(one) for one in change.counts])
        if change.recount_ids:
            self._execute_many("delete_recounts", [(one,) for one in change.recount_ids])
        return True

    def read_run_counts(self, namespace: str, *, since: datetime, until: datetime) -> list[MinuteCounts]:
        """Return the stored counts of the runs that were planned in a range."""
        parameters = {"namespace": namespace, "since": to_micros(since), "until": to_micros(until)}
        return [
            MinuteCounts(
                namespace=namespace,
                planned_minute=from_micros(row[0]),
                finished_minute=from_micros(row[1]),
                **dict(zip(COUNTED, row[2:], strict=False)),
                started=row[8],
                delay_max=row[9] * MICROSECOND,
                delays=_DELAYS.decode(row[10]),
            )
            for row in self._query("read_run_counts", parameters)
        ]


def _escape_like(text: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", text)


def _minute_counts(namespace: str, planned: int, finished: int, rows: list[Row]) -> MinuteCounts:
    results, delays, longest = Counter[str](), Counter[int](), 0
    for state, bound, count, delay_max in rows:
        results[state] += int(count)
        if bound is not None:
            delays[int(bound)] += int(count)
            longest = max(longest, int(delay_max))
    return MinuteCounts(
        namespace=namespace,
        planned_minute=from_micros(planned),
        finished_minute=from_micros(finished),
        **{name: results[name] for name in COUNTED},
        started=delays.total(),
        delay_max=longest * MICROSECOND,
        delays=dict(sorted(delays.items())),
    )


def _count_row(one: MinuteCounts) -> Row:
    return (
        one.namespace,
        to_micros(one.planned_minute),
        to_micros(one.finished_minute),
        *(getattr(one, name) for name in COUNTED),
        one.started,
        one.delay_max // MICROSECOND,
        msgspec.json.encode(one.delays).decode(),
    )


def _recent_run(row: Row) -> RecentRun:
    planned_at = to_instant(row[2])
    assert planned_at is not None
    return RecentRun(
        schedule_id=row[0],
        run=row[1],
        planned_at=planned_at,
        started_at=to_instant(row[3]),
        finished_at=to_instant(row[4]),
        state=row[5],
        reason=row[6],
        dropped=int(row[7]),
    )


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
    return InFlightCounts(row[20], row[21]) if row[20] or row[21] else NOTHING_IN_FLIGHT


def _snapshot(row: Row, record: ScheduleRecord) -> ScheduleSnapshot:
    return ScheduleSnapshot(
        record,
        has_downstream=bool(row[23]),
        has_manual_runs=bool(row[24]),
        has_notes=bool(row[25]),
        has_skips=bool(row[26]),
    )
