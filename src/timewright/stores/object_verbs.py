"""How a store reads and forgets objects that come one after another."""

from __future__ import annotations

from datetime import datetime

from timewright.core.moments import from_micros, micros
from timewright.ports import Stored
from timewright.stores.verbs import LAST, Verbs, page_limit


class SqlObjectVerbs(Verbs):
    """The verbs of `ports.objects.ObjectVerbs`."""

    def newest_objects(self, kind: str, *, namespace: str, before: str = "", limit: int = 50) -> list[Stored]:
        """Objects of one kind, the last name first; with `before`, only names ahead of it."""
        asked = {"kind": kind, "namespace": namespace, "before": before or LAST, "limit": page_limit(limit)}
        return [
            Stored(
                kind=r[0], namespace=r[1], name=r[2], revision=r[3], body=r[4].encode(), at=from_micros(r[5])
            )
            for r in self._ask("newest_objects", asked)
        ]

    def prune_objects(self, kind: str, *, namespace: str, older_than: datetime, limit: int = 100) -> int:
        """Remove the first names of a kind that were written before an instant; says how many went."""
        older, most = micros(older_than), page_limit(limit)
        asked = {"kind": kind, "namespace": namespace, "older": older, "limit": most}
        return len(self._ask("prune_objects", asked))
