"""Fifty schedules as in real use: most daily, many hourly, a few every quarter of an hour."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.model.seeded_random import SeededRandom

ZONES = ("UTC", "UTC", "Europe/Berlin", "America/New_York")
# Most people choose the full hour, and the night.
MINUTES = (0, 0, 0, 0, 15, 30, 30, 45, 5, 17)
HOURS = (0, 1, 2, 2, 2, 3, 3, 4, 6, 8, 9, 12, 18, 22, 23)
HOUR_STEPS = (2, 4, 6, 6, 12)


def _quarter_hourly(rng: SeededRandom) -> str:
    return "*/15 * * * *"


def _half_hourly(rng: SeededRandom) -> str:
    return "*/30 * * * *"


def _hourly(rng: SeededRandom) -> str:
    return f"{rng.choice(MINUTES)} * * * *"


def _every_few_hours(rng: SeededRandom) -> str:
    return f"{rng.choice(MINUTES)} */{rng.choice(HOUR_STEPS)} * * *"


def _daily(rng: SeededRandom) -> str:
    return f"{rng.choice(MINUTES)} {rng.choice(HOURS)} * * *"


def _on_weekdays(rng: SeededRandom) -> str:
    return f"{rng.choice(MINUTES)} {rng.choice(HOURS)} * * 1-5"


def _weekly(rng: SeededRandom) -> str:
    return f"{rng.choice(MINUTES)} {rng.choice(HOURS)} * * {rng.randrange(7)}"


def _monthly(rng: SeededRandom) -> str:
    return f"{rng.choice(MINUTES)} {rng.choice(HOURS)} {rng.randint(1, 28)} * *"


# How many of fifty run how often; docs/test/simulation.md has the same table.
MIX: tuple[tuple[int, Callable[[SeededRandom], str]], ...] = (
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
FLEET_SIZE = len(_ALL)


def draw_cron(rng: SeededRandom, number: int) -> dict[str, Any]:
    """The cron expression of one schedule; its number decides how often it runs."""
    return {"cron": _ALL[number % FLEET_SIZE](rng), "zone": rng.choice(ZONES)}
