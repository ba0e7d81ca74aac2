"""Starts, keeps going whatever happens, and stops gracefully."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import Struct

from timewright.core.facts import (
    Fact,
    RunFreed,
    RunReleased,
    RunWillRetry,
    ScheduleMoved,
)
from timewright.core.policies import LONGEST_REST, rest_until
from timewright.core.run import Run
from timewright.engine.eve import Eve
from timewright.engine.launch import Launcher
from timewright.engine.leave import STOP_GRACE, Ending, Leaving
from timewright.engine.lookout import CHECK_EVERY
from timewright.engine.presence import Presence
from timewright.engine.prune import Pruner
from timewright.engine.reading import Reading
from timewright.engine.renewing import renew_due
from timewright.engine.rest import EventWaker
from timewright.engine.settler import Settler
from timewright.engine.tell import Teller, finished
from timewright.engine.tick import Tick
from timewright.engine.tidy import SHORTEST_REST
from timewright.ports import Clock, Ear, Observer, Store, Waker
from timewright.ports.outlook import Outlook

SHORTEST_RENEWAL = 0.15
SLOWEST_BEAT = 1.0
AFTER_ERROR = (0.1, 0.5, 1.0, 2.0, 5.0)
# What was due at a tick and still is afterwards is in another's hands, or waits for room here.
PASSED_OVER = 0.05
# What may bring something nearer for those who rest, and the shortest time between two calls to them.
NEWS = (RunWillRetry, RunReleased, RunFreed, ScheduleMoved)
NEWS_EVERY = 0.1
# What is due after a rest that is long enough is read in it, and no more of it than that.
SHORTEST_FORESIGHT = timedelta(seconds=0.05)
MOST_FORESEEN = 10_000
AWAKE = datetime.max.replace(tzinfo=UTC)


class Pulse(Struct):
    """How the loop is doing, for those who ask after its health."""

    ticks: int = 0
    errors: int = 0
    errors_in_a_row: int = 0
    last_error: str = ""
    last_tick_at: datetime | None = None
    facts_lost: int = 0


class Loop:
    """One instance: threads that tick, that renew leases, that watch without a store, that hear of others.

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
        ear: Ear | None = None,
        call_others: Callable[[], None] | None = None,
        presence: Presence | None = None,
        eve: Eve | None = None,
        tidy: Callable[[], None] | None = None,
    ) -> None:
        self.store = store
        self.tick = tick
        self.launcher = launcher
        self.clock = clock
        self.waker = waker
        self.observers = list(observers)
        self.teller = Teller(self.observers, troubled=self._observer_failed)
        self.longest_rest = longest_rest
        self.pruner = pruner
        self.ear = ear
        self.call_others = call_others
        self.presence = presence
        self.eve = eve
        self.tidy = tidy
        self.pulse = Pulse()
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._working = 0
        self.settler = Settler(self)
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._beats: list[EventWaker] = []
        self._reading = Reading(store, clock)
        self._rests_until = AWAKE
        self.has_news = False
        self._called_at = 0.0
        self._foreseen: datetime | None = None
        self._goes_on = False

    def start(self) -> None:
        """Begin to tick, to settle, to renew, to watch and to hear, on threads of our own."""
        self.teller.open()
        self.tick.settles = False
        self.tick.gives_way = True
        self.launcher.when_answered(self.settler.answered.wake)
        self._working = 2
        self._begin("tick", self._tick_for_ever)
        self._begin("settle", self._settle_for_ever)
        if self.ear is not None:
            self._begin("hear", partial(self._hear, self.ear))
        for name, work in (("renew", self._renew), ("watch", self._watch)):
            beat = EventWaker()
            self._beats.append(beat)
            self._begin(name, partial(self._repeat, work, beat))

    def step(self) -> float:
        """One pass now; gives back how long to rest until the next."""
        # Until we know how long we rest, whatever others write ends the rest.
        self._rests_until = AWAKE
        now, began, stepped = self._reading.read(hurries=self._goes_on)
        self.tell(stepped)
        self.tick.duty.beat(now=now)
        counts: Counter[type[Fact]] = Counter()
        due = self.tick.lookout.last.due
        vigil = self.eve.before(due, now=now, moment=self._reading.moment) if self.eve is not None else None
        if vigil is not None and due is not None:
            # From here on it is as if the instant were there; only the commit waits for it.
            began += (due - now).total_seconds()
            now = self._rests_until = due
        full = self.tick.run(now=now, moment=began, tell=partial(self.tell_counted, counts), vigil=vigil)
        if len(self.launcher):
            self._quicken()
            self._stop(self.tick.lookout.last.asked)
        self.launcher.watch()
        self.pulse.ticks += 1
        self.pulse.errors_in_a_row = 0
        self.pulse.last_tick_at = now
        if counts:
            self.tell([finished(counts, at=now, seconds=self.clock.monotonic() - began)])
        self._goes_on = full
        if full:
            self._spread_news(every=NEWS_EVERY)
            return 0.0
        self._spread_news()
        if self.pruner is not None:
            self.pruner.run(now=now)
        return self._rest()

    def stop(self, *, wait: timedelta = timedelta(seconds=30), grace: timedelta = STOP_GRACE) -> Ending:
        """Take no new leases, wait for what is under way, ask the rest to stop, and give back what it was.

        Work is given its grace before its run goes back, so that whoever takes it up is alone with it. Where
        the store is away nothing can be given back: leases end by themselves, and the ending says so.
        """
        self.tick.leasing = False
        self._stopping.set()
        self.waker.wake()
        self.settler.answered.wake()
        return Leaving(self).run(wait=wait, grace=grace)

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping.is_set()

    @property
    def is_running(self) -> bool:
        """Whether it was started, and its threads may still be there."""
        return bool(self._threads)

    @property
    def is_ticking(self) -> bool:
        """Whether its tick may still be under way."""
        return self.is_running and not self.ended.is_set()

    def end_threads(self, *, seconds: float) -> None:
        """End every thread of ours; one that waits for a store is left behind after so many seconds."""
        self._over.set()
        if self.ear is not None:
            self.ear.close()
        for beat in self._beats:
            beat.wake()
        patience = [seconds]
        for thread in self._threads:
            thread.join(timeout=patience[-1])
            patience.append(0.05 if thread.is_alive() else patience[-1])

    def renew_once(self, *, now: datetime, moment: float | None = None) -> None:
        """Prolong every lease that has used up a third of its length; what has lost its lease is stopped.

        `moment` is what the monotonic clock showed before `now` was read.
        """
        moment = self.clock.monotonic() if moment is None else moment
        renew_due(self.store, self.launcher, now=now, moment=moment)

    def stop_asked(self) -> None:
        """Stop the runs here that someone asked to stop."""
        if len(self.launcher):
            self._stop(self.store.read(lambda tx: tx.asked_to_stop(holder=self.tick.holder)))

    def tell(self, facts: Sequence[Fact]) -> None:
        """Let every observer note the facts, each in its own time; one that fails is its own affair."""
        self.teller.tell(facts)
        self.pulse.facts_lost = self.teller.lost

    def heard(self) -> None:
        """Someone else wrote: stop what was asked to stop, end the rest if anything comes before its end."""
        if not self._reading.taken:
            return
        outlook = self.tick.lookout.glance(now=self._reading.at)
        self._stop(outlook.asked)
        waits = outlook.ready and self.tick.room > 0
        instants = (outlook.wake_at, outlook.lease_end)
        if waits or any(instant is not None and instant < self._rests_until for instant in instants):
            self.waker.wake()

    def rests_for(self) -> float:
        """How many seconds are left of the tick's rest; without an end while it does not rest."""
        return (self._rests_until - self._reading.now()).total_seconds()

    def settle_quietly(self) -> None:
        """Write what has come back, on the way out."""
        try:
            facts = self.tick.settle(now=self.store.now())
            with self.tick.starting:
                self.tell(facts)
        except Exception as error:  # noqa: BLE001  the leases end by themselves
            self.pulse.last_error = f"{type(error).__name__}: {error}"

    def _tick_for_ever(self) -> None:
        while not self._stopping.is_set():
            try:
                seconds = self.step()
            except Exception as error:  # noqa: BLE001  the loop is supervised: count, back off, go on
                seconds = self._troubled(error)
            if seconds > 0:
                self.waker.rest(seconds)
        self._has_ended()

    def tell_counted(self, counts: Counter[type[Fact]], facts: Sequence[Fact]) -> None:
        """A room that fails does not take with it what the rooms before it have made true."""
        if not facts:
            return
        self.tell(facts)
        counts.update(map(type, facts))
        self.has_news = self.has_news or not counts.keys().isdisjoint(NEWS)

    def _settle_for_ever(self) -> None:
        self.settler.run()
        self._has_ended()

    def _has_ended(self) -> None:
        with self._lock:
            self._working -= 1
            if not self._working:
                self.launcher.when_answered(self.waker.wake)
                self.ended.set()

    def _hear(self, ear: Ear) -> None:
        """Look whenever someone else has written; what goes wrong is tried again with the next call."""
        while not self._over.is_set():
            try:
                for _ in ear.calls():
                    self.heard()
            except Exception as error:  # noqa: BLE001  supervised as the tick is
                self.pulse.last_error = f"{type(error).__name__}: {error}"
                self._over.wait(SLOWEST_BEAT)

    def _spread_news(self, *, every: float = 0.0) -> None:
        """Call those who rest, if what we did may concern them; while we are busy, not too often."""
        moment = self.clock.monotonic()
        if self.has_news and self.call_others is not None and moment - self._called_at >= every:
            self.has_news, self._called_at = False, moment
            self.call_others()

    def _rest(self) -> float:
        """Until something is due; a rest of a second or more also ends when a lease may be over."""
        ticked_at = self._reading.at
        outlook = self.tick.look(now=ticked_at)
        wake_at = outlook.wake_at
        if wake_at is not None and wake_at <= ticked_at:
            return PASSED_OVER if self.tick.room else CHECK_EVERY.total_seconds()
        self._foresee(wake_at)
        now = self._reading.now()
        rest = rest_until(self._begins(outlook), now=now, longest=self.longest_rest)
        if rest >= CHECK_EVERY:
            lease_end = self._lease_end(outlook)
            if lease_end is not None:
                rest = min(rest, max(rest_until(lease_end, now=now, longest=self.longest_rest), CHECK_EVERY))
        self._rests_until = now + rest
        return rest.total_seconds()

    def _begins(self, outlook: Outlook) -> datetime | None:
        """When there is something to do: at the first instant, or on its eve where that is a schedule's."""
        at = outlook.wake_at
        return at - self.eve.length if self.eve is not None and at is not None and at == outlook.due else at

    def _lease_end(self, outlook: Outlook) -> datetime | None:
        """When a lease may be over, looked at again if the last look left that out."""
        if outlook.has_ends:
            return outlook.lease_end
        return self.store.read(lambda tx: tx.next_lease_end())

    def _foresee(self, wake_at: datetime | None) -> None:
        """Use the rest to read what is due after it, once; so much may be due then that it counts."""
        if wake_at is None or wake_at == self._foreseen:
            return
        if SHORTEST_FORESIGHT <= wake_at - self._reading.now() <= self.longest_rest:
            self._foreseen = wake_at
            foreseen = self.store.read(lambda tx: tx.foresee(until=wake_at, limit=MOST_FORESEEN))
            if self.eve is not None:
                self.eve.expect(min(len(foreseen), self.tick.limits.most_on_eve))
            if self.tick.leasing and self.tick.limits.leases:
                self.launcher.prepare({type(schedule.target) for schedule in foreseen})
            if self.tidy is not None and wake_at - self._reading.now() >= SHORTEST_REST:
                self.tidy()

    def _stop(self, asked: Sequence[Run]) -> None:
        for run in asked:
            self.launcher.stop(run.id, run.fence, reason=run.reason)

    def troubled(self, error: Exception, *, tries: int) -> float:
        """Count an error of the store or of ours; gives back how long to leave it alone."""
        self._troubled(error)
        return AFTER_ERROR[min(tries, len(AFTER_ERROR)) - 1]

    def _troubled(self, error: Exception) -> float:
        self.pulse.errors += 1
        self.pulse.errors_in_a_row += 1
        self.pulse.last_error = f"{type(error).__name__}: {error}"
        self.tick.in_doubt = True
        self._goes_on = False
        self._rests_until = AWAKE
        self.launcher.watch()
        return AFTER_ERROR[min(self.pulse.errors_in_a_row, len(AFTER_ERROR)) - 1]

    def _observer_failed(self, error: BaseException) -> None:
        self.pulse.last_error = f"observer: {type(error).__name__}: {error}"

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
        if self.presence is not None:
            self.presence.beat()
        if self.tick.duty.beat(now=self._reading.now()):
            self.waker.wake()
        self.launcher.keep_said(self.store, now=self._reading.now())
        return self._pause()

    def _watch(self) -> float:
        return min(self.launcher.watch(), self._pause())

    def _pause(self) -> float:
        """Often enough for the shortest lease under way, and to hear of a cancel within a second."""
        shortest = self.launcher.shortest_lease
        if shortest is None:
            return SLOWEST_BEAT
        return min(SLOWEST_BEAT, max(shortest / 6, SHORTEST_RENEWAL))

    def _quicken(self) -> None:
        """A lease that began just now may be too short for the rest that is being taken."""
        if self._pause() < SLOWEST_BEAT:
            for beat in self._beats:
                beat.wake()
