"""Calendars: what they cover, what they exclude, and where excluded occurrences move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from timewright.core.calendars import (
    Calendar,
    CalendarRule,
    DateRange,
    Occurrence,
    Roll,
    Span,
    WeeklyHours,
    allowed_after,
    check_calendar_rule,
    occurrence_after,
    occurrence_before,
)
from timewright.core.calendars.calendar import MAX_DATES, MAX_WEEKLY
from timewright.core.moments import DAY, HOUR, MAX_STORED_INSTANT, MINUTE
from timewright.core.recurrence.triggers import After, AnyOf, AnyTrigger, Cron, Every, Manual, Once
from timewright.errors import InvalidInput, InvalidInstant, InvalidZone, NotFound

HALF_HOUR = 30 * MINUTE
TICK = timedelta(microseconds=1)
WEEKENDS = Calendar(name="weekends", weekly=(WeeklyHours(days=(5, 6)),))
OFFICE = Calendar(
    name="office",
    zone="Europe/Berlin",
    weekly=(WeeklyHours(days=(0, 1, 2, 3, 4), start="09:00", end="17:00"),),
)
CHRISTMAS = Calendar(name="christmas", yearly=("12-25", "12-26"))
ALWAYS = Calendar(name="always", weekly=(WeeklyHours(days=(0, 1, 2, 3, 4, 5, 6)),))
CALENDARS = {calendar.name: calendar for calendar in (WEEKENDS, OFFICE, CHRISTMAS, ALWAYS)}


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def berlin(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin"))


def upcoming(
    trigger: AnyTrigger,
    since: datetime,
    count: int,
    *,
    rule: CalendarRule | None,
    calendars: Mapping[str, Calendar] = CALENDARS,
) -> list[Occurrence]:
    found: list[Occurrence] = []
    while len(found) < count:
        following = occurrence_after(trigger, since, rule=rule, calendars=calendars)
        if following is None:
            break
        found.append(following)
        since = following.at
    return found


# ------------------------------------------------------------------------------------- coverage


@pytest.mark.parametrize(
    ("moment", "inside"),
    [
        ("2026-03-09T08:59:59.999999", False),
        ("2026-03-09T09:00", True),
        ("2026-03-09T16:59:59.999999", True),
        ("2026-03-09T17:00", False),
        ("2026-03-14T12:00", False),
    ],
)
def test_weekly_hours_hold_their_start_and_not_their_end(moment: str, inside: bool) -> None:
    assert OFFICE.covers(berlin(moment)) is inside


def test_a_day_belongs_to_the_calendars_own_zone() -> None:
    new_year = Calendar(name="new-year", zone="Pacific/Auckland", dates=(date(2027, 1, 1),))
    assert new_year.covers(utc("2026-12-31T11:00"))
    assert not new_year.covers(utc("2026-12-31T10:59:59"))
    assert not new_year.covers(utc("2027-01-01T11:00"))


def test_hours_up_to_midnight_are_written_24_00() -> None:
    night = Calendar(name="night", weekly=(WeeklyHours(days=(0,), start="22:00", end="24:00"),))
    assert night.covers(utc("2026-03-09T23:59:59.999999"))
    assert not night.covers(utc("2026-03-10T00:00"))


def test_hours_may_be_written_to_the_second() -> None:
    drill = Calendar(name="drill", weekly=(WeeklyHours(days=(0,), start="09:00:30", end="09:00:45"),))
    inside = [
        second for second in range(60) if drill.covers(utc("2026-03-09T09:00") + timedelta(seconds=second))
    ]
    assert inside == list(range(30, 45))


def test_a_range_holds_both_its_days_and_a_span_not_its_end() -> None:
    closed = Calendar(
        name="closed",
        ranges=(DateRange(first=date(2026, 8, 1), last=date(2026, 8, 15)),),
        spans=(Span(start=utc("2026-09-01T10:00"), end=utc("2026-09-01T10:30")),),
    )
    assert closed.covers(utc("2026-08-01T00:00"))
    assert closed.covers(utc("2026-08-15T23:59:59"))
    assert not closed.covers(utc("2026-08-16T00:00"))
    assert closed.covers(utc("2026-09-01T10:00"))
    assert not closed.covers(utc("2026-09-01T10:30"))


def test_the_29th_of_february_counts_in_leap_years_only() -> None:
    leap = Calendar(name="leap", yearly=("02-29",))
    assert leap.covers(utc("2028-02-29T12:00"))
    assert not leap.covers(utc("2027-02-28T12:00"))
    assert leap.next_boundary(utc("2097-01-01T00:00")) is not None


def test_an_empty_calendar_covers_nothing() -> None:
    assert not Calendar(name="empty").covers(utc("2026-03-09T12:00"))


def test_a_calendar_has_one_canonical_form_in_any_order_of_entries() -> None:
    one = Calendar(
        name="x",
        dates=(date(2026, 5, 2), date(2026, 5, 1), date(2026, 5, 2)),
        yearly=("12-26", "12-25"),
        ranges=(
            DateRange(first=date(2026, 8, 8), last=date(2026, 8, 9)),
            DateRange(first=date(2026, 8, 1), last=date(2026, 8, 7)),
        ),
        spans=(
            Span(start=utc("2026-09-01T10:00"), end=utc("2026-09-01T12:00")),
            Span(start=utc("2026-09-01T09:00"), end=utc("2026-09-01T11:00")),
        ),
    )
    assert one.dates == (date(2026, 5, 1), date(2026, 5, 2))
    assert one.yearly == ("12-25", "12-26")
    assert one.ranges == (DateRange(first=date(2026, 8, 1), last=date(2026, 8, 9)),)
    assert one.spans == (Span(start=utc("2026-09-01T09:00"), end=utc("2026-09-01T12:00")),)


def test_a_calendar_and_a_rule_survive_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(OFFICE), type=Calendar) == OFFICE
    rule = CalendarRule(only=("office",), except_=("christmas",), roll=Roll.NEXT)
    wire = msgspec.json.encode(rule)
    assert msgspec.json.decode(wire) == {"only": ["office"], "except": ["christmas"], "roll": "next"}
    assert msgspec.json.decode(wire, type=CalendarRule) == rule


def test_an_instant_without_an_offset_is_refused() -> None:
    with pytest.raises(InvalidInstant):
        OFFICE.covers(datetime(2026, 3, 9, 12, 0))


@pytest.mark.parametrize(
    ("make", "field", "fix"),
    [
        (lambda: WeeklyHours(days=(0,), start="22:00", end="06:00"), "weekly.end", "two entries"),
        (lambda: WeeklyHours(days=(0,), start="09:00", end="09:00"), "weekly.end", "two entries"),
        (lambda: WeeklyHours(days=(0,), start="9:00"), "weekly.start", "in quotes"),
        (lambda: WeeklyHours(days=(0,), end="24:01"), "weekly.end", "in quotes"),
        (lambda: WeeklyHours(days=(0,), end="٠٩:٠٠"), "weekly.end", "in quotes"),
        (lambda: WeeklyHours(days=(7,)), "weekly.days", "Monday to Friday"),
        (lambda: WeeklyHours(days=()), "weekly.days", "Monday to Friday"),
        (
            lambda: DateRange(first=date(2026, 2, 2), last=date(2026, 2, 1)),
            "ranges.last",
            "first: 2026-02-01",
        ),
        (lambda: Span(start=utc("2026-01-01"), end=utc("2026-01-01")), "spans.end", "swap"),
        (lambda: Calendar(name="x", yearly=("13-01",)), "yearly", "12-25"),
        (lambda: Calendar(name="x", yearly=("02-30",)), "yearly", "12-25"),
        (lambda: Calendar(name="x", yearly=("2-1",)), "yearly", "12-25"),
        (lambda: Calendar(name="x", dates=(utc("2026-01-01"),)), "dates", "spans hold instants"),
        (lambda: Calendar(name="x", weekly=WEEKENDS.weekly * (MAX_WEEKLY + 1)), "weekly", "two calendars"),
        (lambda: Calendar(name="x", dates=(date(2026, 1, 1),) * (MAX_DATES + 1)), "dates", "ranges"),
        (lambda: CalendarRule(only=("a", "b"), except_=("b",)), "calendar.except", "remove it"),
        (lambda: CalendarRule(only=tuple(f"c{n}" for n in range(21))), "calendar", "into one"),
    ],
)
def test_an_invalid_calendar_is_refused_with_its_field_and_a_fix(
    make: Callable[[], object], field: str, fix: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()
    assert refused.value.field == field
    assert refused.value.rule
    assert fix in (refused.value.fix or "")


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(InvalidZone):
        Calendar(name="x", zone="Europe/Berlim")


def test_unknown_fields_of_a_calendar_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="holidays"):
        msgspec.convert({"name": "x", "holidays": "DE"}, Calendar)


# ------------------------------------------------------------------------------------------------------ skip


def test_without_a_rule_the_trigger_decides_alone() -> None:
    daily = Cron("0 9 * * *")
    assert occurrence_after(daily, utc("2026-03-13T09:00")) == Occurrence(utc("2026-03-14T09:00"))
    assert occurrence_before(daily, utc("2026-03-13T09:00")) == Occurrence(utc("2026-03-12T09:00"))
    assert occurrence_after(Manual(), utc("2026-03-13T09:00")) is None


def test_a_skipped_occurrence_stays_and_names_the_calendar_that_excludes_it() -> None:
    rule = CalendarRule(except_=("weekends",))
    found = upcoming(Cron("0 9 * * *"), utc("2026-03-13T00:00"), 4, rule=rule)
    assert [(str(o.at.date()), o.excluded) for o in found] == [
        ("2026-03-13", ""),
        ("2026-03-14", "weekends"),
        ("2026-03-15", "weekends"),
        ("2026-03-16", ""),
    ]


def test_an_instant_must_lie_in_every_only_and_in_no_except() -> None:
    rule = CalendarRule(only=("office", "always"), except_=("christmas",))
    for text, excluded in [
        ("2026-12-24T10:00", ""),
        ("2026-12-25T10:00", "christmas"),
        ("2026-12-24T20:00", "office"),
    ]:
        found = occurrence_after(Once(berlin(text)), utc("2026-12-01T00:00"), rule=rule, calendars=CALENDARS)
        assert found == Occurrence(berlin(text), excluded)


def test_the_next_one_that_will_run_is_found_beyond_those_that_will_not() -> None:
    rule = CalendarRule(except_=("weekends",))
    friday_evening, monday = utc("2026-03-13T23:59:59"), utc("2026-03-16T00:00")
    secondly = Every(timedelta(seconds=1), utc("2026-01-01"))
    assert allowed_after(secondly, friday_evening, rule=rule, calendars=CALENDARS) == Occurrence(monday)
    rolled = CalendarRule(except_=("weekends",), roll=Roll.NEXT)
    assert allowed_after(Cron("0 0 14 3 *"), friday_evening, rule=rolled, calendars=CALENDARS) == Occurrence(
        monday, moved_from=utc("2026-03-14T00:00")
    )
    always = CalendarRule(except_=("always",))
    assert allowed_after(secondly, friday_evening, rule=always, calendars=CALENDARS) is None
    assert allowed_after(secondly, friday_evening) == occurrence_after(secondly, friday_evening)


def test_a_boundary_is_the_same_instant_in_every_zone() -> None:
    asked = berlin("2026-03-28T12:00")
    assert OFFICE.next_boundary(asked) == OFFICE.next_boundary(asked.astimezone(UTC))


def test_an_unknown_calendar_is_not_found_and_a_similar_one_is_suggested() -> None:
    rule = CalendarRule(except_=("weekend",))
    with pytest.raises(NotFound) as refused:
        occurrence_after(Cron("0 9 * * *"), utc("2026-03-13T00:00"), rule=rule, calendars=CALENDARS)
    assert refused.value.field == "calendar.except"
    assert refused.value.fix is not None
    assert refused.value.fix.startswith("weekends")


# ------------------------------------------------------------------------------------------------------ roll


def test_a_weekend_run_moves_to_monday_at_the_same_local_time() -> None:
    monthly = Cron("0 9 1 * *", zone="America/New_York")
    rule = CalendarRule(except_=("weekends",), roll=Roll.NEXT)
    found = occurrence_after(monthly, utc("2026-02-20T00:00"), rule=rule, calendars=CALENDARS)
    # 1 March 2026 is a Sunday; a week later the clocks change, the local time stays.
    assert found == Occurrence(utc("2026-03-02T14:00"), moved_from=utc("2026-03-01T14:00"))


def test_a_weekend_run_moves_back_to_friday() -> None:
    rule = CalendarRule(except_=("weekends",), roll=Roll.PREVIOUS)
    found = occurrence_after(Cron("0 9 1 * *"), utc("2026-02-20T00:00"), rule=rule, calendars=CALENDARS)
    assert found == Occurrence(utc("2026-02-27T09:00"), moved_from=utc("2026-03-01T09:00"))


def test_moved_occurrences_at_the_same_instant_become_one() -> None:
    rule = CalendarRule(except_=("weekends",), roll=Roll.NEXT)
    found = upcoming(Cron("0 9,17 * * *"), utc("2026-03-13T12:00"), 4, rule=rule)
    assert [o.at for o in found] == [
        utc("2026-03-13T17:00"),
        utc("2026-03-16T09:00"),
        utc("2026-03-16T17:00"),
        utc("2026-03-17T09:00"),
    ]
    assert all(o.moved_from is None for o in found)


@pytest.mark.parametrize(
    ("roll", "lands", "left"),
    [
        (Roll.NEXT, "2026-03-16T09:00", "2026-03-15T09:00"),
        (Roll.PREVIOUS, "2026-03-13T09:00", "2026-03-14T09:00"),
    ],
)
def test_of_several_moved_to_one_instant_the_nearest_original_is_named(
    roll: Roll, lands: str, left: str
) -> None:
    rule = CalendarRule(except_=("weekends",), roll=roll)
    found = occurrence_after(Cron("0 9 * * 6,0"), utc("2026-03-13T00:00"), rule=rule, calendars=CALENDARS)
    assert found == Occurrence(utc(lands), moved_from=utc(left))


@pytest.mark.parametrize("roll", [Roll.NEXT, Roll.PREVIOUS])
def test_an_occurrence_years_away_is_found_without_a_scan_of_every_day(roll: Roll) -> None:
    leap_day, rule = Cron("0 9 29 2 *"), CalendarRule(except_=("weekends",), roll=roll)
    ahead = occurrence_after(leap_day, utc("2097-01-01T00:00"), rule=rule, calendars=CALENDARS)
    assert ahead == Occurrence(utc("2104-02-29T09:00"))
    behind = occurrence_before(leap_day, utc("2104-02-01T00:00"), rule=rule, calendars=CALENDARS)
    assert behind == Occurrence(utc("2096-02-29T09:00"))


def test_a_run_before_opening_waits_for_the_opening_and_one_after_closing_for_the_next_day() -> None:
    rule = CalendarRule(only=("office",), roll=Roll.NEXT)
    zone = "Europe/Berlin"
    early = upcoming(Cron("0 3 * * *", zone), berlin("2026-03-12T00:00"), 3, rule=rule)
    assert [o.at for o in early] == [
        berlin("2026-03-12T09:00"),
        berlin("2026-03-13T09:00"),
        berlin("2026-03-16T09:00"),
    ]
    late = upcoming(Cron("30 18 * * *", zone), berlin("2026-03-12T12:00"), 2, rule=rule)
    assert [o.at for o in late] == [berlin("2026-03-13T09:00"), berlin("2026-03-16T09:00")]


def test_a_run_after_closing_moves_back_to_the_last_minute_of_its_day() -> None:
    rule = CalendarRule(only=("office",), roll=Roll.PREVIOUS)
    late = Cron("30 18 * * *", "Europe/Berlin")
    found = occurrence_after(late, berlin("2026-03-12T12:00"), rule=rule, calendars=CALENDARS)
    assert found == Occurrence(berlin("2026-03-12T16:59"), moved_from=berlin("2026-03-12T18:30"))


def test_an_interval_rolls_by_the_days_of_the_first_calendar() -> None:
    tokyo = Calendar(name="tokyo", zone="Asia/Tokyo", dates=(date(2026, 5, 5),))
    rule = CalendarRule(except_=("tokyo",), roll=Roll.NEXT)
    weekly = Every(7 * DAY, utc("2026-05-05T14:30"))  # 23:30 on the fifth in Tokyo
    found = occurrence_after(weekly, utc("2026-05-05T00:00"), rule=rule, calendars={"tokyo": tokyo})
    assert found == Occurrence(utc("2026-05-06T14:30"), moved_from=utc("2026-05-05T14:30"))


def test_a_list_of_triggers_rolls_each_in_its_own_zone() -> None:
    both = AnyOf((Cron("0 9 * * 6", "Asia/Tokyo"), Cron("0 9 * * 6", "America/New_York")))
    rule = CalendarRule(except_=("weekends",), roll=Roll.NEXT)
    found = upcoming(both, utc("2026-06-12T12:00"), 3, rule=rule)
    assert [o.at for o in found] == [
        utc("2026-06-15T00:00"),
        utc("2026-06-15T13:00"),
        utc("2026-06-22T00:00"),
    ]
    last = occurrence_before(both, utc("2026-06-15T13:00"), rule=rule, calendars=CALENDARS)
    assert last == Occurrence(utc("2026-06-15T00:00"), moved_from=utc("2026-06-13T00:00"))


def test_a_delay_after_a_run_rolls_on_by_itself() -> None:
    rule = CalendarRule(only=("office",), roll=Roll.NEXT)
    found = occurrence_after(After(HOUR), berlin("2026-03-13T16:30"), rule=rule, calendars=CALENDARS)
    assert found == Occurrence(berlin("2026-03-16T09:00"), moved_from=berlin("2026-03-13T17:30"))
    inside = occurrence_after(After(HOUR), berlin("2026-03-13T10:00"), rule=rule, calendars=CALENDARS)
    assert inside == Occurrence(berlin("2026-03-13T11:00"))


def test_a_single_instant_is_found_where_it_moved_to_even_from_behind_it() -> None:
    once = Once(utc("2026-03-14T09:00"))
    rule = CalendarRule(except_=("weekends",), roll=Roll.NEXT)
    moved = Occurrence(utc("2026-03-16T09:00"), moved_from=utc("2026-03-14T09:00"))
    assert occurrence_after(once, utc("2026-03-15T09:00"), rule=rule, calendars=CALENDARS) == moved
    assert occurrence_after(once, utc("2026-03-16T09:00"), rule=rule, calendars=CALENDARS) is None
    assert occurrence_before(once, utc("2026-04-01T00:00"), rule=rule, calendars=CALENDARS) == moved
    assert occurrence_before(once, utc("2026-03-16T09:00"), rule=rule, calendars=CALENDARS) is None


def test_a_local_time_in_a_gap_moves_just_after_the_gap() -> None:
    rule = CalendarRule(only=("sundays",), roll=Roll.NEXT)
    sundays = Calendar(name="sundays", zone="America/New_York", weekly=(WeeklyHours(days=(6,)),))
    friday = Cron("30 2 6 3 *", "America/New_York")
    found = occurrence_after(friday, utc("2026-03-01T00:00"), rule=rule, calendars={"sundays": sundays})
    assert found == Occurrence(utc("2026-03-08T07:00"), moved_from=utc("2026-03-06T07:30"))


def test_nothing_moves_to_a_day_that_a_country_skipped() -> None:
    friday = Once(datetime(2011, 12, 29, 9, tzinfo=ZoneInfo("Pacific/Apia")))
    closed = Calendar(name="closed", zone="Pacific/Apia", dates=(date(2011, 12, 29),))
    rule = CalendarRule(except_=("closed",), roll=Roll.NEXT)
    found = occurrence_after(friday, utc("2011-12-28T00:00"), rule=rule, calendars={"closed": closed})
    assert found is not None
    assert found.at == datetime(2011, 12, 31, 9, tzinfo=ZoneInfo("Pacific/Apia"))


def test_a_run_moves_at_most_four_hundred_days() -> None:
    near = Calendar(name="only", dates=(date(2027, 3, 1),))
    far = Calendar(name="only", dates=(date(2027, 6, 1),))
    once, rule = Once(utc("2026-03-01T09:00")), CalendarRule(only=("only",), roll=Roll.NEXT)
    assert occurrence_after(once, utc("2026-01-01T00:00"), rule=rule, calendars={"only": near}) is not None
    assert occurrence_after(once, utc("2026-01-01T00:00"), rule=rule, calendars={"only": far}) is None


# ------------------------------------------------------------------------------- against a scan of half-hours

FIRST_DAY = date(2026, 3, 1)  # clocks change in New York on 8 March and in Berlin on 29 March
DAYS = 35
SCAN_START = utc("2026-03-01T00:00") - DAY
SLOTS = (DAYS + 2) * 48
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")

half_hours = st.integers(0, 48).map(lambda n: f"{n // 2:02d}:{n % 2 * 30:02d}")
days_of_scan = st.integers(0, DAYS).map(lambda n: FIRST_DAY + n * DAY)
instants_of_scan = st.integers(0, SLOTS).map(lambda n: SCAN_START + n * HALF_HOUR)


@st.composite
def hours(draw: st.DrawFn) -> WeeklyHours:
    start, end = sorted(draw(st.lists(half_hours, min_size=2, max_size=2, unique=True)))
    days = draw(st.lists(st.integers(0, 6), min_size=1, max_size=7))
    return WeeklyHours(days=tuple(days), start=start, end=end)


@st.composite
def calendar_of_scan(draw: st.DrawFn, name: str) -> Calendar:
    spans = [
        sorted(draw(st.tuples(instants_of_scan, instants_of_scan))) for _ in range(draw(st.integers(0, 2)))
    ]
    ranges = [sorted(draw(st.tuples(days_of_scan, days_of_scan))) for _ in range(draw(st.integers(0, 1)))]
    return Calendar(
        name=name,
        zone=draw(st.sampled_from(ZONES)),
        dates=tuple(draw(st.lists(days_of_scan, max_size=5))),
        yearly=tuple(f"{day:%m-%d}" for day in draw(st.lists(days_of_scan, max_size=2))),
        ranges=tuple(DateRange(first=first, last=last) for first, last in ranges),
        weekly=tuple(draw(st.lists(hours(), max_size=3))),
        spans=tuple(Span(start=start, end=end) for start, end in spans if start < end),
    )


@st.composite
def rules_of_scan(draw: st.DrawFn, roll: Roll | None = None) -> tuple[CalendarRule, dict[str, Calendar]]:
    count = draw(st.integers(1, 3))
    calendars = {f"c{n}": draw(calendar_of_scan(f"c{n}")) for n in range(count)}
    split = draw(st.integers(0, count))
    chosen = roll or draw(st.sampled_from(Roll))
    return CalendarRule(
        only=tuple(calendars)[:split], except_=tuple(calendars)[split:], roll=chosen
    ), calendars


triggers_of_scan: st.SearchStrategy[AnyTrigger] = st.one_of(
    st.builds(Every, st.sampled_from((5 * HOUR, 7 * HOUR, DAY, 25 * HOUR)), instants_of_scan),
    st.builds(
        Cron,
        st.sampled_from(("30 2 * * *", "7 9,17 * * *", "0 */6 * * *", "30 1 * * 0,1", "0 12 1,15 * *")),
        st.sampled_from(ZONES),
    ),
    st.builds(Once, instants_of_scan),
)


def holds(calendar: Calendar, moment: datetime) -> bool:
    """Coverage, straight from the definition."""
    local = moment.astimezone(ZoneInfo(calendar.zone))
    reading = f"{local:%H:%M:%S}"
    return (
        local.date() in calendar.dates
        or f"{local:%m-%d}" in calendar.yearly
        or any(run.first <= local.date() <= run.last for run in calendar.ranges)
        or any(local.weekday() in w.days and w.start <= reading < w.end for w in calendar.weekly)
        or any(span.start <= moment < span.end for span in calendar.spans)
    )


class Scan:
    """A reference implementation that checks every half-hour of a month; slow but simple."""

    def __init__(self, trigger: AnyTrigger, rule: CalendarRule, calendars: dict[str, Calendar]) -> None:
        self.trigger, self.rule = trigger, rule
        self.zone = ZoneInfo(calendars[rule.names[0]].zone)
        self.clock = ZoneInfo(trigger.zone) if isinstance(trigger, Cron) else self.zone
        self.slots = [SCAN_START + n * HALF_HOUR for n in range(SLOTS)]
        self.shown = {slot: slot.astimezone(self.clock).replace(tzinfo=None, fold=0) for slot in self.slots}
        self.dated = {slot: slot.astimezone(self.zone).date() for slot in self.slots}
        self.open = [slot for slot in self.slots if self.allows(slot, calendars)]
        self.calendars = calendars

    def allows(self, moment: datetime, calendars: dict[str, Calendar]) -> bool:
        inside = all(holds(calendars[name], moment) for name in self.rule.only)
        return inside and not any(holds(calendars[name], moment) for name in self.rule.except_)

    def day(self, moment: datetime) -> date:
        return moment.astimezone(self.zone).date()

    def same_time(self, left: datetime, day: date) -> datetime | None:
        """The first minute of a day with the local time of `left`, or the first after a gap."""
        reading = left.astimezone(self.clock).time()
        on_day = [n for n, slot in enumerate(self.slots) if n and self.dated[slot] == day]
        for slot, before in ((self.slots[n], self.slots[n - 1]) for n in on_day):
            begins, follows = self.shown[slot], self.shown[before] + HALF_HOUR
            shown = datetime.combine(begins, reading)
            if begins <= shown < begins + HALF_HOUR:
                return slot + (shown - begins)
            if follows <= shown < begins:
                return slot
        return None

    def landing(self, left: datetime) -> datetime | None:
        forward = self.rule.roll is Roll.NEXT
        beyond = [slot for slot in self.open if (slot > left if forward else slot < left)]
        if not beyond:
            return None
        nearest = min(beyond) if forward else max(beyond)
        day = self.day(nearest)
        if day != self.day(left):
            same = self.same_time(left, day)
            if same is not None and self.allows(same, self.calendars):
                return same
            on_day = [slot for slot in self.open if self.dated[slot] == day]
            nearest = min(on_day) if forward else max(on_day)
        return nearest if forward else nearest + 29 * MINUTE

    def window(self) -> tuple[datetime, datetime]:
        """The time between the first and the last allowed day, where the scan's edges have no effect."""
        if not self.open:
            return SCAN_START, SCAN_START
        first, last = self.dated[self.open[0]], self.dated[self.open[-1]]
        inner = [slot for slot in self.slots if first < self.dated[slot] < last]
        return (inner[0], inner[-1] + HALF_HOUR) if inner else (SCAN_START, SCAN_START)

    def occurrences(self) -> list[datetime]:
        start, end = self.window()
        found: set[datetime] = set()
        for at in self.trigger.between(SCAN_START - TICK, SCAN_START + SLOTS * HALF_HOUR - TICK):
            landed = at if self.allows(at, self.calendars) else self.landing(at)
            if landed is not None and start <= landed < end:
                found.add(landed)
        return sorted(found)


