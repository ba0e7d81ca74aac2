"""Hints that adjust an adaptive schedule and expire: an interval, a next instant, or a pause."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.moments import (
    MINUTE,
    SECOND,
    check_duration,
    check_storable,
    format_duration,
    format_instant,
)
from timewright.errors import InvalidInput

HintReason = Annotated[str, Meta(max_length=2000)]

DEFAULT_INTERVAL_TTL = 60 * MINUTE
DEFAULT_ONE_SHOT_TTL = 30 * MINUTE
MAX_TTL = 24 * 60 * MINUTE
MAX_PAUSE = 60 * MINUTE
MIN_INTERVAL = 10 * SECOND


class IntervalHint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Use this interval instead of the trigger, until the hint expires.

    `since` is when the first of several interval hints without a gap replaced the trigger.
    """

    interval: timedelta
    expires_at: datetime
    reason: HintReason = ""
    actor: str = ""
    created_at: datetime | None = None
    since: datetime | None = None

    def __post_init__(self) -> None:
        check_duration(self.interval, field="hint.interval")

    @property
    def began(self) -> datetime | None:
        """When it, or the first of the hints that it continues, replaced the trigger."""
        return self.since or self.created_at


class OneShotHint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run at this instant; used up by the run it causes.

    `due` are instants of earlier hints that came due before this one, and that a limit carries over.
    """

    at: datetime
    expires_at: datetime
    reason: HintReason = ""
    actor: str = ""
    created_at: datetime | None = None
    due: tuple[datetime, ...] = ()

    @property
    def instants(self) -> tuple[datetime, ...]:
        """The instants that it requests; one at its expiry or later is none."""
        return (*self.due, self.at) if self.at < self.expires_at else self.due

    def due_by(self, now: datetime) -> OneShotHint | None:
        """Return what is left of it when it ends: what came due by then, if anything did."""
        due = [at for at in self.instants if at <= now]
        return replace(self, at=due[-1], due=tuple(due[:-1])) if due else None


class PauseHint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Do not run until this instant."""

    until: datetime
    reason: HintReason = ""
    actor: str = ""
    created_at: datetime | None = None


class EndedPause(Struct, frozen=True, forbid_unknown_fields=True):
    """A pause that is over."""

    began: datetime
    ended: datetime


class Hints(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most one hint of each kind.

    `ended_pauses` are earlier pauses, of users too, whose occurrences are not recorded yet.
    """

    interval: IntervalHint | None = None
    one_shot: OneShotHint | None = None
    pause: PauseHint | None = None
    ended_pauses: tuple[EndedPause, ...] = ()

    def unexpired(self, *, now: datetime) -> Hints:
        """Return the hints that have not expired; one that expires exactly now has expired."""
        interval = self.interval if self.interval and self.interval.expires_at > now else None
        one_shot = self.one_shot if self.one_shot and self.one_shot.expires_at > now else None
        pause = self.pause if self.pause and self.pause.until > now else None
        return replace(self, interval=interval, one_shot=one_shot, pause=pause)

    def next_expiry(self) -> datetime | None:
        """Return when the first interval or one-shot hint expires; None without one."""
        ends = [hint.expires_at for hint in (self.interval, self.one_shot) if hint is not None]
        return min(ends, default=None)

    def has_expired(self, *, now: datetime) -> bool:
        """Whether an interval or one-shot hint has expired."""
        expiry = self.next_expiry()
        return expiry is not None and expiry <= now

    def without_used(self, *, until: datetime) -> Hints:
        """Return the hints without a one-shot hint whose instant is decided."""
        hint = self.one_shot
        if hint is None or (hint.at > until and not hint.due):
            return self
        left = replace(hint, due=tuple(at for at in hint.due if at > until))
        return replace(self, one_shot=left if hint.at > until else None)


NO_HINTS = Hints()


def check_hint(
    *, now: datetime, ttl: timedelta, interval: timedelta | None = None, at: datetime | None = None
) -> None:
    """Refuse a hint whose interval is too short, whose TTL is out of range, or that is in the past."""
    if not SECOND <= ttl <= MAX_TTL:
        raise InvalidInput(
            f"hint.ttl {format_duration(max(ttl, timedelta(0)))} is out of range",
            field="hint.ttl",
            value=format_duration(max(ttl, timedelta(0))),
            rule="1s to 24h",
            fix="ttl: 60m",
        )
    if interval is not None and interval < MIN_INTERVAL:
        raise InvalidInput(
            f"hint.interval {format_duration(max(interval, timedelta(0)))} is below the minimum for hints",
            field="hint.interval",
            value=format_duration(max(interval, timedelta(0))),
            rule=f"at least {format_duration(MIN_INTERVAL)}",
            fix=f"interval: {format_duration(MIN_INTERVAL)}",
        )
    if at is not None and check_storable(at, field="hint.at") < now:
        raise InvalidInput(
            f"hint.at {format_instant(at)} is in the past",
            field="hint.at",
            value=format_instant(at),
            rule="an instant that is not before now",
            fix="now, or later",
        )


class LastAnalysis(Struct, frozen=True):
    """The result of the last analysis of a schedule: when to analyse again, and the failures it saw."""

    next_analysis_at: datetime | None = None
    failures: int = 0


def needs_analysis(last: LastAnalysis | None, *, failures: int, now: datetime) -> bool:
    """Whether to analyse a schedule now: it never was, its next analysis is due, or it fails more."""
    if last is None or last.next_analysis_at is None or last.next_analysis_at <= now:
        return True
    return failures > last.failures
