"""The recurrence-rule trigger (RFC 5545): every n days, weeks, months or years, on given days and times.

The set of instants depends only on the rule, its anchor, the zone, the installed zone data and the policy for
clock changes. A rule counts local times from its anchor; clock changes affect them as they affect cron.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from functools import cached_property, lru_cache
from itertools import product
from typing import NamedTuple, get_args

from msgspec.structs import replace

from timewright.core.moments import EPOCH, MINUTE, SECOND, as_instant
from timewright.core.recurrence import ZonedTrigger
from timewright.core.recurrence.offset_periods import MAX_INSTANT_S, DstPolicy, offset_periods
from timewright.core.recurrence.rrule.days import NO_DAY, RuleDays
from timewright.core.recurrence.rrule.grammar import RecurrenceRule, Weekday, parse_rule, rule_error
from timewright.core.recurrence.search import OccurrenceSearch
from timewright.core.recurrence.words import MONTHS, WEEKDAYS, join_words, position_word
from timewright.core.zones import DEFAULT_ZONE, load_zone
from timewright.errors import InvalidInput

MAX_TIMES_PER_DAY = 1440

_DAY = 86_400

_UNITS = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year"}
_MAX_TIMES = 6


class Rrule(ZonedTrigger, frozen=True, tag="rrule", dict=True):
    """A recurrence rule of RFC 5545 in a zone; it counts from its anchor and has no instants before it.

    Without an anchor it counts from the instant passed to a method. A stored schedule always has an anchor,
    by default its first occurrence from `start_at` on, else the first whole minute after its creation.
    """

    rule: str
    zone: str = DEFAULT_ZONE
    dst: DstPolicy = "vixie"
    anchor: datetime | None = None

    def __post_init__(self) -> None:
        parse_rule(self.rule)
        self._set_zone(self.zone)
        if self.dst not in get_args(DstPolicy):
            raise InvalidInput(
                f"dst {ascii(self.dst)[:60]} is not a policy",
                field="dst",
                value=str(self.dst)[:60],
                rule=f"one of {', '.join(get_args(DstPolicy))}",
                fix="dst: vixie, with which each time of day runs once a day",
            )
        if self.anchor is not None:
            as_instant(self.anchor, field="anchor")
            self._search  # noqa: B018 - compiling checks the rule; the result is cached

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first occurrence strictly after the instant, within 400 years."""
        moment = as_instant(moment)
        compiled = (
            self._search if self.anchor is not None else _compiled(self.rule, self.zone, self.dst, moment)
        )
        return compiled.next_from((moment - EPOCH) // SECOND + 1)

    def previous_before(self, moment: datetime) -> datetime | None:
        """Return the last occurrence strictly before the instant; None before the anchor."""
        if self.anchor is None:
            return None
        return self._search.last_to(-((EPOCH - as_instant(moment)) // SECOND) - 1)

    def with_anchor(self, at: datetime) -> Rrule:
        """Return the trigger with an anchor, unless it has one."""
        if self.anchor is not None:
            return self
        # Rounded up, so that an occurrence on the anchor is in the future and counts for COUNT.
        whole = EPOCH + ((as_instant(at) - EPOCH) // MINUTE + 1) * MINUTE
        return self._anchored(whole)

    def with_start(self, at: datetime) -> Rrule:
        """Return the trigger, if it has no anchor, anchored on the day of its first occurrence from `at` on.

        So "every other Monday" that starts on a Sunday begins on the next day, and not a week later.
        """
        if self.anchor is not None:
            return self
        rule = parse_rule(self.rule)
        # A rule that names minutes means whole minutes.
        step = MINUTE if rule.minutes else SECOND
        start = EPOCH - (EPOCH - as_instant(at)) // step * step
        found = _compile(_every_period(rule), self.rule, self.zone, self.dst, start).first_occurrence
        return self._anchored(_anchor_on_day_of(found, rule, start, self.zone))

    def _anchored(self, at: datetime) -> Rrule:
        return Rrule(self.rule, self.zone if self.names_zone else DEFAULT_ZONE, self.dst, at)

    def describe(self) -> str:
        """Return words: `every 2 weeks on Monday at 09:00, Europe/Berlin time`."""
        local = None if self.anchor is None else self.anchor.astimezone(load_zone(self.zone))
        rule_text = describe_rule(parse_rule(self.rule), anchor=local)
        return f"{rule_text}, {self.zone_words}"

    @cached_property
    def _search(self) -> RruleSearch:
        assert self.anchor is not None
        return _compiled(self.rule, self.zone, self.dst, as_instant(self.anchor))


class RruleSearch(NamedTuple):
    """A compiled rule with its anchor; its occurrences are between `first` and `last`."""

    search: OccurrenceSearch
    first: int
    last: int

    @property
    def first_occurrence(self) -> datetime:
        """The first occurrence; a compiled rule has one."""
        found = self.next_from(self.first)
        assert found is not None
        return found

    def next_from(self, instant: int) -> datetime | None:
        """Return the first occurrence at or after the instant, or None."""
        instant = max(instant, self.first, 0)
        found = self.search.next_from(instant) if instant <= self.last else None
        return None if found is None or found > self.last else EPOCH + timedelta(0, found)

    def last_to(self, instant: int) -> datetime | None:
        """Return the last occurrence at or before the instant, or None."""
        instant = min(instant, self.last)
        found = self.search.last_to(instant) if instant >= self.first else None
        return None if found is None or found < self.first else EPOCH + timedelta(0, found)


@lru_cache(maxsize=1024)
def _compiled(text: str, zone_name: str, dst: DstPolicy, anchor: datetime) -> RruleSearch:
    """Compile a rule; cached, so equal triggers share the result."""
    return _compile(parse_rule(text), text, zone_name, dst, anchor)


def _compile(
    rule: RecurrenceRule, text: str, zone_name: str, dst: DstPolicy, anchor: datetime
) -> RruleSearch:
    local = anchor.astimezone(load_zone(zone_name))
    hours, minutes = rule.hours or (local.hour,), rule.minutes or (local.minute,)
    seconds = rule.seconds or (local.second,)
    times = sorted(h * 3600 + m * 60 + s for h, m, s in product(hours, minutes, seconds))
    if len(times) > MAX_TIMES_PER_DAY:
        rule_text = f"at most {MAX_TIMES_PER_DAY} times a day"
        raise rule_error(text, f"has {len(times)} times a day", rule=rule_text, fix="every: 30s")
    days = RuleDays(rule, local)
    search = OccurrenceSearch(
        seconds=_bits(seconds),
        minutes=_bits(minutes),
        hours=_bits(hours),
        days=days,
        periods=offset_periods(zone_name, dst),
    )
    last = _last_instant(rule, days, times, local, zone_name=zone_name, dst=dst)
    compiled = RruleSearch(search, -((EPOCH - anchor) // SECOND), last)
    if compiled.next_from(compiled.first) is None:
        rule_text = "a rule has at least one occurrence within 400 years after its anchor"
        raise rule_error(text, "never fires", rule=rule_text, fix=_suggestion(rule))
    return compiled


def _every_period(rule: RecurrenceRule) -> RecurrenceRule:
    """Return the rule for every period; for every day if the rule takes its day from the anchor."""
    has_days = rule.weekdays or rule.month_days or rule.months
    frequency = rule.frequency if has_days else "DAILY"
    positions = rule.positions if has_days else ()
    return replace(rule, frequency=frequency, interval=1, count=None, until=None, positions=positions)


def _anchor_on_day_of(found: datetime, rule: RecurrenceRule, start: datetime, zone_name: str) -> datetime:
    """Return the start, or on a later day the first time that the rule may have, whatever the clocks do."""
    zone = load_zone(zone_name)
    begin, day = start.astimezone(zone), found.astimezone(zone).date()
    if day == begin.date():
        return start
    clock = time(
        0 if rule.hours else begin.hour,
        0 if rule.minutes else begin.minute,
        0 if rule.seconds else begin.second,
    )
    return datetime.combine(day, clock, tzinfo=zone).astimezone(UTC)


def _bits(numbers: tuple[int, ...]) -> int:
    return sum(1 << number for number in numbers)


def _last_instant(
    rule: RecurrenceRule, days: RuleDays, times: list[int], local: datetime, *, zone_name: str, dst: DstPolicy
) -> int:
    """Return the instant after which there are no occurrences."""
    if rule.count is not None:
        reading = _last_counted(rule.count, days, times, local)
    elif rule.until is not None:
        reading = (rule.until.reading.replace(tzinfo=UTC) - EPOCH) // SECOND
        if rule.until.utc:
            return reading
    else:
        return MAX_INSTANT_S
    return MAX_INSTANT_S if reading is None else _instant_of_reading(reading, zone_name, dst)


def _last_counted(count: int, days: RuleDays, times: list[int], local: datetime) -> int | None:
    """Return the local time of the last counted occurrence, in seconds since 1970 local time."""
    begin = (local.replace(tzinfo=UTC, microsecond=0) - EPOCH) // SECOND + bool(local.microsecond)
    day, left = days.first_from(begin // _DAY), count
    while day < NO_DAY:
        today = [day * _DAY + time for time in times if day * _DAY + time >= begin]
        if left <= len(today):
            return today[left - 1]
        left -= len(today)
        day = days.first_from(day + 1)
    return None


def _instant_of_reading(reading: int, zone_name: str, dst: DstPolicy) -> int:
    """Return the instant of a local time; inside a clock-change gap, the end of the gap."""
    rules = load_zone(zone_name)
    naive = (EPOCH + timedelta(0, reading)).replace(tzinfo=None)
    at = (naive.replace(tzinfo=rules).astimezone(UTC) - EPOCH) // SECOND
    if (EPOCH + timedelta(0, at)).astimezone(rules).replace(tzinfo=None, fold=0) != naive:
        return offset_periods(zone_name, "match").at(at).start - (dst != "vixie")
    if dst == "match":
        # A repeated local time counts the second time too.
        return (naive.replace(tzinfo=rules, fold=1).astimezone(UTC) - EPOCH) // SECOND
    return at


def _suggestion(rule: RecurrenceRule) -> str:
    if rule.until is not None:
        return "an UNTIL after the anchor"
    if rule.month_days and not rule.clamped and rule.frequency in ("MONTHLY", "YEARLY"):
        return "SKIP=BACKWARD for the last day of shorter months"
    return "fewer parts, or another anchor"


def describe_rule(rule: RecurrenceRule, *, anchor: datetime | None) -> str:
    """Return a rule in words; values taken from the anchor are included if the anchor is known."""
    parts = [_every(rule), _days(rule, anchor), _months(rule, anchor), _times(rule, anchor), _end(rule)]
    return " ".join(part for part in parts if part)


def _every(rule: RecurrenceRule) -> str:
    unit = _UNITS[rule.frequency]
    return f"every {unit}" if rule.interval == 1 else f"every {rule.interval} {unit}s"


def _days(rule: RecurrenceRule, anchor: datetime | None) -> str:
    days = [_weekday(one) for one in rule.weekdays]
    if not days and rule.frequency == "WEEKLY" and anchor is not None:
        days = [WEEKDAYS[anchor.weekday()]]
    words = f"on {join_words(days)}" if days else ""
    numbers: Sequence[int] = rule.month_days
    if not numbers and not rule.weekdays and rule.frequency in ("MONTHLY", "YEARLY") and anchor is not None:
        numbers = (anchor.day,)
    if numbers:
        joined = " that is" if days else "on"
        shorter = " or the last day" if rule.clamped and max(numbers) > 28 else ""
        words = f"{words}{joined} {join_words([_month_day(day) for day in numbers])}{shorter}".strip()
    if rule.positions:
        positions = join_words([position_word(at) for at in rule.positions])
        words = f"{words}, only the {positions} of these"
    return words


def _months(rule: RecurrenceRule, anchor: datetime | None) -> str:
    months: Sequence[int] = rule.months
    bare = not (rule.months or rule.month_days or rule.weekdays)
    if bare and rule.frequency == "YEARLY" and anchor is not None:
        months = (anchor.month,)
    return f"in {join_words([MONTHS[month - 1] for month in months])}" if months else ""


def _times(rule: RecurrenceRule, anchor: datetime | None) -> str:
    if anchor is None and not (rule.hours and rule.minutes):
        return ""
    at = anchor or datetime(2000, 1, 1)  # noqa: DTZ001 - only the time of day is used
    hours, minutes = rule.hours or (at.hour,), rule.minutes or (at.minute,)
    seconds = rule.seconds or (at.second,)
    times = [
        f"{h:02}:{m:02}" + (f":{s:02}" if seconds != (0,) else "")
        for h, m, s in product(hours, minutes, seconds)
    ]
    if len(times) > _MAX_TIMES:
        return f"{len(times)} times a day from {times[0]} to {times[-1]}"
    return f"at {join_words(times)}"


def _end(rule: RecurrenceRule) -> str:
    if rule.count is not None:
        return "once" if rule.count == 1 else f"{rule.count} times"
    if rule.until is not None:
        return f"until {rule.until.reading:%Y-%m-%d %H:%M:%S}{' UTC' if rule.until.utc else ''}"
    return ""


def _weekday(one: Weekday) -> str:
    return f"the {position_word(one.nth)} {WEEKDAYS[one.day]}" if one.nth else WEEKDAYS[one.day]


def _month_day(day: int) -> str:
    return f"day {day}" if day > 0 else "the last day" if day == -1 else f"the {position_word(day)} day"
