"""The verbs of a store in any order, against a model of a few lines: both databases remember the same."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from tests.conformance.conftest import TABLES
from tests.conformance.support.builders import NOON, ended, grant, make_run, new_id
from tests.conformance.support.databases import Database, open_store
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.run import TERMINAL_STATES, Attempt, Run, RunState
from timewright.ports import PruneRequest, Renewal, RunChange, Store, Transaction
from timewright.ports.rows import LeasedRuns
from timewright.testing.clock import ManualClock

LIMIT_KEY = "limit:default/api"
LEASE = 5 * MINUTE
ENDS = (RunState.SUCCEEDED, RunState.FAILED, RunState.READY, RunState.PARKED)


class StoreMachine(RuleBasedStateMachine):
    """Every run in a simple model; a store method must change and return the same runs."""

    database: ClassVar[Database | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(NOON)
        self.store = self.open_store_for_test()
        self.known: dict[str, Run] = {}
        self.attempts: dict[str, int] = {}
        self.seen: list[Run] = []

    def open_store_for_test(self) -> Store:
        if self.database is None:
            return open_store("memory", ":memory:", clock=self.clock)
        for table in TABLES:
            self.database.sql(f"DELETE FROM {table}")
        return open_store(self.database.kind, self.database.place, clock=self.clock)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def of(self, *states: RunState) -> list[Run]:
        return [run for run in self.known.values() if run.state in states]

    def write(self, work: Any) -> Any:
        return self.store.write(work)

    @rule(seconds=st.sampled_from([1, 60, 400]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)

    @rule(count=st.integers(1, 3), limited=st.booleans())
    def add(self, count: int, limited: bool) -> None:
        keys = (LIMIT_KEY,) if limited else ()
        scopes = [f"scope of {new_id()}" for _ in range(count)]
        runs = [make_run(planned_at=self.now, limit_keys=keys, dedupe_scope=scope) for scope in scopes]
        assert self.write(lambda tx: tx.add_runs(runs)) == {run.id for run in runs}
        assert self.write(lambda tx: tx.add_runs(runs)) == set(), "the same twice is a no-op"
        self.known |= {run.id: run for run in runs}

    @rule(data=st.data())
    @precondition(lambda self: self.known)
    def lease(self, data: st.DataObject) -> None:
        """Lease runs from old snapshots: only unchanged runs are leased."""
        chosen = data.draw(st.lists(st.sampled_from([*self.known.values(), *self.seen]), max_size=3))
        asked = list({run.id: run for run in chosen}.values())
        grants = [grant(run, at=self.now, length=LEASE) for run in asked]
        leased = self.write(lambda tx: tx.lease_runs(grants))
        current = [self.known.get(run.id) for run in asked]
        expected = {
            run.id
            for run, now in zip(asked, current, strict=True)
            if now is not None and now.state is RunState.READY and now.fence == run.fence
        }
        assert {run.id for run in leased} == expected
        for run in leased:
            assert run.fence == self.known[run.id].fence + 1
            self.known[run.id] = run
        self.seen += leased

    @rule(data=st.data(), minutes=st.integers(1, 30))
    @precondition(lambda self: self.seen)
    def renew(self, data: st.DataObject, minutes: int) -> None:
        run = data.draw(st.sampled_from(self.seen))
        until = self.now + minutes * MINUTE
        renewal = Renewal(run.id, run.fence, until)
        kept = self.write(lambda tx: tx.renew_leases([renewal]))
        holds = self.holds(run)
        assert [(one.run_id, one.fence) for one in kept] == ([(run.id, run.fence)] if holds else [])
        if holds:
            longest = max(until, self.known[run.id].lease_until or until)
            self.known[run.id] = replace(self.known[run.id], lease_until=longest)

    @rule(data=st.data(), state=st.sampled_from(ENDS))
    @precondition(lambda self: self.seen)
    def settle(self, data: st.DataObject, state: RunState) -> None:
        run = data.draw(st.sampled_from(self.seen))
        after = ended(run, state, at=self.now)
        settled = self.write(lambda tx: tx.settle_runs([after]))
        assert settled == ({run.id} if self.holds(run) else set()), "only the fence that holds"
        if settled:
            self.known[run.id] = self.stored(run.id)
            assert (self.known[run.id].state, self.known[run.id].lease_until) == (state, None)
            self.attempts[run.id] = self.attempts.get(run.id, 0) + 1

    @rule(data=st.data())
    @precondition(lambda self: self.known)
    def cancel(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from([*self.known.values(), *self.seen]))
        gone = replace(run, state=RunState.CANCELLED, finished_at=self.now, reason="cancelled")
        changed = self.write(lambda tx: tx.change_runs([RunChange(gone, RunState.READY, run.fence)]))
        now = self.known.get(run.id)
        holds = now is not None and now.state is RunState.READY and now.fence == run.fence
        assert changed == ({run.id} if holds else set())
        if holds:
            self.known[run.id] = self.stored(run.id)

    @rule(age=st.sampled_from([timedelta(0), 5 * MINUTE, HOUR]))
    def prune(self, age: timedelta) -> None:
        before = set(self.known)
        gone = self.write(lambda tx: tx.prune(PruneRequest(older_than=self.now - age)))
        left = self.store.read(lambda tx: set(tx.get_runs(before)))
        assert gone == len(before - left)
        for run in (self.known[run_id] for run_id in before - left):
            assert run.state in TERMINAL_STATES, "what is not over is never pruned"
            assert run.finished_at is not None
            assert run.finished_at <= self.now - age
            del self.known[run.id]
            self.attempts.pop(run.id, None)

    def holds(self, run: Run) -> bool:
        now = self.known.get(run.id)
        return now is not None and now.state is RunState.LEASED and now.fence == run.fence

    def stored(self, run_id: str) -> Run:
        return self.store.read(lambda tx: tx.get_runs([run_id]))[run_id]

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        def look(tx: Transaction) -> tuple[Any, ...]:
            return (
                tx.get_runs(self.known),
                {run.id for run in tx.select(LeasedRuns())},
                tx.get_limits([LIMIT_KEY])[LIMIT_KEY].held,
                {run_id: len(rows) for run_id, rows in tx.get_run_rows(Attempt, self.known).items() if rows},
            )

        runs, leased, held, attempts = self.store.read(look)
        assert runs == self.known
        assert leased == {run.id for run in self.of(RunState.LEASED)}
        assert held == sum(LIMIT_KEY in run.limit_keys for run in self.of(RunState.LEASED))
        assert attempts == self.attempts

    @invariant()
    def ready_and_expired_runs_agree_with_the_model(self) -> None:
        ready, expired = self.store.write(
            lambda tx: (tx.ready_runs(now=self.now, limit=1000), tx.expired_leases(now=self.now, limit=1000))
        )
        assert {run.id for run in ready} == {
            run.id for run in self.of(RunState.READY) if run.fire_at <= self.now
        }
        over = {run.id for run in self.of(RunState.LEASED) if run.lease_until and run.lease_until <= self.now}
        assert {run.id for run in expired} == over

    def teardown(self) -> None:
        self.store.close()


def test_an_in_memory_store_agrees_with_the_model() -> None:
    examples = max(settings().max_examples // 5, 1)
    run_state_machine_as_test(StoreMachine, settings=settings(max_examples=examples, stateful_step_count=25))


@pytest.mark.parametrize("kind", ["postgres"])
def test_postgres_agrees_with_the_model(database: Database) -> None:
    found = type("OnAServer", (StoreMachine,), {"database": database})
    examples = max(settings().max_examples // 20, 1)
    run_state_machine_as_test(found, settings=settings(max_examples=examples, stateful_step_count=15))
