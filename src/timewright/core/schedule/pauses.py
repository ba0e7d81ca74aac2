"""Pauses: of the installation, and finished ones of schedules whose occurrences are not recorded yet."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.schedule.schedule import ScheduleProgress, ScheduleState


class Pauses(Struct, frozen=True):
    """Finished pauses whose suppressed occurrences are not recorded yet, as (start, end) pairs."""

    spans: tuple[tuple[datetime, datetime], ...]

    @property
    def first_start(self) -> datetime:
        """The start of the first pause."""
        return min(start for start, _ in self.spans)

    @property
    def last_end(self) -> datetime:
        """The end of the last pause."""
        return max(end for _, end in self.spans)

    def contains(self, moment: datetime) -> bool:
        """Whether a pause contains the instant; the end of a pause is exclusive."""
        return any(start <= moment < end for start, end in self.spans)


NO_PAUSES = Pauses(())


def unrecorded_pauses(progress: ScheduleProgress) -> Pauses:
    """Return the pauses that are not recorded yet: the one set by a user and the one set by a hint."""
    hint, spans = progress.hints.pause, []
    if hint is None and progress.paused_until is None:
        return NO_PAUSES
    if progress.paused_until is not None:
        spans.append((progress.paused_at or progress.cursor, progress.paused_until))
    if hint is not None:
        spans.append((hint.created_at or progress.paused_at or progress.cursor, hint.until))
    return Pauses(tuple(spans))


def clear_pauses(progress: ScheduleProgress) -> ScheduleProgress:
    """Return the progress after its pauses are recorded."""
    if (
        progress.paused_at is None
        and unrecorded_pauses(progress) is NO_PAUSES
        and progress.state is ScheduleState.ACTIVE
    ):
        return progress
    hints = replace(progress.hints, pause=None)
    return replace(progress, state=ScheduleState.ACTIVE, paused_at=None, paused_until=None, hints=hints)


def resume_progress(progress: ScheduleProgress, *, now: datetime) -> ScheduleProgress:
    """Return the progress of a schedule that is resumed: its pause ends now and its failure count is reset.

    The next admission records the occurrences that the pause suppressed. A schedule that was parked or
    waited for approval had no occurrences meanwhile, so it continues from now.
    """
    stopped = progress.state not in (ScheduleState.ACTIVE, ScheduleState.PAUSED)
    pause = progress.hints.pause
    hints = replace(progress.hints, pause=replace(pause, until=min(pause.until, now)) if pause else None)
    return replace(
        progress,
        state=ScheduleState.ACTIVE,
        reason="",
        failures=0,
        cursor=max(progress.cursor, now) if stopped else progress.cursor,
        next_at=None if stopped else progress.next_at,
        paused_at=None if stopped else progress.paused_at,
        paused_until=None if stopped or progress.paused_at is None else now,
        wake_at=now,
        hints=hints,
    )


class Pause(Struct, frozen=True, kw_only=True):
    """A pause of the whole installation: nothing is admitted or leased; runs under way continue.

    What comes due waits: when the pause ends, `catch_up` decides, as after a stop of all engines.
    """

    id: str
    scope: Literal["installation"] = "installation"
    namespace: str = ""
    name: str = ""
    due: Literal["wait"] = "wait"
    actor: str
    origin: str
    reason: str = ""
    at: datetime
    until: datetime | None = None

    def is_over(self, *, now: datetime) -> bool:
        """Whether it has reached its end."""
        return self.until is not None and self.until <= now
