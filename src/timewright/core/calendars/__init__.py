"""What calendars do to a trigger: which of its instants count, which are excluded, which move.

A rule says `only` and `except` with the names of calendars. An instant is allowed if it lies in every
calendar of `only` and in none of `except`. What becomes of an excluded one is the rule's `roll`:

    skip       it stays an occurrence, marked with the calendar that excludes it
    next       it moves to the first day, from its own on, with anything allowed after it
    previous   it moves to the last day, up to its own, with anything allowed before it

On another day it keeps its local time of day where that is allowed there; otherwise, and on its own day,
it takes the first allowed instant (`next`) or the last allowed minute (`previous`). Days are those of the
rule's first calendar; the time of day is read in the zone of a cron trigger, or else in the calendar's.
Occurrences that land on one instant are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.calendars.calendar import Calendar, CalendarSource, DateRange, Span, WeeklyHours
from timewright.core.calendars.openings import MOST_CANDIDATES, Openings
from timewright.core.calendars.rolling import Occurrence, Rolling, latest_unmoved, soonest_unmoved
from timewright.core.moments import DAY, EARLIEST_STORED, LATEST_STORED, as_instant, spell_instant
from timewright.core.triggers import After, AnyOf, AnyTrigger, anchored
from timewright.errors import InvalidInput, NotFound

__all__ = [
    "Calendar",
    "CalendarRule",
    "CalendarSource",
    "DateRange",
    "Occurrence",
    "Roll",
    "Span",
    "WeeklyHours",
    "allowed_after",
    "check_rule",
    "occurrence_after",
    "occurrence_before",
]

MOST_A_DAY = 288
MOST_NAMES = 20
MOST_COMPARED = 1_000
MOST_SHOWN = 5

NO_CALENDARS: Mapping[str, Calendar] = {}

_TICK = timedelta(microseconds=1)

Names = tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...]


class Roll(StrEnum):
    """What becomes of an excluded occurrence."""

    SKIP = "skip"
    NEXT = "next"
    PREVIOUS = "previous"


class CalendarRule(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"except_": "except"}
):
    """Which calendars a schedule obeys, by name, and what becomes of the occurrences they exclude."""

    only: Names = ()
    except_: Names = ()
    roll: Roll = Roll.SKIP

    def __post_init__(self) -> None:
        both = sorted(set(self.only) & set(self.except_))
        if both:
            raise InvalidInput(
                f"calendar {both[0]!r} is in `only` and in `except`, so nothing would be allowed",
                field="calendar.except",
                value=both[0],
                rule="a calendar is in one of the two",
                fix="take it out of one",
            )
        if len(self.names) > MOST_NAMES:
            raise InvalidInput(
                f"a rule with {len(self.names)} calendars",
                field="calendar",
                value=len(self.names),
                rule=f"at most {MOST_NAMES} calendars",
                fix="one calendar that holds the days of several",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Every calendar the rule needs."""
        return self.only + self.except_


