"""What a store does with schedules: what they say, and where they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from timewright.core.admission import Flight
from timewright.core.moments import ZERO, from_micros, micros
from timewright.core.schedule import Schedule, ScheduleState
from timewright.errors import Conflict, NotFound, UnreadableRow
from timewright.ports import (
    Due,
    Page,
    Revised,
    ScheduleFilter,
    Stood,
    Unreadable,
)
from timewright.stores.revisions import Pair
from timewright.stores.rows import Row, to_instant
from timewright.stores.schedule_rows import (
    advance_row,
    read_schedule,
    read_standing,
    schedule_body,
    shard_of,
    standing_row,
)
from timewright.stores.verbs import LAST, LONGEST_PAGE, Verbs, page_limit, stale_revision

NO_FLIGHT = Flight()


class ScheduleVerbs(Verbs):
    """Schedules, their revisions and their standing."""

    def put_schedules(self, rows: Sequence[Revised]) -> None:
        """Write schedules with a new revision; a taken name or a stale revision is a Conflict."""
        new = [row for row in rows if row.replaces is None]
        self._speaker.drafting = True
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
        if lock and self._speaker.is_far:
            self._ask("lock_schedules", {"ids": wanted})
        rows = self._ask("get_schedules", {"ids": wanted})
        return {due.schedule.id: due for due in (self._read_due(rows) if lock else self._look_at(rows))}

    def get_named(self, namespace: str, name: str) -> Due | None:
        """A schedule by its name."""
        return next(
            iter(self._look_at(self._ask("get_named_schedule", {"namespace": namespace, "name": name}))), None
        )

    def find_schedule(self, namespace: str, name: str) -> str | None:
        """The id of a schedule by its name."""
        rows = self._ask("find_schedule", {"namespace": namespace, "name": name})
        return rows[0][0] if rows else None

    def find_schedules(self, which: ScheduleFilter) -> Page:
        """A page of `Due`, by name; a row that cannot be understood is named beside them."""
        limit = page_limit(which.limit)
        if which.namespace == "":
            return Page(())  # nobody's; the statement would read it as everybody's
        after_namespace, after_name = _cursor_pair(which.cursor)
        resting = which.state not in (None, ScheduleState.ACTIVE)
        rows = self._ask(
            "list_resting_schedules" if resting else "list_schedules",
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
        lost: dict[str, str] = {}
        page = tuple(self._look_at([row[:-2] for row in rows[:limit]], lost=lost))
        names = {row[0]: row[-1] for row in rows[:limit]} if lost else {}
        cursor = f"{rows[limit - 1][-2]}\n{rows[limit - 1][-1]}" if len(rows) > limit else ""
        return Page(page, cursor, tuple(Unreadable(i, names[i], why) for i, why in lost.items()))

    def get_revisions(self, pairs: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Schedule]:
        """Schedules as they were at a revision."""
        wanted = pairs if isinstance(pairs, set) else set(pairs)
        known = self._speaker.revisions.known()
        unknown = [pair for pair in wanted if pair not in known] if known else list(wanted)
        found = {pair: known[pair] for pair in wanted if pair in known} if len(unknown) < len(wanted) else {}
        if not unknown:
            return found
        read = {(row[0], row[1]): read_schedule(row[2]) for row in self._tell("get_revisions", unknown)}
        if not self._speaker.drafting:
            self._speaker.revisions.keep(read)
        return found | read if found else read

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
        if shards == 1:
            return self._read_due(self._ask("due_schedules", parameters), now=now)
        parameters |= {"shard": which - 1, "shards": shards}
        return self._read_due(self._ask("due_shard", parameters), now=now)

    def foresee(self, *, until: datetime, limit: int) -> list[Schedule]:
        """Read what the schedules say that are due by then, to decide them sooner."""
        rows = self._ask("due_until", {"until": micros(until), "limit": limit})
        readable, _ = self._schedules_of([(row[0], row[1]) for row in rows])
        return list(readable.values())

    def stand(self, rows: Sequence[Stood]) -> None:
        """Write where schedules stand."""
        steps = [advance_row(r.schedule_id, r.standing, r.last_run) for r in rows if r.is_step and r.last_run]
        if steps:
            self._tell("advance", steps)
        if len(steps) < len(rows):
            moved = [r for r in rows if not (r.is_step and r.last_run)]
            self._tell("stand", [(r.schedule_id, *standing_row(r.standing), r.last_run) for r in moved])

    def clear_streaks(self, schedule_ids: Iterable[str]) -> None:
        """Forget failures in a row; schedules that have none are not touched."""
        wanted = set(schedule_ids)
        if not wanted:
            return
        failing = self._ask("failing", {"limit": LONGEST_PAGE})
        if len(failing) < LONGEST_PAGE:
            wanted &= {row[0] for row in failing}
        if wanted:
            self._tell("clear_streaks", [(schedule_id,) for schedule_id in sorted(wanted)])

    def park_unreadable(self, schedule_id: str, *, reason: str, now: datetime) -> None:
        """Take a schedule whose row cannot be understood out of the way, and keep it."""
        self._ask("park_unreadable", {"id": schedule_id, "reason": f"unreadable: {reason}"[:2000]})

    def next_wake(
        self, *, shard: tuple[int, int] | None = (1, 1), patience: timedelta = ZERO
    ) -> datetime | None:
        """The earliest instant at which anything may be due; outside of the shard, only after patience."""
        ((schedule, run),) = self._ask("next_wake", {})
        schedule = self._due_for(shard, schedule, patience=patience)
        return to_instant(min((value for value in (schedule, run) if value is not None), default=None))

    def _due_for(
        self, shard: tuple[int, int] | None, earliest: int | None, *, patience: timedelta
    ) -> int | None:
        """When whoever serves a shard has a schedule to look at, given when the earliest of all is due."""
        if shard == (1, 1) or earliest is None:
            return earliest
        return self._next_of_shard(shard, until=earliest + patience // timedelta(microseconds=1))

    def _next_of_shard(self, shard: tuple[int, int] | None, *, until: int) -> int:
        """The first of a shard before an instant, or that instant: how far is looked has a bound."""
        if shard is None:
            return until
        which, shards = shard
        rows = self._ask("next_of_shard", {"shard": which - 1, "shards": shards, "until": until})
        return int(rows[0][0]) if rows else until

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

    def _look_at(self, rows: Sequence[Row], *, lost: dict[str, str] | None = None) -> list[Due]:
        """The same for those who look again and again: a row that has not changed is not read again."""
        revisions = self._speaker.revisions
        revisions.known()
        seen = [revisions.look(row) for row in rows]
        new = [row for row, due in zip(rows, seen, strict=True) if due is None]
        if not new:
            return [due for due in seen if due is not None]
        read = {due.schedule.id: due for due in self._read_due(new, lost=lost)}
        if not self._speaker.drafting:
            for row in new:
                if row[0] in read:
                    revisions.keep_look(row, read[row[0]])
        pairs = zip(rows, seen, strict=True)
        return [found for row, due in pairs if (found := due or read.get(row[0])) is not None]

    def _read_due(
        self, rows: Sequence[Row], *, now: datetime | None = None, lost: dict[str, str] | None = None
    ) -> list[Due]:
        """Schedules from their hot rows and their revision's text.

        One that cannot be understood is parked when it is due, told of in `lost` when that is given, and
        otherwise refused.
        """
        pairs = [(row[0], row[1]) for row in rows]
        schedules, why = self._schedules_of(pairs)
        found: list[Due] = []
        for pair, row in zip(pairs, rows, strict=True):
            try:
                schedule = schedules.get(pair) or read_schedule(why.get(pair, ""))
                flight = Flight(row[18], row[19]) if row[18] or row[19] else NO_FLIGHT
                found.append(Due(schedule, read_standing(row[2:17]), flight, row[17]))
            except UnreadableRow as error:
                if lost is not None:
                    lost[row[0]] = error.message
                elif now is None:
                    raise
                else:
                    self.park_unreadable(row[0], reason=str(error), now=now)
        return found

    def _schedules_of(self, pairs: Sequence[Pair]) -> tuple[dict[Pair, Schedule], dict[Pair, str]]:
        """What schedules say at a revision; and the texts of those that cannot be understood."""
        try:
            return self.get_revisions(pairs), {}
        except UnreadableRow:
            return {}, {(row[0], row[1]): row[2] for row in self._tell("get_revisions", pairs)}


def _cursor_pair(cursor: str) -> tuple[str, str]:
    namespace, _, name = cursor.partition("\n")
    return namespace, name
