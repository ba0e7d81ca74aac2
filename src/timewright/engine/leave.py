"""How an instance ends: in time, whatever the store does, and saying what it left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from timewright.core.run import Released
from timewright.engine.launch import GIVEN_BACK
from timewright.ledger.settle import Answer

if TYPE_CHECKING:
    from timewright.engine.loop import Loop

POLL = 0.05
STOP_GRACE = timedelta(seconds=5)
# How long a store may take over the last tick and the last settlement; one that is known to be away, less.
LAST_TICK = 3.0
AWAY_PATIENCE = 1.0
LAST_WORDS = 5.0


class Ending(Struct, frozen=True, kw_only=True):
    """What an instance left behind: answers that were not written, facts that were not told, and why."""

    unwritten: int = 0
    untold: int = 0
    trouble: str = ""

    def in_words(self) -> str:
        """What was left undone, in a sentence; nothing when all is well."""
        parts = [f"the store does not answer ({self.trouble})"] if self.trouble else []
        if self.unwritten:
            parts.append(f"{self.unwritten} runs could not be given back and are left to their leases")
        if self.untold:
            parts.append(f"{self.untold} events were not heard, because a listener is slow")
        return "; ".join(parts)


class Leaving:
    """The end of one loop, step by step; every step has a limit."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._settling: threading.Thread | None = None
        self._is_stuck = False

    def run(self, *, wait: timedelta, grace: timedelta) -> Ending:
        """Wait for what is under way, ask the rest to stop, give back what does not, tell what is left."""
        loop, began = self._loop, self._loop.clock.monotonic()
        self._await_tick(wait.total_seconds())
        loop.launcher.stop_waiting()
        self._drain(until=began + wait.total_seconds())
        loop.launcher.stop_all()
        self._drain(until=loop.clock.monotonic() + grace.total_seconds())
        self._give_back()
        unwritten = loop.launcher.unwritten
        trouble = self._trouble() if unwritten or self._is_away else ""
        loop.end_threads(seconds=AWAY_PATIENCE if self._is_away else LAST_TICK)
        spent = loop.clock.monotonic() - began
        untold = loop.teller.close(until=self._within(max(wait.total_seconds() - spent, LAST_WORDS)))
        return Ending(unwritten=unwritten, untold=untold, trouble=trouble)

    @property
    def _is_away(self) -> bool:
        """Whether the store keeps us waiting, or has refused everything of late."""
        return self._is_stuck or self._loop.pulse.errors_in_a_row > 0 or self._settling is not None

    def _trouble(self) -> str:
        return self._loop.pulse.last_error or "it keeps us waiting"

    def _await_tick(self, seconds: float) -> None:
        """A tick under way is not cut short, unless it can only be waiting for a store that is away."""
        loop, waited = self._loop, 0.0
        while loop.is_ticking:
            idle = LAST_TICK if len(loop.launcher) == 0 else max(seconds, LAST_TICK)
            if waited >= (AWAY_PATIENCE if self._is_away else idle):
                self._is_stuck = True
                return
            loop.ended.wait(POLL)
            waited += POLL

    def _drain(self, *, until: float) -> None:
        """Let what is under way end, and write how it did."""
        loop = self._loop
        self._settle()
        while len(loop.launcher) and loop.clock.monotonic() < until:
            loop.waker.rest(POLL)
            self._settle()

    def _settle(self) -> None:
        """Write answers on a thread that may be left behind: a store that is away must not keep us here."""
        loop = self._loop
        if not loop.launcher.answered or (self._settling is not None and self._settling.is_alive()):
            return
        if not loop.is_running:
            loop.settle_quietly()
            return
        self._settling = threading.Thread(target=loop.settle_quietly, name="timewright-settle", daemon=True)
        self._settling.start()
        self._settling.join(AWAY_PATIENCE if loop.pulse.errors_in_a_row else LAST_TICK)
        if not self._settling.is_alive():
            self._settling = None

    def _give_back(self) -> None:
        """What did not end when it was asked to goes back, uncharged; whatever it says now is not heard."""
        released = Released(reason=GIVEN_BACK)
        left = [
            Answer(run=flown.lease.run, outcome=released, started_at=flown.started_at)
            for flown in self._loop.launcher.let_go()
        ]
        self._loop.launcher.put_back(left)
        self._settle()

    def _within(self, seconds: float) -> Callable[[], float]:
        end = self._loop.clock.monotonic() + seconds
        return lambda: end - self._loop.clock.monotonic()
