"""What we ask of a store: transactions, and in them some forty verbs that take and give many rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from msgspec import Struct

from timewright.core.admission import Flight
from timewright.core.leasing import Gate
from timewright.core.moments import ZERO
from timewright.core.run import Attempt, Run
from timewright.core.schedule import Schedule
from timewright.ports.budgets import BudgetVerbs
from timewright.ports.glance import GlanceVerbs
from timewright.ports.links import LinkVerbs
from timewright.ports.looks import LookVerbs
from timewright.ports.objects import ObjectVerbs
from timewright.ports.outlook import OutlookVerbs
from timewright.ports.rows import (
    Advance,
    Change,
    Count,
    Due,
    Entry,
    Grant,
    Page,
    Prune,
    Renewal,
    Renewed,
    Revised,
    RunFilter,
    ScheduleFilter,
    Stood,
    Stored,
    Turn,
)
from timewright.ports.said import SaidVerbs
from timewright.ports.steps import StepVerbs
from timewright.proof.rows import AttemptRow, RunRow

T = TypeVar("T")
R = TypeVar("R", bound=Struct)


class Transaction(
    StepVerbs,
    GlanceVerbs,
    ObjectVerbs,
    SaidVerbs,
    LinkVerbs,
    LookVerbs,
    BudgetVerbs,
    OutlookVerbs,
    Protocol,
):
    """The verbs of a store, inside one transaction; each takes and gives back many rows."""

    def now(self) -> datetime:
        """The store's clock, read in this transaction: after all it waited for."""
        ...

    def make_ready(self) -> None:
        """Bring what is written to the disk, uncommitted, where that leaves less for the commit to do."""
        ...

    def put_schedules(self, rows: Sequence[Revised]) -> None:
        """Write schedules with a new revision; a taken name or a stale revision is a Conflict."""
        ...

    def get_schedules(self, ids: Iterable[str], *, lock: bool = False) -> dict[str, Due]:
        """Schedules by id, those that exist; locked against other writers when asked."""
        ...

    def get_named(self, namespace: str, name: str) -> Due | None:
        """A schedule by its name."""
        ...

    def find_schedule(self, namespace: str, name: str) -> str | None:
        """The id of a schedule by its name."""
        ...

    def find_schedules(self, which: ScheduleFilter) -> Page:
        """A page of `Due`, by name; a row that cannot be understood is named beside them."""
        ...

    def get_revisions(self, pairs: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Schedule]:
        """Schedules as they were at a revision."""
        ...

    def list_revisions(
        self, schedule_id: str, *, limit: int = 50
    ) -> list[tuple[Schedule, datetime, str, str]]:
        """What a schedule said, newest first, with when, who and why."""
        ...

    def due_schedules(
        self, *, now: datetime, limit: int, since: datetime | None = None, shard: tuple[int, int] = (1, 1)
    ) -> list[Due]:
        """Those to look at now, the longest waiting first, locked; rows another holds are passed over.

        A shard (k, n) is the k-th of n parts of all schedules, by a hash of their ids.
        """
        ...

    def foresee(self, *, until: datetime, limit: int) -> list[Schedule]:
        """Read what the schedules say that are due by then, to decide them sooner.

        Nothing is decided and nothing is held: whoever changes them until then is heeded.
        """
        ...

    def stand(self, rows: Sequence[Stood]) -> None:
        """Write where schedules stand."""
        ...

    def advance(self, rows: Sequence[Advance], *, now: datetime) -> set[str]:
        """Insert a ready run for each and move its schedule on; gives back the ids that were new.

        An occurrence that was there already stays as it is, and its schedule moves on all the same.
        """
        ...

    def park_unreadable(self, schedule_id: str, *, reason: str, now: datetime) -> None:
        """Take a schedule whose row cannot be understood out of the way, and keep it."""
        ...

    def next_wake(
        self, *, shard: tuple[int, int] | None = (1, 1), patience: timedelta = ZERO
    ) -> datetime | None:
        """The earliest instant at which anything may be due.

        For whoever looks at one shard, or at none, schedules of others are due only after some patience.
        """
        ...

    def next_lease_end(self) -> datetime | None:
        """The earliest instant at which a live lease may be over."""
        ...

    def add_runs(self, runs: Sequence[Run]) -> set[str]:
        """Insert runs; gives back the ids that were new. The same occurrence twice is an ordinary no-op."""
        ...

    def add_new_runs(self, runs: Sequence[Run]) -> None:
        """Insert runs that nobody holds, each in a lane of its own; one that is there already is refused.

        A store may go on writing them after this has returned, until it is asked for something else.
        """
        ...

    def link_runs(self, links: Sequence[tuple[str, str]]) -> None:
        """Mend the chain of a schedule's history: each run names the one before it."""
        ...

    def get_runs(self, ids: Iterable[str], *, lock: bool = False) -> dict[str, Run]:
        """Runs by id, those that exist."""
        ...

    def find_occurrence(self, schedule_id: str, planned_at: datetime) -> Run | None:
        """The run of one occurrence, or the dropped row that counts it."""
        ...

    def find_runs(self, which: RunFilter) -> Page:
        """A page of runs, newest first; a row that cannot be understood is named beside them."""
        ...

    def count_live(self, *, now: datetime, most: int) -> list[Count]:
        """What waits, is under way or needs a person; of each kind it looks at no more than `most` rows.

        Kinds of runs are `ready`, `waiting` (for its instant), `leased`, `held` and `parked`; of schedules
        `due`, `parked_schedule`; and `ceiling`, whose queue is the name of its gate.
        """
        ...

    def count_namespace(self, namespace: str, *, most_schedules: int, most_runs: int) -> tuple[int, int]:
        """How many schedules are in use and how many runs wait, each counted no further than its most."""
        ...

    def in_flight(self, schedule_ids: Iterable[str]) -> dict[str, Flight]:
        """What each schedule has under way."""
        ...

    def live_runs(self, schedule_ids: Iterable[str]) -> list[Run]:
        """The ready, leased and held runs of schedules, oldest first."""
        ...

    def take_turn(self, *, patience: timedelta) -> Turn:
        """Until this transaction ends nobody else takes a turn; whoever waits too long goes on without.

        It keeps nobody from anything but a turn.
        """
        ...

    def ready_runs(self, *, now: datetime, limit: int, handoff: bool = False, queue: str = "") -> list[Run]:
        """Runs that may start, best first, at most `limit` of each line of runs that share their gates."""
        ...

    def oldest_ready_runs(self, *, gates: tuple[str, ...], limit: int, handoff: bool = False) -> list[Run]:
        """The longest waiting runs of one line whatever their priority, for queues that age."""
        ...

    def queue_runs(self, namespace: str, queue: str, *, limit: int) -> list[Run]:
        """The unfinished and parked runs of a queue, in order; for a plan, so nothing is held."""
        ...

    def set_gates(self, limits: Mapping[str, int]) -> None:
        """Say how many leases each gate admits."""
        ...

    def read_gates(self, gates: Iterable[str]) -> dict[str, Gate]:
        """How full gates are, for a plan; nothing is held and nothing is written."""
        ...

    def hold_gates(self, gates: Iterable[str]) -> dict[str, Gate]:
        """Hold the gates until the transaction ends, and read how full they are."""
        ...

    def lease_runs(self, grants: Sequence[Grant]) -> list[Run]:
        """Turn ready runs into leased ones; gives back those that were."""
        ...

    def renew_leases(self, renewals: Sequence[Renewal], *, now: datetime) -> list[Renewed]:
        """Prolong leases; gives back those whose fence still held."""
        ...

    def expired_leases(self, *, now: datetime, limit: int) -> list[Run]:
        """Leased runs whose lease is over, locked; rows that another holds are passed over."""
        ...

    def leased_runs(self, *, holder: str = "") -> list[Run]:
        """Every live lease, or those of one holder."""
        ...

    def find_lease(self, lease_id: str) -> Run | None:
        """A live lease by its id."""
        ...

    def asked_to_stop(self, *, holder: str) -> list[Run]:
        """The live leases of a holder whose runs were asked to stop."""
        ...

    def settle_runs(self, settled: Sequence[tuple[Run, Attempt]]) -> set[str]:
        """Write the end of leases; gives back the ids whose fence still held.

        A run that waits again is told when; one that is over keeps the instant at which it could start.
        """
        ...

    def change_runs(self, changes: Sequence[Change]) -> set[str]:
        """Rewrite runs that are not leased, or cancel leased ones; gives back the ids that still matched."""
        ...

    def ask_to_cancel(self, asked: Sequence[tuple[str, datetime]], *, at: datetime, reason: str) -> set[str]:
        """Mark leased runs as asked to stop by an instant; gives back those that were marked."""
        ...

    def freeable_runs(self, *, limit: int, schedule_ids: Iterable[str] | None = None) -> list[Run]:
        """The first held run of each schedule, or of some, that has nothing of its own ready or leased."""
        ...

    def clear_streaks(self, schedule_ids: Iterable[str]) -> None:
        """Forget failures in a row; schedules that have none are not touched."""
        ...

    def get_attempts(self, run_ids: Iterable[str]) -> dict[str, tuple[Attempt, ...]]:
        """The ended leases of runs, oldest first."""
        ...

    def put_objects(self, rows: Sequence[Stored], *, replaces: Mapping[str, int] | None = None) -> None:
        """Write small named objects; Conflict when `replaces` names another revision than the last."""
        ...

    def get_objects(
        self, kind: str, *, namespace: str | None = None, names: Iterable[str] | None = None
    ) -> list[Stored]:
        """Small named objects of one kind, by name."""
        ...

    def delete_object(self, kind: str, *, namespace: str, name: str) -> bool:
        """Remove a small named object; says whether it was there."""
        ...

    def add_audit(self, entries: Sequence[Entry]) -> None:
        """Append to the audit log; each line carries the hash of the one before."""
        ...

    def find_audit(self, *, namespace: str | None = None, limit: int = 50, cursor: str = "") -> Page:
        """A page of the audit log, newest first."""
        ...

    def broken_audit(self) -> int | None:
        """The number of the first line of the audit log whose hash does not follow, if any."""
        ...

    def get_meta(self, name: str) -> str | None:
        """A small fact about the store itself."""
        ...

    def put_meta(self, name: str, value: str) -> None:
        """Write a small fact about the store itself."""
        ...

    def prune(self, what: Prune) -> int:
        """Remove finished runs and their attempts, oldest first; says how many went."""
        ...

    def history(
        self,
        kind: type[R],
        *,
        namespace: str | None = None,
        since: datetime | None = None,
        after: R | None = None,
        limit: int = 1000,
    ) -> list[R]:
        """A page of plain rows after the last one of the page before; runs and audit lines newest first."""
        ...

    def unfinished_history(
        self, *, before: datetime, namespace: str | None = None, after: str = "", limit: int = 1000
    ) -> list[RunRow]:
        """A page of the runs made before an instant that are still to be finished, by id."""
        ...

    def ended_leases(self, run_ids: list[str]) -> list[AttemptRow]:
        """The ended leases of runs, as plain rows."""
        ...

    def meta_starting(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[tuple[str, str]]:
        """A page of small facts about the store whose names begin so, by name."""
        ...


class Store(Protocol):
    """Remembers. One behaviour, whatever the database."""

    def now(self) -> datetime:
        """The store's clock: the database server's, or the host's held above the highest it recorded."""
        ...

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one durable transaction; it may be run again, so it has no other effects."""
        ...

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over one consistent picture of the store."""
        ...

    def close(self) -> None:
        """Give back every connection."""
        ...