def occurrence_after(
    trigger: AnyTrigger,
    moment: datetime,
    *,
    rule: CalendarRule | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Occurrence | None:
    """The first occurrence strictly after an instant; nothing when the rule leaves none."""
    if rule is None or not rule.names:
        at = trigger.next_after(moment)
        return None if at is None else Occurrence(at)
    moment = max(as_instant(moment), EARLIEST_STORED - _TICK)
    if moment >= LATEST_STORED:
        return None
    if rule.roll is Roll.SKIP:
        return _marked(trigger.next_after(moment), openings_of(rule, calendars))
    if isinstance(trigger, AnyOf):
        each = (occurrence_after(one, moment, rule=rule, calendars=calendars) for one in trigger.triggers)
        return min((found for found in each if found), key=soonest_unmoved, default=None)
    rolling = _rolling(trigger, rule, calendars, anchor=moment)
    if isinstance(trigger, After):
        return _after_a_run(trigger.next_after(moment), rolling)
    return rolling.after(moment)


def occurrence_before(
    trigger: AnyTrigger,
    moment: datetime,
    *,
    rule: CalendarRule | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Occurrence | None:
    """The last occurrence strictly before an instant; nothing when the rule leaves none."""
    if rule is None or not rule.names:
        at = trigger.previous_before(moment)
        return None if at is None else Occurrence(at)
    moment = min(as_instant(moment), LATEST_STORED)
    if moment <= EARLIEST_STORED:
        return None
    if rule.roll is Roll.SKIP:
        return _marked(trigger.previous_before(moment), openings_of(rule, calendars))
    if isinstance(trigger, AnyOf):
        each = (occurrence_before(one, moment, rule=rule, calendars=calendars) for one in trigger.triggers)
        return max((found for found in each if found), key=latest_unmoved, default=None)
    return _rolling(trigger, rule, calendars, anchor=moment).before(moment)


def allowed_after(
    trigger: AnyTrigger,
    moment: datetime,
    *,
    rule: CalendarRule | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Occurrence | None:
    """The first occurrence after an instant that no calendar excludes; nothing when there is none to come.

    Closed stretches are leapt over, so a rule that leaves nothing is told from one that leaves little.
    """
    if rule is None or not rule.names or rule.roll is not Roll.SKIP:
        found = occurrence_after(trigger, moment, rule=rule, calendars=calendars)
        return None if found is None or found.excluded else found
    moment = max(as_instant(moment), EARLIEST_STORED - _TICK)
    at = openings_of(rule, calendars).allowed_after(trigger, moment)
    return None if at is None else Occurrence(at)


def check_rule(
    trigger: AnyTrigger, rule: CalendarRule, *, calendars: Mapping[str, Calendar], now: datetime
) -> None:
    """Refuse a rule that names an unknown calendar, that nothing can roll under, or that allows nothing."""
    openings_of(rule, calendars)
    if isinstance(trigger, After) and trigger.schedule and rule.roll is not Roll.SKIP:
        raise InvalidInput(
            f"{trigger.describe()} cannot move to another day",
            field="calendar.roll",
            value=rule.roll.value,
            rule="what follows another schedule runs when that ends, or is skipped",
            fix="roll: skip",
        )
    if not rule.names or trigger.next_after(now) is None:
        return
    if rule.roll is not Roll.SKIP:
        _check_can_roll(trigger, rule, now=now)
    if allowed_after(trigger, now, rule=rule, calendars=calendars) is None:
        raise InvalidInput(
            f"every occurrence of {trigger.describe()} after {spell_instant(now)} is excluded "
            f"by {_listed(rule.names)}",
            field="calendar",
            value=_listed(rule.names),
            rule=f"something is allowed before 2200, among the next {MOST_CANDIDATES} chances",
            fix="another trigger, fewer calendars, or roll: next",
        )


def openings_of(rule: CalendarRule, calendars: Mapping[str, Calendar]) -> Openings:
    """The rule with its calendars found; a name nobody knows is refused."""
    return Openings(
        only=[_named(name, calendars, field="calendar.only") for name in rule.only],
        without=[_named(name, calendars, field="calendar.except") for name in rule.except_],
    )


def _rolling(
    trigger: AnyTrigger, rule: CalendarRule, calendars: Mapping[str, Calendar], *, anchor: datetime
) -> Rolling:
    forward = rule.roll is Roll.NEXT
    return Rolling(anchored(trigger, anchor), openings_of(rule, calendars), forward=forward)


def _marked(at: datetime | None, openings: Openings) -> Occurrence | None:
    """An occurrence that stays where it is, with the calendar that excludes it."""
    if at is None or not EARLIEST_STORED <= at <= LATEST_STORED:
        return None
    closed_by = openings.closed_by(at)
    return Occurrence(at, excluded=closed_by.name if closed_by else "")


def _after_a_run(at: datetime | None, rolling: Rolling) -> Occurrence | None:
    """A delay after a run has no other instants, and cannot move to before that run ended."""
    found = _marked(at, rolling.openings)
    return rolling.moved(found.at) if found and found.excluded and rolling.forward else found


def _named(name: str, calendars: Mapping[str, Calendar], *, field: str) -> Calendar:
    if name in calendars:
        return calendars[name]
    known = sorted(islice(calendars, MOST_COMPARED))
    near = get_close_matches(name, known, n=1) or known
    raise NotFound(
        f"no calendar {name!r}",
        field=field,
        value=name,
        rule="a rule names calendars of its namespace",
        fix=f"{_listed(near)}, or make it first" if near else "make it first",
    )


def _check_can_roll(trigger: AnyTrigger, rule: CalendarRule, *, now: datetime) -> None:
    if isinstance(trigger, After) and rule.roll is Roll.PREVIOUS:
        raise InvalidInput(
            "a delay after a run cannot move to before that run ended",
            field="calendar.roll",
            value=rule.roll.value,
            rule="previous needs a trigger that knows its instants ahead of time",
            fix="roll: next",
        )
    if len(trigger.between(now, now + DAY, MOST_A_DAY + 1)) > MOST_A_DAY:
        raise InvalidInput(
            f"{trigger.describe()} is too often to roll",
            field="calendar.roll",
            value=rule.roll.value,
            rule=f"at most {MOST_A_DAY} occurrences a day move; oftener, they land where others are already",
            fix="roll: skip",
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return ", ".join(names[:MOST_SHOWN]) + more
