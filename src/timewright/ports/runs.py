"""Store queries for runs, leases, limits and attempts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from timewright.core.policies.limits import Limit
from timewright.core.run.leasing import LimitGroup, LimitUsage
from timewright.core.run.needs import LeaseOffer
from timewright.core.run.run import Artifact, Attempt, Run
from timewright.ports.attempt_output import AttemptOutput, RunProgress
from timewright.ports.rows import (
    ExternalId,
    Grant,
    Page,
    PruneRequest,
    Renewal,
    Renewed,
    RunChange,
    RunFilter,
)
from timewright.ports.workflow import LeaseTransfer


class RunQueries(Protocol):
    """Queries for runs, leases, limits and attempts; most handle many rows."""

    def add_runs(self, runs: Sequence[Run]) -> set[str]:
        """Insert runs; returns the ids that were new. An occurrence that exists is skipped.

        Raises Conflict if a manual run or a queue entry exists. A manual run without `previous` is linked to
        the newest manual run of its schedule. A store may still be writing those when this
        returns; the next query waits for it.
        """
        ...

    def shorten_leases(self, *, now: datetime, until: datetime, latest: datetime) -> None:
        """End every lease at `until` that was granted beyond `latest`, by a clock that was wrong."""
        ...

    def delete_runs(self, ids: Sequence[str]) -> None:
        """Delete finished runs and their attempts, to repair a schedule's history."""
        ...

    def fold_runs(self, rows: Sequence[Run]) -> None:
        """Let skipped runs count the occurrences from their `planned_at` to `last_of`."""
        ...

    def relink_runs(self, links: Sequence[tuple[str, str]]) -> None:
        """Set the previous run of runs, to repair a schedule's history."""
        ...

    def get_runs(self, ids: Iterable[str], *, lock: bool = False) -> dict[str, Run]:
        """Return existing runs by id."""
        ...

    def find_occurrence(self, schedule_id: str, planned_at: datetime) -> Run | None:
        """Return the run of an occurrence, or the row that counts it as dropped."""
        ...

    def find_runs(self, which: RunFilter) -> Page:
        """Return a page of runs, newest first; unreadable rows are listed apart."""
        ...

    def live_runs(self, schedule_ids: Iterable[str]) -> list[Run]:
        """Return the ready, leased and held runs of schedules, oldest first."""
        ...

    def queue_runs(self, namespace: str, queue: str, *, limit: int) -> list[Run]:
        """Return the unfinished runs of a queue in order, without locking."""
        ...

    def future_manual_runs(self, schedule_ids: Iterable[str], *, limit: int) -> list[Run]:
        """Return manual runs of schedules for a future instant, earliest first."""
        ...

    def releasable_runs(self, *, limit: int, schedule_ids: Iterable[str] | None = None) -> list[Run]:
        """Return the first held run of each given schedule, or of all, that has no ready or leased run."""
        ...

    def change_runs(self, changes: Sequence[RunChange]) -> set[str]:
        """Rewrite runs that are not leased; returns the ids whose state and fence still matched."""
        ...

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
        ...

    def first_ready_runs(self) -> list[Run]:
        """Return the first ready run of each bucket with needs, without locking."""
        ...

    def wake_waiting_schedules(self, offer: LeaseOffer, *, now: datetime) -> int:
        """Make the set-aside schedules due that this offer can run; returns how many buckets they had."""
        ...

    def set_aside(self, schedules: Sequence[tuple[str, tuple[str, ...]]], *, until: datetime) -> None:
        """Take schedules with these needs out of what is due, until an instant or until one can run them."""
        ...

    def set_aside_schedules(self, *, limit: int) -> list[str]:
        """Return the ids of schedules that were set aside, because no instance could run them."""
        ...

    def lease_runs(self, grants: Sequence[Grant]) -> list[Run]:
        """Lease ready runs; returns those that were leased."""
        ...

    def renew_leases(self, renewals: Sequence[Renewal], *, now: datetime) -> list[Renewed]:
        """Renew leases; returns those whose fence still matched."""
        ...

    def extend_lease(self, run_id: str, *, until: datetime, started_at: datetime | None = None) -> bool:
        """Set the end of a lease without a cancel request, and its start if given; returns whether it did."""
        ...

    def transfer_leases(self, rows: Sequence[LeaseTransfer]) -> set[str]:
        """Transfer leases with their fence; returns the ids of runs whose holder still matched."""
        ...

    def leased_runs(
        self, *, holder: str = "", lease_id: str | None = None, cancel_requested: bool = False
    ) -> list[Run]:
        """Return every leased run, or those of one holder; optionally only those asked to stop.

        With `lease_id`, the run with that lease.
        """
        ...

    def expired_leases(self, *, now: datetime, limit: int, dead_holder: str = "") -> list[Run]:
        """Lock and return runs whose lease has expired, or all of a dead holder; skips locked rows."""
        ...

    def settle_runs(self, settled: Sequence[tuple[Run, Attempt]]) -> set[str]:
        """Write the end of leases; returns the ids whose fence still matched.

        A run that is retried gets a new `fire_at`; a finished run keeps its own.
        """
        ...

    def request_cancel(
        self, requests: Sequence[tuple[str, datetime]], *, at: datetime, reason: str
    ) -> set[str]:
        """Request leased runs to stop by an instant; returns the ids that were marked."""
        ...

    def set_limits(self, limits: Mapping[str, int]) -> None:
        """Set the capacity of limits without a key and a rate."""
        ...

    def define_limit(self, namespace: str, limit: Limit) -> None:
        """Put a named limit into force, for all values of its key and all runs that wait for it."""
        ...

    def save_limit_use(
        self, limits: Mapping[str, LimitUsage], groups: Sequence[LimitGroup], *, now: datetime
    ) -> None:
        """Write what locked limits with a key or a rate have used, and what their groups wait for."""
        ...

    def find_limit_keys(self, limit_key: str, *, limit: int) -> tuple[int, dict[str, LimitUsage]]:
        """Return how many leases hold a limit with a key, and its first keys."""
        ...

    def prune_limit_keys(self, *, before: datetime) -> None:
        """Delete the rows of keys that were last used before an instant and that no lease holds."""
        ...

    def get_limits(self, keys: Iterable[str], *, lock: bool = False) -> dict[str, LimitUsage]:
        """Return capacity and use of limits; `lock` keeps both unchanged until the transaction ends."""
        ...

    def count_deferred_runs(self, namespace: str, *, prefix: str) -> int:
        """Count deferred runs whose reason begins with `prefix`."""
        ...

    def release_deferred_runs(self, namespace: str, *, prefix: str, now: datetime) -> int:
        """Let deferred runs whose reason begins with `prefix` start now; returns how many."""
        ...

    def get_attempts(self, run_ids: Iterable[str]) -> dict[str, tuple[Attempt, ...]]:
        """Return the ended attempts of runs, oldest first."""
        ...

    def put_attempt_output(self, rows: Sequence[AttemptOutput]) -> None:
        """Write the output of attempts so far, replacing what was written before."""
        ...

    def get_attempt_output(self, run_ids: Iterable[str]) -> dict[str, tuple[AttemptOutput, ...]]:
        """Return the output of the attempts of runs, oldest first."""
        ...

    def delete_attempt_output(self, attempts: Sequence[tuple[str, int]]) -> None:
        """Delete the output of attempts by run and fence; the ended attempt keeps it."""
        ...

    def put_run_progress(self, rows: Sequence[RunProgress]) -> None:
        """Write what leased runs report about their work; a report of a lost lease changes nothing."""
        ...

    def get_run_progress(self, run_ids: Iterable[str]) -> dict[str, RunProgress]:
        """Return what runs last reported, by run id; a run that reported nothing is left out."""
        ...

    def add_artifacts(self, artifacts: Sequence[Artifact]) -> None:
        """Write references to files of attempts."""
        ...

    def get_artifacts(
        self, run_ids: Iterable[str] | None = None, *, after: str = "", limit: int = 1000
    ) -> list[Artifact]:
        """Return the artifacts of runs, or the first of all runs after one, by run, attempt and name."""
        ...

    def put_external_id(self, row: ExternalId) -> None:
        """Write what an external executor calls the run of an attempt."""
        ...

    def find_external_ids(
        self, *, run_ids: Iterable[str] = (), external_id: str = "", limit: int = 1000
    ) -> list[ExternalId]:
        """Return the external ids of the attempts of runs, oldest first, or the attempts with an id."""
        ...

    def prune(self, request: PruneRequest) -> int:
        """Delete finished runs and their attempts, oldest first; returns how many."""
        ...
