"""Recurrence rules: compared with dateutil in UTC, clock changes, phrases, descriptions and errors."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.recurrence.rrule_strategies import ANCHORS, rules
from timewright.core.input.decode import decode
from timewright.core.recurrence.rrule import Rrule
from timewright.core.recurrence.rrule.days import MAX_YEARS
from timewright.core.recurrence.triggers import AnyOf, AnyTrigger, Cron, with_anchor
from timewright.errors import InvalidInput
from timewright.verification.oracle.rrule_scan import RruleScan
from timewright.verification.oracle.times import to_micros

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def berlin(rule: str, anchor: str, **fields: str) -> Rrule:
    at = datetime.fromisoformat(anchor).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    return decode({"rrule": rule, "zone": "Europe/Berlin", "anchor": at, **fields}, Rrule)


def read(raw: object) -> AnyTrigger:
    found: AnyTrigger = decode(raw, AnyTrigger, field="trigger")
    return found


# ------------------------------------------------------------------------------------- compared with dateutil


def unless_never(rule: str, anchor: datetime) -> Rrule | None:
    """The rule, or None if it is refused because it has no occurrences."""
    try:
        return Rrule(rule, anchor=anchor)
    except InvalidInput as refusal:
        if "never fires" not in refusal.message:
            raise
        return None


@given(rules(), ANCHORS)
@settings(max_examples=250, deadline=None)
@example("FREQ=YEARLY;INTERVAL=1;BYDAY=1MO,-1SU;COUNT=12", datetime(2024, 2, 29, 23, 59, 59))
@example("FREQ=MONTHLY;INTERVAL=1;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", datetime(2026, 1, 31))
@example("FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,MO;WKST=SU", datetime(2026, 3, 12))
def test_a_rule_means_what_dateutil_means_in_utc(rule: str, anchor: datetime) -> None:
    horizon = anchor + timedelta(days=5 * 366)
    theirs = rrulestr(rule, dtstart=anchor.replace(tzinfo=UTC))
    expected = []
    for at in theirs.xafter(anchor.replace(tzinfo=UTC), inc=True, count=30):
        if at > horizon.replace(tzinfo=UTC):
            break
        expected.append(at)
    since = anchor.replace(tzinfo=UTC) - SECOND
    ours = unless_never(rule, anchor.replace(tzinfo=UTC))
    if ours is None:
        assert expected == []
        return
    found = list(ours.between(since, horizon.replace(tzinfo=UTC), 30))
    assert found == expected
    for before, after in zip([None, *found], found, strict=False):
        assert ours.previous_before(after) == before
        assert ours.next_after(after - SECOND) == after


@given(rules(), ANCHORS, st.integers(0, 10**8))
@settings(max_examples=100, deadline=None)
def test_next_and_previous_are_neighbours(rule: str, anchor: datetime, seconds: int) -> None:
    try:
        one = Rrule(rule, "America/New_York", "vixie", anchor.replace(tzinfo=UTC))
    except InvalidInput:
        return
    moment = one.anchor + timedelta(seconds=seconds) if one.anchor else NOON
    following, before = one.next_after(moment), one.previous_before(moment)
    if following is not None:
        assert following > moment
        assert one.previous_before(following + SECOND) == following
    if before is not None:
        assert before < moment
        assert one.next_after(before - SECOND) == before
        assert one.next_after(before) == (moment if one.next_after(moment - SECOND) == moment else following)


# ------------------------------------------------------------------------------------- clock changes


def test_a_time_in_a_gap_runs_when_the_gap_is_over() -> None:
    nightly = berlin("FREQ=DAILY;BYHOUR=2;BYMINUTE=30;BYSECOND=0", "2026-03-27T00:00")
    assert nightly.between(utc("2026-03-28T00:00"), utc("2026-03-30T12:00")) == (
        utc("2026-03-28T01:30"),
        utc("2026-03-29T01:00"),
        utc("2026-03-30T00:30"),
    )


def test_a_time_in_a_gap_is_dropped_under_the_other_policies() -> None:
    nightly = berlin("FREQ=DAILY;BYHOUR=2;BYMINUTE=30;BYSECOND=0", "2026-03-27T00:00", dst="skip_once")
    assert nightly.next_after(utc("2026-03-28T12:00")) == utc("2026-03-30T00:30")


def test_a_time_that_comes_twice_runs_once_unless_every_reading_counts() -> None:
    rule, night = (
        "FREQ=DAILY;BYHOUR=2;BYMINUTE=30;BYSECOND=0",
        (utc("2026-10-24T12:00"), utc("2026-10-25T12:00")),
    )
    assert berlin(rule, "2026-10-01T00:00").between(*night) == (utc("2026-10-25T00:30"),)
    twice = berlin(rule, "2026-10-01T00:00", dst="match").between(*night)
    assert twice == (utc("2026-10-25T00:30"), utc("2026-10-25T01:30"))


def test_a_rule_keeps_its_local_time_through_the_year() -> None:
    monthly = berlin("FREQ=MONTHLY;BYDAY=2TU;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "2026-01-01T00:00")
    assert [f"{at:%m-%d %H:%M}" for at in monthly.between(utc("2026-01-01"), utc("2026-05-01"))] == [
        "01-13 08:00",
        "02-10 08:00",
        "03-10 08:00",
        "04-14 07:00",
    ]


@pytest.mark.parametrize(("dst", "last"), [("vixie", "2026-03-29T01:00"), ("skip_once", "2026-03-28T02:30")])
def test_a_count_that_ends_in_a_gap_ends_there(dst: str, last: str) -> None:
    rule = "FREQ=DAILY;BYHOUR=2,3;BYMINUTE=30;BYSECOND=0;COUNT=3"
    three = berlin(rule, "2026-03-28T00:00", dst=dst)
    assert three.previous_before(utc("2027-01-01")) == utc(last)
    assert three.next_after(utc(last)) is None


def test_a_count_counts_readings_from_the_anchor_on() -> None:
    rule = Rrule("FREQ=DAILY;BYHOUR=9,17;BYMINUTE=0;BYSECOND=0;COUNT=3", anchor=NOON)
    assert rule.between(NOON - DAY, NOON + 90 * DAY) == (
        utc("2026-03-10T17:00"),
        utc("2026-03-11T09:00"),
        utc("2026-03-11T17:00"),
    )


@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("20260312", "2026-03-12T08:00"),
        ("20260312T090000", "2026-03-12T08:00"),
        ("20260312T085959", "2026-03-11T08:00"),
        ("20260312T080000Z", "2026-03-12T08:00"),
        ("20260312T075959Z", "2026-03-11T08:00"),
    ],
)
def test_until_is_the_last_reading_that_counts(until: str, last: str) -> None:
    rule = berlin(f"FREQ=DAILY;BYHOUR=9;BYMINUTE=0;BYSECOND=0;UNTIL={until}", "2026-03-01T00:00")
    assert rule.previous_before(utc("2030-01-01")) == utc(last)
    assert rule.next_after(utc(last)) is None


# ------------------------------------------------------------------------------------- short months


def test_a_day_that_a_month_lacks_is_clamped_or_dropped() -> None:
    year = (utc("2026-01-01"), utc("2027-01-01"))
    clamped = Rrule("FREQ=MONTHLY;BYMONTHDAY=31;SKIP=BACKWARD", anchor=utc("2026-01-01T18:00"))
    skipped = Rrule("FREQ=MONTHLY;BYMONTHDAY=31", anchor=utc("2026-01-01T18:00"))
    assert [at.day for at in clamped.between(*year)] == [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    assert [at.month for at in skipped.between(*year)] == [1, 3, 5, 7, 8, 10, 12]


def test_a_leap_day_comes_every_four_years_or_on_the_day_before() -> None:
    rule = "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29"
    leap, yearly = (Rrule(text, anchor=utc("2026-01-01")) for text in (rule, f"{rule};SKIP=BACKWARD"))
    ahead = (utc("2026-01-01"), utc("2033-01-01"))
    assert [f"{at:%Y-%m-%d}" for at in leap.between(*ahead)] == ["2028-02-29", "2032-02-29"]
    assert [f"{at:%m-%d}" for at in yearly.between(*ahead)] == [
        "02-28", "02-28", "02-29", "02-28", "02-28", "02-28", "02-29",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------- anchors


def test_a_schedule_counts_from_the_whole_minute_after_its_creation() -> None:
    rule = with_anchor(Rrule("FREQ=DAILY;COUNT=2"), NOON + timedelta(seconds=7, microseconds=5))
    assert isinstance(rule, Rrule)
    assert rule.anchor == NOON + timedelta(minutes=1)
    assert rule.between(NOON, NOON + 90 * DAY) == (rule.anchor, rule.anchor + DAY)
    assert with_anchor(rule, NOON + DAY) is rule
    assert with_anchor(Rrule("FREQ=DAILY"), NOON) == with_anchor(Rrule("FREQ=DAILY"), NOON + SECOND)
    several = with_anchor(AnyOf((Rrule("FREQ=DAILY"), Cron("0 0 * * *"))), NOON - SECOND)
    assert isinstance(several, AnyOf)
    assert several.next_after(NOON - SECOND) == NOON


def test_without_an_anchor_a_rule_counts_from_the_instant_asked_about() -> None:
    assert Rrule("FREQ=DAILY;INTERVAL=3").next_after(NOON) == NOON + 3 * DAY
    assert Rrule("FREQ=DAILY").previous_before(NOON) is None


def test_the_search_covers_at_most_four_hundred_years() -> None:
    rare = Rrule("FREQ=YEARLY;INTERVAL=1000", anchor=NOON)
    assert rare.next_after(NOON) is None
    assert MAX_YEARS == 400


# ------------------------------------------------------------------------------------- starts


@pytest.mark.parametrize(
    ("rule", "start", "first"),
    [
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "2026-03-15T22:00", "03-16T09:00"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "2026-03-16T09:00", "03-16T09:00"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "2026-03-16T09:01", "03-23T09:00"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9;BYMINUTE=0", "2026-03-15T22:00:30", "03-16T09:00"),
        ("FREQ=WEEKLY;INTERVAL=2;BYHOUR=0;BYMINUTE=0;BYSECOND=0", "2026-03-15T22:00", "03-16T00:00"),
        ("FREQ=DAILY;INTERVAL=3;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "2026-03-15T22:00", "03-16T09:00"),
        ("FREQ=MONTHLY;INTERVAL=2;BYMONTHDAY=15;BYHOUR=9;BYMINUTE=0", "2026-03-20T12:00", "04-15T09:00"),
        ("FREQ=YEARLY;INTERVAL=4;BYMONTH=6;BYHOUR=9;BYMINUTE=0", "2026-03-20T12:00", "06-20T09:00"),
        ("FREQ=DAILY;INTERVAL=2", "2026-03-15T22:00:30", "03-15T22:00:30"),
        ("FREQ=WEEKLY;INTERVAL=2;COUNT=2", "2026-03-15T22:00", "03-15T22:00"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU;BYHOUR=9;BYMINUTE=0;COUNT=1", "2026-03-15T22:00", "03-17T09:00"),
    ],
)
def test_a_rule_with_a_start_begins_with_its_first_occurrence_from_there_on(
    rule: str, start: str, first: str
) -> None:
    counted = Rrule(rule).with_start(utc(start))
    assert counted.next_after(utc(start) - SECOND) == utc(f"2026-{first}")


@pytest.mark.parametrize("hour", [1, 2, 3])
def test_a_rule_that_starts_before_a_clock_change_keeps_its_time_of_day(hour: int) -> None:
    rule = f"FREQ=WEEKLY;INTERVAL=2;BYDAY=SU;BYHOUR={hour};BYMINUTE=30;BYSECOND=0"
    start = utc("2026-03-23T12:00")
    counted = Rrule(rule, "Europe/Berlin").with_start(start)
    first, second = counted.between(start, start + 21 * DAY)
    assert first.date() == date(2026, 3, 29)
    assert second.astimezone(ZoneInfo("Europe/Berlin")) == datetime(
        2026, 4, 12, hour, 30, tzinfo=ZoneInfo("Europe/Berlin")
    )
    assert counted.anchor is not None
    scan = RruleScan(rule, zone="Europe/Berlin", anchor=to_micros(counted.anchor))
    assert scan.first_after(to_micros(start), until=to_micros(second)) == to_micros(first)


def test_an_anchor_is_counted_from_and_not_the_start() -> None:
    rule = Rrule("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO", anchor=NOON)
    assert rule.with_start(NOON + 5 * DAY) is rule


# ------------------------------------------------------------------------------------- phrases


@pytest.mark.parametrize(
    ("text", "rule", "words"),
    [
        (
            "2 weeks on mon at 09:00",
            "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9;BYMINUTE=0;BYSECOND=0",
            "every 2 weeks on Monday at 09:00",
        ),
        (
            "3 months on 31 at 18:00",
            "FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=31;BYHOUR=18;BYMINUTE=0;BYSECOND=0;SKIP=BACKWARD",
            "every 3 months on day 31 or the last day at 18:00",
        ),
        (
            "3 months on 31 at 18:00 or skip",
            "FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=31;BYHOUR=18;BYMINUTE=0;BYSECOND=0",
            "every 3 months on day 31 at 18:00",
        ),
        ("other day", "FREQ=DAILY;INTERVAL=2;BYHOUR=0;BYMINUTE=0;BYSECOND=0", "every 2 days at 00:00"),
    ],
)
def test_a_phrase_that_counts_periods_is_a_rule(text: str, rule: str, words: str) -> None:
    for raw in ({"every": text}, f"every {text}", {"kind": "every", "every": text}):
        trigger = read(raw)
        assert trigger == Rrule(rule)
        assert with_anchor(trigger, NOON - SECOND).describe() == f"{words}, UTC"


def test_a_calendar_phrase_may_name_its_zone() -> None:
    beside = read({"every": "2 weeks on mon at 09:00", "zone": "Europe/Berlin"})
    assert read("every 2 weeks on mon at 09:00 Europe/Berlin") == beside
    assert beside.describe() == "every 2 weeks on Monday at 09:00, Europe/Berlin time"
    assert read("every day at 07:30 utc") == read("every day at 07:30")


def test_a_duration_stays_a_grid() -> None:
    assert read({"every": "14d"}).describe() == "every 14d"
    assert read("every 2w").describe() == "every 14d"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("RRULE:freq=monthly;byday=2tu;count=10", "every month on the second Tuesday at 12:00 10 times"),
        ("FREQ=DAILY;COUNT=1", "every day at 12:00 once"),
        (
            "FREQ=WEEKLY;BYDAY=MO,FR;UNTIL=20261231",
            "every week on Monday and Friday at 12:00 until 2026-12-31 23:59:59",
        ),
        ("FREQ=YEARLY", "every year on day 10 in March at 12:00"),
        ("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", "every month on Friday that is day 13 at 12:00"),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
            "every month on Monday, Tuesday, Wednesday, Thursday and Friday, only the last of these at 12:00",
        ),
        ("FREQ=DAILY;BYMINUTE=0,10,20,30,40,50;BYHOUR=9,10", "every day 12 times a day from 09:00 to 10:50"),
        ("FREQ=MONTHLY;BYMONTHDAY=-2", "every month on the second to last day at 12:00"),
    ],
)
def test_a_rule_is_described_in_words(rule: str, words: str) -> None:
    assert Rrule(rule, anchor=NOON).describe() == f"{words}, UTC"


# ------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("rule", "fix"),
    [
        ("", "FREQ=MONTHLY"),
        ("monthly", "FREQ=MONTHLY"),
        ("FREQ=HOURLY", "every: 6h"),
        ("FREQ=SECONDLY;INTERVAL=5", "every: 30s"),
        ("FREQ=FORTNIGHTLY", "FREQ=WEEKLY"),
        ("FREQ=DAILY;FREQ=DAILY", "remove one"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20260101", "remove one"),
        ("FREQ=DAILY;COUNT=0", "COUNT=1"),
        ("FREQ=DAILY;COUNT=99999", "COUNT=1"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL=1"),
        ("FREQ=DAILY;INTERVAL=1e3", "INTERVAL=1"),
        ("FREQ=YEARLY;BYWEEKNO=20", "BYMONTH and BYDAY"),
        ("FREQ=YEARLY;BYYEARDAY=100", "BYMONTH and BYMONTHDAY"),
        ("DTSTART:20260101T000000Z;FREQ=DAILY", "anchor"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "BYMONTHDAY=1"),
        ("FREQ=MONTHLY;BYMONTHDAY=32", "BYMONTHDAY=1"),
        ("FREQ=MONTHLY;BYDAY=2XX", "BYDAY=MO"),
        ("FREQ=MONTHLY;BYDAY=0MO", "BYDAY=MO"),
        ("FREQ=WEEKLY;BYDAY=2MO", "BYDAY=TU"),
        ("FREQ=WEEKLY;BYMONTHDAY=13", "FREQ=DAILY"),
        ("FREQ=DAILY;SKIP=BACKWARD", "leave it out"),
        ("FREQ=MONTHLY;SKIP=FORWARD", "SKIP=BACKWARD"),
        ("FREQ=MONTHLY;BYSETPOS=1", "BYSETPOS=-1"),
        ("FREQ=MONTHLY;BYDAY=MO;BYHOUR=9,10;BYSETPOS=1", "BYHOUR=9"),
        ("FREQ=DAILY;UNTIL=20260230", "UNTIL=20261231"),
        ("FREQ=DAILY;WKST=XX", "WKST=MO"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR=1"),
        ("FREQ=DAILY;BYSECOND=60", "BYSECOND=1"),
        ("FREQ=DAILY;" * 200, "FREQ=MONTHLY"),
        ("FREQ=DÄILY", "FREQ=MONTHLY"),
        ("FREQ=DAILY;BYHOUR=٣", "FREQ=MONTHLY"),
    ],
)
def test_unsupported_parts_are_refused_with_an_alternative(rule: str, fix: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read({"rrule": rule})
    assert refusal.value.field == "trigger.rule"
    assert refusal.value.rule
    assert fix in (refusal.value.fix or "")


@pytest.mark.parametrize(
    ("rule", "fix"),
    [
        ("FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30", "SKIP=BACKWARD"),
        ("FREQ=DAILY;UNTIL=20200101", "UNTIL after the anchor"),
        ("FREQ=MONTHLY;INTERVAL=12;BYMONTH=4", "another anchor"),
        ("FREQ=DAILY;INTERVAL=7;BYDAY=MO", "another anchor"),
    ],
)
def test_a_rule_that_never_fires_is_refused_once_its_anchor_is_known(rule: str, fix: str) -> None:
    with pytest.raises(InvalidInput, match="never fires") as refusal:
        with_anchor(Rrule(rule), NOON)
    assert fix in (refusal.value.fix or "")


def test_more_times_than_a_day_has_minutes_are_refused() -> None:
    everything = ",".join(map(str, range(60)))
    rule = f"FREQ=DAILY;BYHOUR={','.join(map(str, range(24)))};BYMINUTE={everything};BYSECOND={everything}"
    with pytest.raises(InvalidInput, match="times a day"):
        with_anchor(Rrule(rule), NOON)


@pytest.mark.parametrize(
    "text",
    ["2 weeks on", "2 weeks at", "weeks on blursday", "month on 32", "day at 25:00",
     "2 weeks of mon", "month on 0 at 9:00"],
)  # fmt: skip
def test_an_invalid_phrase_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read({"every": text})
    assert refusal.value.field == "trigger.every"
    assert refusal.value.rule
    assert refusal.value.fix


def test_an_invalid_policy_for_clock_changes_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is not a policy"):
        Rrule("FREQ=DAILY", dst="sometimes")  # type: ignore[arg-type]
