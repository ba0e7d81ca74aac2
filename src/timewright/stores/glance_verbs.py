"""What a store reads for those who look at many schedules at once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from timewright.core.moments import micros
from timewright.ports.glance import Mark
from timewright.stores.rows import Row, to_instant
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
