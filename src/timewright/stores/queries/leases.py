"""Queries for leases: grants, renewals, limits, and fences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from timewright.core.moments import to_micros
from timewright.core.policies.limits import (
    KEY_MARK,
    LIMIT,
    Limit,
    decode_limit,
    is_grouped_key,
    named_limit_key,
)
from timewright.core.run.leasing import SHARE_UNIT, LimitGroup, LimitUsage, share_key, share_limit
from timewright.core.run.run import Attempt, Run, RunState
from timewright.ports import (
    Grant,
    Renewal,
    Renewed,
)
from timewright.stores.queries.ready_runs import SqlReadyQueries
from timewright.stores.rows import (
    Row,
    attempt_columns,
    cached_micros,
    ready_bucket,
    settled_columns,
    storable_text,
    to_instant,
)

# A limit that a run names and nobody has defined lets one run start at a time.
DEFAULT_LIMIT = 1


class SqlLeaseQueries(SqlReadyQueries):
    """Leases and concurrency limits."""

    def set_limits(self, limits: Mapping[str, int]) -> None:
        """Set the capacity of limits without a key and a rate."""
        if limits:
            rows = [(key, capacity, 0, 1) for key, capacity in sorted(limits.items())]
            self._execute_many("set_limits", rows)

    def define_limit(self, namespace: str, limit: Limit) -> None:
        """Put a named limit into force, for all values of its key and all runs that wait for it."""
        key, rate = named_limit_key(namespace, limit.name), limit.parsed_rate
        numbers = (limit.capacity, rate.interval if rate else 0, rate.burst if rate else 1)
        self._execute_many("set_limits", [(key, *numbers)])
        values = key_range(key)
        fields = dict(zip(("capacity", "rate_interval", "burst"), numbers, strict=True))
        self._query("set_limit_keys", {**fields, **values})
        weights = [(f"{key}{KEY_MARK}{value}", weight) for value, weight in sorted(limit.weights.items())]
        if weights:
            self._execute_many("set_limit_weights", weights)
        self._query("open_groups_of_limit", values)

    def get_limits(self, keys: Iterable[str], *, lock: bool = False) -> dict[str, LimitUsage]:
        """Return capacity and use of limits; `lock` keeps both unchanged until the transaction ends."""
        if lock:
            return self.lock_limits(keys)
        wanted = sorted(set(keys))
        limits = {row[0]: row[1:] for row in self._query("read_limits", {"keys": wanted})}
        missing = [key for key in wanted if key not in limits]
        limits |= self._new_limit_rows(missing) if missing else {}
        held = {row[0]: row[1] for row in self._query("count_limit_holds", {"keys": wanted})}
        return self._usages({key: (*limits[key], held.get(key, 0)) for key in wanted})

    def lock_limits(self, keys: Iterable[str]) -> dict[str, LimitUsage]:
        """Lock limits until the transaction ends and return their capacity and use."""
        wanted = sorted(set(keys))
        if not wanted:
            return {}
        if not self._executor.is_remote:
            return self._limits_with_use(wanted)
        if not any(is_grouped_key(key) for key in wanted):
            self._execute_many("ensure_limits", [(key, DEFAULT_LIMIT, 0, 1, 1) for key in wanted])
        limits = {row[0]: row[1:] for row in self._query("lock_limits", {"keys": wanted})}
        # Rows of keys are removed when they are out of use, perhaps just now.
        while missing := [key for key in wanted if key not in limits]:
            self._add_limit_rows(missing)
            limits |= {row[0]: row[1:] for row in self._query("lock_limits", {"keys": missing})}
        held = {row[0]: row[1] for row in self._query("count_limit_holds", {"keys": wanted})}
        return self._usages({key: (*limits[key], held.get(key, 0)) for key in wanted})

    def _limits_with_use(self, wanted: list[str]) -> dict[str, LimitUsage]:
        rows = self._query("limits_with_use", {"keys": wanted})
        if len(rows) < len(wanted):
            known = {row[0] for row in rows}
            self._add_limit_rows([key for key in wanted if key not in known])
            rows = self._query("limits_with_use", {"keys": wanted})
        return self._usages({row[0]: row[1:] for row in rows})

    def _add_limit_rows(self, keys: list[str]) -> None:
        """Make the rows of limits; of a key, from the limit, which stays unchanged until the commit."""
        rows = self._new_limit_rows(keys, lock=self._executor.is_remote)
        self._execute_many("ensure_limits", [(key, *row[:3], row[4]) for key, row in sorted(rows.items())])

    def _new_limit_rows(self, keys: list[str], *, lock: bool = False) -> dict[str, Row]:
        """The columns of limits that have no row yet; a key has the numbers of its limit."""
        limits = sorted({share_limit(key) for key in keys if is_grouped_key(key)})
        found: dict[str, Row] = {}
        if limits:
            statement = "share_limits" if lock else "read_limits"
            found = {row[0]: row[1:4] for row in self._query(statement, {"keys": limits})}
        default = (DEFAULT_LIMIT, 0, 1)
        weights = self._weights_of(keys) if limits else {}
        return {
            key: (
                *(found.get(share_limit(key), default) if is_grouped_key(key) else default),
                0,
                weights.get(key, 1),
                0,
            )
            for key in keys
        }

    def _weights_of(self, keys: list[str]) -> dict[str, int]:
        """The weights of keys that have one, from the definitions of their limits."""
        weights: dict[str, int] = {}
        names: dict[str, set[str]] = {}
        for key in keys:
            namespace, _, name = share_limit(key).removeprefix("limit:").partition("/")
            names.setdefault(namespace, set()).add(name)
        for namespace, found in names.items():
            parameters = {"kind": LIMIT, "namespace": namespace, "all_names": 0, "names": sorted(found)}
            for row in self._query("get_objects", parameters):
                for value, weight in decode_limit(row[4]).weights.items():
                    weights[f"{named_limit_key(namespace, row[2])}{KEY_MARK}{value}"] = weight
        return weights

    def _usages(self, rows: Mapping[str, Row]) -> dict[str, LimitUsage]:
        """Limits by key; a key that was out of use is at most one start behind the largest share."""
        limits = sorted({share_limit(key) for key in rows if is_grouped_key(key)})
        shares: dict[str, int] = {}
        if limits:
            found = self._query("largest_shares", {"limits": self._list_parameter(limits)})
            shares = {row[0]: (row[1] or 0) - SHARE_UNIT for row in found}
        usages = {}
        for key, (capacity, interval, burst, arrival, weight, used, held) in rows.items():
            share = max(used, shares.get(share_limit(key), 0)) if shares else used
            usages[key] = LimitUsage(capacity, held, interval, burst, arrival, weight, share)
        return usages

    def save_limit_use(
        self, limits: Mapping[str, LimitUsage], groups: Sequence[LimitGroup], *, now: datetime
    ) -> None:
        """Write what locked limits with a key or a rate have used, and what their groups wait for."""
        micros = to_micros(now)
        rows = [
            (key, usage.arrival_at, usage.share_used, micros if is_grouped_key(key) else 0)
            for key, usage in sorted(limits.items())
        ]
        if rows:
            self._execute_many("save_limit_use", rows)
        by_bucket = {ready_bucket(group.needs, group.limit_keys): group for group in groups}
        states = [
            (bucket, group.share_used, group.waits_for, to_micros(group.open_at) if group.open_at else 0)
            for bucket, group in sorted(by_bucket.items())
        ]
        if states:
            self._execute_many("save_groups", states)
        self._close_empty_groups([b for b, group in by_bucket.items() if group.may_be_empty], now=now)

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

    def renew_leases(self, renewals: Sequence[Renewal]) -> list[Renewed]:
        """Renew leases; returns those whose fence still matched."""
        if not renewals:
            return []
        rows = [(r.run_id, r.fence, to_micros(r.lease_until), int(r.despite_cancel)) for r in renewals]
        renewed = self._execute_many("renew_leases", rows)
        return [Renewed(row[0], row[1], to_instant(row[2])) for row in renewed]

    def expired_leases(self, *, now: datetime, limit: int, dead_holder: str = "") -> list[Run]:
        """Lock and return runs whose lease has expired, or all of a dead holder; skips locked rows."""
        if dead_holder:
            rows = self._query("leases_of_holder", {"holder": dead_holder, "limit": limit})
        else:
            rows = self._query("expired_leases", {"now": to_micros(now), "limit": limit})
        return self._decode_or_park(rows)

    def settle_runs(self, settled: Sequence[tuple[Run, Attempt]]) -> set[str]:
        """Write the end of leases; returns the ids whose fence still matched."""
        if not settled:
            return set()
        settled_ids = set(self._execute_columns("settle_runs", settled_columns(settled)))
        ended = [attempt for run, attempt in settled if run.id in settled_ids]
        if ended:
            self._execute_columns("insert_attempts", attempt_columns(ended))
        limited = [run for run, _ in settled if run.limit_keys and run.id in settled_ids]
        if any(share_key(run.limit_keys) for run in limited):
            self._release_holds([run.id for run in limited])
        elif limited:
            self._query("delete_limit_holds", {"ids": [run.id for run in limited]})
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


def key_range(limit_key: str) -> dict[str, str]:
    """The limit keys of all values of the key of a limit: from `first` to before `last`."""
    return {"first": limit_key + KEY_MARK, "last": limit_key + chr(ord(KEY_MARK) + 1)}


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
