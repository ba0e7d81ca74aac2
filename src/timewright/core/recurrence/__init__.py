"""Recurrence by a rule: every so many days, weeks, months or years, on some days, at some times.

The set depends on the rule, its anchor, the zone, its data and the policy for clock changes; on nothing
else. A rule counts readings of the clock from its anchor on, and clock changes do to them what they do to
those of cron.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import product
from typing import NamedTuple, get_args

from timewright.core.cron.search import Search
from timewright.core.cron.stretches import LATEST, Counting, stretches
from timewright.core.moments import EPOCH, MINUTE, SECOND, as_instant
from timewright.core.recurrence.days import NO_DAY, RuleDays
from timewright.core.recurrence.grammar import Rule, parse_rule, refused
from timewright.core.recurrence.words import describe
from timewright.core.trigger import Trigger
from timewright.core.zones import check_zone, zone
from timewright.errors import InvalidInput

MOST_A_DAY = 1440

_DAY = 86_400


class Rrule(Trigger, frozen=True, tag="rrule", dict=True):
    """A recurrence rule of RFC 5545 in a zone; nothing lies before its anchor, from which it counts.

    Without an anchor it counts from the instant asked about; a stored schedule always has one, by default
    the whole minute after its creation.
    """

    rule: str
    zone: str = "UTC"
    dst: Counting = "vixie"
    anchor: datetime | None = None

    def __post_init__(self) -> None:
        parse_rule(self.rule)
        check_zone(self.zone)
        if self.dst not in get_args(Counting):
            raise InvalidInput(
                f"dst {ascii(self.dst)[:60]} is not a policy",
                field="dst",
                value=str(self.dst)[:60],
                rule=f"one of {', '.join(get_args(Counting))}",
                fix="vixie: once a day for every time of the day",
            )
        if self.anchor is not None:
            as_instant(self.anchor, field="anchor")
            self._plan  # noqa: B018 - compiling is the check, and is kept for the first question

    def next_after(self, moment: datetime) -> datetime | None:
        """The first occurrence strictly after the instant, not further than 400 years away."""
        moment = as_instant(moment)
        plan = self._plan if self.anchor is not None else _compiled(self.rule, self.zone, self.dst, moment)
        return plan.next_from((moment - EPOCH) // SECOND + 1)

    def previous_before(self, moment: datetime) -> datetime | None:
        """The last occurrence strictly before the instant; nothing lies before the anchor."""
        if self.anchor is None:
            return None
        return self._plan.last_to(-((EPOCH - as_instant(moment)) // SECOND) - 1)

    def anchored(self, at: datetime) -> Rrule:
        """The same rule with an anchor, unless it has one."""
        if self.anchor is not None:
            return self
        # After it, so that what falls on the anchor is still ahead, and is not lost from a count.
        whole = EPOCH + ((as_instant(at) - EPOCH) // MINUTE + 1) * MINUTE
        return Rrule(self.rule, self.zone, self.dst, whole)

    def describe(self) -> str:
        """In words: `every 2 weeks on Monday at 09:00, Europe/Berlin time`."""
        local = None if self.anchor is None else self.anchor.astimezone(zone(self.zone))
        words = describe(parse_rule(self.rule), anchor=local)
        return words if self.zone == "UTC" else f"{words}, {self.zone} time"

    @cached_property
    def _plan(self) -> Plan:
        assert self.anchor is not None
        return _compiled(self.rule, self.zone, self.dst, as_instant(self.anchor))


class Plan(NamedTuple):
    """A rule with its anchor, ready to be asked; all that counts lies from `first` to `last`."""

    search: Search
    first: int
    last: int

    def next_from(self, instant: int) -> datetime | None:
        """The first occurrence at or after the instant."""
        instant = max(instant, self.first, 0)
        found = self.search.next_from(instant) if instant <= self.last else None
        return None if found is None or found > self.last else EPOCH + timedelta(0, found)

    def last_to(self, instant: int) -> datetime | None:
        """The last occurrence at or before the instant."""
        instant = min(instant, self.last)
        found = self.search.last_to(instant) if instant >= self.first else None
        return None if found is None or found < self.first else EPOCH + timedelta(0, found)


@lru_cache(maxsize=1024)
def _compiled(text: str, zone_name: str, dst: Counting, anchor: datetime) -> Plan:
    """The plan of a rule, shared by equal values."""
    rule, local = parse_rule(text), anchor.astimezone(zone(zone_name))
    hours, minutes = rule.hours or (local.hour,), rule.minutes or (local.minute,)
    seconds = rule.seconds or (local.second,)
    times = sorted(h * 3600 + m * 60 + s for h, m, s in product(hours, minutes, seconds))
    if len(times) > MOST_A_DAY:
        words = f"at most {MOST_A_DAY} times a day"
        raise refused(text, f"has {len(times)} times a day", rule=words, fix="every: 30s")
    days = RuleDays(rule, local)
    search = Search(
        seconds=_bits(seconds),
        minutes=_bits(minutes),
        hours=_bits(hours),
        days=days,
        stretches=stretches(zone_name, dst),
    )
    last = _last_instant(rule, days, times, local, zone_name=zone_name, dst=dst)
    plan = Plan(search, -((EPOCH - anchor) // SECOND), last)
    if plan.next_from(plan.first) is None:
        words = "a rule means at least one instant after its anchor, within 400 years"
        raise refused(text, "never fires", rule=words, fix=_way_out(rule))
    return plan


def _bits(numbers: tuple[int, ...]) -> int:
    return sum(1 << number for number in numbers)


def _last_instant(
    rule: Rule, days: RuleDays, times: list[int], local: datetime, *, zone_name: str, dst: Counting
) -> int:
    """The instant after which nothing counts."""
    if rule.count is not None:
        reading = _counted(rule.count, days, times, local)
    elif rule.until is not None:
        reading = (rule.until.reading.replace(tzinfo=UTC) - EPOCH) // SECOND
        if rule.until.utc:
            return reading
    else:
        return LATEST
    return LATEST if reading is None else _instant_of(reading, zone_name, dst)


def _counted(count: int, days: RuleDays, times: list[int], local: datetime) -> int | None:
    """The reading of the last of so many, in seconds since 1970 as that clock counts them."""
    begin = (local.replace(tzinfo=UTC, microsecond=0) - EPOCH) // SECOND + bool(local.microsecond)
    day, left = days.first_from(begin // _DAY), count
    while day < NO_DAY:
        today = [day * _DAY + time for time in times if day * _DAY + time >= begin]
        if left <= len(today):
            return today[left - 1]
        left -= len(today)
        day = days.first_from(day + 1)
    return None


def _instant_of(reading: int, zone_name: str, dst: Counting) -> int:
    """The instant of a local reading; one lost in a gap is over when the gap is."""
    rules = zone(zone_name)
    naive = (EPOCH + timedelta(0, reading)).replace(tzinfo=None)
    at = (naive.replace(tzinfo=rules).astimezone(UTC) - EPOCH) // SECOND
    if (EPOCH + timedelta(0, at)).astimezone(rules).replace(tzinfo=None, fold=0) != naive:
        return stretches(zone_name, "match").at(at).start - (dst != "vixie")
    if dst == "match":
        # Where the clock shows it twice, the second time counts as well.
        return (naive.replace(tzinfo=rules, fold=1).astimezone(UTC) - EPOCH) // SECOND
    return at


def _way_out(rule: Rule) -> str:
    if rule.until is not None:
        return "an UNTIL after the anchor"
    if rule.month_days and not rule.clamped and rule.frequency in ("MONTHLY", "YEARLY"):
        return "SKIP=BACKWARD for the last day of shorter months"
    return "fewer parts, or another anchor"
