"""Excluded occurrences that move: where each one lands, and what comes next or came before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from msgspec import Struct

from timewright.core.calendars.calendar import at_reading, day_start, local_day
from timewright.core.calendars.openings import FARTHEST_ROLL, MOST_CANDIDATES, Openings, Stretch
from timewright.core.moments import DAY, EARLIEST_STORED, EPOCH, MINUTE
from timewright.core.triggers import ZONED, AnyTrigger

MOST_LANDINGS = 1_000

_TICK = timedelta(microseconds=1)


class Occurrence(Struct, frozen=True):
    """One instant of a schedule; `excluded` names the calendar that keeps it from running."""

    at: datetime
    excluded: str = ""
    moved_from: datetime | None = None


class Rolling:
    """A trigger whose excluded instants land on other days.

    Between the day an instant leaves and the day it lands nothing is open. So what lands on a day comes
    from the day itself and from the one closed stretch beside it, and only days that open are looked at.
    Days are those of the first calendar; the time of day is read on the trigger's clock, if it has one.
    """

    __slots__ = ("clock", "forward", "openings", "trigger", "zone")

    def __init__(self, trigger: AnyTrigger, openings: Openings, *, forward: bool) -> None:
        self.trigger = trigger
        self.openings = openings
        self.zone = openings.calendars[0].zone
        self.clock = trigger.zone if isinstance(trigger, ZONED) else self.zone
        self.forward = forward

    def moved(self, left: datetime) -> Occurrence | None:
        """Where one excluded instant lands further on, whatever else the trigger holds."""
        opening = self.openings.open_from(left, until=left + FARTHEST_ROLL)
        if opening is None:
            return None
        day = local_day(opening, self.zone)
        return Occurrence(self.landing(left, day, self._open_on(day)), moved_from=left)

    def after(self, moment: datetime) -> Occurrence | None:
        """The first allowed or moved occurrence after an instant."""
        day = local_day(moment, self.zone)
        for _ in range(MOST_LANDINGS):
            opening = self.openings.open_from(day_start(day, self.zone))
            if opening is None:
                return None
            day = local_day(opening, self.zone)
            open_on = self._open_on(day)
            allowed = (self._first_in(stretch, moment) for stretch in open_on)
            landed = (found for found in self.landings(day, open_on) if found.at > moment)
            found = min((*filter(None, allowed), *landed), key=soonest_unmoved, default=None)
            if found is not None:
                return found
            # Whatever is or lands on a later day comes after the last closing of this one.
            following = self.trigger.next_after(open_on[-1][1] - _TICK)
            if following is None:
                return None
            day = max(day + DAY, self._first_home(following))
        return None

    def before(self, moment: datetime) -> Occurrence | None:
        """The last allowed or moved occurrence before an instant."""
        end = self._end(local_day(moment, self.zone))
        for _ in range(MOST_LANDINGS):
            closing = self.openings.last_close(end)
            reached = boundary = end - FARTHEST_ROLL
            if closing is not None:
                day = local_day(closing - _TICK, self.zone)
                open_on = self._open_on(day)
                allowed = (self._last_in(stretch, moment) for stretch in open_on)
                landed = (found for found in self.landings(day, open_on) if found.at < moment)
                found = max((*filter(None, allowed), *landed), key=latest_unmoved, default=None)
                if found is not None:
                    return found
                reached, boundary = open_on[0][0], day_start(day, self.zone)
            # Whatever is or lands on an earlier day comes before the first opening of this one.
            earlier = self.trigger.previous_before(reached)
            if earlier is None or earlier < EARLIEST_STORED:
                return None
            end = min(boundary, self._end(self._last_home(earlier)))
        return None

    def landings(self, day: date, open_on: list[Stretch]) -> Iterator[Occurrence]:
        """What moves to a day; of several that land on one instant, the nearest is named."""
        found: dict[datetime, datetime] = {}
        room = MOST_CANDIDATES
        for start, end in self._sources(day, open_on):
            for left in self.trigger.between(start - _TICK, end - _TICK, room):
                room -= 1
                at = self.landing(left, day, open_on)
                if at not in found or abs(at - left) < abs(at - found[at]):
                    found[at] = left
        return (Occurrence(at, moved_from=left) for at, left in found.items())

    def landing(self, left: datetime, day: date, open_on: list[Stretch]) -> datetime:
        """Where an instant that left its place lands on a day that opens."""
        if local_day(left, self.zone) != day:
            at = self._same_time(left, day)
            if at is not None and any(start <= at < end for start, end in open_on):
                return at
        if self.forward:
            return next(start for start, _ in open_on if start > left)
        return next(_last_minute(open_, close) for open_, close in reversed(open_on) if close <= left)

    def _same_time(self, left: datetime, day: date) -> datetime | None:
        """The instant of a day at which the trigger's clock shows what it showed at `left`."""
        reading = left.astimezone(ZoneInfo(self.clock)).time()
        start, end = day_start(day, self.zone), self._end(day)
        dates = {local_day(start, self.clock), local_day(end - _TICK, self.clock)}
        instants = (at_reading(on, reading, self.clock) for on in sorted(dates))
        return next((at for at in instants if start <= at < end), None)

    def _sources(self, day: date, open_on: list[Stretch]) -> Iterator[Stretch]:
        """The closed stretches whose instants move to this day, the nearest first."""
        start, end = day_start(day, self.zone), self._end(day)
        if self.forward:
            yield from _gaps([(start, start), *open_on])
            yield (self.openings.last_close(start) or start - FARTHEST_ROLL), start
        else:
            yield from _gaps([*open_on, (end, end)])
            farthest = end + FARTHEST_ROLL
            yield end, self.openings.open_from(end, until=farthest) or farthest

    def _first_in(self, stretch: Stretch, moment: datetime) -> Occurrence | None:
        at = self.trigger.next_after(max(stretch[0] - _TICK, moment))
        return Occurrence(at) if at is not None and at < stretch[1] else None

    def _last_in(self, stretch: Stretch, moment: datetime) -> Occurrence | None:
        at = self.trigger.previous_before(min(stretch[1], moment))
        return Occurrence(at) if at is not None and at >= stretch[0] else None

    def _open_on(self, day: date) -> list[Stretch]:
        return self.openings.stretches(day_start(day, self.zone), self._end(day))

    def _end(self, day: date) -> datetime:
        return day_start(day + DAY, self.zone)

    def _first_home(self, moment: datetime) -> date:
        """The earliest day on which this instant, or a later one, may be or land."""
        day = local_day(moment, self.zone)
        if self.forward:
            return day
        closing = self.openings.last_close(moment + _TICK)
        return day if closing is None else local_day(closing - _TICK, self.zone)

    def _last_home(self, moment: datetime) -> date:
        """The latest day on which this instant, or an earlier one, may be or land."""
        day = local_day(moment, self.zone)
        if not self.forward:
            return day
        opening = self.openings.open_from(moment, until=moment + FARTHEST_ROLL)
        return day if opening is None else local_day(opening, self.zone)


def _gaps(stretches: list[Stretch]) -> Iterator[Stretch]:
    """What lies between one stretch and the next."""
    for (_, closing), (opening, _) in pairwise(stretches):
        if closing < opening:
            yield closing, opening


def _last_minute(opening: datetime, closing: datetime) -> datetime:
    """The last whole minute of an open stretch, or its opening if it holds none."""
    whole = EPOCH + (closing - _TICK - EPOCH) // MINUTE * MINUTE
    return max(opening, whole)


def soonest_unmoved(found: Occurrence) -> tuple[datetime, bool]:
    """For `min`: the earliest, and of two at one instant the one that did not move."""
    return found.at, found.moved_from is not None


def latest_unmoved(found: Occurrence) -> tuple[datetime, bool]:
    """For `max`: the latest, and of two at one instant the one that did not move."""
    return found.at, found.moved_from is None