@given(calendar=calendar_of_scan("c"), minute=st.integers(0, SLOTS * 30))
def test_a_calendar_covers_what_its_definition_says(calendar: Calendar, minute: int) -> None:
    moment = SCAN_START + minute * MINUTE
    assert calendar.covers(moment) is holds(calendar, moment)


@given(calendar=calendar_of_scan("c"))
@settings(max_examples=30)
def test_coverage_does_not_change_between_two_boundaries(calendar: Calendar) -> None:
    edges = {SCAN_START}
    edge = calendar.next_boundary(SCAN_START)
    while edge is not None and edge < SCAN_START + SLOTS * HALF_HOUR:
        edges.add(edge)
        edge = calendar.next_boundary(edge)
    slots = [SCAN_START + n * HALF_HOUR for n in range(SLOTS)]
    changes = {slot for before, slot in pairwise(slots) if holds(calendar, before) != holds(calendar, slot)}
    assert changes <= edges


@given(ruled=rules_of_scan(), trigger=triggers_of_scan, start=instants_of_scan)
@settings(max_examples=60)
def test_the_next_occurrence_is_strictly_later_and_the_one_before_it_is_not(
    ruled: tuple[CalendarRule, dict[str, Calendar]], trigger: AnyTrigger, start: datetime
) -> None:
    rule, calendars = ruled
    found = occurrence_after(trigger, start, rule=rule, calendars=calendars)
    if found is None:
        return
    assert found.at > start
    before = occurrence_before(trigger, found.at, rule=rule, calendars=calendars)
    assert before is None or before.at <= start
    assert occurrence_after(trigger, found.at - TICK, rule=rule, calendars=calendars) == found
    assert occurrence_before(trigger, found.at + TICK, rule=rule, calendars=calendars) == found


