"""Queries for leases: grants, renewals, limits, and fences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter

from msgspec.structs import asdict, replace

from timewright.core.moments import from_micros, to_micros
from timewright.core.run.leasing import LimitUsage
from timewright.core.run.run import Attempt, Run, RunState
from timewright.ports import (
    ExternalId,
    Grant,
    Renewal,
    Renewed,
)
from timewright.ports.attempt_output import AttemptOutput, OutputExcerpt
from timewright.stores.queries.base import SqlQueries
from timewright.stores.queries.ready_runs import SqlReadyQueries
from timewright.stores.rows import (
    Row,
    attempt_columns,
    cached_micros,
    read_run,
    settled_columns,
    storable_text,
    to_instant,
)

DEFAULT_LIMIT = 1
FOREVER = 2**62

_BY_ID = itemgetter(0)


class SqlLeaseQueries(SqlReadyQueries):
    """Leases and concurrency limits."""

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


class SqlOutputQueries(SqlQueries):
    """The attempt output of `ports.runs.RunQueries`."""

    def put_attempt_output(self, rows: Sequence[AttemptOutput]) -> None:
        """Write the output of attempts so far, replacing what was written before."""
        if rows:
            self._execute_many("put_attempt_output", [_output_row(output) for output in rows])

    def get_attempt_output(self, run_ids: Iterable[str]) -> dict[str, tuple[AttemptOutput, ...]]:
        """Return the output of the attempts of runs, oldest first."""
        found: dict[str, list[AttemptOutput]] = {}
        for row in self._query("get_attempt_output", {"ids": list(run_ids)}):
            found.setdefault(row[0], []).append(_decode_output(row))
        return {run_id: tuple(outputs) for run_id, outputs in found.items()}

    def delete_attempt_output(self, attempts: Sequence[tuple[str, int]]) -> None:
        """Delete the output of attempts by run and fence; the ended attempt keeps it."""
        if attempts:
            self._execute_many("delete_attempt_output", list(attempts))

    def put_external_id(self, row: ExternalId) -> None:
        """Write what an external executor calls the run of an attempt."""
        parameters = {**asdict(row), "external_id": storable_text(row.external_id)}
        self._query("put_external_id", parameters)

    def get_external_ids(self, run_ids: Iterable[str]) -> list[ExternalId]:
        """Return the external ids of the attempts of runs, oldest first."""
        return [ExternalId(*row) for row in self._query("external_ids_of_runs", {"ids": list(run_ids)})]

    def find_external_id(self, external_id: str, *, limit: int) -> list[ExternalId]:
        """Return the attempts with an external id."""
        parameters = {"external_id": storable_text(external_id), "limit": limit}
        return [ExternalId(*row) for row in self._query("runs_by_external_id", parameters)]


def _output_row(output: AttemptOutput) -> Row:
    excerpt = output.excerpt
    return (
        output.run_id,
        output.fence,
        output.number,
        to_micros(output.at),
        excerpt.size,
        excerpt.tail_offset,
        storable_text(excerpt.text),
    )


def _decode_output(row: Row) -> AttemptOutput:
    excerpt = OutputExcerpt(size=row[4], tail_offset=row[5], text=row[6])
    return AttemptOutput(run_id=row[0], fence=row[1], number=row[2], at=from_micros(row[3]), excerpt=excerpt)
