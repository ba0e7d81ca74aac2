"""A store and a clock, and the ledger over them by hand: no engine, no targets, no threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar

from timewright.core.facts import Fact
from timewright.core.moments import MINUTE
from timewright.core.run import Attempt, Outcome, Run, RunState, Succeeded
from timewright.core.schedule import Schedule, Standing
from timewright.core.target import Note
from timewright.core.triggers import AnyTrigger, Every, anchored
from timewright.errors import OutcomeUnknown
from timewright.ids import TimedIds
from timewright.ledger import by_hand, replan
from timewright.ledger.admit import Admitted, admit_due
from timewright.ledger.by_hand import Made
from timewright.ledger.lease import Leased, lease_ready
from timewright.ledger.replan import By, Changed, create
from timewright.ledger.settle import Answer, Settled, free_held, reclaim, settle_answers
from timewright.ports import Due, Entry, RunFilter, Store, Transaction
from timewright.testing.clock import ManualClock

T = TypeVar("T")

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
ADA = By(actor="ada", reason="because")


def at(minutes: float) -> datetime:
    """So many minutes after noon."""
    return NOON + minutes * MINUTE


class Bench:
    """The ledger over one store; the clock stands at noon and moves when told to."""

    def __init__(self, store: Store, clock: ManualClock, *, name: str = "worker", seed: int = 0) -> None:
        self.store = store
        self.clock = clock
        self.name = name
        self.ids = TimedIds(_counting(seed))

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def go(self, minutes: float) -> datetime:
        """Let it be so many minutes after noon."""
        return self.clock.advance(at(minutes) - self.now)

    def rest(self, seconds: float) -> datetime:
        """Let so many seconds pass."""
        return self.clock.advance(seconds=seconds)

    def schedule(self, name: str = "job", trigger: AnyTrigger | None = None, **fields: Any) -> Schedule:
        """Keep a schedule made now; every minute unless something else is said."""
        return self.create(self.draft(name, trigger, **fields))[0].schedule

    def draft(self, name: str = "job", trigger: AnyTrigger | None = None, **fields: Any) -> Schedule:
        fields.setdefault("target", Note(text=name))
        return Schedule(
            id=self.ids.new("schedule", now=self.now),
            name=name,
            created_at=self.now,
            trigger=anchored(trigger or Every(MINUTE), self.now),
            **fields,
        )

    def create(self, *drafts: Schedule) -> list[Changed]:
        return create(self.store, drafts, by=ADA, now=self.now)

    def admit(self, **options: Any) -> Admitted:
        options.setdefault("limit", 100)
        return admit_due(self.store, ids=self.ids, now=self.now, **options)

    def lease(self, capacity: int = 10, **options: Any) -> list[Run]:
        return [lease.run for lease in self.leased(capacity, **options).leases]

    def leased(self, capacity: int = 10, **options: Any) -> Leased:
        options.setdefault("holder", self.name)
        return lease_ready(self.store, ids=self.ids, capacity=capacity, now=self.now, **options)

    def settle(self, *runs: Run, outcome: Outcome | None = None) -> Settled:
        """Answer for leased runs, with success unless something else is said."""
        answers = [Answer(run=run, outcome=outcome or Succeeded(), started_at=run.leased_at) for run in runs]
        return settle_answers(self.store, answers, now=self.now)

    def work(self, outcome: Outcome | None = None) -> list[Run]:
        """Lease what is ready and answer at once."""
        runs = self.lease()
        self.settle(*runs, outcome=outcome)
        return runs

    def reclaim(self) -> Settled:
        return reclaim(self.store, now=self.now, limit=100)

    def free(self) -> tuple[Fact, ...]:
        return free_held(self.store, now=self.now)

    def pause(self, schedule: Schedule, *, until: datetime | None = None) -> Changed:
        return replan.pause(self.store, schedule.id, by=ADA, now=self.now, until=until)

    def resume(self, schedule: Schedule) -> Changed:
        return replan.resume(self.store, schedule.id, ids=self.ids, by=ADA, now=self.now)

    def revise(self, schedule: Schedule, **options: Any) -> Changed:
        return replan.revise(self.store, schedule, ids=self.ids, by=ADA, now=self.now, **options)

    def hint(self, schedule: Schedule, wish: Any) -> Changed:
        return replan.hint(self.store, schedule.id, wish, by=ADA, now=self.now)

    def run_now(self, schedule: Schedule, **options: Any) -> Run:
        (run,) = self.made_now(schedule, **options).runs
        return run

    def made_now(self, schedule: Schedule, **options: Any) -> Made:
        return by_hand.run_now(self.store, schedule.id, ids=self.ids, by=ADA, now=self.now, **options)

    def enqueue(self, *payloads: Any, queue: str = "mail", **options: Any) -> list[Run]:
        options.setdefault("namespace", "default")
        made = by_hand.enqueue(
            self.store, queue=queue, payloads=payloads, ids=self.ids, by=ADA, now=self.now, **options
        )
        return list(made.runs)

    def due(self, schedule: Schedule) -> Due:
        return self.store.read(lambda tx: tx.get_schedules([schedule.id]))[schedule.id]

    def standing(self, schedule: Schedule) -> Standing:
        return self.due(schedule).standing

    def run(self, run: Run) -> Run:
        """A run as it is now."""
        return self.store.read(lambda tx: tx.get_runs([run.id]))[run.id]

    def attempts(self, run: Run) -> list[Attempt]:
        return list(self.store.read(lambda tx: tx.get_attempts([run.id])).get(run.id, ()))

    def runs(self, schedule: Schedule) -> list[Run]:
        """Every row of a schedule, in the order of their planned instants."""
        rows: list[Run] = []
        which = RunFilter(schedule_id=schedule.id, limit=1000)
        page = self.store.read(lambda tx: tx.find_runs(which))
        rows += page.rows
        assert not page.cursor, "more rows than a test should make"
        return sorted(rows, key=lambda run: (run.planned_at, run.id))

    def fates(self, schedule: Schedule) -> list[tuple[float, str]]:
        """What became of each row: minutes after noon, and a word."""
        return [(minutes(run.planned_at), fate(run)) for run in self.runs(schedule)]

    def audit(self) -> list[Entry]:
        """The audit log, oldest line first; its chain must be whole."""
        assert self.store.read(lambda tx: tx.broken_audit()) is None
        page = self.store.read(lambda tx: tx.find_audit(limit=1000))
        return list(reversed(page.rows))


def minutes(moment: datetime) -> float:
    """How long after noon, in minutes."""
    return (moment - NOON) / MINUTE


def fate(run: Run) -> str:
    """A run in a word: its state, or why it was skipped; a counted row says how many."""
    if run.state is not RunState.SKIPPED:
        return run.state.value
    return f"{run.reason}x{run.dropped}" if run.last_of is not None else run.reason


def kinds(facts: Sequence[Fact]) -> list[str]:
    """The names of facts, in order."""
    return [type(fact).__name__ for fact in facts]


class Unsure:
    """A store whose next commit breaks the connection, after it was applied or before."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._breaks: list[bool] = []

    def break_next(self, *applied: bool) -> None:
        """Break the coming commits, one after another; each says whether it was applied."""
        self._breaks += applied

    def write(self, work: Callable[[Transaction], T]) -> T:
        if not self._breaks:
            return self._store.write(work)
        if self._breaks.pop(0):
            self._store.write(work)
        raise OutcomeUnknown("the connection broke at commit")

    def read(self, work: Callable[[Transaction], T]) -> T:
        return self._store.read(work)

    def now(self) -> datetime:
        return self._store.now()

    def close(self) -> None:
        self._store.close()


def _counting(seed: int) -> Callable[[int], bytes]:
    """Entropy that only rises, so that ids sort in the order they were made; another seed never meets it."""
    tails: Iterator[int] = count(1)
    return lambda size: ((next(tails) << 32) + (seed << 16)).to_bytes(size, "big")
