"""Queries for leases: ready runs, limits, and fences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby, islice
from operator import itemgetter

from msgspec.structs import replace

from timewright.core.moments import to_micros
from timewright.core.run.leasing import LimitUsage
from timewright.core.run.run import Attempt, Run, RunState
from timewright.errors import UnreadableRow
from timewright.ports import (
    Grant,
    Renewal,
    Renewed,
)
from timewright.stores.queries.base import MAX_PAGE_ROWS, SqlQueries
from timewright.stores.rows import (
    Row,
    attempt_columns,
    cached_micros,
    limit_keys_of,
    read_fresh_run,
    read_run,
    ready_bucket,
    settled_columns,
    storable_text,
    to_instant,
)

DEFAULT_LIMIT = 1
FOREVER = 2**62

# Up to this many ready runs are read in one query; with more, one query per ready bucket.
SMALL_BATCH_ROWS = 32

_BY_ID = _BY_BUCKET = itemgetter(0)
# Column numbers in rows of ready runs: never leased, ready bucket, deferred runs due.
_IS_FRESH, _BUCKET, _DEFERRED_DUE = 16, 17, 18


class SqlLeaseQueries(SqlQueries):
    """Leases and concurrency limits."""

    def ready_runs(
        self,
        *,
        now: datetime,
        limit: int,
        handoff: bool = False,
        queue: str = "",
        oldest_of: tuple[str, ...] | None = None,
    ) -> list[Run]:
        """Return runs that may start, best first, at most `limit` of each set with the same limits.

        `queue` is the limit key of a queue: only runs under that limit are returned. `oldest_of` are the
        limit keys of one set: its longest waiting runs are returned, in any priority, for queues with aging.
        """
        if oldest_of is not None:
            parameters = {"handoff": int(handoff), "ready_bucket": ready_bucket(oldest_of), "limit": limit}
            return self._decode_or_park(self._query("oldest_ready_runs", parameters))
        if self._executor.is_remote and not queue:
            return self._ready_of_all_buckets(now=now, limit=limit, handoff=handoff)
        if self._query("any_deferred_due", {"now": to_micros(now)}):
            self._wake_deferred(now=now, limit=limit)
        found: list[Run] = []
        for bucket, rows in self._buckets(limit=limit, handoff=handoff, queue=queue):
            found += self._decode_ready(rows, limit_keys_of(bucket))
        return found

    def _buckets(self, *, limit: int, handoff: bool, queue: str) -> Iterator[tuple[str, Sequence[Row]]]:
        """Yield ready runs per bucket; a small number is read in one query."""
        if limit < SMALL_BATCH_ROWS and not self._executor.is_remote:
            first = self._query("first_ready_runs", {"handoff": int(handoff), "limit": SMALL_BATCH_ROWS})
            if len(first) < SMALL_BATCH_ROWS:
                for bucket, rows in groupby(first, key=_BY_BUCKET):
                    if not queue or queue in limit_keys_of(bucket):
                        yield bucket, [row[1:] for row in islice(rows, limit)]
                return
        for (bucket,) in self._query("ready_buckets", {"handoff": int(handoff)}):
            if not queue or queue in limit_keys_of(bucket):
                parameters = {"handoff": int(handoff), "ready_bucket": bucket, "limit": limit}
                yield bucket, self._query("ready_runs_of_bucket", parameters)

    def set_limits(self, limits: Mapping[str, int]) -> None:
        """Set the capacity of limits."""
        if limits:
            self._execute_many("set_limits", sorted(limits.items()))

    def get_limits(self, keys: Iterable[str], *, lock: bool = False) -> dict[str, LimitUsage]:
        """Return capacity and use of limits; `lock` keeps both unchanged until the transaction ends."""
        if lock:
            return self.lock_limits(keys)
        wanted = sorted(set(keys))
        limits = {row[0]: row[1] for row in self._query("read_limits", {"keys": wanted})}
        held = {row[0]: row[1] for row in self._query("count_limit_holds", {"keys": wanted})}
        return {key: LimitUsage(limits.get(key, DEFAULT_LIMIT), held.get(key, 0)) for key in wanted}

    def lock_limits(self, keys: Iterable[str]) -> dict[str, LimitUsage]:
        """Lock limits until the transaction ends and return their capacity and use."""
        wanted = sorted(set(keys))
        if not wanted:
            return {}
        if not self._executor.is_remote:
            return self._limits_with_use(wanted)
        self._execute_many("ensure_limits", [(key, DEFAULT_LIMIT) for key in wanted])
        limits = {row[0]: row[1] for row in self._query("lock_limits", {"keys": wanted})}
        held = {row[0]: row[1] for row in self._query("count_limit_holds", {"keys": wanted})}
        return {key: LimitUsage(limits[key], held.get(key, 0)) for key in wanted}

    def _limits_with_use(self, wanted: list[str]) -> dict[str, LimitUsage]:
        rows = self._query("limits_with_use", {"keys": wanted})
        if len(rows) < len(wanted):
            self._execute_many("ensure_limits", [(key, DEFAULT_LIMIT) for key in wanted])
            rows = self._query("limits_with_use", {"keys": wanted})
        return {key: LimitUsage(capacity, held) for key, capacity, held in rows}

    def lease_runs(self, grants: Sequence[Grant]) -> list[Run]:
        """Lease ready runs; returns those that were leased."""
        if not grants:
            return []
        columns = (
            [grant.run.id for grant in grants],
            [grant.run.fence for grant in grants],
            [grant.lease_id for grant in grants],
            [grant.holder for grant in grants],
            [cached_micros(grant.leased_at) for grant in grants],
            [cached_micros(grant.lease_until) for grant in grants],
        )
        changed = self._execute_columns("lease_runs", columns)
        if len(changed) < len(grants):
            ids = set(changed)
            grants = [grant for grant in grants if grant.run.id in ids]
        leased = [_leased(grant) for grant in grants]
        self._insert_limit_holds([run for run in leased if run.limit_keys])
        return leased

    def renew_leases(self, renewals: Sequence[Renewal], *, now: datetime) -> list[Renewed]:
        """Renew leases; returns those whose fence still matched."""
        if not renewals:
            return []
        rows = [(r.run_id, r.fence, to_micros(r.lease_until)) for r in renewals]
        renewed = self._execute_many("renew_leases", rows)
        return [Renewed(row[0], row[1], to_instant(row[2])) for row in renewed]

    def expired_leases(self, *, now: datetime, limit: int) -> list[Run]:
        """Lock and return runs whose lease has expired, skipping rows locked by others."""
        return self._decode_or_park(self._query("expired_leases", {"now": to_micros(now), "limit": limit}))

    def leased_runs(self, *, holder: str = "", cancel_requested: bool = False) -> list[Run]:
        """Return every leased run, or those of one holder; optionally only those asked to stop."""
        statement = "cancel_requested_runs" if cancel_requested else "leased_runs"
        rows = self._query(statement, {"holder": holder})
        return [read_run(row) for row in sorted(rows, key=_BY_ID)]

    def find_lease(self, lease_id: str) -> Run | None:
        """Return a leased run by its lease id."""
        for since, until in (_lease_instant_range(lease_id), (0, FOREVER)):
            parameters = {"lease_id": lease_id, "since": since, "until": until}
            rows = self._query("find_lease", parameters)
            if rows:
                return read_run(rows[0])
        return None

    def settle_runs(self, settled: Sequence[tuple[Run, Attempt]]) -> set[str]:
        """Write the end of leases; returns the ids whose fence still matched."""
        if not settled:
            return set()
        settled_ids = set(self._execute_columns("settle_runs", settled_columns(settled)))
        ended = [attempt for run, attempt in settled if run.id in settled_ids]
        if ended:
            self._execute_columns("insert_attempts", attempt_columns(ended))
        limited = [run.id for run, _ in settled if run.limit_keys and run.id in settled_ids]
        if limited:
            self._query("delete_limit_holds", {"ids": limited})
        return settled_ids

    def request_cancel(
        self, requests: Sequence[tuple[str, datetime]], *, at: datetime, reason: str
    ) -> set[str]:
        """Request leased runs to stop by an instant; returns the ids that were marked."""
        if not requests:
            return set()
        rows = [
            (run_id, to_micros(at), to_micros(until), storable_text(reason)) for run_id, until in requests
        ]
        return {row[0] for row in self._execute_many("request_cancel", rows)}

    def _ready_of_all_buckets(self, *, now: datetime, limit: int, handoff: bool) -> list[Run]:
        """Ready runs of all buckets in one round trip; a second one if deferred runs were due."""
        parameters = {"now": to_micros(now), "handoff": int(handoff), "limit": limit}
        rows = self._query("ready_runs_of_all_buckets", parameters)
        if rows[0][_DEFERRED_DUE]:
            self._wake_deferred(now=now, limit=limit)
            rows = self._query("ready_runs_of_all_buckets", parameters)
        buckets: dict[str, list[Row]] = {}
        for row in rows:
            if row[_BUCKET] is not None:
                buckets.setdefault(row[_BUCKET], []).append(row)
        found: list[Run] = []
        for bucket in sorted(buckets):
            found += self._decode_ready(buckets[bucket], limit_keys_of(bucket))
        return found

    def _wake_deferred(self, *, now: datetime, limit: int) -> None:
        self._query("wake_deferred_runs", {"now": to_micros(now), "limit": max(limit, MAX_PAGE_ROWS)})

    def _decode_ready(self, rows: Sequence[Row], limit_keys: tuple[str, ...]) -> list[Run]:
        """The runs of one bucket in order; those that were leased before are read in full."""
        try:
            fresh = [read_fresh_run(row, limit_keys) for row in rows if row[_IS_FRESH]]
        except UnreadableRow:
            fresh = []
        if len(fresh) == len(rows):
            return fresh
        known = {run.id: run for run in fresh}
        others = [row[0] for row in rows if row[0] not in known]
        known |= {run.id: run for run in self._decode_or_park(self._query("get_runs", {"ids": others}))}
        return [known[row[0]] for row in rows if row[0] in known]

    def _decode_or_park(self, rows: Sequence[Row]) -> list[Run]:
        """Decode runs; unreadable ones are parked, so that they block no other run."""
        found: list[Run] = []
        unreadable: list[str] = []
        for row in rows:
            try:
                found.append(read_run(row))
            except UnreadableRow:
                unreadable.append(row[0])
        if unreadable:
            self._query("park_unreadable_runs", {"ids": unreadable})
            self._query("delete_limit_holds", {"ids": unreadable})
        return found


def _lease_instant_range(lease_id: str) -> tuple[int, int]:
    """The millisecond encoded in a lease id, as a range in microseconds."""
    milliseconds = 0
    for letter in lease_id.removeprefix("lease_")[:10]:
        milliseconds = milliseconds * 32 + max("0123456789ABCDEFGHJKMNPQRSTVWXYZ".find(letter), 0)
    return milliseconds * 1000, milliseconds * 1000 + 1000


def _leased(grant: Grant) -> Run:
    return replace(
        grant.run,
        state=RunState.LEASED,
        fence=grant.run.fence + 1,
        lease_id=grant.lease_id,
        holder=grant.holder,
        leased_at=grant.leased_at,
        lease_until=grant.lease_until,
        started_at=None,
        cancel_at=None,
        reason="",
    )
