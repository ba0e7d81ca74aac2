"""What goes wrong, and when: by chance in a storm, or on purpose at a named point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from timewright.errors import OutcomeUnknown, StoreUnavailable
from timewright.testing.world.chance import Chance
from timewright.testing.world.clocks import SECOND

if TYPE_CHECKING:
    from timewright.testing.world.actors import Actor


class Crashed(BaseException):
    """The process is gone: nothing of it is unwound, and nobody may answer for it."""


class Rates(Struct, frozen=True, kw_only=True):
    """In what share of store calls each thing goes wrong."""

    crash: float = 0.0
    away: float = 0.0
    lost_before: float = 0.0
    lost_after: float = 0.0
    slow: float = 0.0
    frozen: float = 0.0
    redundant: float = 0.0


CALM = Rates()
STORM = Rates(
    crash=0.0045, away=0.008, lost_before=0.004, lost_after=0.008, slow=0.012, frozen=0.003, redundant=0.1
)


class Script(Struct, frozen=True):
    """Crash an actor when it passes a named point for the n-th time."""

    actor: str
    point: str
    nth: int = 1


class Faults:
    """Stands at every store call and every launch; without a storm and without a script it is not asked."""

    def __init__(self, chance: Chance, *, script: Script | None = None, listing: bool = False) -> None:
        self._chance = chance
        self._script = script
        self._is_pointed = script is not None or listing
        self.rates = CALM
        self.is_on = self._is_pointed
        self.passed: dict[tuple[str, str], int] = {}
        self.fired = False

    def storm(self, rates: Rates) -> None:
        """From now on things go wrong at these rates."""
        self.rates = rates
        self.is_on = rates is not CALM or self._is_pointed

    def point(self, actor: Actor, name: str) -> None:
        """A named place in the code; a script may end the actor here."""
        if not self._is_pointed:
            return
        key = (actor.name, name)
        self.passed[key] = self.passed.get(key, 0) + 1
        script = self._script
        if script is not None and key == (script.actor, script.point) and self.passed[key] == script.nth:
            self.fired = True
            actor.world.count("crash injected")
            raise Crashed

    def before(self, actor: Actor, name: str) -> None:
        """Before a transaction: the process may die or be stopped, the store may be away or slow."""
        if self._is_pointed:
            self.point(actor, f"{name} before")
        rates, chance = self.rates, self._chance
        if rates is CALM:
            return
        draw = chance.random()
        if draw < rates.crash:
            actor.world.count("crash injected")
            raise Crashed
        draw -= rates.crash
        if draw < rates.away:
            actor.world.count("store away")
            raise StoreUnavailable("the store is away")
        draw -= rates.away
        if draw < rates.lost_before:
            actor.world.count("answer lost before commit")
            raise OutcomeUnknown("the connection broke before the commit")
        self._delay(actor, draw - rates.lost_before)

    def after(self, actor: Actor, name: str) -> None:
        """After the commit: the process may die or be stopped, the answer may be lost."""
        if self._is_pointed:
            self.point(actor, f"{name} after")
        rates, chance = self.rates, self._chance
        if rates is CALM:
            return
        draw = chance.random()
        if draw < rates.crash:
            actor.world.count("crash injected")
            raise Crashed
        draw -= rates.crash
        if draw < rates.lost_after:
            actor.world.count("answer lost after commit")
            raise OutcomeUnknown("the connection broke at commit")
        self._delay(actor, draw - rates.lost_after)

    def _delay(self, actor: Actor, draw: float) -> None:
        rates, chance = self.rates, self._chance
        if actor.is_person:
            # What a person asks for is dated when it was asked; the audit log cannot say that it came late.
            return
        if draw < rates.slow:
            actor.world.pass_time(chance.micros(0.01, 4), actor, frozen=False)
        elif draw < rates.slow + rates.frozen:
            actor.world.count("process stopped at a store call")
            actor.world.pass_time(long_pause(chance), actor, frozen=True)


def long_pause(chance: Chance) -> int:
    """A pause that is most interesting: often just around a usual lease, sometimes far beyond it."""
    length = chance.choice((3, 20, 28, 31, 45, 61, 95, 301, 900))
    return int(length * SECOND * chance.uniform(0.9, 1.3))