NIGHTS = Calendar(
    name="c0",
    zone="America/New_York",
    weekly=(WeeklyHours(days=(6,), start="01:30", end="02:30"), WeeklyHours(days=(2,), start="12:00")),
)


@given(ruled=st.one_of(rules_of_scan(Roll.NEXT), rules_of_scan(Roll.PREVIOUS)), trigger=triggers_of_scan)
@example(
    ruled=(CalendarRule(only=("c0",), roll=Roll.NEXT), {"c0": NIGHTS}),
    trigger=Cron("30 2 * * *", "America/New_York"),
)
@example(
    ruled=(CalendarRule(only=("c0",), roll=Roll.PREVIOUS), {"c0": NIGHTS}),
    trigger=Every(5 * HOUR, SCAN_START),
)
@settings(max_examples=40)
def test_moved_occurrences_agree_with_a_scan_of_every_half_hour(
    ruled: tuple[CalendarRule, dict[str, Calendar]], trigger: AnyTrigger
) -> None:
    rule, calendars = ruled
    scan = Scan(trigger, rule, calendars)
    start, end = scan.window()
    forwards: list[datetime] = []
    found = occurrence_after(trigger, start - TICK, rule=rule, calendars=calendars)
    while found is not None and found.at < end:
        assert not found.excluded
        forwards.append(found.at)
        found = occurrence_after(trigger, found.at, rule=rule, calendars=calendars)
    backwards: list[datetime] = []
    found = occurrence_before(trigger, end, rule=rule, calendars=calendars)
    while found is not None and found.at >= start:
        backwards.append(found.at)
        found = occurrence_before(trigger, found.at, rule=rule, calendars=calendars)
    assert forwards == scan.occurrences()
    assert backwards == forwards[::-1]


