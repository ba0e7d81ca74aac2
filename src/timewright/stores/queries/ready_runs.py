"""Queries for ready runs, by bucket: runs that share their needs and limits share a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter

from timewright.core.moments import to_micros
from timewright.core.policies.limits import is_grouped_key
from timewright.core.run.leasing import LimitUsage, allocate_starts
from timewright.core.run.needs import LeaseOffer
from timewright.core.run.run import Run
from timewright.errors import UnreadableRow
from timewright.stores.cache import BucketList
from timewright.stores.queries.base import MAX_PAGE_ROWS, SqlQueries
from timewright.stores.rows import (
    GROUP_MARK,
    Row,
    read_fresh_run,
    read_run,
    ready_bucket,
    split_bucket,
)

# Up to this many ready runs are read in one query; with more, one query per ready bucket.
SMALL_BATCH_ROWS = 32
# Up to this many buckets are looked up one by one; of more, the non-empty ones are found first.
MAX_PROBED_BUCKETS = 256
# How many keys are read per run to lease, so that instances lease different ones, and at least of a bucket.
KEYS_PER_RUN, MIN_KEYS = 4, 16
# Leases of at least this size are made one after another. An instance has fewer places by default, so only
# those wait that lease ahead of quick runs. On two cores, 100,000 quick runs: 4 instances run 25,000 a second
# instead of 12,000, 8 instances 20,000 instead of 11,000.
MIN_LARGE_LEASE = 150

# How many open groups of a base are read, at least and at most.
MIN_GROUPS, MAX_GROUPS = 16, 256
# How often runs are looked for in other groups, if the first ones had fewer than their share.
MAX_GROUP_ROUNDS = 4

_BY_BUCKET = itemgetter(0)
# Column numbers in rows of ready runs: never leased, ready bucket, deferred runs due; then whether a bucket
# was cut (of some buckets), or whether groups wait (of all buckets).
_IS_FRESH, _BUCKET, _DEFERRED_DUE, _IS_CUT, _HAS_GROUPS = 16, 17, 18, 19, 19


class SqlReadyQueries(SqlQueries):
    """Runs that may be leased now, and the buckets they are in."""

    def ready_runs(
        self,
        *,
        now: datetime,
        limit: int,
        handoff: bool = False,
        queue: str = "",
        oldest_of: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
        offer: LeaseOffer | None = None,
    ) -> list[Run]:
        """Return runs that may start, best first, at most `limit` of each set with the same limits.

        `queue` is the limit key of a queue: only runs under that limit are returned. `oldest_of` are the
        needs and limit keys of one bucket: its longest waiting runs are returned, in any priority, for queues
        with aging. With `offer`, only rows of buckets are read that the instance can start now.
        """
        if oldest_of is not None:
            bucket = ready_bucket(*oldest_of)
            parameters = {"handoff": int(handoff), "ready_bucket": bucket, "limit": limit}
            return self._decode_or_park(self._query("oldest_ready_runs", parameters))
        if offer is not None:
            return self._ready_for_offer(offer, now=now, limit=limit)
        if self._executor.is_remote and not queue:
            return self._ready_of_all_buckets(now=now, limit=limit, handoff=handoff)
        if self._query("any_deferred_due", {"now": to_micros(now)}):
            self._wake_deferred(now=now, limit=limit)
        found = self._ready_of_bases(None, now=now, limit=limit, handoff=handoff, queue=queue)
        for bucket, rows in self._buckets(limit=limit, handoff=handoff, queue=queue):
            found += self._decode_ready(rows, bucket)
        return found

    def wake_waiting_schedules(self, offer: LeaseOffer, *, now: datetime) -> int:
        """Make the set-aside schedules due that this offer can run; returns how many buckets they had."""
        able = self._waiting_buckets_of(offer)
        if able:
            self._query("wake_waiting_schedules", {"buckets": able, "now": to_micros(now)})
        return len(able)

    def set_aside(self, schedules: Sequence[tuple[str, tuple[str, ...]]], *, until: datetime) -> None:
        """Take schedules with these needs out of what is due, until an instant or until one can run them."""
        rows = [(schedule_id, to_micros(until), ready_bucket(needs, ())) for schedule_id, needs in schedules]
        if rows:
            self._execute_many("set_aside", rows)

    def _waiting_buckets_of(self, offer: LeaseOffer) -> list[str]:
        rows = self._query("waiting_buckets", {})
        return [row[0] for row in rows if not offer.offer.lacks(split_bucket(row[0])[0])]

    def _startable_buckets(self, offer: LeaseOffer) -> list[str]:
        """The buckets that an instance can start runs of now, from memory; new ones are read first."""
        return self._startable(self._bucket_list(offer), offer)

    def _startable(self, known: BucketList, offer: LeaseOffer) -> list[str]:
        if not offer.free and offer.shares is None and not offer.messages_only:
            return list(known.served)
        return [one for one in known.served if offer.count_startable(split_bucket(one)[0], at_most=1)]

    def _bucket_list(self, offer: LeaseOffer, *, newest: int | None = None) -> BucketList:
        """All buckets with those that an offer can serve; `newest` is the last id, if it was just read."""
        cache = self._executor.cache
        known = cache.buckets
        if newest is None or newest > known.newest:
            rows = self._query("new_buckets", {"after": known.newest})
            if rows:
                known = BucketList(rows[-1][0], known.buckets + tuple(row[1] for row in rows))
        if known.offer is not offer.offer:
            able = (one for one in known.buckets if not offer.offer.lacks(split_bucket(one)[0]))
            known = BucketList(known.newest, known.buckets, offer.offer, tuple(able))
        if known is not cache.buckets and not self._executor.has_uncommitted_revisions:
            cache.buckets = known
            cache.known_buckets.update(known.buckets)
        return known

    def _ready_for_offer(self, offer: LeaseOffer, *, now: datetime, limit: int) -> list[Run]:
        """The best runs of each group of buckets that share their limits and their slot."""
        if not self._executor.is_remote and self._query("any_deferred_due", {"now": to_micros(now)}):
            self._wake_deferred(now=now, limit=limit)
        buckets = self._startable_buckets(offer)
        found = self._ready_of_offered_groups(buckets, offer, now=now, limit=limit)
        buckets = [bucket for bucket in buckets if not bucket.startswith(GROUP_MARK)]
        if len(buckets) > MAX_PROBED_BUCKETS:
            able = frozenset(buckets)
            buckets = [row[0] for row in self._query("ready_buckets", {"handoff": 0}) if row[0] in able]
        elif not self._executor.is_remote:
            parameters = {"buckets": self._list_parameter(buckets)}
            buckets = [row[0] for row in self._query("nonempty_buckets", parameters)]
        for group in _groups(buckets, offer):
            slot = offer.slot_of(split_bucket(group[0])[0])
            at_most = min(limit - 1, offer.free.get(slot, limit - 1)) + 1
            if self._executor.is_remote:
                found += self._ready_of_group(group, now=now, limit=at_most)
            else:
                found += self._merge_buckets(group, limit=at_most)
        return found

    def _ready_of_offered_groups(
        self, buckets: list[str], offer: LeaseOffer, *, now: datetime, limit: int
    ) -> list[Run]:
        """The runs of groups that an instance can start, at most as many as it has slots of each kind."""
        slots: dict[str, list[str]] = {}
        for base in buckets:
            if base.startswith(GROUP_MARK):
                slots.setdefault(offer.slot_of(split_bucket(base)[0]), []).append(base)
        found: list[Run] = []
        for slot, bases in slots.items():
            at_most = min(limit - 1, offer.free.get(slot, limit - 1)) + 1
            found += self._ready_of_bases(bases, now=now, limit=at_most)
        return found

    def _ready_of_bases(
        self,
        bases: list[str] | None,
        *,
        now: datetime,
        limit: int,
        handoff: bool = False,
        queue: str = "",
    ) -> list[Run]:
        """The next runs of the open groups of some bases, or of all, by the shares of their keys.

        Full limits and rates are read without a lock, only to choose what to read; leasing locks and reads
        them again. A group in which nothing waits is closed.
        """
        if bases is None:
            bases = [row[0] for row in self._query("group_bases", {"handoff": int(handoff)})]
        parameters = {"handoff": int(handoff), "now": to_micros(now)}
        parameters["limit"] = min(max(2 * limit, MIN_GROUPS), MAX_GROUPS)
        groups: dict[str, int] = {}
        for base in bases:
            if not queue or queue in split_bucket(base)[1]:
                groups |= {row[0]: row[1] for row in self._query("open_groups", {**parameters, "base": base})}
        if not groups:
            return []
        keys = {key for bucket in groups for key in split_bucket(bucket)[1] if is_grouped_key(key)}
        limits = self.get_limits(keys)
        found: dict[str, list[Run]] = {}
        drained: set[str] = set()
        for _ in range(MAX_GROUP_ROUNDS):
            # What a group did not have, because others hold its runs or it is empty, goes to the rest.
            rest = [bucket for bucket in groups if bucket not in drained]
            left = limit - sum(len(found[bucket]) for bucket in drained)
            keyed = [(split_bucket(bucket)[1], groups[bucket]) for bucket in rest]
            counts = allocate_starts(keyed, limits, count=left, now=now)
            # A group whose limit is full, which nobody has noted yet, is read too: leasing notes it.
            wanted = {bucket: n or 1 for bucket, n in zip(rest, counts, strict=True) if n or not any(counts)}
            if not wanted:
                break
            found |= self._ready_of_counts(wanted, handoff=handoff)
            new = {bucket for bucket, count in wanted.items() if len(found[bucket]) < count}
            drained |= new
            if not new:
                break
        self._close_empty_groups([bucket for bucket in drained if not found[bucket]], now=now)
        return [run for runs in found.values() for run in runs]

    def _ready_of_counts(self, wanted: dict[str, int], *, handoff: bool) -> dict[str, list[Run]]:
        """The best runs of each bucket, as many as it says."""
        if not self._executor.is_remote:
            found = {}
            for bucket, count in wanted.items():
                parameters = {"handoff": int(handoff), "ready_bucket": bucket, "limit": count}
                rows = self._query("ready_runs_of_bucket", parameters)
                found[bucket] = self._decode_ready(rows, bucket)
            return found
        numbers = "{" + ",".join(map(str, wanted.values())) + "}"
        parameters = {"buckets": list(wanted), "counts": numbers, "handoff": int(handoff)}
        by_bucket: dict[str, list[Row]] = {bucket: [] for bucket in wanted}
        for row in self._query("ready_runs_of_groups", parameters):
            by_bucket[row[_BUCKET]].append(row)
        return {bucket: self._decode_ready(rows, bucket) for bucket, rows in by_bucket.items()}

    def _close_empty_groups(self, buckets: list[str], *, now: datetime) -> None:
        """Close the groups in which no run waits; one to which a run is being added stays open."""
        if buckets and self._executor.is_remote:
            buckets = [row[0] for row in self._query("lock_groups", {"buckets": sorted(buckets)})]
        if buckets:
            self._query("close_empty_groups", {"buckets": buckets, "now": to_micros(now)})

    def get_limits(self, keys: Iterable[str], *, lock: bool = False) -> dict[str, LimitUsage]:
        """Return capacity and use of limits; `lock` keeps both unchanged until the transaction ends."""
        raise NotImplementedError

    def _ready_of_group(self, buckets: list[str], *, now: datetime, limit: int) -> list[Run]:
        """The best runs of some buckets on PostgreSQL; more keys are read if others hold the first ones."""
        per_bucket = max(limit * KEYS_PER_RUN // len(buckets), MIN_KEYS)
        if limit >= MIN_LARGE_LEASE:
            self._query("wait_for_other_leasing", {})
        while True:
            parameters = {"buckets": buckets, "now": to_micros(now), "limit": limit, "per_bucket": per_bucket}
            rows = self._query("ready_runs_of_buckets", parameters)
            if rows[0][_DEFERRED_DUE]:
                self._wake_deferred(now=now, limit=limit)
                rows = self._query("ready_runs_of_buckets", parameters)
            if len(rows) >= limit or not rows[0][_IS_CUT]:
                return self._decode_by_bucket(row for row in rows if row[0] is not None)
            per_bucket *= 8

    def _merge_buckets(self, buckets: list[str], *, limit: int) -> list[Run]:
        """The best runs of some buckets on SQLite; of several, the keys are merged before rows are read."""
        if len(buckets) == 1:
            parameters = {"handoff": 0, "ready_bucket": buckets[0], "limit": limit}
            return self._decode_ready(self._query("ready_runs_of_bucket", parameters), buckets[0])
        per_bucket = max(2 * limit // len(buckets), MIN_KEYS)
        while True:
            keys = [self._ready_keys(bucket, limit=per_bucket) for bucket in buckets]
            # Behind the last key of a bucket that was cut, a better run may have been left out.
            cut = min((found[-1] for found in keys if len(found) == per_bucket), default=None)
            best = list(islice(merge(*keys), limit))
            if cut is None or (len(best) == limit and best[-1] <= cut):
                return self._decode_by_bucket(
                    self._query("ready_runs_by_id", {"ids": [key[2] for key in best]})
                )
            per_bucket *= 4

    def _ready_keys(self, bucket: str, *, limit: int) -> list[tuple[int, int, str]]:
        rows = self._query("ready_keys_of_bucket", {"ready_bucket": bucket, "limit": limit})
        return [(row[0], row[1], row[2]) for row in rows]

    def _decode_by_bucket(self, rows: Iterable[Row]) -> list[Run]:
        buckets: dict[str, list[Row]] = {}
        for row in rows:
            buckets.setdefault(row[_BUCKET], []).append(row)
        return [run for bucket in sorted(buckets) for run in self._decode_ready(buckets[bucket], bucket)]

    def _buckets(self, *, limit: int, handoff: bool, queue: str) -> Iterator[tuple[str, Sequence[Row]]]:
        """Yield ready runs per bucket; a small number is read in one query."""
        if limit < SMALL_BATCH_ROWS and not self._executor.is_remote:
            first = self._query("first_ready_runs", {"handoff": int(handoff), "limit": SMALL_BATCH_ROWS})
            if len(first) < SMALL_BATCH_ROWS:
                for bucket, rows in groupby(first, key=_BY_BUCKET):
                    if not queue or queue in split_bucket(bucket)[1]:
                        yield bucket, [row[1:] for row in islice(rows, limit)]
                return
        for (bucket,) in self._query("ready_buckets", {"handoff": int(handoff)}):
            if not queue or queue in split_bucket(bucket)[1]:
                parameters = {"handoff": int(handoff), "ready_bucket": bucket, "limit": limit}
                yield bucket, self._query("ready_runs_of_bucket", parameters)

    def _ready_of_all_buckets(self, *, now: datetime, limit: int, handoff: bool) -> list[Run]:
        """Ready runs of all buckets in one round trip; more if deferred runs were due or groups wait."""
        parameters = {"now": to_micros(now), "handoff": int(handoff), "limit": limit}
        rows = self._query("ready_runs_of_all_buckets", parameters)
        if rows[0][_DEFERRED_DUE]:
            self._wake_deferred(now=now, limit=limit)
            rows = self._query("ready_runs_of_all_buckets", parameters)
        found = self._decode_by_bucket(row for row in rows if row[_BUCKET] is not None)
        if rows[0][_HAS_GROUPS]:
            found += self._ready_of_bases(None, now=now, limit=limit, handoff=handoff)
        return found

    def _wake_deferred(self, *, now: datetime, limit: int) -> None:
        self._query("wake_deferred_runs", {"now": to_micros(now), "limit": max(limit, MAX_PAGE_ROWS)})

    def _decode_ready(self, rows: Sequence[Row], bucket: str) -> list[Run]:
        """The runs of one bucket in order; those that were leased before are read in full."""
        needs, limit_keys = split_bucket(bucket)
        try:
            fresh = [read_fresh_run(row, needs, limit_keys) for row in rows if row[_IS_FRESH]]
        except UnreadableRow:
            fresh = []
        if len(fresh) == len(rows):
            return fresh
        known = {run.id: run for run in fresh}
        others = [row[0] for row in rows if row[0] not in known]
        known |= {run.id: run for run in self._decode_or_park(self._query("get_runs", {"ids": others}))}
        return [known[row[0]] for row in rows if row[0] in known]

    def _release_holds(self, run_ids: list[str]) -> None:
        """Delete the holds of ended leases, and open the groups that waited for one of them.

        The limit rows are locked in between, and before a lease counts the holds: either it sees this end, or
        its note that the limit is full is seen here.
        """
        keys = [row[0] for row in self._query("held_limit_keys", {"ids": run_ids})]
        self._query("delete_limit_holds", {"ids": run_ids})
        grouped = sorted(key for key in keys if is_grouped_key(key))
        if grouped:
            self._query("lock_limits", {"keys": grouped})
            self._query("open_waiting_groups", {"keys": grouped})

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
            self._release_holds(unreadable)
        return found


def _groups(buckets: list[str], offer: LeaseOffer) -> list[list[str]]:
    """Buckets by their limits and the slot that their runs take; hosts may be many, and share a group."""
    groups: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for bucket in buckets:
        needs, limit_keys = split_bucket(bucket)
        slot = offer.slot_of(needs)
        groups.setdefault((limit_keys, slot if slot in offer.free else ""), []).append(bucket)
    return list(groups.values())
