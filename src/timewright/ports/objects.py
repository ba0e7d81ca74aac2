"""What we ask of a store for objects that come one after another: a page of the newest, and forgetting."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from timewright.ports.rows import Stored


class ObjectVerbs(Protocol):
    """Verbs for kinds of objects whose names rise with time; each costs what it gives back."""

    def newest_objects(self, kind: str, *, namespace: str, before: str = "", limit: int = 50) -> list[Stored]:
        """Objects of one kind, the last name first; with `before`, only names ahead of it."""
        ...

    def prune_objects(self, kind: str, *, namespace: str, older_than: datetime, limit: int = 100) -> int:
        """Remove the first names of a kind that were written before an instant; says how many went."""
        ...
