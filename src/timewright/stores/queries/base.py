"""The base of all query classes: the executor interface and page limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from timewright.core.run.run import Run
from timewright.errors import Conflict, InvalidInput
from timewright.stores.cache import RowCache
from timewright.stores.rows import (
    GROUP_KEYS,
    Row,
)

MAX_PAGE_ROWS = 1_000
LAST_KEY = "\U0010ffff"


class Executor(Protocol):
    """Runs named statements in one open transaction.

    `has_uncommitted_revisions` says that revisions were written that may be rolled back, so they must not be
    cached. `is_remote` says that each statement is a round trip and that others write at the same time;
    otherwise there is one writer and rows need no locks.
    """

    cache: RowCache
    has_uncommitted_revisions: bool
    is_remote: bool

    def query(self, name: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run one statement and return its rows."""
        ...

    def execute_many(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run one statement for many rows and return what it returns."""
        ...

    def execute_columns(self, name: str, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Run one statement for many rows given as columns.

        Returns the first column of the rows that changed, or all of it if the statement does not report them.
        """
        ...

    def now(self) -> datetime:
        """Return the store's clock."""
        ...


class SqlQueries:
    """Queries in one open transaction."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._query = executor.query
        self._execute_many = executor.execute_many
        self._execute_columns = executor.execute_columns

    def now(self) -> datetime:
        """Return the store's clock, read in this transaction after it has waited for its locks."""
        return self._executor.now()

    def _list_parameter(self, values: list[str]) -> list[str] | str:
        """A list for `{each:…}`: SQLite reads it as JSON."""
        return values if self._executor.is_remote else msgspec.json.encode(values).decode()

    def _add_buckets(self, buckets: Iterable[str]) -> None:
        """Register the ready buckets of new runs; those known to be committed cost nothing."""
        cache = self._executor.cache
        # Instances keep no list of groups, only of their bases.
        new = {bucket.partition(GROUP_KEYS)[0] for bucket in buckets} - cache.known_buckets - {""}
        if not new:
            return
        found = {row[0] for row in self._query("find_buckets", {"buckets": sorted(new)})}
        if not self._executor.has_uncommitted_revisions:
            cache.known_buckets |= found
        if new - found:
            self._executor.has_uncommitted_revisions = True
            if self._executor.is_remote:
                self._query("lock_buckets", {})
            self._execute_many("insert_buckets", [(bucket,) for bucket in sorted(new - found)])

    def _insert_limit_holds(self, runs: Sequence[Run]) -> None:
        rows = [(key, run.id, run.fence) for run in runs for key in run.limit_keys]
        if rows:
            self._execute_many("insert_limit_holds", rows)


def page_limit(limit: int) -> int:
    """Return `limit` if it is in range; raise InvalidInput otherwise."""
    if not 1 <= limit <= MAX_PAGE_ROWS:
        raise InvalidInput(
            f"limit {limit} is out of range",
            field="limit",
            value=limit,
            rule=f"1 to {MAX_PAGE_ROWS}",
            fix="use limit 50 and the cursor of the answer for the next page",
        )
    return limit


def escape_like(text: str) -> str:
    """Escape the wildcards of LIKE."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def stale_revision(label: str, given: int, last: int) -> Conflict:
    """The error for an edit of a revision other than the last."""
    return Conflict(
        f"{label} is at revision {last}, not {given}",
        field="revision",
        value=given,
        rule="an edit must name the latest revision",
        fix=f"read it again and replace revision {last}",
    )
