"""Store queries for runs, leases, limits and attempts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from timewright.core.budgets.budgets import Charge
from timewright.core.run.leasing import LimitGroup, LimitUsage
from timewright.core.run.needs import LeaseOffer
from timewright.core.run.run import Artifact, Attempt, Run
from timewright.ports.attempt_output import AttemptOutput, RunProgress
from timewright.ports.rows import (
    ExternalId,
    Grant,
    IncidentPrune,
    LimitKeyPrune,
    ObjectPrune,
    PruneRequest,
    Renewal,
    Renewed,
    RunChange,
    Selection,
)
from timewright.ports.workflow import DependencyWait, FollowUp, LeaseTransfer, StepRow

RunRow = AttemptOutput | RunProgress | Artifact | ExternalId | FollowUp | DependencyWait
RowOfRun = TypeVar("RowOfRun", Attempt, AttemptOutput, RunProgress, Artifact, ExternalId, Charge)


class LimitKeys(Selection[str], frozen=True):
    """The first keys of a limit with a key, for `get_limits`."""

    limit_key: str
    limit: int


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

    def repair_history(
        self,
        *,
        delete: Sequence[str] = (),
        fold: Sequence[Run] = (),
        relink: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Repair the history of schedules: delete runs, let runs count several occurrences, link runs.

        `delete` are ids of finished runs. The skipped runs of `fold` count the occurrences from their
        `planned_at` to `last_of`. `relink` are pairs of a run and the run before it.
        """
        ...

    def get_runs(self, ids: Iterable[str], *, lock: bool = False) -> dict[str, Run]:
        """Return existing runs by id."""
        ...

    def find_occurrence(self, schedule_id: str, planned_at: datetime) -> Run | None:
        """Return the run of an occurrence, or the row that counts it as dropped."""
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

    def wake_waiting_schedules(self, offer: LeaseOffer, *, now: datetime) -> int:
        """Make the set-aside schedules due that this offer can run; returns how many buckets they had."""
        ...

    def set_aside(self, schedules: Sequence[tuple[str, tuple[str, ...]]], *, until: datetime) -> None:
        """Take schedules with these needs out of what is due, until an instant or until one can run them."""
        ...

    def lease_runs(self, grants: Sequence[Grant]) -> list[Run]:
        """Lease ready runs; returns those that were leased."""
        ...

    def renew_leases(self, renewals: Sequence[Renewal]) -> list[Renewed]:
        """Renew leases; returns those whose fence still matched."""
        ...

    def extend_lease(self, run_id: str, *, until: datetime, started_at: datetime | None = None) -> bool:
        """Set the end of a lease without a cancel request, and its start if given; returns whether it did."""
        ...

    def transfer_leases(self, rows: Sequence[LeaseTransfer]) -> set[str]:
        """Transfer leases with their fence; returns the ids of runs whose holder still matched."""
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
        """Set the capacity of limits without a key and a rate; named limits are objects."""
        ...

    def save_limit_use(
        self, limits: Mapping[str, LimitUsage], groups: Sequence[LimitGroup], *, now: datetime
    ) -> None:
        """Write what locked limits with a key or a rate have used, and what their groups wait for."""
        ...

    def get_limits(self, keys: Iterable[str], *, lock: bool = False) -> dict[str, LimitUsage]:
        """Return capacity and use of limits; `lock` keeps both unchanged until the transaction ends."""
        ...

    def release_deferred_runs(self, namespace: str, *, prefix: str, now: datetime) -> int:
        """Let deferred runs whose reason begins with `prefix` start now; returns how many."""
        ...

    def put_run_rows(self, rows: Sequence[RunRow]) -> None:
        """Write what is recorded about runs.

        Output and external ids replace what was written before; artifacts and waits do not. The progress of a
        lease that was lost changes nothing. Open follow-ups are inserted where there is none; of decided ones
        the decision is written.
        """
        ...

    def get_run_rows(self, kind: type[RowOfRun], run_ids: Iterable[str]) -> dict[str, tuple[RowOfRun, ...]]:
        """Return what is recorded about runs, by run, oldest first; a run without such rows is left out.

        Kinds are `Attempt` (ended ones), `AttemptOutput`, `RunProgress`, `Artifact`, `ExternalId`, `Charge`.
        """
        ...

    def delete_run_rows(
        self, kind: type[DependencyWait | StepRow | AttemptOutput], keys: Iterable[str | tuple[str, int]]
    ) -> None:
        """Delete waits or steps by run, or output by run and fence, which the ended attempt keeps."""
        ...

    def prune(self, request: PruneRequest | ObjectPrune | IncidentPrune | LimitKeyPrune) -> int:
        """Delete old rows; returns how many, of those kinds whose number is known."""
        ...
