"""Calendars, and which instants of a trigger they allow, exclude or move.

A calendar rule lists calendars in `only` and `except`. An instant is allowed if every calendar of `only`
covers it and none of `except` does. `roll` decides what happens to an excluded instant:

    skip       it stays an occurrence, marked with the calendar that excludes it
    next       it moves to the first day, from its own day on, with allowed time after it
    previous   it moves to the last day, up to its own day, with allowed time before it

On another day it keeps its local time of day if that is allowed there; otherwise, and on its own day, it
moves to the first allowed instant (`next`) or the last allowed minute (`previous`). Days are those of the
rule's first calendar; the time of day is in the zone of the cron trigger, else in the calendar's zone.
Occurrences that move to the same instant become one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.calendars.calendar import Calendar, CalendarSource, DateRange, Span, WeeklyHours
from timewright.core.calendars.rolling import (
    MAX_CANDIDATES,
    CalendarFilter,
    Occurrence,
    OccurrenceRoller,
    earliest_first,
    latest_last,
)
from timewright.core.input.input_errors import input_error
from timewright.core.moments import DAY, MAX_STORED_INSTANT, MIN_STORED_INSTANT, as_instant, format_instant
from timewright.core.recurrence.triggers import After, AnyOf, AnyTrigger, with_anchor
from timewright.core.recurrence.words import WEEKDAYS
from timewright.errors import InvalidInput, NotFound

__all__ = [
    "NO_CALENDARS",
    "Calendar",
    "CalendarRule",
    "CalendarSource",
    "DateRange",
    "Occurrence",
    "Roll",
    "Span",
    "WeeklyHours",
    "allowed_after",
    "build_filter",
    "check_calendar_rule",
    "occurrence_after",
    "occurrence_before",
    "parse_hours_phrase",
    "parse_rule_phrase",
]

MAX_ROLLED_PER_DAY = 288
MAX_CALENDARS = 20
MAX_COMPARED = 1_000
MAX_SHOWN = 5

_RULE = re.compile(r"(only|except|without)\s+(\S.*)", re.IGNORECASE)
MAX_RULE_LENGTH = 1_024
MAX_HOURS_LENGTH = 200
_TIME = "[0-9]{1,2}:[0-9]{2}"
_HOURS = re.compile(
    rf"\s*(?P<days>[a-z][a-z, -]*?)(?:\s+(?P<start>{_TIME})\s*(?:-|to)\s*(?P<end>{_TIME}))?\s*", re.IGNORECASE
)
_SETS = {"daily": (0, 6), "weekdays": (0, 4), "weekday": (0, 4), "weekend": (5, 6), "weekends": (5, 6)}

NO_CALENDARS: Mapping[str, Calendar] = {}

_MICROSECOND = timedelta(microseconds=1)

Names = tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...]


class Roll(StrEnum):
    """What to do with an excluded occurrence."""

    SKIP = "skip"
    NEXT = "next"
    PREVIOUS = "previous"


class CalendarRule(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"except_": "except"}
):
    """The names of the calendars that apply to a schedule, and what to do with excluded occurrences."""

    only: Names = ()
    except_: Names = ()
    roll: Roll = Roll.SKIP

    def __post_init__(self) -> None:
        both = sorted(set(self.only) & set(self.except_))
        if both:
            raise InvalidInput(
                f"calendar {both[0]!r} is in both `only` and `except`, so nothing would be allowed",
                field="calendar.except",
                value=both[0],
                rule="a calendar may be in only one of the two",
                fix="remove it from one",
            )
        if len(self.names) > MAX_CALENDARS:
            raise InvalidInput(
                f"a rule with {len(self.names)} calendars",
                field="calendar",
                value=len(self.names),
                rule=f"at most {MAX_CALENDARS} calendars",
                fix="merge several calendars into one",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all calendars of the rule."""
        return self.only + self.except_


