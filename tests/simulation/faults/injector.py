"""Inject faults into store calls: by random rates, or a crash at a named point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from tests.simulation.model.clocks import SECOND
from tests.simulation.model.seeded_random import SeededRandom
from timewright.errors import OutcomeUnknown, StoreUnavailable

if TYPE_CHECKING:
    from tests.simulation.model.actors import SimulatedActor


class ProcessCrashed(BaseException):
    """The process has crashed: nothing is unwound, and no handler may catch it."""


class FaultRates(Struct, frozen=True, kw_only=True):
    """The probability of each fault per store call."""

    crash: float = 0.0
    store_down: float = 0.0
    lost_before_commit: float = 0.0
    lost_after_commit: float = 0.0
    slow: float = 0.0
    suspended: float = 0.0
    redundant_tick: float = 0.0


NO_FAULTS = FaultRates()
FAULTY = FaultRates(
    crash=0.0045,
    store_down=0.008,
    lost_before_commit=0.004,
    lost_after_commit=0.008,
    slow=0.012,
    suspended=0.003,
    redundant_tick=0.1,
)


class CrashPoint(Struct, frozen=True):
    """Crash an actor when it passes a named point for the n-th time."""

    actor: str
    point: str
    nth: int = 1


class FaultInjector:
    """Called at every store call and launch; inactive without rates and crash points."""

    def __init__(
        self, rng: SeededRandom, *, crash_point: CrashPoint | None = None, record_points: bool = False
    ) -> None:
        self._rng = rng
        self._crash_point = crash_point
        self._tracks_points = crash_point is not None or record_points
        self.rates = NO_FAULTS
        self.is_active = self._tracks_points
        self.passed: dict[tuple[str, str], int] = {}
        self.has_crashed = False

    def set_rates(self, rates: FaultRates) -> None:
        """Set the fault rates."""
        self.rates = rates
        self.is_active = rates is not NO_FAULTS or self._tracks_points

    def pass_point(self, actor: SimulatedActor, name: str) -> None:
        """A named point in the code; the chosen crash point crashes the actor here."""
        if not self._tracks_points:
            return
        key = (actor.name, name)
        self.passed[key] = self.passed.get(key, 0) + 1
        crash_point = self._crash_point
        if (
            crash_point is not None
            and key == (crash_point.actor, crash_point.point)
            and self.passed[key] == crash_point.nth
        ):
            self.has_crashed = True
            actor.sim.count("crash injected")
            raise ProcessCrashed

    def before_transaction(self, actor: SimulatedActor, name: str) -> None:
        """Before a transaction: crash, suspension, store down, lost connection, or delay."""
        if self._tracks_points:
            self.pass_point(actor, f"{name} before")
        rates, rng = self.rates, self._rng
        if rates is NO_FAULTS:
            return
        draw = rng.random()
        if draw < rates.crash:
            actor.sim.count("crash injected")
            raise ProcessCrashed
        draw -= rates.crash
        if draw < rates.store_down:
            actor.sim.count("store unavailable")
            raise StoreUnavailable("the store is down")
        draw -= rates.store_down
        if draw < rates.lost_before_commit:
            actor.sim.count("connection lost before commit")
            raise OutcomeUnknown("the connection broke before the commit")
        self._maybe_delay(actor, draw - rates.lost_before_commit)

    def after_transaction(self, actor: SimulatedActor, name: str) -> None:
        """After the commit: crash, suspension, or a lost answer."""
        if self._tracks_points:
            self.pass_point(actor, f"{name} after")
        rates, rng = self.rates, self._rng
        if rates is NO_FAULTS:
            return
        draw = rng.random()
        if draw < rates.crash:
            actor.sim.count("crash injected")
            raise ProcessCrashed
        draw -= rates.crash
        if draw < rates.lost_after_commit:
            actor.sim.count("answer lost after commit")
            raise OutcomeUnknown("the connection broke at commit")
        self._maybe_delay(actor, draw - rates.lost_after_commit)

    def _maybe_delay(self, actor: SimulatedActor, draw: float) -> None:
        rates, rng = self.rates, self._rng
        if actor.is_user:
            # Audit entries of users carry the request time, so a delay would look like a late request.
            return
        if draw < rates.slow:
            actor.sim.pass_time(rng.random_micros(0.01, 4), actor, frozen=False)
        elif draw < rates.slow + rates.suspended:
            actor.sim.count("process suspended at a store call")
            actor.sim.pass_time(draw_pause(rng), actor, frozen=True)


def draw_pause(rng: SeededRandom) -> int:
    """A pause length, often near the usual lease lengths, sometimes far beyond."""
    length = rng.choice((3, 20, 28, 31, 45, 61, 95, 301, 900))
    return int(length * SECOND * rng.uniform(0.9, 1.3))
