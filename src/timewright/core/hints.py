"""Wishes that expire: an interval, a next time, or a pause; each with its own end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.moments import MINUTE, SECOND, bounded, check_stored, spell_duration, spell_instant
from timewright.errors import InvalidInput

Reason = Annotated[str, Meta(max_length=2000)]

INTERVAL_TTL = 60 * MINUTE
ONE_SHOT_TTL = 30 * MINUTE
LONGEST_TTL = 24 * 60 * MINUTE
LONGEST_PAUSE = 60 * MINUTE
SHORTEST_INTERVAL = 10 * SECOND


class IntervalHint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run this often instead, until it expires."""

    interval: timedelta
    expires_at: datetime
    reason: Reason = ""
    actor: str = ""
    created_at: datetime | None = None

    def __post_init__(self) -> None:
        bounded(self.interval, field="hint.interval")


class OneShotHint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run at this instant; consumed by the run that used it."""

    at: datetime
    expires_at: datetime
    reason: Reason = ""
    actor: str = ""
    created_at: datetime | None = None


class PauseHint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Do not run until this instant."""

    until: datetime
    reason: Reason = ""
    actor: str = ""
    created_at: datetime | None = None


class Hints(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most one hint of each kind."""

    interval: IntervalHint | None = None
    one_shot: OneShotHint | None = None
    pause: PauseHint | None = None

    def fresh(self, *, now: datetime) -> Hints:
        """Only those whose end is still ahead; an expiry equal to now is over."""
        interval = self.interval if self.interval and self.interval.expires_at > now else None
        one_shot = self.one_shot if self.one_shot and self.one_shot.expires_at > now else None
        pause = self.pause if self.pause and self.pause.until > now else None
        return Hints(interval=interval, one_shot=one_shot, pause=pause)

    def consumed(self, *, now: datetime) -> Hints:
        """What is left after a run: a one-shot whose instant has come is used up, and the expired go."""
        kept = self.fresh(now=now)
        if kept.one_shot is not None and kept.one_shot.at <= now:
            kept = replace(kept, one_shot=None)
        return kept


NO_HINTS = Hints()


def check_hint(
    *, now: datetime, ttl: timedelta, interval: timedelta | None = None, at: datetime | None = None
) -> None:
    """Refuse a hint that asks for more than hints may: too often, too long, or in the past."""
    if not SECOND <= ttl <= LONGEST_TTL:
        raise InvalidInput(
            f"hint.ttl {spell_duration(max(ttl, timedelta(0)))} is out of range",
            field="hint.ttl",
            value=spell_duration(max(ttl, timedelta(0))),
            rule="1s to 24h",
            fix="ttl: 60m",
        )
    if interval is not None and interval < SHORTEST_INTERVAL:
        raise InvalidInput(
            f"hint.interval {spell_duration(max(interval, timedelta(0)))} is below the floor for hints",
            field="hint.interval",
            value=spell_duration(max(interval, timedelta(0))),
            rule=f"at least {spell_duration(SHORTEST_INTERVAL)}",
            fix=f"interval: {spell_duration(SHORTEST_INTERVAL)}",
        )
    if at is not None and check_stored(at, field="hint.at") < now:
        raise InvalidInput(
            f"hint.at {spell_instant(at)} is in the past",
            field="hint.at",
            value=spell_instant(at),
            rule="an instant that is not before now",
            fix="now, or later",
        )


class Analysed(Struct, frozen=True):
    """What the last analysis of a schedule left behind: when to look again, and the failures it saw."""

    look_again_at: datetime | None = None
    failures: int = 0


def deserves_a_look(last: Analysed | None, *, failures: int, now: datetime) -> bool:
    """Whether to analyse a schedule now: never done, its asked-for time has come, or failures rose."""
    if last is None or last.look_again_at is None or last.look_again_at <= now:
        return True
    return failures > last.failures