def occurrence_after(
    trigger: AnyTrigger,
    moment: datetime,
    *,
    rule: CalendarRule | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Occurrence | None:
    """Return the first occurrence strictly after an instant, or None."""
    if rule is None or not rule.names:
        at = trigger.next_after(moment)
        return None if at is None else Occurrence(at)
    moment = max(as_instant(moment), MIN_STORED_INSTANT - _MICROSECOND)
    if moment >= MAX_STORED_INSTANT:
        return None
    if rule.roll is Roll.SKIP:
        return _mark_excluded(trigger.next_after(moment), build_filter(rule, calendars))
    if isinstance(trigger, AnyOf):
        each = (occurrence_after(one, moment, rule=rule, calendars=calendars) for one in trigger.triggers)
        return min((found for found in each if found), key=earliest_first, default=None)
    roller = _build_roller(trigger, rule, calendars, anchor=moment)
    if isinstance(trigger, After):
        return _roll_after_run(trigger.next_after(moment), roller)
    return roller.after(moment)


def occurrence_before(
    trigger: AnyTrigger,
    moment: datetime,
    *,
    rule: CalendarRule | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Occurrence | None:
    """Return the last occurrence strictly before an instant, or None."""
    if rule is None or not rule.names:
        at = trigger.previous_before(moment)
        return None if at is None else Occurrence(at)
    moment = min(as_instant(moment), MAX_STORED_INSTANT)
    if moment <= MIN_STORED_INSTANT:
        return None
    if rule.roll is Roll.SKIP:
        return _mark_excluded(trigger.previous_before(moment), build_filter(rule, calendars))
    if isinstance(trigger, AnyOf):
        each = (occurrence_before(one, moment, rule=rule, calendars=calendars) for one in trigger.triggers)
        return max((found for found in each if found), key=latest_last, default=None)
    return _build_roller(trigger, rule, calendars, anchor=moment).before(moment)


def allowed_after(
    trigger: AnyTrigger,
    moment: datetime,
    *,
    rule: CalendarRule | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Occurrence | None:
    """Return the first occurrence after an instant that no calendar excludes, or None.

    Excluded time is skipped as a whole, so that long exclusions do not exhaust the search limit.
    """
    if rule is None or not rule.names or rule.roll is not Roll.SKIP:
        found = occurrence_after(trigger, moment, rule=rule, calendars=calendars)
        return None if found is None or found.excluded else found
    moment = max(as_instant(moment), MIN_STORED_INSTANT - _MICROSECOND)
    at = build_filter(rule, calendars).allowed_after(trigger, moment)
    return None if at is None else Occurrence(at)


def check_calendar_rule(
    trigger: AnyTrigger, rule: CalendarRule, *, calendars: Mapping[str, Calendar], now: datetime
) -> None:
    """Refuse a rule with an unknown calendar, an impossible `roll`, or no allowed occurrence."""
    build_filter(rule, calendars)
    if isinstance(trigger, After) and trigger.schedule and rule.roll is not Roll.SKIP:
        raise InvalidInput(
            f"{trigger.describe()} cannot move to another day",
            field="calendar.roll",
            value=rule.roll.value,
            rule="an occurrence after another schedule's run cannot move; it can only be skipped",
            fix="roll: skip",
        )
    if not rule.names or trigger.next_after(now) is None:
        return
    if rule.roll is not Roll.SKIP:
        _check_can_roll(trigger, rule, now=now)
    if allowed_after(trigger, now, rule=rule, calendars=calendars) is None:
        raise InvalidInput(
            f"every occurrence of {trigger.describe()} after {format_instant(now)} is excluded "
            f"by {_join_names(rule.names)}",
            field="calendar",
            value=_join_names(rule.names),
            rule=f"at least one occurrence before 2200 is allowed, among the next {MAX_CANDIDATES}",
            fix="another trigger, fewer calendars, or roll: next",
        )


def build_filter(rule: CalendarRule, calendars: Mapping[str, Calendar]) -> CalendarFilter:
    """Return the filter of a rule with its calendars looked up; raise NotFound for an unknown name."""
    return CalendarFilter(
        only=[_find_calendar(name, calendars, field="calendar.only") for name in rule.only],
        excluding=[_find_calendar(name, calendars, field="calendar.except") for name in rule.except_],
    )


def _build_roller(
    trigger: AnyTrigger, rule: CalendarRule, calendars: Mapping[str, Calendar], *, anchor: datetime
) -> OccurrenceRoller:
    forward = rule.roll is Roll.NEXT
    return OccurrenceRoller(with_anchor(trigger, anchor), build_filter(rule, calendars), forward=forward)


def _mark_excluded(at: datetime | None, calendar_filter: CalendarFilter) -> Occurrence | None:
    """Return an unmoved occurrence, with the calendar that excludes it, if any."""
    if at is None or not MIN_STORED_INSTANT <= at <= MAX_STORED_INSTANT:
        return None
    excluding = calendar_filter.excluded_by(at)
    return Occurrence(at, excluded=excluding.name if excluding else "")


def _roll_after_run(at: datetime | None, roller: OccurrenceRoller) -> Occurrence | None:
    """Return the occurrence of a delay after a run; it can only roll forward, never before that run ended."""
    found = _mark_excluded(at, roller.calendar_filter)
    return roller.roll_forward(found.at) if found and found.excluded and roller.forward else found


def _find_calendar(name: str, calendars: Mapping[str, Calendar], *, field: str) -> Calendar:
    if name in calendars:
        return calendars[name]
    known = sorted(islice(calendars, MAX_COMPARED))
    similar = get_close_matches(name, known, n=1) or known
    create = f"create it first: timewright calendar put {shlex.quote(name)}"
    raise NotFound(
        f"no calendar {name!r}",
        field=field,
        value=name,
        rule="a rule may only use calendars of its namespace",
        fix=f"{_join_names(similar)}, or {create}" if similar else create,
    )


def _check_can_roll(trigger: AnyTrigger, rule: CalendarRule, *, now: datetime) -> None:
    if isinstance(trigger, After) and rule.roll is Roll.PREVIOUS:
        raise InvalidInput(
            "a delay after a run cannot move to before that run ended",
            field="calendar.roll",
            value=rule.roll.value,
            rule="previous needs a trigger whose instants are known in advance",
            fix="roll: next",
        )
    if len(trigger.between(now, now + DAY, MAX_ROLLED_PER_DAY + 1)) > MAX_ROLLED_PER_DAY:
        raise InvalidInput(
            f"{trigger.describe()} runs too often to roll",
            field="calendar.roll",
            value=rule.roll.value,
            rule=f"at most {MAX_ROLLED_PER_DAY} occurrences a day can roll",
            fix="roll: skip",
        )


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more


def parse_rule_phrase(text: str, path: str) -> dict[str, Any]:
    """Parse a calendar rule: `only office` or `except holidays, quiet`."""
    found = _RULE.fullmatch(text.strip()) if len(text) <= MAX_RULE_LENGTH else None
    if found is None:
        rule = (
            f"only or except, and the names of calendars, at most {MAX_RULE_LENGTH} characters; or a mapping"
        )
        raise input_error(
            path, text, "is not a calendar rule", rule=rule, fix="except holidays, or {except: [holidays]}"
        )
    word = "only" if found[1].lower() == "only" else "except"
    return {word: [name.strip() for name in found[2].split(",") if name.strip()]}


def parse_hours_phrase(text: str, path: str) -> dict[str, Any]:
    """Parse weekly hours: `mon-fri 09:00-17:00`; without hours, the whole day."""
    found = _HOURS.fullmatch(text) if len(text) <= MAX_HOURS_LENGTH else None
    days = _days(found["days"].lower()) if found is not None else None
    if found is None or not days:
        rule = "days, then start-end; days are mon, mon-fri, sat, sun, weekdays, weekend or daily"
        raise input_error(
            path, text, "is not a phrase for weekly hours", rule=rule, fix="mon-fri 09:00-17:00"
        )
    hours = {"start": f"{found['start']:0>5}", "end": f"{found['end']:0>5}"} if found["start"] else {}
    return {"days": days, **hours}


def _days(text: str) -> list[int] | None:
    days: list[int] = []
    for part in filter(None, re.split(r"[\s,]+", re.sub(r"\s*-\s*", "-", text))):
        first, _, last = part.partition("-")
        begins, ends = _day(first), _day(last or first)
        if part in _SETS:
            begins, ends = _SETS[part]
        if begins is None or ends is None:
            return None
        days += [(begins + step) % 7 for step in range((ends - begins) % 7 + 1)]
    return days


def _day(word: str) -> int | None:
    return next((i for i, name in enumerate(WEEKDAYS) if word in (name.lower(), name[:3].lower())), None)
