"""The world itself: one heap of events, one instant, and everyone who moves in it."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from timewright.core.facts import Fact, RunAdmitted, RunSkipped
from timewright.core.moments import from_micros, micros, spell_instant
from timewright.errors import TimewrightError
from timewright.proof.report import Violation
from timewright.proof.rows import Note
from timewright.testing.world.actors import Actor, Engine
from timewright.testing.world.bases import Base
from timewright.testing.world.calling import Caller, Outlook
from timewright.testing.world.chance import Chance
from timewright.testing.world.clocks import MINUTE, SECOND, SkewedClock, TrueTime
from timewright.testing.world.dangers import TELLING, changes_met, met_by
from timewright.testing.world.effects import Sinks
from timewright.testing.world.faults import Crashed, Faults, Script
from timewright.testing.world.watching import Seen, WatchedTransaction
from timewright.testing.world.workload import Scenario

DEEPEST = 3
MOST_MOVES_A_SECOND = 5_000

_LIVE = "SELECT line, count(*) FROM runs WHERE state = 'leased' AND line <> '' GROUP BY line ORDER BY line"
_GATES = "SELECT gate, most FROM gates ORDER BY gate"


# What is kept of a commit as it was seen.
NOTED = frozenset({"leased", "renewed", "answered", "reclaimed", "refused", "cursor", "pruned"})

# When, in which order, what, and to whom, in which life and lane of it; to nobody is to the world.
Event = tuple[int, int, Callable[[], None], Actor | None, int, str]


class World:
    """A fleet, its store and its weather, from one seed."""

    def __init__(
        self,
        scenario: Scenario,
        base: Base,
        *,
        script: Script | None = None,
        listing: bool = False,
        watch: Callable[[Actor, str, Any], WatchedTransaction] | None = None,
    ) -> None:
        self.scenario = scenario
        self.chance = Chance(scenario.seed, "world")
        self.time = TrueTime(scenario.start)
        self.clock = SkewedClock(self.time)
        self.base = base
        self.base.open(self.clock)
        self.faults = Faults(self.chance.fork("faults"), script=script, listing=listing)
        self.sinks = Sinks()
        self.counts: Counter[str] = Counter()
        self.notes: list[Note] = []
        self._withdrawn: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self.trace: list[tuple[int, str, Fact]] = []
        self.troubles: Counter[str] = Counter()
        self.holders: dict[str, tuple[Actor, int]] = {}
        self.schedules: list[tuple[str, str]] = []
        self.pruned: set[str] = set()
        self.words: dict[tuple[str, int], int] = {}
        self.may_be_early: set[str] = set()
        self.breaches: list[Violation] = []
        self.clock_steps: list[tuple[int, int]] = []
        self.long_waits: list[tuple[int, int]] = []
        self.zones: dict[str, ZoneInfo] = {}
        self.version = 0
        self.transactions = 0
        self.steps = 0
        self.away_until = 0
        self.longest_wait = 0
        self.is_quiet = False
        self.caller = Caller(self)
        self._watch = watch
        self._heap: list[Event] = []
        self._seq = 0
        self._asked_to_stop: set[str] = set()
        self._depth = 0
        self._second = 0
        self._moves = 0
        self._levels: dict[str, tuple[int, int]] = {}
        self._ceilings: dict[str, int] | None = None
        self._read_at = self._read_under = 0
        self._shown = 0
        self.actors: list[Actor] = []
        self.engines: list[Engine] = []
        self.others: list[Actor] = []

    def join(self, actor: Actor) -> None:
        """Somebody new moves in this world."""
        self.actors.append(actor)
        if isinstance(actor, Engine):
            self.engines.append(actor)
        else:
            self.others.append(actor)

    # Time and events.

    def at(self, at: int, do: Callable[[], None], *, actor: Actor | None = None, lane: str = "") -> None:
        """Have something happen at an instant."""
        self._seq += 1
        life = 0 if actor is None else actor.life
        heapq.heappush(self._heap, (at, self._seq, do, actor, life, lane))

    def run_until(self, until: int) -> None:
        """Let everything happen that is due by then."""
        heap, time = self._heap, self.time
        while heap and heap[0][0] <= until:
            at, _, do, actor, life, lane = heapq.heappop(heap)
            time.at = max(time.at, at)
            self._count_move()
            if actor is None:
                do()
            elif actor.life == life and actor.alive:
                self._perform(do, actor, life, lane)
        time.at = max(time.at, until)

    def _count_move(self) -> None:
        """A world in which much happens and no time passes is stuck, and must not go on for ever."""
        second = self.time.at // SECOND
        if second != self._second:
            self._second, self._moves = second, 0
        self._moves += 1
        if self._moves > MOST_MOVES_A_SECOND:
            raise AssertionError(f"the world stands still at {spell_instant(from_micros(self.time.at))}")

    def pass_time(self, length: int, actor: Actor, *, frozen: bool) -> None:
        """Let the others move while this one waits in the middle of something."""
        if self._depth >= DEEPEST:
            # Enough of them wait for each other already: time passes, and the others are late.
            self.time.at += length
            return
        life, began = actor.life, self.time.at
        self._depth += 1
        actor.frozen += frozen
        try:
            self.run_until(began + length)
        finally:
            self._depth -= 1
        self._note_wait(self.time.at - began, meant=length)
        if actor.life != life:
            raise Crashed
        actor.frozen -= frozen
        self.thaw(actor)

    def _note_wait(self, waited: int, *, meant: int) -> None:
        """How long someone stood in the middle of something, and whether another's pause made it longer."""
        self.longest_wait = max(self.longest_wait, waited)
        if waited - meant > MINUTE:
            now = self.now_micros()
            self.long_waits.append((now - waited, now))

    def _perform(self, do: Callable[[], None], actor: Actor, life: int, lane: str) -> None:
        if actor.frozen or lane in actor.busy:
            actor.deferred.append((lane, do))
            return
        before = self.version
        try:
            do()
        except Crashed:
            if actor.life == life:
                actor.crash()
        if actor.deferred:
            self.thaw(actor)
        if self.version != before:
            self.spread_word()

    def thaw(self, actor: Actor) -> None:
        """What waited while an actor could not move happens now."""
        if actor.deferred and not actor.frozen:
            waiting, actor.deferred = actor.deferred, []
            for lane, do in waiting:
                self.at(self.time.at, do, actor=actor, lane=lane)

    def spread_word(self) -> None:
        """Something was committed: everyone looks whether that concerns them."""
        outlook = self.outlook()
        self.caller.arm()
        for actor in self.others:
            if actor.alive:
                actor.consider(outlook)
        if self._asked_to_stop:
            asked, self._asked_to_stop = self._asked_to_stop, set()
            for engine in self.engines:
                if engine.alive and engine.tick.holder in asked:
                    engine.hear_of_stops()

    # The store and its clock.

    def now(self) -> datetime:
        """The store's clock, as it truly is."""
        return self.base.now()

    def now_micros(self) -> int:
        """The same as a number; many ask at the same instant."""
        at, skew = self.time.at, self.clock.skew
        if at != self._read_at or skew != self._read_under:
            # One that was not held above the host's, and was not set since, still shows what the host's does.
            was_free = self.base.steps_with_host and self._shown == self._read_at + skew
            is_free = was_free and skew == self._read_under
            self._shown = at + skew if is_free else micros(self.base.now())
            self._read_at, self._read_under = at, skew
        return self._shown

    def when(self, instant: int) -> int:
        """The true instant at which the store's clock will show this one."""
        at, now = instant - self.clock.skew, self.time.at
        return max(now, at)

    def read_clock(self, actor: Actor, store: Any) -> datetime:
        """What an actor gets when it asks the store for the time."""
        moment: datetime = store.now()
        return moment

    def open_store(self, actor: Actor) -> Any:
        """A store for a new life of an actor."""
        return self.base.store_for(actor)

    def close_store(self, actor: Actor) -> None:
        """A process is gone, and its connections with it."""
        self.base.close_for(actor)

    def watch(self, actor: Actor, name: str, tx: Any) -> WatchedTransaction:
        """A transaction that is watched."""
        now, early = self.now_micros(), self.may_be_early
        has_relations = bool(self.scenario.budgets)
        watched = WatchedTransaction(tx, name=name, now=now, may_be_early=early, has_relations=has_relations)
        return self._watch(actor, name, watched) if self._watch is not None else watched

    def committed(self, watched: WatchedTransaction) -> None:
        """A transaction is kept: what it did is true from now on."""
        self.transactions += 1
        if not watched.changed:
            return
        if watched.only_prolongs:
            self.caller.prolonged()
        else:
            self.version += 1
        at = self.now_micros()
        for seen in watched.seen:
            kind, subject, fence, value, about, word = seen
            if kind not in NOTED:
                self._see(seen, at=at)
                continue
            if kind == "pruned":
                self.pruned.add(subject)
            self.notes.append(
                Note(kind=kind, at=at, subject=subject, fence=fence, value=value, about=about, word=word)
            )
        if watched.counted:
            self.counts.update(watched.counted)
        if watched.touches_gates:
            self._ceilings = None if watched.sets_gates else self._ceilings
            self._note_levels(at)

    def _see(self, seen: Seen, *, at: int) -> None:
        """What the checker is not told as it was seen: what others must know at once, and what is broken."""
        kind, subject, fence, value, about, word = seen
        if kind == "asked to stop":
            self._withdrawn.setdefault((subject, fence), []).append((len(self.notes), value))
            self._asked_to_stop.add(word)
        elif kind == "heard":
            if (subject, fence) in self.words:
                self._note_words(subject, fence, at=at)
        elif value and value <= at:
            # It was written on the eve of its instant, and is kept at it.
            self.counts["kept at its instant"] += 1
        else:
            rows = ({"id": subject, "fence": fence, "schedule_id": about},)
            self.breaches.append(Violation(invariant=kind, message=f"run {subject} {word}", rows=rows))

    def _note_words(self, run_id: str, fence: int, *, at: int) -> None:
        """How much of what an attempt said is there when its end is."""
        found = self.base.ask(f"SELECT size FROM said WHERE run_id = '{run_id}' AND fence = {fence}")  # noqa: S608
        size, most = (found[0][0] if found else 0), self.words.pop((run_id, fence))
        self.notes.append(Note(kind="said", at=at, subject=run_id, fence=fence, value=size, most=most))

    def kept_notes(self) -> tuple[Note, ...]:
        """What was noted, but for promises that were withdrawn.

        Whoever is asked to stop keeps the lease only for the grace, whatever was promised before.
        """
        return tuple(
            note
            for place, note in enumerate(self.notes)
            if note.kind != "renewed"
            or not any(
                place < before and note.value > until
                for before, until in self._withdrawn.get((note.subject, note.fence), ())
            )
        )

    def _note_levels(self, at: int) -> None:
        """How full every ceiling is after a commit."""
        live, before = self.live_leases(), self._levels
        if not live.keys() <= before.keys():
            # A gate that nobody has set is made when it is first gone through.
            self._ceilings = None
        self._levels = {gate: (live.get(gate, 0), most) for gate, most in self.ceilings().items()}
        if self._levels == before:
            return
        for gate, (held, most) in sorted(one for one in self._levels.items() if one[1] != before.get(one[0])):
            # Above a limit that was lowered is no grant, as long as the count does not rise.
            lowered = "lowered" if held <= before.get(gate, (0, 0))[0] else ""
            note = Note(kind="held", at=at, subject=gate, value=held, most=most, word=lowered)
            self.notes.append(note)

    @property
    def redundant(self) -> float:
        """How likely an engine looks although there is nothing to do."""
        return self.faults.rates.redundant

    def outlook(self, *, now: int = 0) -> Outlook:
        """What may be due when; what is due `now` is sure to be."""
        return self.caller.outlook(now=now)

    def live_leases(self) -> dict[str, int]:
        """How full every ceiling is, read from the runs themselves and not from what guards them."""
        live: dict[str, int] = {}
        for line, count in self.base.ask(_LIVE):
            for gate in line.split("\n"):
                live[gate] = live.get(gate, 0) + count
        return live

    def ceilings(self) -> dict[str, int]:
        """How many leases every ceiling allows; read again where one was set."""
        if self._ceilings is None:
            self._ceilings = dict(self.base.ask(_GATES))
        return self._ceilings

    # What is seen.

    def count(self, what: str) -> None:
        """Something happened that a simulation wants to have seen."""
        self.counts[what] += 1

    def remember(self, kind: str, subject: str, *, about: str = "", word: str = "") -> None:
        """A note for the checker about something that leaves no row."""
        at = self.now_micros()
        self.notes.append(Note(kind=kind, at=at, subject=subject, about=about, word=word))

    def trouble(self, actor: Actor, error: Exception) -> None:
        """An error that somebody met and survived; one that is not of our tree is a mistake of ours."""
        told = f"{type(error).__name__}: {str(error)[:80]}"
        self.troubles[told] += 1
        if not isinstance(error, TimewrightError) and self.troubles[told] == 1:
            self.breaches.append(Violation(invariant="error", message=f"{actor.name} met {told}"))

    def add_schedule(self, namespace: str, name: str) -> None:
        """A name that people know from now on."""
        if (namespace, name) not in self.schedules:
            self.schedules.append((namespace, name))

    def hear(self, actor: Actor, fact: Fact) -> None:
        """A fact: kept for the trace, and counted where it is a danger that was met."""
        kind = type(fact).__name__
        if kind == "TickFinished":
            return
        self.trace.append((self.time.at, actor.name, fact))
        self.counts[kind] += 1
        if type(fact) in TELLING:
            for danger in met_by(fact, lives=self._lives):
                self.counts[danger] += 1
            if isinstance(fact, RunSkipped | RunAdmitted) and fact.schedule_id in self.zones:
                self.counts.update(changes_met(fact.planned_at, self.zones[fact.schedule_id]))

    def _lives(self, holder: str) -> bool:
        actor, life = self.holders.get(holder, (None, 0))
        return actor is not None and actor.alive and actor.life == life
