"""Clock changes ahead, and what a trigger does on the day of one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import get_args
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import EPOCH, SECOND
from timewright.core.recurrence.cron import Cron
from timewright.core.recurrence.offset_periods import DstPolicy, offset_periods
from timewright.core.recurrence.rrule import Rrule

# Longer than any gap or overlap, so that every moved occurrence is inside.
NEARBY = timedelta(hours=6)
MAX_COMPARED = 1000


class ClockChange(Struct, frozen=True, kw_only=True):
    """An instant at which the clocks of a zone change, and by how much."""

    zone: str
    at: datetime
    by: timedelta

    @property
    def local(self) -> datetime:
        """The local time right after the change."""
        return self.at.astimezone(ZoneInfo(self.zone))


def clock_changes(zone: str, *, since: datetime, until: datetime) -> Iterator[ClockChange]:
    """Find the changes of a zone's offset in a span, to the second."""
    periods = offset_periods(zone, "match")
    before = periods.at((since - EPOCH) // SECOND)
    while before.end <= (until - EPOCH) // SECOND:
        after = periods.at(before.end)
        # A period may end early, with its page.
        if after.offset != before.offset:
            by = timedelta(seconds=after.offset - before.offset)
            yield ClockChange(zone=zone, at=EPOCH + after.start * SECOND, by=by)
        before = after


def describe_effect(change: ClockChange, trigger: Cron | Rrule) -> str:
    """Return what a trigger does at a clock change, in words; "" if the change does not affect it.

    A change affects a trigger if the policies for clock changes (`dst`) decide its instants differently.
    """
    since, until = change.at - NEARBY, change.at + NEARBY
    by_policy = {
        policy: replace(trigger, dst=policy).between(since, until, MAX_COMPARED)
        for policy in get_args(DstPolicy)
    }
    own = by_policy[trigger.dst]
    if trigger.dst == "vixie" and own == by_policy["match"]:
        return ""
    others = {at for policy, instants in by_policy.items() if policy != trigger.dst for at in instants}
    if set(own) == others:
        return ""
    tz = ZoneInfo(change.zone)
    if change.by > timedelta(0):
        at_end = [at for at in own if at == change.at]
        when = f"{change.local:%H:%M}"
        return f"runs at {when} instead" if at_end else "does not run for a time that does not exist that day"
    twice = [f"{at.astimezone(tz):%H:%M}" for at in own if at.astimezone(tz).fold]
    return f"runs again at the second {twice[0]}" if twice else "runs only once for a time that occurs twice"
