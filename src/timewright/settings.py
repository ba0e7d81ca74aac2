"""Every number that may be set, each with a sentence, a default and a limit."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.moments import MINUTE, SECOND, bounded, spell_duration
from timewright.core.policies import LONGEST_REST, Floor
from timewright.errors import InvalidInput


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one instance behaves; what a schedule says for itself is not here."""

    capacity: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """How many runs this instance has under way at once."""
    batch: Annotated[int, Meta(ge=1, le=10_000)] = 500
    """How many schedules one pass of the tick looks at."""
    threads: Annotated[int, Meta(ge=1, le=1000)] = 32
    """How many plain functions run at once on threads."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 2
    """How many worker subprocesses run isolated functions."""
    longest_rest: timedelta = LONGEST_REST
    """The longest the tick sleeps, whatever is due; at most a minute."""
    look_ahead: timedelta = MINUTE
    """How far ahead the engine prepares; it admits nothing early."""
    stop_wait: timedelta = 30 * SECOND
    """How long a graceful stop waits for work under way."""
    interval_floor: Floor = Floor()
    """The shortest interval a schedule may ask for, and what to do with a shorter one."""
    keep_history: timedelta = timedelta(days=30)
    """How long finished runs are kept."""
    shell: bool = False
    """Whether shell targets may run; off unless allowed."""
    local: bool = True
    """Whether HTTP targets may call 127.0.0.1 and ::1."""

    def __post_init__(self) -> None:
        for field, shortest, longest in (
            ("longest_rest", timedelta(milliseconds=10), LONGEST_REST),
            ("look_ahead", timedelta(0), 60 * MINUTE),
            ("stop_wait", timedelta(0), 24 * 60 * MINUTE),
            ("keep_history", MINUTE, timedelta(days=36_500)),
        ):
            value = bounded(getattr(self, field), field=field)
            if not shortest <= value <= longest:
                raise InvalidInput(
                    f"{field} {spell_duration(value)} is out of range",
                    field=field,
                    value=spell_duration(value),
                    rule=f"{spell_duration(shortest)} to {spell_duration(longest)}",
                    fix=f"{field}: {spell_duration(longest)} or less",
                )
