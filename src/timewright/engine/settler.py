"""Writes what comes back while the tick goes on, and calls the tick only when that concerns it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from timewright.core.facts import AnswerStale, Fact, RunCancelled, RunFailed, RunParked, RunSucceeded
from timewright.engine.rest import EventWaker
from timewright.engine.tell import finished

if TYPE_CHECKING:
    from timewright.engine.loop import Loop

# A pass in which runs only ended so gives the tick nothing to do.
ENDS = {RunSucceeded, RunFailed, RunParked, RunCancelled, AnswerStale}
# While the tick has more to start at once, answers are gathered: so long, and so many.
GATHER_SECONDS = 1.0
MOST_GATHERED = 10_000
LOOK_EVERY = 0.005
# While others wait here for those that run to end, more answers come at once: so many, or so many looks.
CROWD = 500
CROWD_LOOKS = 4
# A start that is due so soon goes first, by so much: a file takes one write after the other.
NEAR_SECONDS = 0.003
HEAD_START = 0.001


class Settler:
    """The settling of one loop, on a thread of its own: the store takes both at once where it can."""

    def __init__(self, loop: Loop) -> None:
        self.answered = EventWaker()
        self._patience = EventWaker()
        self._loop = loop

    def run(self) -> None:
        """Again and again until the loop stops; what the store does not take is tried again."""
        loop, tries = self._loop, 0
        while not loop.is_stopping:
            try:
                self._gather()
                self.settle()
                tries = 0
            except Exception as error:  # noqa: BLE001  supervised as the tick is
                tries += 1
                self.answered.rest(loop.troubled(error, tries=tries))
            if not tries and not loop.launcher.has_answers:
                self.answered.rest(loop.longest_rest.total_seconds())

    def settle(self) -> None:
        """Write what has come back; the tick is called if it waits for room, or if something came nearer."""
        loop = self._loop
        if not loop.launcher.has_answers:
            return
        began, now = loop.clock.monotonic(), loop.store.now()
        answers = loop.launcher.take_answers()
        if loop.tick.waits_for_room:
            # Not before they are taken: it would look too early, and nobody would call it again.
            loop.waker.wake()
        counts: Counter[type[Fact]] = Counter()
        facts = loop.tick.write(answers, now=now)
        with loop.tick.starting:
            loop.tell_counted(counts, facts)
        loop.pulse.errors_in_a_row = 0
        loop.tell([finished(counts, at=now, seconds=loop.clock.monotonic() - began)])
        if loop.tick.freed_gates or not counts.keys() <= ENDS:
            # Someone may wait behind a ceiling, a step admits the next, or something has come nearer.
            loop.has_news = True
            loop.waker.wake()

    def _gather(self) -> None:
        """What is due starts before what has ended is written: both need the same store and the same core."""
        loop = self._loop
        ahead = loop.rests_for()
        if 0.0 < ahead < NEAR_SECONDS:
            self._patience.rest(ahead + HEAD_START)
        for _ in range(CROWD_LOOKS):
            if not self._is_crowded():
                break
            self._patience.rest(LOOK_EVERY)
        until = loop.clock.monotonic() + GATHER_SECONDS
        while loop.tick.hurries and loop.launcher.answered < MOST_GATHERED and not loop.is_stopping:
            if loop.clock.monotonic() >= until:
                return
            self._patience.rest(LOOK_EVERY)

    def _is_crowded(self) -> bool:
        """Whether many more are about to come back."""
        launcher = self._loop.launcher
        return self._loop.tick.waits_for_room and launcher.is_crowded and launcher.answered < CROWD
