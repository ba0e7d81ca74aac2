"""What a store does with schedules: what they say, and where they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from timewright.core.admission import Flight
from timewright.core.moments import from_micros, micros
from timewright.core.schedule import Schedule
from timewright.errors import Conflict, NotFound, UnreadableRow
from timewright.ports import (
    Due,
    Page,
    Revised,
    ScheduleFilter,
    Stood,
)
from timewright.stores.rows import (
    Row,
    read_schedule,
    read_standing,
    schedule_body,
    shard_of,
    standing_row,
    to_instant,
)
from timewright.stores.verbs import LAST, Verbs, page_limit, stale_revision


class ScheduleVerbs(Verbs):
    """Schedules, their revisions and their standing."""

    def put_schedules(self, rows: Sequence[Revised]) -> None:
        """Write schedules with a new revision; a taken name or a stale revision is a Conflict."""
        new = [row for row in rows if row.replaces is None]
        self._check_names(rows)
        if new:
            self._tell("insert_schedules", [self._schedule_row(row) for row in new])
        edits = [row for row in rows if row.replaces is not None]
        if edits:
            kept = self._tell("revise_schedules", [self._revised_row(row) for row in edits])
            self._check_revised(edits, {row[0] for row in kept})
        self._tell(
            "insert_revisions",
            [
                (
                    r.schedule.id,
                    r.schedule.revision,
                    schedule_body(r.schedule),
                    micros(r.at),
                    r.actor,
                    r.reason,
                )
                for r in rows
            ],
        )

    def get_schedules(self, ids: Iterable[str], *, lock: bool = False) -> dict[str, Due]:
        """Schedules by id, those that exist; locked against other writers when asked."""
        wanted = list(ids)
        if lock:
            self._ask("lock_schedules", {"ids": wanted})
        return {due.schedule.id: due for due in self._read_due(self._ask("get_schedules", {"ids": wanted}))}

    def find_schedule(self, namespace: str, name: str) -> str | None:
        """The id of a schedule by its name."""
        rows = self._ask("find_schedule", {"namespace": namespace, "name": name})
        return rows[0][0] if rows else None

    def find_schedules(self, which: ScheduleFilter) -> Page:
        """A page of `Due`, by name."""
        limit = page_limit(which.limit)
        if which.namespace == "":
            return Page(())  # nobody's; the statement would read it as everybody's
        after_namespace, after_name = _cursor_pair(which.cursor)
        rows = self._ask(
            "list_schedules",
            {
                "after_namespace": after_namespace,
                "after_name": after_name,
                "first_namespace": which.namespace or "",
                "last_namespace": which.namespace or LAST,
                "state": which.state.value if which.state else "",
                "grouped": which.group or "",
                "prefix": which.name_starts,
                "limit": limit + 1,
            },
        )
        ids = [row[0] for row in rows[:limit]]
        found = self.get_schedules(ids)
        page = [found[i] for i in ids if i in found]
        more = len(rows) > limit and bool(page)
        cursor = f"{page[-1].schedule.namespace}\n{page[-1].schedule.name}" if more else ""
        return Page(tuple(page), cursor)

    def get_revisions(self, pairs: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Schedule]:
        """Schedules as they were at a revision."""
        wanted = list(dict.fromkeys(pairs))
        rows = self._tell("get_revisions", wanted) if wanted else []
        return {(row[0], row[1]): read_schedule(row[2]) for row in rows}

    def list_revisions(
        self, schedule_id: str, *, limit: int = 50
    ) -> list[tuple[Schedule, datetime, str, str]]:
        """What a schedule said, newest first, with when, who and why."""
        rows = self._ask("list_revisions", {"id": schedule_id, "limit": page_limit(limit)})
        return [(read_schedule(row[1]), from_micros(row[2]), row[3], row[4]) for row in rows]

    def due_schedules(
        self, *, now: datetime, limit: int, since: datetime | None = None, shard: tuple[int, int] = (1, 1)
    ) -> list[Due]:
        """Those to look at now, the longest waiting first, locked; rows another holds are passed over."""
        since_micros = micros(since) if since is not None else 0
        which, shards = shard
        parameters = {"now": micros(now), "since": since_micros, "limit": limit}
        parameters |= {"shard": which - 1, "shards": shards}
        return self._read_due(self._ask("due_schedules", parameters), now=now)

    def stand(self, rows: Sequence[Stood]) -> None:
        """Write where schedules stand."""
        if rows:
            self._tell("stand", [(r.schedule_id, *standing_row(r.standing), r.last_run) for r in rows])

    def clear_streaks(self, schedule_ids: Iterable[str]) -> None:
        """Forget failures in a row; schedules that have none are not touched."""
        rows = [(schedule_id,) for schedule_id in sorted(set(schedule_ids))]
        if rows:
            self._tell("clear_streaks", rows)

    def park_unreadable(self, schedule_id: str, *, reason: str, now: datetime) -> None:
        """Take a schedule whose row cannot be understood out of the way, and keep it."""
        self._ask("park_unreadable", {"id": schedule_id, "reason": f"unreadable: {reason}"[:2000]})

    def next_wake(self) -> datetime | None:
        """The earliest instant at which anything may be due."""
        (row,) = self._ask("next_wake", {})
        return to_instant(min((value for value in row if value is not None), default=None))

    def _check_names(self, rows: Sequence[Revised]) -> None:
        for row in rows:
            taken = self.find_schedule(row.schedule.namespace, row.schedule.name) if len(rows) < 100 else None
            if taken is not None and taken != row.schedule.id:
                raise Conflict(
                    f"a schedule named {row.schedule.name!r} exists in namespace {row.schedule.namespace}",
                    field="name",
                    value=row.schedule.name,
                    rule="names are unique per namespace",
                    fix=f"another name, or schedule put to change {taken}",
                )

    def _check_revised(self, edits: Sequence[Revised], kept: set[str]) -> None:
        for row in edits:
            if row.schedule.id not in kept:
                found = self.get_schedules([row.schedule.id])
                if not found:
                    raise NotFound(f"no schedule {row.schedule.id}", field="id", value=row.schedule.id)
                last = found[row.schedule.id].schedule.revision
                raise stale_revision(f"schedule {row.schedule.name}", row.replaces or 0, last)

    def _schedule_row(self, row: Revised) -> tuple[Any, ...]:
        s = row.schedule
        named = (s.id, s.namespace, s.name, s.group or "", s.revision)
        return (*named, *standing_row(row.standing), shard_of(s.id))

    def _revised_row(self, row: Revised) -> tuple[Any, ...]:
        s = row.schedule
        return (s.id, row.replaces, s.name, s.group or "", s.revision, *standing_row(row.standing))

    def _read_due(self, rows: Sequence[Row], *, now: datetime | None = None) -> list[Due]:
        """Schedules from their hot rows and their revision's text; an unreadable one is parked when due."""
        bodies = {
            (r[0], r[1]): r[2]
            for r in (self._tell("get_revisions", [(r[0], r[1]) for r in rows]) if rows else [])
        }
        found: list[Due] = []
        for row in rows:
            try:
                schedule = read_schedule(bodies.get((row[0], row[1]), ""))
                found.append(Due(schedule, read_standing(row[2:17]), Flight(row[18], row[19]), row[17]))
            except UnreadableRow as error:
                if now is None:
                    raise
                self.park_unreadable(row[0], reason=str(error), now=now)
        return found


def _cursor_pair(cursor: str) -> tuple[str, str]:
    namespace, _, name = cursor.partition("\n")
    return namespace, name
