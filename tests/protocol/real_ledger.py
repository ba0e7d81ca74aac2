"""Performs the actions of the model on the real ledger, over SQLite in memory, and reads its state back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from math import inf
from typing import Any, NamedTuple, TypeVar

import apsw

from tests.ledger.ledger_kit import ADA, NOON, LossyStore
from tests.protocol.model import (
    EXCLUSIVE,
    LEASED,
    LIMIT,
    LIMITED,
    MAX_ATTEMPTS,
    MAX_LOSSES,
    NEVER,
    Action,
    Progress,
    Row,
    Size,
    State,
    Token,
)
from timewright.core.moments import MINUTE
from timewright.core.policies.backoff import Constant
from timewright.core.policies.limits import Limit
from timewright.core.policies.policies import CatchUp, Overlap, Retry
from timewright.core.recurrence.triggers import Every
from timewright.core.run.run import Failed, Run, Succeeded
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Note
from timewright.ids import TimedIds
from timewright.ledger import replan
from timewright.ledger.admission_batch import LocalCapacity
from timewright.ledger.admit import admit_due
from timewright.ledger.lease import lease_ready, renew_leases
from timewright.ledger.manual_runs import skip_next
from timewright.ledger.queues.limits import set_limit
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import reclaim, settle_results
from timewright.ports import Renewal, RunFilter, Transaction
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.clock import ManualClock

T = TypeVar("T")
# The name of each instance, and its leases.
Memory = list[tuple[str, dict[Token, Run]]]
IDS = ("sch_limited", "sch_exclusive")


class Crashed(Exception):
    """The process ended before its transaction committed."""


class FaultyStore(LossyStore):
    """A store whose next transaction may also be undone by a crash."""

    crashes = False

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        if not self.crashes:
            return super().write(work, commit_at=commit_at)

        def crash(tx: Transaction) -> T:
            work(tx)
            raise Crashed

        return super().write(crash, commit_at=commit_at)


class Saved(NamedTuple):
    """A copy of the store, the clock and the instances."""

    database: apsw.Connection
    now: datetime
    memory: Memory
    crashes: int
    lost_answers: int


class RealLedger:
    """Instances over one store; each action of the model is the ledger function of that name."""

    def __init__(self, size: Size) -> None:
        self.clock = ManualClock(NOON)
        self.database = SqliteStore(clock=self.clock)
        self.store = FaultyStore(self.database)
        self.ids = TimedIds()
        self.crashes, self.lost_answers = size.crashes, size.lost_answers
        self.memory: list[tuple[str, dict[Token, Run]]] = [
            (f"instance-{i}", {}) for i in range(size.instances)
        ]
        set_limit(self.store, Limit(name="api", max_running=LIMIT), namespace="default", by=ADA, now=NOON)
        common: dict[str, Any] = {
            "created_at": NOON,
            "trigger": Every(MINUTE, NOON),
            "target": Note(text="x"),
            "retry": Retry(max_attempts=MAX_ATTEMPTS, max_losses=MAX_LOSSES, backoff=Constant(wait=MINUTE)),
        }
        limited = Schedule(
            id=IDS[LIMITED],
            name="limited",
            limits=("api",),
            catch_up=CatchUp.ALL,
            overlap=Overlap.ALLOW,
            priority=50,
            **common,
        )
        exclusive = Schedule(id=IDS[EXCLUSIVE], name="exclusive", **common)
        wanted = [(limited, exclusive)[number] for number in size.schedules]
        replan.create(self.store, wanted, by=ADA, now=NOON)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def save(self) -> Saved:
        """Copy the store and the memory of the instances."""
        copy = apsw.Connection(":memory:")
        with copy.backup("main", self.database._writer.connection, "main") as backup:
            backup.step()
        memory = [(name, dict(tokens)) for name, tokens in self.memory]
        return Saved(copy, self.now, memory, self.crashes, self.lost_answers)

    def restore(self, saved: Saved) -> None:
        """Go back to a copy. The store's caches and its clock's mark would remember what was undone."""
        with self.database._writer.connection.backup("main", saved.database, "main") as backup:
            backup.step()
        self.database._cache._since = -inf
        self.database._cache.expire()
        self.database._clock._mark = None
        self.clock.step(saved.now - self.now)
        self.memory = [(name, dict(tokens)) for name, tokens in saved.memory]
        self.crashes, self.lost_answers = saved.crashes, saved.lost_answers

    def perform(self, action: Action) -> None:
        """Perform an action, with its fault."""
        self.store.crashes = action.fault == "crash"
        if action.fault in ("applied", "dropped"):
            self.store.break_next(action.fault == "applied")
            self.lost_answers -= 1
        try:
            getattr(self, action.name)(action)
        except Crashed:
            self.crash(action)
        finally:
            self.store.crashes = False
        self.memory.sort(key=lambda one: sorted(one[1]))

    def tick(self, action: Action) -> None:
        self.clock.advance(MINUTE)

    def crash(self, action: Action) -> None:
        self.memory[action.instance][1].clear()
        self.crashes -= 1

    def admit_due(self, action: Action) -> None:
        holder, tokens = self.memory[action.instance]
        found = admit_due(
            self.store,
            ids=self.ids,
            now=self.now - action.lag * MINUTE,
            limit=10,
            local_capacity=None if tokens else LocalCapacity(holder=holder, free_slots=1),
        )
        tokens.update((_token(run), run) for run, _ in found.leased)

    def lease_ready(self, action: Action) -> None:
        holder, tokens = self.memory[action.instance]
        now = self.now - action.lag * MINUTE
        found = lease_ready(self.store, ids=self.ids, holder=holder, capacity=1, now=now)
        tokens.update((_token(lease.run), lease.run) for lease in found.leases)

    def renew_leases(self, action: Action) -> None:
        tokens = self.memory[action.instance][1]
        assert action.token is not None
        run = tokens[action.token]
        kept, _ = renew_leases(self.store, [Renewal(run.id, run.fence, self.now + MINUTE)])
        if not kept:
            del tokens[action.token]

    def settle_results(self, action: Action) -> None:
        assert action.token is not None
        run = self.memory[action.instance][1].pop(action.token)
        outcome = Succeeded() if action.success else Failed(error="no")
        result = AttemptResult(run=run, outcome=outcome, started_at=run.leased_at)
        settle_results(self.store, [result], now=self.now)

    def reclaim(self, action: Action) -> None:
        reclaim(self.store, now=self.now - action.lag * MINUTE, limit=10)

    def pause(self, action: Action) -> None:
        replan.pause(self.store, IDS[action.schedule], ids=self.ids, by=ADA, now=self.now)

    def resume(self, action: Action) -> None:
        replan.resume(self.store, IDS[action.schedule], ids=self.ids, by=ADA, now=self.now)

    def skip_next(self, action: Action) -> None:
        skip_next(self.store, IDS[action.schedule], ids=self.ids, by=ADA, now=self.now)

    def state(self) -> State:
        """The state of the store and the instances, as the model writes it."""
        records = self.store.read(lambda tx: tx.get_schedules(IDS))
        page = self.store.read(lambda tx: tx.find(RunFilter(limit=1000)))
        progress = [records[i].progress if i in records else None for i in IDS]
        return State(
            now=_ticks(self.now),
            schedules=tuple(
                Progress(_ticks(p.cursor), _ticks(p.paused_at) if p.paused_at else NEVER) if p else Progress()
                for p in progress
            ),
            rows=tuple(sorted(_row(run) for run in page.rows)),
            memory=tuple(tuple(sorted(tokens)) for _, tokens in self.memory),
            crashes=self.crashes,
            lost_answers=self.lost_answers,
        )


def _row(run: Run) -> Row:
    assert run.last_of is None, "more instants than a row of the model stands for"
    leased = run.state.value == LEASED
    return Row(
        schedule=IDS.index(run.schedule_id),
        planned=_ticks(run.planned_at),
        state=run.state.value,
        fire=_ticks(run.fire_at),
        fence=run.fence,
        attempts=run.attempts,
        losses=run.losses,
        until=_ticks(run.lease_until) if leased and run.lease_until else NEVER,
    )


def _token(run: Run) -> Token:
    return Token(IDS.index(run.schedule_id), _ticks(run.planned_at), run.fence)


def _ticks(moment: datetime) -> int:
    return (moment - NOON) // MINUTE
