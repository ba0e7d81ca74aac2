"""A state machine over the ledger with renewals and pruned history, checked by the verification rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from tests.conformance.conftest import TABLES
from tests.conformance.support.databases import Database
from tests.ledger.ledger_kit import ADA
from tests.ledger.state_machine.ledger_machine import RUN_ACTIONS, LedgerMachine, WatchedSchedule, allowed
from timewright.core.moments import HOUR, MINUTE, to_micros
from timewright.core.run.run import TERMINAL_STATES, Run, RunState
from timewright.ledger.lease import renew_leases
from timewright.operations.context import OperationContext
from timewright.operations.health.verify import read_history
from timewright.ports import PruneRequest, Renewal
from timewright.verification import check

# What the checker reads from who wished and from what one pass made at one instant: the machine goes past the
# operations, and makes many passes at the same instant.
NOT_OF_THE_LEDGER = {"I22", "I25"}


class ExtendedLedgerMachine(LedgerMachine):
    """The ledger's state machine, extended: leases are renewed and history is pruned."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, set[str]] = {}
        self.forgotten: dict[str, list[Run]] = {}

    def rows(self, watched: WatchedSchedule) -> list[Run]:
        """The runs in the store, and those that were pruned."""
        return [*self.kept(watched), *self.forgotten.get(watched.schedule.id, ())]

    def kept(self, watched: WatchedSchedule) -> list[Run]:
        """The runs in the store by id; a list of runs ends where history was pruned."""
        known = self.known.setdefault(watched.schedule.id, set())
        known.update(run.id for run in super().rows(watched))
        return list(self.bench.store.read(lambda tx: tx.get_runs(known)).values())

    @rule(data=st.data())
    @precondition(lambda self: self.leased)
    def renew(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.leased[:-4:-1] + self.leased), label="lease")
        before, until = self.bench.run(run), self.bench.now + 10 * MINUTE
        kept, lost = renew_leases(self.bench.store, [Renewal(run.id, run.fence, until)])
        holds = before.state is RunState.LEASED and before.fence == run.fence
        assert (len(kept), len(lost)) == ((1, 0) if holds else (0, 1))
        assert self.bench.run(run).fence == before.fence
        if not holds:
            assert self.bench.run(run) == before, "a lost lease is not prolonged"

    @rule(data=st.data(), verb=st.sampled_from(["pause", "resume", "run now", "edit", "archive"]))
    def people_change_a_schedule(self, data: st.DataObject, verb: str) -> None:
        """All operations but skip: after a skip of future instants, an edit would move the cursor back."""
        super().people_change_a_schedule(data=data, verb=verb)

    @rule(data=st.data(), verb=st.sampled_from(RUN_ACTIONS))
    def people_change_a_run(self, data: st.DataObject, verb: Any) -> None:
        watched = data.draw(st.sampled_from(self.watched), label="schedule")
        rows = self.kept(watched)
        if rows:
            run = data.draw(st.sampled_from(rows[-8:]), label="run")
            allowed(partial(verb, self.bench.store, run.id, actor="ada", reason="try", now=self.bench.now))

    @rule(age=st.sampled_from([5 * MINUTE, HOUR]))
    def history_is_pruned(self, age: Any) -> None:
        before = {watched.schedule.id: self.kept(watched) for watched in self.watched}
        oldest = self.bench.now - age
        self.bench.store.write(lambda tx: tx.prune(PruneRequest(older_than=oldest)))
        for watched in self.watched:
            left = {run.id for run in self.kept(watched)}
            gone = [run for run in before[watched.schedule.id] if run.id not in left]
            assert {run.state for run in gone} <= TERMINAL_STATES, f"what is not over is never pruned: {gone}"
            assert all((run.finished_at or run.created_at) <= oldest for run in gone)
            self.forgotten.setdefault(watched.schedule.id, []).extend(gone)
            self.leased = [run for run in self.leased if run.id not in {one.id for one in gone}]

    def teardown(self) -> None:
        """Finish all runs, then verify everything in the store."""
        store = self.bench.store
        close, store.close = store.close, lambda: None  # type: ignore[method-assign]
        try:
            super().teardown()
            context = OperationContext(store=store, ids=self.bench.ids, by=ADA, notify=lambda _: None)
            report = check(read_history(context, all_namespaces=True), now=to_micros(self.bench.now))
            broken = [one for one in report.violations if one.invariant not in NOT_OF_THE_LEDGER]
            assert not broken, broken
        finally:
            close()


def test_the_rules_hold_with_renewals_and_pruned_history() -> None:
    examples = max(settings().max_examples // 10, 1)
    run_state_machine_as_test(
        ExtendedLedgerMachine, settings=settings(max_examples=examples, stateful_step_count=30)
    )


@pytest.mark.parametrize("kind", ["postgres"])
def test_the_rules_hold_with_renewals_and_pruned_history_on_postgres(database: Database) -> None:
    class Server(ExtendedLedgerMachine):
        """The same, on an empty PostgreSQL database each time."""

        kind, place = database.kind, database.place

        def __init__(self) -> None:
            for table in TABLES:
                database.sql(f"DELETE FROM {table}")
            super().__init__()

    examples = max(settings().max_examples // 30, 1)
    run_state_machine_as_test(Server, settings=settings(max_examples=examples, stateful_step_count=20))
