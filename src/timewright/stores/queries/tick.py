"""What a tick asks the store first, and the writes of on-time admission."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from msgspec.structs import replace

from timewright.core.moments import EPOCH, ZERO, to_micros
from timewright.core.policies.policies import Overlap
from timewright.core.run.needs import LeaseOffer, needs_of_schedule
from timewright.core.run.run import Run
from timewright.core.target import Handoff
from timewright.ports import OnTimeStep
from timewright.ports.overview import PendingWork
from timewright.ports.rows import LeasedRuns, ReleasableRuns
from timewright.stores.cache import ProbeMemory
from timewright.stores.queries.base import SqlQueries
from timewright.stores.queries.leases import SqlLeaseQueries
from timewright.stores.queries.ready_runs import MAX_PROBED_BUCKETS
from timewright.stores.queries.schedules import SqlScheduleQueries
from timewright.stores.queries.selections import SqlSelections
from timewright.stores.rows import GROUP_MARK, MICROSECOND, Row, cached_micros, ready_bucket, to_instant

# The columns of `pending_work`: whether a run is ready, the first lease end, the first start of a lease.
_READY = 2
_LEASE_END = 4
_LEASED = 9
# A complete probe that took at least this long is followed by a pause of that factor, so that dead rows
# cost at most 2 % of the time. Probes in the pause begin at recent instants. A pause has a longest length,
# because the machine may only have been busy.
PAUSED_PROBE_S, PROBE_PAUSE_FACTOR, MAX_PAUSE_S = 0.001, 50, 0.25
# After this many complete probes in a row that took at least this long, the past is searched in slices, each
# followed by a pause without a longest length.
SLOW_PROBES, SLOW_PROBE_S = 10, 0.003
# A quick slice is followed by one of four times the length, a slow one by a shorter one, but each has at
# least this share of what was searched so far, so that every search comes to its end.
QUICK_SLICE_S, MIN_SLICE_SHARE = 0.001, 64
# If a search had at most this many slices, few dead rows are left, and probes are complete again.
FEW_SLICES = 20
MIN_COMPLETE_IN_S = 0.02
# Instants are written at most this long before their commit.
RECENT_MICROS = 1_000_000

# What the statement returns for a pause without an end.
FOREVER = 9_000_000_000_000_000_000


class SqlPendingWorkQueries(SqlScheduleQueries, SqlSelections, SqlLeaseQueries):
    """The pending work of `ports.overview.OverviewQueries`."""

    def read_pending_work(
        self,
        *,
        holder: str = "",
        shard: tuple[int, int] | None = (1, 1),
        orphan_after: timedelta = ZERO,
        with_lease_end: bool = False,
        with_held: bool = False,
        offer: LeaseOffer | None = None,
        now: datetime | None = None,
    ) -> PendingWork:
        """Return the pending work of a holder that serves a shard and can run what it offers. Read-only.

        With `now`, older instants may be left out for a while if looking for them is slow (`complete_in`).
        """
        parameters = {"holder": holder, "with_lease_end": int(with_lease_end), "with_held": int(with_held)}
        row, complete_in = self._probe_recent(parameters, offer, now=now)
        schedule_due, run_due, ready, cancelled, lease_end, held, paused_until, waiting, group_due, _ = row
        if group_due is not None:
            run_due = group_due if run_due is None else min(run_due, group_due)
        first_wake = schedule_due
        if paused_until is not None:
            messages = self._message_buckets(offer)
            message_due = run_due if messages else None
            schedule_due, run_due = _after_pause(paused_until, schedule_due, run_due, ready)
            run_due = min((at for at in (message_due, run_due) if at is not None), default=None)
            ready = self._any_ready(messages)
        return PendingWork(
            schedule_due_at=to_instant(self._next_wake_in(shard, schedule_due, orphan_after=orphan_after)),
            first_wake_at=to_instant(first_wake),
            run_due_at=to_instant(run_due),
            has_ready_runs=ready is not None,
            cancel_requested=tuple(self.select(LeasedRuns(holder=holder, cancel_requested=True)))
            if cancelled is not None
            else (),
            includes_lease_end=with_lease_end,
            complete_in=complete_in,
            lease_expires_at=to_instant(lease_end),
            has_releasable_runs=held is not None and bool(self.select(ReleasableRuns(limit=1))),
            has_wakeable_schedules=waiting is not None
            and offer is not None
            and bool(self._waiting_buckets_of(offer)),
        )

    def _message_buckets(self, offer: LeaseOffer | None) -> list[str]:
        """The buckets of messages to channels, which are sent although the installation is paused."""
        if self._query("any_copy_pause", {}):
            return []
        return self._startable_buckets(replace(offer or LeaseOffer(), messages_only=True))

    def _any_ready(self, buckets: list[str]) -> int | None:
        found = self._query("nonempty_buckets", {"buckets": self._list_parameter(buckets)}) if buckets else []
        return 1 if found else None

    def _probe_recent(
        self, parameters: dict[str, Any], offer: LeaseOffer | None, *, now: datetime | None
    ) -> tuple[Row, timedelta | None]:
        """The row of `pending_work`; while the past is searched in slices, also the time until the next."""
        if now is None or not self._executor.is_remote:
            return self._probe({**parameters, "since": 0, "leased_since": 0}, offer), None
        began, micros, memory = monotonic(), to_micros(now), self._executor.cache.probe
        if memory.since > micros:
            memory = ProbeMemory()
        is_search_due = began >= memory.search_at
        is_complete = is_search_due and not memory.is_partial
        if memory.is_partial and is_search_due:
            memory = self._search_past(memory)
            is_complete = memory.searched_to == 0
        knows_end = micros < min(memory.lease_end_until, memory.lease_end or memory.lease_end_until)
        reads_end = bool(parameters["with_lease_end"]) and not knows_end
        is_bounded = memory.is_partial or not is_complete
        marks = (memory.since, memory.leased_since) if is_bounded else (0, 0)
        bounds = {"since": marks[0], "leased_since": marks[1], "with_lease_end": int(reads_end)}
        row = self._probe({**parameters, **bounds}, offer)
        took = monotonic() - began
        if not is_bounded:
            memory = _after_complete_probe(memory, took=took)
        memory = _after_probe(memory, row, micros, took=took, reads_end=reads_end)
        if parameters["with_lease_end"] and not reads_end:
            row = (*row[:_LEASE_END], memory.lease_end, *row[_LEASE_END + 1 :])
        self._executor.cache.probe = memory
        rest = max(memory.search_at - monotonic(), MIN_COMPLETE_IN_S)
        return row, None if is_complete else timedelta(seconds=rest)

    def _search_past(self, memory: ProbeMemory) -> ProbeMemory:
        """Look for waiting rows in the next older slice of the past; what is found moves the marks back.

        Only rows that were written late or for an instant in the past are there, among the dead index entries
        of all that was handled, which the server cannot remove while another session holds a snapshot.
        """
        began, newest = monotonic(), max(memory.since, memory.leased_since)
        until = memory.searched_to or newest
        length = max(memory.slice_micros, (newest - until) // MIN_SLICE_SHARE)
        since = max(until - length, 0)
        (found,) = self._query("waiting_rows_of_past", {"since": since, "until": until})
        took = monotonic() - began
        if took < QUICK_SLICE_S:
            length *= 4
        elif took >= SLOW_PROBE_S:
            length = max(length // 2, RECENT_MICROS)
        is_over, slices = since == 0, memory.slices + 1
        waiting = [at for at in found[:2] if at is not None]
        return replace(
            memory,
            since=min([memory.since, *waiting]),
            leased_since=min(memory.leased_since, found[2] if found[2] is not None else memory.leased_since),
            is_partial=not is_over or slices > FEW_SLICES,
            searched_to=since,
            slices=0 if is_over else slices,
            slice_micros=RECENT_MICROS if is_over else length,
            search_at=began + took * PROBE_PAUSE_FACTOR,
        )

    def _probe(self, parameters: dict[str, Any], offer: LeaseOffer | None) -> Row:
        """The row of `pending_work`; it is read again if a bucket was added that memory does not have."""
        known = self._bucket_list(offer, newest=0) if offer is not None else None
        while True:
            able = self._startable(known, offer) if known is not None and offer is not None else []
            is_all = known is None or len(able) == len(known.buckets)
            of_any = is_all or len(able) > MAX_PROBED_BUCKETS
            bases = [bucket for bucket in able if bucket.startswith(GROUP_MARK)]
            probed = {
                "of_any_bucket": int(of_any),
                "buckets": self._list_parameter([] if of_any else able),
                "bases": self._list_parameter([] if of_any else bases),
            }
            (row,) = self._query("pending_work", {**parameters, **probed})
            newest = row[-1] or 0
            if known is None or offer is None or newest <= known.newest:
                break
            known = self._bucket_list(offer, newest=newest)
        if of_any and not is_all and row[_READY] is not None:
            found = self._query("ready_buckets", {"handoff": 0})
            if frozenset(able).isdisjoint(bucket for (bucket,) in found):
                row = (*row[:_READY], None, *row[_READY + 1 :])
        return row[:-1]


def _after_complete_probe(memory: ProbeMemory, *, took: float) -> ProbeMemory:
    """The pause after a complete probe; after several slow ones, the past is searched in slices."""
    slow_in_a_row = memory.slow_in_a_row + 1 if took >= SLOW_PROBE_S else 0
    is_partial = slow_in_a_row >= SLOW_PROBES
    pause = took * PROBE_PAUSE_FACTOR
    if not is_partial:
        pause = min(pause, MAX_PAUSE_S) if took >= PAUSED_PROBE_S else 0
    return replace(
        memory,
        is_partial=is_partial,
        slow_in_a_row=0 if is_partial else slow_in_a_row,
        search_at=monotonic() + pause,
    )


def _after_probe(memory: ProbeMemory, row: Row, micros: int, *, took: float, reads_end: bool) -> ProbeMemory:
    """The marks after a probe: nothing waits before the first rows it found; later writes lie after now."""
    earliest = min([micros, *(at for at in row[:_READY] if at is not None)])
    memory = replace(memory, since=earliest - RECENT_MICROS)
    if not reads_end:
        return memory
    leased = min(micros, row[_LEASED] if row[_LEASED] is not None else micros)
    pause = int(took * PROBE_PAUSE_FACTOR * 1_000_000)
    return replace(
        memory,
        leased_since=leased - RECENT_MICROS,
        lease_end=row[_LEASE_END],
        lease_end_until=micros + pause if took >= SLOW_PROBE_S and memory.is_partial else 0,
    )


def _after_pause(
    until: int, schedule_due: int | None, run_due: int | None, ready: int | None
) -> tuple[int | None, int | None]:
    """When schedules and runs are due, if nothing starts before the end of a pause."""
    if until == FOREVER:
        return None, None
    waiting = [until] if ready is not None else []
    run = max(run_due, until) if run_due is not None else None
    runs = [*waiting, *([run] if run is not None else [])]
    return max(schedule_due, until) if schedule_due is not None else None, min(runs, default=None)


# Column numbers in rows of new runs.
_READY_BUCKET, _READY_HANDOFF, _LEASED_BUCKET = 7, 10, 6


class SqlAdmissionQueries(SqlQueries):
    """The writes of admission for schedules that are on time."""

    def advance_schedules(self, rows: Sequence[OnTimeStep], *, now: datetime) -> set[str]:
        """Insert one run per schedule and move the schedules on; returns the ids of new runs."""
        if not rows:
            return set()
        created_at = to_micros(now)
        ready = [_run_row(row, created_at) for row in rows if row.started_run is None]
        started = [_leased_row(row.started_run, created_at) for row in rows if row.started_run is not None]
        self._add_buckets(row[_READY_BUCKET] for row in ready if not row[_READY_HANDOFF])
        self._add_buckets(row[_LEASED_BUCKET] for row in started)
        new = {row[0] for row in self._execute_many("insert_on_time_runs", ready)} if ready else set()
        if started:
            new |= {row[0] for row in self._execute_many("insert_leased_runs", started)}
        self._execute_many("advance_on_time", [_progress_row(row, new) for row in rows])
        return new


def _run_row(row: OnTimeStep, created_at: int) -> tuple[Any, ...]:
    """A ready run, with the columns of `insert_on_time_runs`."""
    record, schedule = row.record, row.record.schedule
    at, source = record.progress.next_at, record.progress.source
    assert at is not None
    assert source is not None
    return (
        row.run_id,
        schedule.namespace,
        schedule.id,
        (at - EPOCH) // MICROSECOND,
        source._value_,
        schedule.revision,
        schedule.queue or "",
        ready_bucket(needs_of_schedule(schedule), schedule.limit_keys),
        schedule.priority,
        0 if schedule.overlap is Overlap.ALLOW else 1,
        1 if isinstance(schedule.target, Handoff) else 0,
        created_at,
        record.last_run,
    )


def _leased_row(run: Run, created_at: int) -> tuple[Any, ...]:
    """A run with its first lease, with the columns of `insert_leased_runs`."""
    assert run.lease_until is not None
    return (
        run.id,
        run.namespace,
        run.schedule_id,
        (run.planned_at - EPOCH) // MICROSECOND,
        run.source._value_,
        run.revision,
        ready_bucket(run.needs, run.limit_keys),
        run.priority,
        1 if run.exclusive else 0,
        created_at,
        run.previous,
        run.lease_id,
        run.holder,
        cached_micros(run.lease_until),
    )


def _progress_row(row: OnTimeStep, new: set[str]) -> tuple[str, int, str]:
    """The next instant of a schedule. If its occurrence existed already, its newest run stays."""
    newest = row.run_id if row.run_id in new else row.record.last_run
    return row.record.schedule.id, (row.next_at - EPOCH) // MICROSECOND, newest
