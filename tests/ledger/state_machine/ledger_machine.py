"""A state machine over one store: people, agents and workers act in any order; invariants always hold."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from functools import partial
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from msgspec.structs import replace

from tests.conformance.support.databases import open_store
from tests.ledger.ledger_kit import ADA, NOON, TICK, LedgerHarness
from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.core.policies.limits import Limit
from timewright.core.policies.policies import CatchUp, Exhausted, Overlap, QueuePolicy, Retry
from timewright.core.recurrence.triggers import Cron, Every
from timewright.core.run.run import (
    LIVE_STATES,
    Cancelled,
    Failed,
    Outcome,
    Reason,
    Released,
    Run,
    RunState,
    Succeeded,
    TimedOut,
)
from timewright.core.schedule.hints import IntervalHint, OneShotHint, PauseHint
from timewright.core.schedule.schedule import Schedule
from timewright.errors import NotAllowed
from timewright.ledger.admission_batch import LocalCapacity
from timewright.ledger.manual_runs import skip_next
from timewright.ledger.queues.limits import set_limit
from timewright.ledger.queues.policies import set_queue_policy
from timewright.ledger.replan import archive, clear_hints
from timewright.ledger.settle import cancel, reopen, reset
from timewright.ports.rows import LeasedRuns
from timewright.testing.clock import ManualClock

MAX_SCHEDULES = 4
MAX_ATTEMPTS = 2
LIMIT_KEYS = ("limit:default/api", "queue:default/line")

RUN_ACTIONS: list[Any] = [cancel, reset, reopen]

triggers: st.SearchStrategy[Any] = st.sampled_from(
    [Every(MINUTE, NOON), Every(3 * MINUTE, NOON + 20 * SECOND), Cron("*/2 * * * *"), Every(HOUR, NOON)]
)
outcomes: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        Succeeded(),
        Succeeded(outcome_label="noop"),
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
        "retry": st.builds(partial(Retry, max_attempts=MAX_ATTEMPTS), exhausted=st.sampled_from(Exhausted)),
    }
)


class WatchedSchedule:
    """One schedule, and the periods of the triggers it had, whose instants must all be decided."""

    def __init__(self, schedule: Schedule, *, since: datetime) -> None:
        self.schedule = schedule
        self.spans: list[tuple[Any, datetime, datetime | None]] = [(schedule.trigger, since, None)]
        self.cursor = since
        # A hint replaces planned instants, and replaced instants need no row.
        self.displaced = False

    def edited(self, trigger: Any, *, at: datetime) -> None:
        old, since, _ = self.spans[-1]
        self.spans[-1] = (old, since, at)
        self.spans.append((trigger, at, None))

    def owed(self, cursor: datetime) -> set[datetime]:
        """The instants up to the cursor that must be decided."""
        found: set[datetime] = set()
        for trigger, since, until in self.spans:
            found |= set(trigger.between(since, min(until or cursor, cursor), limit=100_000))
        return found


class LedgerMachine(RuleBasedStateMachine):
    """People, agents and workers over one store."""

    kind = "memory"
    place = ":memory:"

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(NOON)
        self.bench = LedgerHarness(open_store(self.kind, self.place, clock=self.clock), self.clock)
        self.watched: list[WatchedSchedule] = []
        self.leased: list[Run] = []
        self.fences: Counter[str] = Counter()
        self.limits = dict.fromkeys(LIMIT_KEYS, 1)

    @initialize(data=st.data(), count=st.integers(2, MAX_SCHEDULES))
    def create(self, data: st.DataObject, count: int) -> None:
        for number in range(count):
            trigger, fields = data.draw(triggers), data.draw(policies)
            schedule = self.bench.schedule(f"job-{number}", trigger, **fields)
            self.watched.append(WatchedSchedule(schedule, since=self.bench.now))

    @rule(seconds=st.sampled_from([1, 10, 45, 60, 61]))
    def a_moment_passes(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)

    @rule(minutes=st.sampled_from([3, 6, 20, 60]))
    def a_while_passes(self, minutes: int) -> None:
        self.clock.advance(minutes=minutes)

    @rule(offered=st.integers(0, 3))
    def admit(self, offered: int) -> None:
        offer = LocalCapacity(holder="worker", free_slots=offered) if offered else None
        self.taken([run for run, _ in self.bench.admit(local_capacity=offer).leased])

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
        for key, count in self.counts().items():
            assert count <= max(self.limits[key], counts[key]), "no grant passes a ceiling"

    @rule(seconds=st.sampled_from([1, 30, 60]), answers=st.lists(outcomes, min_size=1, max_size=6))
    def an_engine_ticks(self, seconds: int, answers: list[Outcome]) -> None:
        """A few passes of an engine, each a little later."""
        for outcome in answers:
            self.clock.advance(seconds=seconds)
            self.run_maintenance()
            self.admit(1)
            self.lease(3)
            self.bench.settle(*self.live()[:2], outcome=outcome)

    @rule(data=st.data(), answers=st.lists(outcomes, min_size=1, max_size=3))
    @precondition(lambda self: self.leased)
    def settle(self, data: st.DataObject, answers: list[Outcome]) -> None:
        """Settle leases, usually the newest, sometimes one that was lost or settled before."""
        for outcome in answers:
            run = data.draw(st.sampled_from(self.leased[:-4:-1] + self.leased), label="lease")
            before = self.bench.run(run)
            answered = self.bench.settle(run, outcome=outcome)
            if before.state is not RunState.LEASED or before.fence != run.fence:
                assert self.bench.run(run) == before, "a lost lease changes nothing"
                assert answered.ended == ()

    @rule()
    def run_maintenance(self) -> None:
        self.bench.reclaim()
        assert all(run.lease_until and run.lease_until > self.bench.now for run in self.live())
        self.bench.free()
        for watched in self.watched:
            rows = self.rows(watched)
            in_flight = any(run.exclusive and run.state in LIVE_STATES for run in rows)
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

    def edit(self, watched: WatchedSchedule, trigger: Any, fields: dict[str, Any]) -> None:
        fields["adaptive"] = watched.schedule.adaptive
        was_ahead = self.bench.progress(watched.schedule).cursor > self.bench.now
        changed = self.bench.revise(replace(watched.schedule, trigger=trigger, **fields))
        if was_ahead:
            # Instants skipped by hand moved the cursor ahead; the new trigger is planned from the edit on.
            watched.cursor = changed.progress.cursor
        watched.schedule = changed.schedule
        watched.edited(trigger, at=changed.progress.cursor)

    @rule(data=st.data(), verb=st.sampled_from(RUN_ACTIONS))
    def people_change_a_run(self, data: st.DataObject, verb: Any) -> None:
        rows = self.rows(data.draw(st.sampled_from(self.watched), label="schedule"))
        if rows:
            run = data.draw(st.sampled_from(rows[-8:]), label="run")
            allowed(partial(verb, self.bench.store, run.id, actor="ada", reason="try", now=self.bench.now))

    @rule(capacity=st.integers(1, 3), key=st.sampled_from(LIMIT_KEYS))
    def people_change_a_ceiling(self, capacity: int, key: str) -> None:
        self.limits[key] = capacity
        asked: dict[str, Any] = {"namespace": "default", "by": ADA, "now": self.bench.now}
        if key.startswith("limit"):
            set_limit(self.bench.store, Limit(name="api", max_running=capacity), **asked)
        else:
            set_queue_policy(
                self.bench.store, queue="line", policy=QueuePolicy(max_running=capacity), **asked
            )

    @rule(data=st.data(), wish=st.sampled_from(["interval", "once", "pause", "clear"]))
    @precondition(lambda self: any(watched.schedule.adaptive for watched in self.watched))
    def agents_wish(self, data: st.DataObject, wish: str) -> None:
        adaptive = [watched for watched in self.watched if watched.schedule.adaptive]
        watched = data.draw(st.sampled_from(adaptive), label="schedule")
        now, expires = self.bench.now, self.bench.now + HOUR
        watched.displaced = watched.displaced or wish in ("interval", "once")
        if wish == "clear":
            clear_hints(self.bench.store, watched.schedule.id, ids=self.bench.ids, by=ADA, now=now)
        elif wish == "pause":
            self.bench.hint(watched.schedule, PauseHint(until=now + 5 * MINUTE))
        elif wish == "interval":
            self.bench.hint(watched.schedule, IntervalHint(interval=90 * SECOND, expires_at=expires))
        else:
            self.bench.hint(watched.schedule, OneShotHint(at=now + 40 * SECOND, expires_at=expires))

    def rows(self, watched: WatchedSchedule) -> list[Run]:
        return self.bench.runs(watched.schedule)

    def live(self) -> list[Run]:
        return self.bench.store.read(lambda tx: tx.select(LeasedRuns()))

    def taken(self, runs: list[Run]) -> None:
        for run in runs:
            assert run.fence > self.fences[run.id], "every lease has a higher fence"
            self.fences[run.id] = run.fence
        self.leased += runs

    def counts(self) -> Counter[str]:
        found = Counter(key for run in self.live() for key in run.limit_keys)
        return Counter({key: found[key] for key in LIMIT_KEYS})

    @invariant()
    def schedules_keep_their_promises(self) -> None:
        for watched in self.watched:
            cursor, rows = self.bench.progress(watched.schedule).cursor, self.rows(watched)
            assert cursor >= watched.cursor, "the cursor never goes back"
            watched.cursor = cursor
            decided = decided_instants(rows, watched)
            assert max(decided.values(), default=1) == 1, "one row per occurrence"
            assert watched.displaced or watched.owed(cursor) <= set(decided), "nothing is passed silently"
            skipped_ahead = {run.planned_at for run in rows if run.reason == Reason.BY_HAND.value}
            beyond = {instant for instant in decided if instant > cursor} - skipped_ahead
            assert not beyond, "nothing beyond the cursor is decided, except what was skipped by hand"
            assert sum(run.exclusive and run.state in LIVE_STATES for run in rows) <= 1, "one in flight"
            assert all(run.attempts <= MAX_ATTEMPTS for run in rows), "nobody has more than the budget"

    @invariant()
    def limits_count_their_leases(self) -> None:
        limits = self.bench.store.read(lambda tx: tx.get_limits(LIMIT_KEYS))
        assert {name: limit.held for name, limit in limits.items()} == self.counts()

    def teardown(self) -> None:
        """Without further changes everything drains, and the audit log is intact."""
        for watched in self.watched:
            allowed(partial(self.bench.pause, watched.schedule))
        for key in LIMIT_KEYS:
            self.people_change_a_ceiling(3, key)
        for _ in range(100):
            self.clock.advance(seconds=400)
            self.bench.reclaim()
            self.bench.free()
            self.bench.work()
            left = {run.state for watched in self.watched for run in self.rows(watched)}
            if not left & {*LIVE_STATES, RunState.HELD}:
                break
        else:
            raise AssertionError("runs that never end")
        self.bench.audit()
        self.bench.store.close()


def allowed(step: Any) -> None:
    """Run an action that the current state may not allow."""
    try:
        step()
    except NotAllowed:
        return


def decided_instants(rows: list[Run], watched: WatchedSchedule) -> Counter[datetime]:
    """How often each instant is decided: by its own row, or inside a collapsed row."""
    found: Counter[datetime] = Counter()
    for run in rows:
        if run.dedupe_scope:
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
