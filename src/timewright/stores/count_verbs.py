"""What a store counts for those who watch it: what lives now, never what is history."""

from __future__ import annotations

from datetime import datetime

from timewright.core.moments import micros
from timewright.ports import Count
from timewright.stores.rows import to_instant
from timewright.stores.verbs import Verbs


class CountVerbs(Verbs):
    """Counts over what is live; each looks at a bounded number of rows."""

    def count_live(self, *, now: datetime, most: int) -> list[Count]:
        """What waits, is under way or needs a person; of each kind it looks at no more than `most` rows."""
        oldest = {(row[0], row[1]): row[2] for row in self._ask("oldest_ready", {"most": most})}
        rows = self._ask("count_live", {"now": micros(now), "most": most})
        return [
            Count(
                namespace=row[0],
                queue=row[1],
                kind=row[2],
                count=int(row[3]),
                oldest=to_instant(oldest.get((row[0], row[1])) if row[2] == "ready" else None),
            )
            for row in rows
        ]
