"""Fifty schedules as people have them: most are daily, many hourly, a few come every quarter of an hour."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timewright.testing.world.chance import Chance

ZONES = ("UTC", "UTC", "Europe/Berlin", "America/New_York")
# People like the full hour, and the night.
MINUTES = (0, 0, 0, 0, 15, 30, 30, 45, 5, 17)
HOURS = (0, 1, 2, 2, 2, 3, 3, 4, 6, 8, 9, 12, 18, 22, 23)
STEPS = (2, 4, 6, 6, 12)


def _quarter_hourly(chance: Chance) -> str:
    return "*/15 * * * *"


def _half_hourly(chance: Chance) -> str:
    return "*/30 * * * *"


def _hourly(chance: Chance) -> str:
    return f"{chance.choice(MINUTES)} * * * *"


def _every_few_hours(chance: Chance) -> str:
    return f"{chance.choice(MINUTES)} */{chance.choice(STEPS)} * * *"


def _daily(chance: Chance) -> str:
    return f"{chance.choice(MINUTES)} {chance.choice(HOURS)} * * *"


def _on_weekdays(chance: Chance) -> str:
    return f"{chance.choice(MINUTES)} {chance.choice(HOURS)} * * 1-5"


def _weekly(chance: Chance) -> str:
    return f"{chance.choice(MINUTES)} {chance.choice(HOURS)} * * {chance.randrange(7)}"


def _monthly(chance: Chance) -> str:
    return f"{chance.choice(MINUTES)} {chance.choice(HOURS)} {chance.randint(1, 28)} * *"


# How many of fifty come how often; the page about the simulation says the same.
MIX: tuple[tuple[int, Callable[[Chance], str]], ...] = (
    (4, _quarter_hourly),
    (2, _half_hourly),
    (10, _hourly),
    (6, _every_few_hours),
    (20, _daily),
    (4, _on_weekdays),
    (3, _weekly),
    (1, _monthly),
)
_ALL = tuple(kind for count, kind in MIX for _ in range(count))
SIZE = len(_ALL)


def when(chance: Chance, number: int) -> dict[str, Any]:
    """When the schedule of a number comes; its number decides how often."""
    return {"cron": _ALL[number % SIZE](chance), "zone": chance.choice(ZONES)}
