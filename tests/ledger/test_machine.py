"""Anything anyone can do, in any order: what is promised holds after every step, and at last all drains."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from tests.conformance.conftest import TABLES
from tests.conformance.databases import Database, open_store
from tests.ledger.bench import ADA, NOON, TICK, Bench
from timewright.core.hints import IntervalHint, OneShotHint, PauseHint
from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.core.policies import CatchUp, Exhausted, Overlap, QueuePolicy, Retry
from timewright.core.run import (
    IN_FLIGHT,
    Cancelled,
    Failed,
    Outcome,
    Released,
    Run,
    RunState,
    Succeeded,
    TimedOut,
)
from timewright.core.schedule import Schedule
from timewright.core.triggers import Cron, Every
from timewright.errors import NotAllowed
from timewright.ledger.admission_pass import Offer
from timewright.ledger.by_hand import skip_next
from timewright.ledger.policy import set_limit, set_queue_policy
from timewright.ledger.replan import archive, clear_hints
from timewright.ledger.settle import cancel, reopen, reset
from timewright.testing.clock import ManualClock

MOST_SCHEDULES = 4
MOST_ATTEMPTS = 2
GATES = ("limit:default/api", "queue:default/line")

VERBS: list[Any] = [cancel, reset, reopen]

triggers: st.SearchStrategy[Any] = st.sampled_from(
    [Every(MINUTE, NOON), Every(3 * MINUTE, NOON + 20 * SECOND), Cron("*/2 * * * *"), Every(HOUR, NOON)]
)
outcomes: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        Succeeded(),
        Succeeded(word="noop"),
        Failed(error="no"),
        Failed(error="never", final=True),
        Failed(error="gone", unresolved=True),
        TimedOut(),
        Cancelled(),
        Released(reason="later"),
    ]
)
policies = st.fixed_dictionaries(
    {
        "overlap": st.sampled_from(Overlap),
        "catch_up": st.sampled_from(CatchUp),
        "catch_up_limit": st.integers(1, 5),
        "queue_limit": st.integers(1, 3),
        "grace": st.sampled_from([0 * SECOND, MINUTE]),
        "deadline": st.sampled_from([None, None, 20 * MINUTE]),
        "jitter": st.sampled_from([0 * SECOND, 30 * SECOND]),
        "disable_after": st.none() | st.just(2),
        "adaptive": st.booleans(),
        "limits": st.sampled_from([(), ("api",)]),
        "queue": st.none() | st.just("line"),
        "retry": st.builds(partial(Retry, max_attempts=MOST_ATTEMPTS), exhausted=st.sampled_from(Exhausted)),
    }
)


class Watched:
    """One schedule, and what must be accounted for: each trigger it had, from where to where."""

    def __init__(self, schedule: Schedule, *, since: datetime) -> None:
        self.schedule = schedule
        self.spans: list[tuple[Any, datetime, datetime | None]] = [(schedule.trigger, since, None)]
        self.cursor = since
        # A hint displaces what the trigger planned, and nobody owes a row for what was displaced.
        self.displaced = False

    def edited(self, trigger: Any, *, at: datetime) -> None:
        old, since, _ = self.spans[-1]
        self.spans[-1] = (old, since, at)
        self.spans.append((trigger, at, None))

    def owed(self, cursor: datetime) -> set[datetime]:
        """The instants up to the cursor that must be accounted for."""
        found: set[datetime] = set()
        for trigger, since, until in self.spans:
            found |= set(trigger.between(since, min(until or cursor, cursor), limit=100_000))
        return found


class Machine(RuleBasedStateMachine):
    """People, agents and workers over one store."""

    kind = "memory"
    place = ":memory:"

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(NOON)
        self.bench = Bench(open_store(self.kind, self.place, clock=self.clock), self.clock)
        self.watched: list[Watched] = []
        self.leased: list[Run] = []
        self.fences: Counter[str] = Counter()
        self.limits = dict.fromkeys(GATES, 1)

    @initialize(data=st.data(), count=st.integers(2, MOST_SCHEDULES))
    def create(self, data: st.DataObject, count: int) -> None:
        for number in range(count):
            trigger, fields = data.draw(triggers), data.draw(policies)
            schedule = self.bench.schedule(f"job-{number}", trigger, **fields)
            self.watched.append(Watched(schedule, since=self.bench.now))

    @rule(seconds=st.sampled_from([1, 10, 45, 60, 61]))
    def a_moment_passes(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)

    @rule(minutes=st.sampled_from([3, 6, 20, 60]))
    def a_while_passes(self, minutes: int) -> None:
        self.clock.advance(minutes=minutes)

    @rule(offered=st.integers(0, 3))
    def admit(self, offered: int) -> None:
        offer = Offer(holder="worker", capacity=offered) if offered else None
        self.taken([run for run, _ in self.bench.admit(offer=offer).leased])

    @rule(capacity=st.integers(1, 4))
    def lease(self, capacity: int) -> None:
        before = {run.id: run for watched in self.watched for run in self.rows(watched)}
        counts = self.counts()
        runs = self.bench.lease(capacity)
        assert len(runs) <= capacity
        for run in runs:
            was = before[run.id]
            assert was.state is RunState.READY, "parked, held and finished runs are never leased"
            assert was.fire_at <= self.bench.now
        self.taken(runs)
        for gate, count in self.counts().items():
            assert count <= max(self.limits[gate], counts[gate]), "no grant passes a ceiling"

    @rule(seconds=st.sampled_from([1, 30, 60]), answers=st.lists(outcomes, min_size=1, max_size=6))
    def an_engine_ticks(self, seconds: int, answers: list[Outcome]) -> None:
        """A few passes as an engine makes them, each a little later."""
        for outcome in answers:
            self.clock.advance(seconds=seconds)
            self.keep_house()
            self.admit(1)
            self.lease(3)
            self.bench.settle(*self.live()[:2], outcome=outcome)

    @rule(data=st.data(), answers=st.lists(outcomes, min_size=1, max_size=3))
    @precondition(lambda self: self.leased)
    def settle(self, data: st.DataObject, answers: list[Outcome]) -> None:
        """Answer for leases, most often for the newest, also for one that was lost or answered long ago."""
        for outcome in answers:
            run = data.draw(st.sampled_from(self.leased[:-4:-1] + self.leased), label="lease")
            before = self.bench.run(run)
            answered = self.bench.settle(run, outcome=outcome)
            if before.state is not RunState.LEASED or before.fence != run.fence:
                assert self.bench.run(run) == before, "a lost lease changes nothing"
                assert answered.ended == ()

    @rule()
    def keep_house(self) -> None:
        self.bench.reclaim()
        assert all(run.lease_until and run.lease_until > self.bench.now for run in self.live())
        self.bench.free()
        for watched in self.watched:
            rows = self.rows(watched)
            in_flight = any(run.alone and run.state in IN_FLIGHT for run in rows)
            assert in_flight or all(run.state is not RunState.HELD for run in rows), (
                "nobody waits for nothing"
            )

    @rule(data=st.data(), verb=st.sampled_from(["pause", "resume", "run now", "skip", "edit", "archive"]))
    def people_change_a_schedule(self, data: st.DataObject, verb: str) -> None:
        watched = data.draw(st.sampled_from(self.watched), label="schedule")
        schedule, bench = watched.schedule, self.bench
        if verb == "edit":
            self.edit(watched, data.draw(triggers), data.draw(policies))
        elif verb == "pause":
            minutes = data.draw(st.none() | st.integers(1, 30))
            allowed(partial(bench.pause, schedule, until=bench.now + minutes * MINUTE if minutes else None))
        elif verb == "resume":
            allowed(partial(bench.resume, schedule))
        elif verb == "run now":
            allowed(partial(bench.run_now, schedule, force=data.draw(st.booleans())))
        elif verb == "skip":
            allowed(partial(skip_next, bench.store, schedule.id, ids=bench.ids, by=ADA, now=bench.now))
        elif data.draw(st.integers(0, 9)) == 0:
            allowed(partial(archive, bench.store, schedule.id, by=ADA, now=bench.now))

    def edit(self, watched: Watched, trigger: Any, fields: dict[str, Any]) -> None:
        fields["adaptive"] = watched.schedule.adaptive
        changed = self.bench.revise(replace(watched.schedule, trigger=trigger, **fields))
        watched.schedule = changed.schedule
        watched.edited(trigger, at=changed.standing.cursor)

    @rule(data=st.data(), verb=st.sampled_from(VERBS))
    def people_change_a_run(self, data: st.DataObject, verb: Any) -> None:
        rows = self.rows(data.draw(st.sampled_from(self.watched), label="schedule"))
        if rows:
            run = data.draw(st.sampled_from(rows[-8:]), label="run")
            allowed(partial(verb, self.bench.store, run.id, actor="ada", reason="try", now=self.bench.now))

    @rule(most=st.integers(1, 3), gate=st.sampled_from(GATES))
    def people_change_a_ceiling(self, most: int, gate: str) -> None:
        self.limits[gate] = most
        asked: dict[str, Any] = {"namespace": "default", "by": ADA, "now": self.bench.now}
        if gate.startswith("limit"):
            set_limit(self.bench.store, name="api", most=most, **asked)
        else:
            set_queue_policy(self.bench.store, queue="line", policy=QueuePolicy(max_concurrent=most), **asked)

    @rule(data=st.data(), wish=st.sampled_from(["interval", "once", "pause", "clear"]))
    @precondition(lambda self: any(watched.schedule.adaptive for watched in self.watched))
    def agents_wish(self, data: st.DataObject, wish: str) -> None:
        adaptive = [watched for watched in self.watched if watched.schedule.adaptive]
        watched = data.draw(st.sampled_from(adaptive), label="schedule")
        now, expires = self.bench.now, self.bench.now + HOUR
        watched.displaced = watched.displaced or wish in ("interval", "once")
        if wish == "clear":
            clear_hints(self.bench.store, watched.schedule.id, by=ADA, now=now)
        elif wish == "pause":
            self.bench.hint(watched.schedule, PauseHint(until=now + 5 * MINUTE))
        elif wish == "interval":
            self.bench.hint(watched.schedule, IntervalHint(interval=90 * SECOND, expires_at=expires))
        else:
            self.bench.hint(watched.schedule, OneShotHint(at=now + 40 * SECOND, expires_at=expires))

    def rows(self, watched: Watched) -> list[Run]:
        return self.bench.runs(watched.schedule)

    def live(self) -> list[Run]:
        return self.bench.store.read(lambda tx: tx.leased_runs())

    def taken(self, runs: list[Run]) -> None:
        for run in runs:
            assert run.fence > self.fences[run.id], "every lease has a higher fence"
            self.fences[run.id] = run.fence
        self.leased += runs

    def counts(self) -> Counter[str]:
        found = Counter(gate for run in self.live() for gate in run.gates)
        return Counter({gate: found[gate] for gate in GATES})

    @invariant()
    def schedules_keep_their_promises(self) -> None:
        for watched in self.watched:
            cursor, rows = self.bench.standing(watched.schedule).cursor, self.rows(watched)
            assert cursor >= watched.cursor, "the cursor never goes back"
            watched.cursor = cursor
            decided = decided_instants(rows, watched)
            assert max(decided.values(), default=1) == 1, "one row per occurrence"
            assert watched.displaced or watched.owed(cursor) <= set(decided), "nothing is passed silently"
            assert all(instant <= cursor for instant in decided), "nothing beyond the cursor is decided"
            assert sum(run.alone and run.state in IN_FLIGHT for run in rows) <= 1, "one in flight"
            assert all(run.attempts <= MOST_ATTEMPTS for run in rows), "nobody has more than the budget"

    @invariant()
    def gates_count_what_they_let_through(self) -> None:
        gates = self.bench.store.read(lambda tx: tx.read_gates(GATES))
        assert {name: gate.held for name, gate in gates.items()} == self.counts()

    def teardown(self) -> None:
        """With nobody in the way everything drains, and the log is whole."""
        for watched in self.watched:
            allowed(partial(self.bench.pause, watched.schedule))
        for gate in GATES:
            self.people_change_a_ceiling(3, gate)
        for _ in range(100):
            self.clock.advance(seconds=400)
            self.bench.reclaim()
            self.bench.free()
            self.bench.work()
            left = {run.state for watched in self.watched for run in self.rows(watched)}
            if not left & {*IN_FLIGHT, RunState.HELD}:
                break
        else:
            raise AssertionError("runs that never end")
        self.bench.audit()
        self.bench.store.close()


def allowed(step: Any) -> None:
    """Something that the state of a schedule or a run may not permit just now."""
    try:
        step()
    except NotAllowed:
        return


def decided_instants(rows: list[Run], watched: Watched) -> Counter[datetime]:
    """How often each instant is decided: by a row of its own, or inside a row that counts."""
    found: Counter[datetime] = Counter()
    for run in rows:
        if run.lane:
            continue
        if run.last_of is None:
            found[run.planned_at] += 1
            continue
        inside = {
            instant
            for trigger, _, _ in watched.spans
            for instant in trigger.between(run.planned_at - TICK, run.last_of, limit=100_000)
        }
        assert len(inside) >= run.dropped
        found.update(inside)
    return found


def test_what_is_promised_holds_after_every_step() -> None:
    run_state_machine_as_test(Machine, settings=settings(stateful_step_count=50))


@pytest.mark.parametrize("kind", ["postgres"])
def test_what_is_promised_holds_after_every_step_on_a_server(database: Database) -> None:
    class Server(Machine):
        """The same, each time on an empty database of a server."""

        kind, place = database.kind, database.place

        def __init__(self) -> None:
            for table in TABLES:
                database.sql(f"DELETE FROM {table}")
            super().__init__()

    examples = settings().max_examples // 10
    run_state_machine_as_test(Server, settings=settings(max_examples=examples, stateful_step_count=25))
