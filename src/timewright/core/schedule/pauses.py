"""Pauses: of the installation, and finished ones of schedules whose occurrences are not recorded yet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.alerts.channels import is_delivery
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState


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

    def first_end_after(self, moment: datetime) -> datetime:
        """The first end after an instant that no other pause contains; the last end if there is none."""
        ends = (end for _, end in self.spans if end > moment and not self.contains(end))
        return min(ends, default=self.last_end)

    def contains(self, moment: datetime) -> bool:
        """Whether a pause contains the instant; the end of a pause is exclusive."""
        return any(start <= moment < end for start, end in self.spans)


NO_PAUSES = Pauses(())


def unrecorded_pauses(progress: ScheduleProgress, scoped: Pauses = NO_PAUSES) -> Pauses:
    """Return the pauses that are not recorded yet: by a user, by a hint, and `scoped` ones."""
    hint, spans = progress.hints.pause, list(scoped.spans)
    spans += [(one.began, one.ended) for one in progress.hints.ended_pauses]
    if hint is None and progress.paused_until is None:
        return scoped
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
    hints = replace(progress.hints, pause=None, ended_pauses=())
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
        failing_since=None,
        replaced_after=progress.reopened_after,
        cursor=max(progress.cursor, now) if stopped else progress.cursor,
        next_at=None if stopped else progress.next_at,
        paused_at=None if stopped else progress.paused_at,
        paused_until=None
        if stopped or progress.paused_at is None
        else min(progress.paused_until or now, now),
        wake_at=now,
        hints=hints,
    )


def pause_need(pause_id: str) -> str:
    """Return the need of what a pause set aside: no instance offers it, so it waits until the pause ends."""
    return f"pause:{pause_id}"


# The origins of pauses of a store that was restored or is being moved: its messages may be sent elsewhere.
COPY_ORIGINS = ("restore", "move")

PauseScope = Literal["installation", "namespace", "group", "owner", "queue", "provider"]


class Pause(Struct, frozen=True, kw_only=True):
    """A pause of everything in a scope: nothing of it is admitted or leased; runs under way continue.

    Messages to channels are still sent, unless the pause is of their queue or of a copied store.

    `due` decides about occurrences that come due in it. With `wait`, `catch_up` decides when the pause ends,
    as after a stop of all engines; with `skip`, they are recorded as skipped. Ready runs wait in both cases.
    """

    id: str
    scope: PauseScope = "installation"
    namespace: str = ""
    name: str = ""
    due: Literal["skip", "wait"] = "wait"
    actor: str
    origin: str
    reason: str = ""
    at: datetime
    until: datetime | None = None
    ended_at: datetime | None = None

    @property
    def end(self) -> datetime | None:
        """When it ended, or will end by itself; None if it waits for a resume."""
        return self.ended_at or self.until

    def is_over(self, *, now: datetime) -> bool:
        """Whether it was ended, by whatever clock, or has reached its end."""
        return self.ended_at is not None or (self.until is not None and self.until <= now)

    def covers(self, namespace: str, *, queue: str | None, schedule: Schedule | None) -> bool:
        """Whether it holds for a schedule or a run; `schedule` is that of the run or of its workflow."""
        if queue is not None and is_delivery(queue) and self.lets_messages_pass:
            return False
        if self.scope == "installation":
            return True
        if self.namespace != namespace:
            return False
        if self.scope == "namespace":
            return True
        if self.scope == "queue":
            return queue == self.name
        return schedule is not None and getattr(schedule, self.scope) == self.name

    @property
    def lets_messages_pass(self) -> bool:
        """Whether messages are sent although work is paused, such as the message about the pause's cause."""
        return self.scope != "queue" and self.origin not in COPY_ORIGINS

    def describe(self) -> str:
        """What is paused, as in "group reports"."""
        if self.scope == "installation":
            return "the installation"
        return f"{self.scope} {self.name or self.namespace}"


def skipping_spans(pauses: Sequence[Pause], progress: ScheduleProgress, *, now: datetime) -> Pauses:
    """Return the spans of pauses whose occurrences are skipped, if they reach beyond what is decided."""
    decided = progress.next_at or progress.cursor
    spans = ((one.at, min(one.end or now, now)) for one in pauses if one.due == "skip")
    found = tuple((start, end) for start, end in spans if start < end and end > decided)
    return Pauses(found) if found else NO_PAUSES
