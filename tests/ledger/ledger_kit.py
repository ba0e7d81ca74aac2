"""A harness for the ledger: a store and a manual clock, without engine, targets or threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar

from timewright.core.facts import Fact
from timewright.core.moments import MINUTE
from timewright.core.recurrence.triggers import AnyTrigger, Every, with_anchor
from timewright.core.run.run import Attempt, Outcome, Run, RunState, Succeeded
from timewright.core.schedule.schedule import Schedule, ScheduleProgress
from timewright.core.target import Note
from timewright.errors import OutcomeUnknown
from timewright.ids import TimedIds
from timewright.ledger import manual_runs, replan
from timewright.ledger.admit import AdmissionResult, admit_due
from timewright.ledger.lease import LeaseResult, lease_ready
from timewright.ledger.manual_runs import CreatedRuns
from timewright.ledger.replan import Actor, ChangeResult, create
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import SettleResult, reclaim, release_held_runs, settle_results
from timewright.ports import AuditEntry, RunFilter, ScheduleRecord, Store, Transaction
from timewright.ports.rows import AuditFilter
from timewright.testing.clock import ManualClock

T = TypeVar("T")

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
ADA = Actor(name="ada", reason="because")


def at(minutes: float) -> datetime:
    """The instant this number of minutes after noon."""
    return NOON + minutes * MINUTE


class LedgerHarness:
    """The ledger over one store; the clock starts at noon and moves by hand."""

    def __init__(self, store: Store, clock: ManualClock, *, name: str = "worker", seed: int = 0) -> None:
        self.store = store
        self.clock = clock
        self.name = name
        self.ids = TimedIds(_counting(seed))

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def move_to(self, minutes: float) -> datetime:
        """Move the clock to an instant, in minutes after noon."""
        return self.clock.advance(at(minutes) - self.now)

    def advance(self, seconds: float) -> datetime:
        """Advance the clock by seconds."""
        return self.clock.advance(seconds=seconds)

    def schedule(self, name: str = "job", trigger: AnyTrigger | None = None, **fields: Any) -> Schedule:
        """Create a schedule now; every minute by default."""
        return self.create(self.draft(name, trigger, **fields))[0].schedule

    def draft(self, name: str = "job", trigger: AnyTrigger | None = None, **fields: Any) -> Schedule:
        fields.setdefault("target", Note(text=name))
        return Schedule(
            id=self.ids.new("schedule", now=self.now),
            name=name,
            created_at=self.now,
            trigger=with_anchor(trigger or Every(MINUTE), self.now),
            **fields,
        )

    def create(self, *drafts: Schedule) -> list[ChangeResult]:
        return create(self.store, drafts, by=ADA, now=self.now)

    def admit(self, **options: Any) -> AdmissionResult:
        options.setdefault("limit", 100)
        return admit_due(self.store, ids=self.ids, now=self.now, **options)

    def lease(self, capacity: int = 10, **options: Any) -> list[Run]:
        return [lease.run for lease in self.leased(capacity, **options).leases]

    def leased(self, capacity: int = 10, **options: Any) -> LeaseResult:
        options.setdefault("holder", self.name)
        return lease_ready(self.store, ids=self.ids, capacity=capacity, now=self.now, **options)

    def settle(self, *runs: Run, outcome: Outcome | None = None) -> SettleResult:
        """Settle leased runs; with success by default."""
        answers = [
            AttemptResult(run=run, outcome=outcome or Succeeded(), started_at=run.leased_at) for run in runs
        ]
        return settle_results(self.store, answers, now=self.now)

    def work(self, outcome: Outcome | None = None) -> list[Run]:
        """Lease the ready runs and settle them."""
        runs = self.lease()
        self.settle(*runs, outcome=outcome)
        return runs

    def reclaim(self) -> SettleResult:
        return reclaim(self.store, now=self.now, limit=100)

    def free(self) -> tuple[Fact, ...]:
        return release_held_runs(self.store, now=self.now)

    def pause(self, schedule: Schedule, *, until: datetime | None = None) -> ChangeResult:
        return replan.pause(self.store, schedule.id, ids=self.ids, by=ADA, now=self.now, until=until)

    def resume(self, schedule: Schedule) -> ChangeResult:
        return replan.resume(self.store, schedule.id, ids=self.ids, by=ADA, now=self.now)

    def revise(self, schedule: Schedule, **options: Any) -> ChangeResult:
        return replan.revise(self.store, schedule, ids=self.ids, by=ADA, now=self.now, **options)

    def hint(self, schedule: Schedule, wish: Any) -> ChangeResult:
        return replan.hint(self.store, schedule.id, wish, ids=self.ids, by=ADA, now=self.now)

    def run_now(self, schedule: Schedule, **options: Any) -> Run:
        (run,) = self.made_now(schedule, **options).runs
        return run

    def made_now(self, schedule: Schedule, **options: Any) -> CreatedRuns:
        return manual_runs.run_now(self.store, schedule.id, ids=self.ids, by=ADA, now=self.now, **options)

    def enqueue(self, *payloads: Any, queue: str = "mail", **options: Any) -> list[Run]:
        options.setdefault("namespace", "default")
        made = manual_runs.enqueue(
            self.store, queue=queue, payloads=payloads, ids=self.ids, by=ADA, now=self.now, **options
        )
        return list(made.runs)

    def due(self, schedule: Schedule) -> ScheduleRecord:
        return self.store.read(lambda tx: tx.get_schedules([schedule.id]))[schedule.id]

    def progress(self, schedule: Schedule) -> ScheduleProgress:
        return self.due(schedule).progress

    def run(self, run: Run) -> Run:
        """A run as it is now."""
        return self.store.read(lambda tx: tx.get_runs([run.id]))[run.id]

    def attempts(self, run: Run) -> list[Attempt]:
        return list(self.store.read(lambda tx: tx.get_run_rows(Attempt, [run.id])).get(run.id, ()))

    def runs(self, schedule: Schedule) -> list[Run]:
        """Every row of a schedule, in the order of their planned instants."""
        rows: list[Run] = []
        which = RunFilter(schedule_id=schedule.id, limit=1000)
        page = self.store.read(lambda tx: tx.find(which))
        rows += page.rows
        assert not page.cursor, "more rows than a test should make"
        return sorted(rows, key=lambda run: (run.planned_at, run.id))

    def outcomes_of(self, schedule: Schedule) -> list[tuple[float, str]]:
        """The outcome of each row: minutes after noon, and a word."""
        return [(minutes(run.planned_at), outcome_word(run)) for run in self.runs(schedule)]

    def audit(self) -> list[AuditEntry]:
        """The audit log, oldest entry first; checks its hash chain."""
        self.store.write(lambda tx: tx.seal_audit())
        assert self.store.read(lambda tx: tx.check_audit()).first_broken is None
        page = self.store.read(lambda tx: tx.find(AuditFilter(limit=1000)))
        return list(reversed(page.rows))


def minutes(moment: datetime) -> float:
    """Minutes after noon."""
    return (moment - NOON) / MINUTE


def outcome_word(run: Run) -> str:
    """A run as a word: its state, or the reason it was skipped; a collapsed row has its count."""
    if run.state is not RunState.SKIPPED:
        return run.state.value
    return f"{run.reason}x{run.dropped}" if run.last_of is not None else run.reason


def kinds(facts: Sequence[Fact]) -> list[str]:
    """The names of facts, in order."""
    return [type(fact).__name__ for fact in facts]


class LossyStore:
    """A store whose next commits lose the connection, before or after they were applied."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._breaks: list[bool] = []

    def break_next(self, *applied: bool) -> None:
        """Lose the connection at the next commits; each flag says whether the commit is applied."""
        self._breaks += applied

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        if not self._breaks:
            return self._store.write(work, commit_at=commit_at)
        if self._breaks.pop(0):
            self._store.write(work, commit_at=commit_at)
        raise OutcomeUnknown("the connection broke at commit")

    def read(self, work: Callable[[Transaction], T]) -> T:
        return self._store.read(work)

    def now(self) -> datetime:
        return self._store.now()

    def close(self) -> None:
        self._store.close()


def _counting(seed: int) -> Callable[[int], bytes]:
    """Ascending entropy, so that ids sort in the order of creation; different seeds never collide."""
    tails: Iterator[int] = count(1)
    return lambda size: ((next(tails) << 32) + (seed << 16)).to_bytes(size, "big")