# ----------------------------------------------------------------------------------------- nothing is allowed


@pytest.mark.parametrize("roll", list(Roll))
@pytest.mark.parametrize(
    "trigger",
    [Cron("* * * * *"), Cron("0 0 29 2 *"), Every(timedelta(seconds=1), utc("2026-01-01")), After(HOUR)],
)
def test_a_rule_that_excludes_everything_does_not_loop(trigger: AnyTrigger, roll: Roll) -> None:
    rule = CalendarRule(except_=("always",), roll=roll)
    found = occurrence_after(trigger, utc("2026-03-09T12:00"), rule=rule, calendars=CALENDARS)
    before = occurrence_before(trigger, utc("2026-03-09T12:00"), rule=rule, calendars=CALENDARS)
    if roll is Roll.SKIP or (roll is Roll.PREVIOUS and isinstance(trigger, After)):
        assert found is not None
        assert found.excluded == "always"
    else:
        assert found is None
        assert before is None


@pytest.mark.parametrize(
    "rule",
    [
        CalendarRule(except_=("always",)),
        CalendarRule(except_=("always",), roll=Roll.NEXT),
        CalendarRule(only=("office",), except_=("office-hours-too",)),
        CalendarRule(only=("weekends", "office")),
        CalendarRule(only=("empty",), roll=Roll.PREVIOUS),
    ],
)
def test_a_rule_that_excludes_everything_is_refused_with_the_names_of_its_calendars(
    rule: CalendarRule,
) -> None:
    twin = msgspec.structs.replace(OFFICE, name="office-hours-too")
    calendars = {**CALENDARS, "office-hours-too": twin, "empty": Calendar(name="empty")}
    with pytest.raises(InvalidInput, match="every occurrence of") as refused:
        check_calendar_rule(Cron("0 * * * *"), rule, calendars=calendars, now=utc("2026-03-09T12:00"))
    assert refused.value.field == "calendar"
    assert all(name in refused.value.message for name in rule.names)


