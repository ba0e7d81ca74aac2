"""What a store reads for those who look at many schedules at once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from timewright.core.moments import EPOCH, micros
from timewright.ports.glance import Counts, Mark, Membership, Past
from timewright.stores.rows import MICROSECOND, Row, to_instant
from timewright.stores.run_verbs import since_parameters
from timewright.stores.verbs import Verbs


class SqlGlanceVerbs(Verbs):
    """The verbs of `ports.glance.GlanceVerbs`."""

    def upcoming(self, namespace: str, *, until: datetime, limit: int) -> list[str]:
        """The ids of the schedules that will be looked at next, the earliest first."""
        asked = {"namespace": namespace, "until": micros(until), "limit": limit}
        return [row[0] for row in self._ask("upcoming", asked)]

    def newest_marks(self, schedule_ids: Iterable[str], *, each: int) -> dict[str, tuple[Mark, ...]]:
        """The newest occurrences of schedules, oldest first, at most `each` of every schedule."""
        found: dict[str, list[Mark]] = {}
        for row in self._ask("newest_marks", {"ids": list(schedule_ids), "most": each}):
            found.setdefault(row[0], []).append(_mark(row))
        return {schedule_id: tuple(reversed(marks)) for schedule_id, marks in found.items()}

    def count_standing(self, namespace: str, *, failed_since: datetime, most: int) -> Counts:
        """How many runs stand in each of those states, each counted up to `most`."""
        asked = {"namespace": namespace, "most": most, **since_parameters(failed_since)}
        ((leased, ready, failed, parked),) = self._ask("count_standing", asked)
        return Counts(leased=leased, ready=ready, failed=failed, parked=parked)

    def groups(self, namespace: str, *, after: str, limit: int) -> list[Membership]:
        """The groups that have schedules, by name, from one on; it walks the schedules of the namespace."""
        rows = self._ask("groups", {"namespace": namespace, "after": after, "limit": limit})
        return [
            Membership(name=row[0], schedules=row[1], active=row[2], paused=row[3], parked=row[4])
            for row in rows
        ]

    def past(self, namespace: str, *, since: datetime, limit: int) -> list[Past]:
        """The occurrences planned since an instant, the newest first."""
        rows = self._ask("past", {"namespace": namespace, "limit": limit, **since_parameters(since)})
        return [_past(*row) for row in rows]


def _past(state: str, planned_at: int, fire_at: int, started_at: int | None) -> Past:
    late_by = None if started_at is None else (started_at - fire_at) * MICROSECOND
    return Past(state, EPOCH + planned_at * MICROSECOND, late_by)


def _mark(row: Row) -> Mark:
    planned_at = to_instant(row[2])
    assert planned_at is not None
    return Mark(
        schedule_id=row[0],
        run=row[1],
        planned_at=planned_at,
        started_at=to_instant(row[3]),
        finished_at=to_instant(row[4]),
        state=row[5],
        reason=row[6],
        dropped=int(row[7]),
    )
