"""Queries for schedules: definitions, revisions and progress."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from timewright.core.moments import to_micros
from timewright.core.run.admission import InFlightCounts
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.errors import Conflict, NotFound, UnreadableRow
from timewright.ports import (
    Page,
    ProgressUpdate,
    ScheduleFilter,
    ScheduleRecord,
    ScheduleWrite,
    Unreadable,
)
from timewright.stores.cache import RevisionKey
from timewright.stores.queries.base import LAST_KEY, SqlQueries, page_limit, stale_revision
from timewright.stores.rows import Row
from timewright.stores.schedule_rows import (
    advance_row,
    progress_row,
    read_progress,
    read_schedule,
    schedule_body,
    shard_of,
)

NOTHING_IN_FLIGHT = InFlightCounts()


class SqlScheduleQueries(SqlQueries):
    """Schedules, their revisions and their progress."""

    def put_schedules(self, rows: Sequence[ScheduleWrite]) -> None:
        """Write schedules with a new revision. Raises Conflict for a taken name or a stale revision."""
        new = [row for row in rows if row.replaces is None]
        self._executor.has_uncommitted_revisions = True
        self._probe_from(row.progress for row in rows)
        self._check_names(rows)
        if new:
            self._execute_many("insert_schedules", [self._schedule_row(row) for row in new])
        edits = [row for row in rows if row.replaces is not None]
        if edits:
            changed = self._execute_many("revise_schedules", [self._revised_row(row) for row in edits])
            self._check_revised(edits, {row[0] for row in changed})
        self._execute_many(
            "insert_revisions",
            [
                (
                    r.schedule.id,
                    r.schedule.revision,
                    schedule_body(r.schedule),
                    to_micros(r.at),
                    r.actor,
                    r.reason,
                )
                for r in rows
            ],
        )

    def get_schedules(self, ids: Iterable[str], *, lock: bool = False) -> dict[str, ScheduleRecord]:
        """Return existing schedules by id; `lock` keeps other writers out until the transaction ends."""
        wanted = list(ids)
        if lock and self._executor.is_remote:
            self._query("lock_schedules", {"ids": wanted})
        rows = self._query("get_schedules", {"ids": wanted})
        return {
            record.schedule.id: record
            for record in (self._decode_rows(rows) if lock else self._decode_cached(rows))
        }

    def find_schedules(self, which: ScheduleFilter) -> Page:
        """Return a page of `ScheduleRecord`, by name; unreadable rows are listed apart."""
        limit = page_limit(which.limit)
        if which.namespace == "":
            return Page(())  # an empty namespace means all of them in the statement
        after_namespace, after_name = _cursor_pair(which.cursor)
        inactive = which.state not in (None, ScheduleState.ACTIVE)
        rows = self._query(
            "find_inactive_schedules" if inactive else "find_schedules",
            {
                "after_namespace": after_namespace,
                "after_name": after_name,
                "first_namespace": which.namespace or "",
                "last_namespace": which.namespace or LAST_KEY,
                "state": which.state.value if which.state else "",
                "group_name": which.group or "",
                "prefix": which.name_prefix,
                "limit": limit + 1,
            },
        )
        unreadable: dict[str, str] = {}
        page = tuple(self._decode_cached([row[:-2] for row in rows[:limit]], unreadable=unreadable))
        names = {row[0]: row[-1] for row in rows[:limit]} if unreadable else {}
        cursor = f"{rows[limit - 1][-2]}\n{rows[limit - 1][-1]}" if len(rows) > limit else ""
        return Page(page, cursor, tuple(Unreadable(i, names[i], error) for i, error in unreadable.items()))

    def get_revisions(self, pairs: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Schedule]:
        """Return schedule definitions by id and revision."""
        wanted = pairs if isinstance(pairs, set) else set(pairs)
        known = self._executor.cache.revisions()
        unknown = [pair for pair in wanted if pair not in known] if known else list(wanted)
        found = {pair: known[pair] for pair in wanted if pair in known} if len(unknown) < len(wanted) else {}
        if not unknown:
            return found
        read = {
            (row[0], row[1]): read_schedule(row[2]) for row in self._execute_many("get_revisions", unknown)
        }
        if not self._executor.has_uncommitted_revisions:
            self._executor.cache.keep_revisions(read)
        return found | read if found else read

    def due_schedules(
        self, *, until: datetime, limit: int, since: datetime | None = None, shard: tuple[int, int] = (1, 1)
    ) -> list[ScheduleRecord]:
        """Lock and return schedules due by `until`, longest waiting first, skipping rows locked by others."""
        since_micros = to_micros(since) if since is not None else 0
        which, shards = shard
        parameters = {"now": to_micros(until), "since": since_micros, "limit": limit}
        if shards == 1:
            return self._decode_rows(self._query("due_schedules", parameters), park=True)
        parameters |= {"shard": which - 1, "shards": shards}
        return self._decode_rows(self._query("due_schedules_of_shard", parameters), park=True)

    def save_progress(self, rows: Sequence[ProgressUpdate]) -> None:
        """Write the progress of schedules."""
        self._probe_from(row.progress for row in rows)
        steps = [
            advance_row(r.schedule_id, r.progress, r.last_run) for r in rows if r.only_advances and r.last_run
        ]
        if steps:
            self._execute_many("advance_progress", steps)
        if len(steps) < len(rows):
            moved = [r for r in rows if not (r.only_advances and r.last_run)]
            self._execute_many(
                "save_progress", [(r.schedule_id, *progress_row(r.progress), r.last_run) for r in moved]
            )

    def _probe_from(self, written: Iterable[ScheduleProgress]) -> None:
        """Let the next probe for pending work begin at the earliest instant that is written."""
        cache = self._executor.cache
        if cache.probe.since:
            wakes = [to_micros(one.wake_at) for one in written if one.wake_at is not None]
            if min(wakes, default=cache.probe.since) < cache.probe.since:
                cache.probe = replace(cache.probe, since=min(wakes))

    def _next_wake_in(
        self, shard: tuple[int, int] | None, earliest: int | None, *, orphan_after: timedelta
    ) -> int | None:
        """The next wake-up for the owner of a shard, given the earliest wake-up of all schedules."""
        if shard == (1, 1) or earliest is None:
            return earliest
        until = earliest + orphan_after // timedelta(microseconds=1)
        return self._first_of_shard(shard, since=earliest, until=until)

    def _first_of_shard(self, shard: tuple[int, int] | None, *, since: int, until: int) -> int:
        """The first wake-up in a shard between two instants, or the later one; both bound the scan."""
        if shard is None:
            return until
        which, shards = shard
        bounds = {"since": since, "until": until}
        rows = self._query("next_wake_of_shard", {"shard": which - 1, "shards": shards, **bounds})
        return int(rows[0][0]) if rows else until

    def _check_names(self, rows: Sequence[ScheduleWrite]) -> None:
        for row in rows if len(rows) < 100 else ():
            one = {"namespace": row.schedule.namespace, "names": [row.schedule.name]}
            if any(taken[0] != row.schedule.id for taken in self._query("schedules_named", one)):
                raise Conflict(
                    f"a schedule named {row.schedule.name!r} exists in namespace {row.schedule.namespace}",
                    field="name",
                    value=row.schedule.name,
                    rule="names are unique per namespace",
                    fix=f"use another name, or schedule update {shlex.quote(row.schedule.name)}",
                )

    def _check_revised(self, edits: Sequence[ScheduleWrite], changed: set[str]) -> None:
        for row in edits:
            if row.schedule.id not in changed:
                found = self.get_schedules([row.schedule.id])
                if not found:
                    raise NotFound(f"no schedule {row.schedule.id}", field="id", value=row.schedule.id)
                last = found[row.schedule.id].schedule.revision
                raise stale_revision(f"schedule {row.schedule.name}", row.replaces or 0, last)

    def _schedule_row(self, row: ScheduleWrite) -> tuple[Any, ...]:
        s = row.schedule
        named = (s.id, s.namespace, s.name, s.group or "", s.revision)
        return (*named, *progress_row(row.progress), shard_of(s.id), int(s.expect is not None))

    def _revised_row(self, row: ScheduleWrite) -> tuple[Any, ...]:
        s = row.schedule
        named = (s.id, row.replaces, s.name, s.group or "", s.revision)
        return (*named, *progress_row(row.progress), int(s.expect is not None))

    def _decode_cached(
        self, rows: Sequence[Row], *, unreadable: dict[str, str] | None = None
    ) -> list[ScheduleRecord]:
        """Decode rows through the cache: an unchanged row is not decoded again."""
        cache = self._executor.cache
        cache.expire()
        cached = [cache.get_record(row) for row in rows]
        new = [row for row, record in zip(rows, cached, strict=True) if record is None]
        if not new:
            return [record for record in cached if record is not None]
        read = {record.schedule.id: record for record in self._decode_rows(new, unreadable=unreadable)}
        if not self._executor.has_uncommitted_revisions:
            for row in new:
                if row[0] in read:
                    cache.keep_record(row, read[row[0]])
        pairs = zip(rows, cached, strict=True)
        return [found for row, record in pairs if (found := record or read.get(row[0])) is not None]

    def _decode_rows(
        self, rows: Sequence[Row], *, park: bool = False, unreadable: dict[str, str] | None = None
    ) -> list[ScheduleRecord]:
        """Decode schedules from their rows and the JSON of their revisions.

        An unreadable row goes into `unreadable` if given, is parked with `park`, and raises otherwise.
        """
        pairs = [(row[0], row[1]) for row in rows]
        schedules, bodies = self._decode_definitions(pairs)
        found: list[ScheduleRecord] = []
        for pair, row in zip(pairs, rows, strict=True):
            try:
                schedule = schedules.get(pair) or read_schedule(bodies.get(pair, ""))
                in_in_flight = InFlightCounts(row[20], row[21]) if row[20] or row[21] else NOTHING_IN_FLIGHT
                found.append(ScheduleRecord(schedule, read_progress(row[2:19]), in_in_flight, row[19]))
            except UnreadableRow as error:
                if unreadable is not None:
                    unreadable[row[0]] = error.message
                elif not park:
                    raise
                else:
                    reason = f"unreadable: {error.message}"[:2000]
                    self._query("park_unreadable_schedule", {"id": row[0], "reason": reason})
        return found

    def _decode_definitions(
        self, pairs: Sequence[RevisionKey]
    ) -> tuple[dict[RevisionKey, Schedule], dict[RevisionKey, str]]:
        """Decoded definitions by revision; if one is unreadable, the JSON of all of them instead."""
        try:
            return self.get_revisions(pairs), {}
        except UnreadableRow:
            return {}, {(row[0], row[1]): row[2] for row in self._execute_many("get_revisions", pairs)}


def _cursor_pair(cursor: str) -> tuple[str, str]:
    namespace, _, name = cursor.partition("\n")
    return namespace, name