def test_a_yearly_run_on_a_yearly_holiday_is_refused_unless_it_may_roll() -> None:
    yearly = Cron("0 9 25 12 *")
    with pytest.raises(InvalidInput, match="excluded by christmas"):
        check_calendar_rule(
            yearly, CalendarRule(except_=("christmas",)), calendars=CALENDARS, now=utc("2026-03-09")
        )
    check_calendar_rule(
        yearly,
        CalendarRule(except_=("christmas",), roll=Roll.NEXT),
        calendars=CALENDARS,
        now=utc("2026-03-09"),
    )


def test_a_single_allowed_day_years_ahead_is_enough() -> None:
    far = {"far": Calendar(name="far", dates=(date(2041, 7, 4),))}
    secondly = Every(timedelta(seconds=1), utc("2026-01-01"))
    check_calendar_rule(secondly, CalendarRule(only=("far",)), calendars=far, now=utc("2026-03-09"))


def test_a_trigger_that_fires_too_often_is_refused_a_roll() -> None:
    rule = CalendarRule(except_=("weekends",), roll=Roll.NEXT)
    with pytest.raises(InvalidInput, match="too often to roll") as refused:
        check_calendar_rule(Cron("* * * * *"), rule, calendars=CALENDARS, now=utc("2026-03-09"))
    assert refused.value.fix == "roll: skip"
    check_calendar_rule(Cron("*/5 * * * *"), rule, calendars=CALENDARS, now=utc("2026-03-09"))


