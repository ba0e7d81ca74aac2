"""Starts, keeps going whatever happens, and stops gracefully."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from msgspec import Struct

from timewright.core.facts import ClockStepped, Fact, TickFinished
from timewright.core.policies import LONGEST_REST
from timewright.core.run import Released, Run
from timewright.engine.launch import GIVEN_BACK, Flown, Launcher
from timewright.engine.prune import Pruner
from timewright.engine.rest import EventWaker, rest_seconds
from timewright.engine.tick import RECLAIM_EVERY, Tick
from timewright.ledger.lease import renew
from timewright.ledger.settle import Answer
from timewright.ports import Clock, Observer, Renewal, Store, Transaction, Waker

LARGEST_STEP = timedelta(seconds=2)
SHORTEST_RENEWAL = timedelta(seconds=0.15)
SLOWEST_BEAT = 1.0
AFTER_ERROR = (0.1, 0.5, 1.0, 2.0, 5.0)
# What was due at a tick and still is afterwards is in another's hands, or waits for room here.
PASSED_OVER = 0.05
DRAIN_POLL = 0.05
STOP_GRACE = timedelta(seconds=5)
LAST_TICK = timedelta(seconds=5)


class Pulse(Struct):
    """How the loop is doing, for those who ask after its health."""

    ticks: int = 0
    errors: int = 0
    errors_in_a_row: int = 0
    last_error: str = ""
    last_tick_at: datetime | None = None


class Loop:
    """One instance: a thread that ticks, one that renews leases, and one that watches and needs no store.

    User code runs on none of them, and a store that keeps the others waiting cannot keep the watch from
    ending what is about to lose its lease.
    """

    def __init__(
        self,
        store: Store,
        tick: Tick,
        launcher: Launcher,
        *,
        clock: Clock,
        waker: Waker,
        observers: Sequence[Observer] = (),
        longest_rest: timedelta = LONGEST_REST,
        pruner: Pruner | None = None,
    ) -> None:
        self.store = store
        self.tick = tick
        self.launcher = launcher
        self.clock = clock
        self.waker = waker
        self.observers = list(observers)
        self.longest_rest = longest_rest
        self.pruner = pruner
        self.pulse = Pulse()
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._beats: list[EventWaker] = []
        self._seen: tuple[datetime, float] | None = None

    def start(self) -> None:
        """Begin to tick, to renew and to watch, on threads of our own."""
        self._begin("tick", self._tick_for_ever)
        for name, work in (("renew", self._renew), ("watch", self._watch)):
            beat = EventWaker()
            self._beats.append(beat)
            self._begin(name, partial(self._repeat, work, beat))

    def step(self) -> float:
        """One pass now; gives back how long to rest until the next."""
        began = self.clock.monotonic()
        now = self.store.now()
        self.tell(self._stepped(now=now))
        facts: list[Fact] = []
        try:
            full = self.tick.run(now=now, moment=began, facts=facts)
        finally:
            # A room that fails does not take with it what the rooms before it have made true.
            self.tell(facts)
        if len(self.launcher):
            self._quicken()
        self.launcher.watch()
        self.pulse.ticks += 1
        self.pulse.errors_in_a_row = 0
        self.pulse.last_tick_at = now
        if facts:
            self.tell([_finished(facts, at=now, seconds=self.clock.monotonic() - began)])
        if full:
            return 0.0
        if self.pruner is not None:
            self.pruner.run(now=now)
        return self._rest()

    def stop(self, *, wait: timedelta = timedelta(seconds=30), grace: timedelta = STOP_GRACE) -> None:
        """Take no new leases, wait for what is under way, ask the rest to stop, and give back what it was.

        Work is given its grace before its run goes back, so that whoever takes it up is alone with it.
        """
        self.tick.leasing = False
        self._stopping.set()
        self.waker.wake()
        until = self.clock.monotonic() + wait.total_seconds()
        if self._threads:
            self._stopped.wait(timeout=max(wait, LAST_TICK).total_seconds())
        self._drain(until=until)
        self.launcher.stop_all()
        self._drain(until=self.clock.monotonic() + grace.total_seconds())
        self._give_back()
        self._over.set()
        for beat in self._beats:
            beat.wake()
        for thread in self._threads:
            thread.join(timeout=LAST_TICK.total_seconds())

    def renew_once(self, *, now: datetime, moment: float | None = None) -> None:
        """Prolong every lease that has used up a third of its length; what has lost its lease is stopped.

        `moment` is what the monotonic clock showed before `now` was read.
        """
        moment = self.clock.monotonic() if moment is None else moment
        due = [flown for flown in self.launcher.under_way() if _wants_renewal(flown, moment=moment)]
        if not due:
            return
        renewals = [Renewal(f.lease.run.id, f.lease.run.fence, now + f.lease.terms.lease.length) for f in due]
        kept, lost = renew(self.store, renewals, now=now)
        lengths = {f.lease.run.id: f.lease.terms.lease.length.total_seconds() for f in due}
        for renewed in kept:
            if renewed.cancel_at is None:
                self.launcher.renewed(renewed.run_id, renewed.fence, ends=moment + lengths[renewed.run_id])
        for renewal in lost:
            self.launcher.forget(renewal.run_id, renewal.fence)

    def stop_asked(self) -> None:
        """Stop the runs here that someone asked to stop."""
        if len(self.launcher):
            self._stop(self.store.read(lambda tx: tx.asked_to_stop(holder=self.tick.holder)))

    def tell(self, facts: Sequence[Fact]) -> None:
        """Let every observer note the facts; one that fails is its own affair."""
        for observer in self.observers:
            for fact in facts:
                try:
                    observer.note(fact)
                except (Exception, SystemExit) as error:  # noqa: BLE001  it must not matter to anyone else
                    self.pulse.last_error = f"observer: {type(error).__name__}: {error}"

    def _tick_for_ever(self) -> None:
        while not self._stopping.is_set():
            try:
                seconds = self.step()
            except Exception as error:  # noqa: BLE001  the loop is supervised: count, back off, go on
                seconds = self._troubled(error)
            if seconds > 0:
                self.waker.rest(seconds)
        self._stopped.set()

    def _rest(self) -> float:
        """Until something is due; a rest of a second or more also ends when a lease may be over."""
        assert self._seen is not None
        ticked_at, moment = self._seen
        asked, wake_at, lease_end = self.store.read(self._look_ahead)
        self._stop(asked)
        if wake_at is not None and wake_at <= ticked_at:
            self.tick.look_back(to=wake_at)
            return PASSED_OVER if self.tick.room else RECLAIM_EVERY.total_seconds()
        now = ticked_at + timedelta(seconds=self.clock.monotonic() - moment)
        seconds = rest_seconds(wake_at, now=now, longest=self.longest_rest)
        if lease_end is None or seconds < RECLAIM_EVERY.total_seconds():
            return seconds
        return min(seconds, max(rest_seconds(lease_end, now=now), RECLAIM_EVERY.total_seconds()))

    def _look_ahead(self, tx: Transaction) -> tuple[list[Run], datetime | None, datetime | None]:
        """In one picture, because each costs a trip: who is asked to stop, what is due next, what ends."""
        asked = tx.asked_to_stop(holder=self.tick.holder) if len(self.launcher) else []
        wake_at = tx.next_wake()
        assert self._seen is not None
        is_far = wake_at is None or wake_at - self._seen[0] >= RECLAIM_EVERY
        return asked, wake_at, tx.next_lease_end() if is_far else None

    def _stop(self, asked: Sequence[Run]) -> None:
        for run in asked:
            self.launcher.stop(run.id, run.fence, reason=run.reason)

    def _troubled(self, error: Exception) -> float:
        self.pulse.errors += 1
        self.pulse.errors_in_a_row += 1
        self.pulse.last_error = f"{type(error).__name__}: {error}"
        self.tick.in_doubt = True
        self.launcher.watch()
        return AFTER_ERROR[min(self.pulse.errors_in_a_row, len(AFTER_ERROR)) - 1]

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"timewright-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _repeat(self, work: Callable[[], float], beat: EventWaker) -> None:
        """Do it again and again until all is over, whatever goes wrong with it; it says after what rest."""
        while not self._over.is_set():
            try:
                seconds = work()
            except Exception as error:  # noqa: BLE001  supervised as the tick is: the next beat tries again
                self.pulse.last_error = f"{type(error).__name__}: {error}"
                seconds = self._pause()
            beat.rest(seconds)

    def _renew(self) -> float:
        if len(self.launcher):
            moment = self.clock.monotonic()
            self.renew_once(now=self.store.now(), moment=moment)
            self.stop_asked()
        return self._pause()

    def _watch(self) -> float:
        return min(self.launcher.watch(), self._pause())

    def _pause(self) -> float:
        """Often enough for the shortest lease under way, and to hear of a cancel within a second."""
        shortest = self.launcher.shortest_lease
        if shortest is None:
            return SLOWEST_BEAT
        return min(SLOWEST_BEAT, max(shortest / 6, SHORTEST_RENEWAL).total_seconds())

    def _quicken(self) -> None:
        """A lease that began just now may be too short for the rest that is being taken."""
        if self._pause() < SLOWEST_BEAT:
            for beat in self._beats:
                beat.wake()

    def _stepped(self, *, now: datetime) -> list[Fact]:
        """Wall against monotonic: a step or a suspend is seen and told; catch-up treats it as an outage."""
        moment = self.clock.monotonic()
        seen, self._seen = self._seen, (now, moment)
        if seen is None:
            return []
        by = (now - seen[0]) - timedelta(seconds=moment - seen[1])
        if abs(by) < LARGEST_STEP:
            return []
        treated = "outage" if by > timedelta(0) else "hold"
        return [ClockStepped(at=now, by_seconds=by.total_seconds(), treated_as=treated)]

    def _drain(self, *, until: float) -> None:
        """Let what is under way end, and write how it did."""
        self._settle_quietly()
        while len(self.launcher) and self.clock.monotonic() < until:
            self.waker.rest(DRAIN_POLL)
            self._settle_quietly()

    def _settle_quietly(self) -> None:
        if not self.launcher.has_answers:
            return
        try:
            self.tell(self.tick.settle(now=self.store.now()))
        except Exception as error:  # noqa: BLE001  we are on the way out; the leases end by themselves
            self.pulse.last_error = f"{type(error).__name__}: {error}"

    def _give_back(self) -> None:
        """What did not end when it was asked to goes back, uncharged; whatever it says now is not heard."""
        released = Released(reason=GIVEN_BACK)
        left = [
            Answer(run=flown.lease.run, outcome=released, started_at=flown.started_at)
            for flown in self.launcher.let_go()
        ]
        self.launcher.put_back(left)
        self._settle_quietly()


def _wants_renewal(flown: Flown, *, moment: float) -> bool:
    terms = flown.lease.terms.lease
    used = terms.length.total_seconds() - (flown.lease_ends - moment)
    return used >= terms.renew_every.total_seconds()


def _finished(facts: Sequence[Fact], *, at: datetime, seconds: float) -> TickFinished:
    names = {
        "RunSucceeded": "settled",
        "RunFailed": "settled",
        "RunWillRetry": "settled",
        "RunParked": "settled",
        "LeaseLost": "reclaimed",
        "RunAdmitted": "admitted",
        "RunSkipped": "skipped",
        "RunLeased": "leased",
    }
    counts = Counter(names.get(type(fact).__name__, "") for fact in facts)
    return TickFinished(
        at=at,
        seconds=seconds,
        settled=counts["settled"],
        reclaimed=counts["reclaimed"],
        admitted=counts["admitted"],
        skipped=counts["skipped"],
        leased=counts["leased"],
    )
