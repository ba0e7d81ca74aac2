"""Runs the production engine on a virtual clock: the store, the tick and the launcher are the real ones."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count

from timewright.core.facts import Fact
from timewright.core.moments import SECOND
from timewright.core.policies.backoff import Steady
from timewright.core.policies.policies import Align
from timewright.core.recurrence.triggers import After, AnyOf
from timewright.core.run.run import Cancelled, Failed, Outcome, Succeeded, TimedOut
from timewright.core.run.simulation import Outages, SimulationRecorder, WorkModel
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Workflow
from timewright.engine.launch import Launcher
from timewright.engine.loop import Loop
from timewright.engine.tick import Tick
from timewright.engine.waiting import EventWaker
from timewright.ledger.lease import renew_leases
from timewright.ports import Ids, Launch, PruneRequest, Renewal, Store
from timewright.ports.overview import PendingWork

TARGET_KINDS = ("call", "http", "shell", "publish", "note", "workflow")
MAX_STEPS_AT_ONE_INSTANT = 100_000
# Finished runs are deleted once there are this many more, so that memory stays flat.
PRUNE_EVERY = 20_000
KEPT_RUNS = 5_000
LEASE_MARGIN = timedelta(minutes=1)
_NOT_STEPPED = timedelta(microseconds=1)


class VirtualClock:
    """A clock that stands still until the simulation moves it."""

    def __init__(self, start: datetime) -> None:
        self._start = self._now = start

    def now(self) -> datetime:
        """Return the current virtual time."""
        return self._now

    def monotonic(self) -> float:
        """Return the virtual seconds since the start."""
        return (self._now - self._start).total_seconds()

    def sleep(self, seconds: float) -> None:
        """Move forward."""
        self._now += timedelta(seconds=seconds)

    def move_to(self, instant: datetime) -> None:
        """Move forward to an instant; an earlier one changes nothing."""
        self._now = max(self._now, instant)


class _SimulatedWork:
    """One launch under way."""

    def __init__(self, launch: Launch, done: Callable[[Outcome], None], *, outcome: Outcome) -> None:
        self.launch = launch
        self.outcome = outcome
        self.over = False
        self._done = done

    def stop(self, reason: str) -> None:
        """End as cancelled."""
        self.end(Cancelled(reason=reason))

    def end(self, outcome: Outcome) -> None:
        """Report the outcome, once."""
        if not self.over:
            self.over = True
            self._done(outcome)


class SimulatedTarget:
    """Ends each launch after the duration that the model gives."""

    def __init__(self, clock: VirtualClock, work: WorkModel) -> None:
        self._clock = clock
        self._work = work
        self._under_way: list[tuple[datetime, int, _SimulatedWork]] = []
        self._numbers = count()
        self.launched: list[tuple[Launch, datetime]] = []
        self.ended_at: dict[str, datetime] = {}
        self.failing = 0

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> _SimulatedWork:
        """Begin work that ends after its duration."""
        duration, fails = self._work.duration(launch.schedule_name, launch.planned_at)
        outcome: Outcome = Failed(error="it failed when it was recorded") if fails else Succeeded()
        limit: timedelta | None = launch.time_limit
        if limit is not None and duration > limit:
            duration, outcome = limit, TimedOut()
        ends_at = self._clock.now() + duration
        self.failing += not isinstance(outcome, Succeeded)
        work = _SimulatedWork(launch, done, outcome=outcome)
        heapq.heappush(self._under_way, (ends_at, next(self._numbers), work))
        self.launched.append((launch, ends_at))
        return work

    def finish_due(self) -> None:
        """End all work whose time has come, in order."""
        now = self._clock.now()
        while self._under_way and self._under_way[0][0] <= now:
            ends_at, _, work = heapq.heappop(self._under_way)
            self.failing -= not isinstance(work.outcome, Succeeded)
            if not work.over:
                self.ended_at[work.launch.run_id] = ends_at
                work.end(work.outcome)

    def next_end(self) -> datetime | None:
        """The earliest instant at which work ends by itself."""
        while self._under_way and self._under_way[0][2].over:
            self.failing -= not isinstance(heapq.heappop(self._under_way)[2].outcome, Succeeded)
        return self._under_way[0][0] if self._under_way else None

    def close(self, *, grace: timedelta) -> None:
        """Drop all work."""
        self._under_way.clear()


class Simulation:
    """One instance on a virtual clock, which moves from one instant with something to do to the next."""

    def __init__(
        self,
        store: Store,
        clock: VirtualClock,
        *,
        ids: Ids,
        recorder: SimulationRecorder,
        work: WorkModel,
        workers: int,
        schedules: Iterable[Schedule],
    ) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._target = SimulatedTarget(clock, work)
        self._ends_matter = any(_depends_on_ends(schedule) for schedule in schedules)
        self._pruned_at = 0
        waker = EventWaker()
        targets = dict.fromkeys(TARGET_KINDS, self._target)
        self._launcher = Launcher(targets, monotonic=clock.monotonic, wake=waker.wake, capacity=workers)
        tick = Tick(store, self._launcher, ids=ids, holder="simulation")
        self._loop = Loop(store, tick, self._launcher, clock=clock, waker=waker, observers=[self])

    def notify(self, fact: Fact) -> None:
        """Record a fact."""
        self._recorder.record(fact, ended_at=self._target.ended_at)

    def run(
        self,
        until: datetime,
        *,
        outages: Outages = (),
        changes: Sequence[tuple[datetime, Callable[[], object]]] = (),
        progress: Callable[[float, str], None] | None = None,
    ) -> None:
        """Run up to an instant, not including it. During an outage nothing is decided.

        `changes` are made at their instants.
        """
        since, left = self._clock.now(), sorted(changes, key=lambda one: one[0])
        # A run that ends before a change is settled before it.
        self._ends_matter = self._ends_matter or bool(left)
        until -= _NOT_STEPPED
        while self._clock.now() < until:
            while left and left[0][0] <= self._clock.now():
                left.pop(0)[1]()
            pending = self._step()
            limit = min(until, left[0][0]) if left else until
            upcoming = min(self._next_instant(pending, limit), max(limit, self._clock.now() + _NOT_STEPPED))
            self._clock.move_to(_after_outages(upcoming, outages, until=until))
            if progress is not None:
                share = (self._clock.now() - since) / (until - since)
                progress(share, f"{self._recorder.decisions} decisions")
        self._step()

    def _step(self) -> PendingWork:
        """Do everything that is due at this instant; return what is pending after it."""
        for _ in range(MAX_STEPS_AT_ONE_INSTANT):
            self._target.finish_due()
            before = self._recorder.decisions
            seconds = self._loop.step()
            self._extend_leases()
            pending = self._store.read(lambda tx: tx.read_pending_work())
            is_idle = seconds > 0 and self._recorder.decisions == before
            if (is_idle or self._has_nothing_due(pending)) and not self._launcher.results:
                break
        self._recorder.explain_waits(self._clock.now())
        self._target.ended_at.clear()
        if self._recorder.decisions - self._pruned_at >= PRUNE_EVERY:
            self._pruned_at = self._recorder.decisions
            request = PruneRequest(keep_runs=KEPT_RUNS, limit=PRUNE_EVERY)
            self._store.write(lambda tx: tx.prune(request))
        return pending

    def _has_nothing_due(self, pending: PendingWork) -> bool:
        now, instants = self._clock.now(), (pending.wake_at, self._target.next_end())
        return not pending.has_ready_runs and all(one is None or one > now for one in instants)

    def _extend_leases(self) -> None:
        """Extend leases to the end of their work at once, instead of renewing them again and again."""
        now, launched = self._clock.now(), self._target.launched
        long = [(one, ends_at) for one, ends_at in launched if ends_at - now > one.grace]
        launched.clear()
        if long:
            renewals = [Renewal(one.run_id, one.fence, ends_at + LEASE_MARGIN) for one, ends_at in long]
            renew_leases(self._store, renewals)
        for one, ends_at in long:
            seconds = (ends_at + LEASE_MARGIN - now).total_seconds()
            self._launcher.record_renewal(one.run_id, one.fence, ends_at=self._clock.monotonic() + seconds)

    def _next_instant(self, pending: PendingWork, until: datetime) -> datetime:
        """The next instant at which something may happen; ends count only if something waits for them."""
        now, wake_at, end = self._clock.now(), pending.wake_at, self._target.next_end()
        is_stuck = wake_at is not None and wake_at <= now
        found = [] if wake_at is None or is_stuck else [wake_at]
        waits = self._ends_matter or pending.has_ready_runs or self._recorder.held or self._target.failing
        if end is not None and (waits or is_stuck):
            found.append(end)
        elif is_stuck:
            found.append(now + SECOND)
        return max(min(found, default=until), now + _NOT_STEPPED) if found else until


def _after_outages(instant: datetime, outages: Outages, *, until: datetime) -> datetime:
    for since, end in outages:
        if since <= instant < end:
            return min(end, until)
    return min(instant, until)


def _depends_on_ends(schedule: Schedule) -> bool:
    """Whether the times of a schedule depend on when runs end."""
    trigger = schedule.trigger
    parts = trigger.triggers if isinstance(trigger, AnyOf) else (trigger,)
    return (
        any(isinstance(part, After) for part in parts)
        or schedule.align is not Align.GRID
        or not isinstance(schedule.cadence, Steady)
        or bool(schedule.needs)
        or isinstance(schedule.target, Workflow)
    )