def test_a_delay_cannot_roll_back_before_the_run_it_follows() -> None:
    rule = CalendarRule(except_=("weekends",), roll=Roll.PREVIOUS)
    with pytest.raises(InvalidInput, match="before that run ended"):
        check_calendar_rule(After(HOUR), rule, calendars=CALENDARS, now=utc("2026-03-09"))


def test_a_trigger_without_future_instants_is_not_blamed_on_the_calendar() -> None:
    check_calendar_rule(
        Once(utc("2020-01-01")), CalendarRule(except_=("always",)), calendars=CALENDARS, now=utc("2026-03-09")
    )
    check_calendar_rule(
        Manual(), CalendarRule(except_=("always",)), calendars=CALENDARS, now=utc("2026-03-09")
    )


def test_an_unknown_calendar_is_refused_at_creation() -> None:
    with pytest.raises(NotFound):
        check_calendar_rule(
            Manual(), CalendarRule(only=("offce",)), calendars=CALENDARS, now=utc("2026-03-09")
        )


@pytest.mark.parametrize("roll", list(Roll))
def test_there_is_nothing_after_the_end_of_storable_time(roll: Roll) -> None:
    rule = CalendarRule(except_=("weekends",), roll=roll)
    for moment in (MAX_STORED_INSTANT, datetime.max.replace(tzinfo=UTC)):
        assert occurrence_after(Cron("0 9 * * *"), moment, rule=rule, calendars=CALENDARS) is None
    assert (
        occurrence_before(Cron("0 9 * * *"), datetime.min.replace(tzinfo=UTC), rule=rule, calendars=CALENDARS)
        is None
    )
    assert occurrence_before(
        Cron("0 9 * * *"), datetime.max.replace(tzinfo=UTC), rule=rule, calendars=CALENDARS
    )
