"""Points in time as people write them: what is read, and what is refused with which words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from timewright.core.recurrence.phrases import parse_moment
from timewright.errors import InvalidInput, InvalidInstant, InvalidZone

BERLIN = "Europe/Berlin"
# A Tuesday, 15:30 in Berlin.
NOW = datetime(2026, 11, 17, 14, 30, tzinfo=UTC)

# A phrase, and its local time in Berlin.
PHRASES = """
now => 2026-11-17 15:30
this morning at 9 => 2026-11-17 09:00
this evening at 8 => 2026-11-17 20:00
tomorrow @ 9am => 2026-11-18 09:00
tomorrow @ 9 => 2026-11-18 09:00
six thirty pm => 2026-11-17 18:30
one week from today => 2026-11-24 00:00
a week from monday => 2026-11-30 00:00
2 weeks from next friday at 9 => 2026-12-04 09:00
a month from tomorrow at noon => 2026-12-18 12:00
next business day at 9am => 2026-11-18 09:00
next weekday => 2026-11-18 00:00
end of this month at 18:00 => 2026-11-30 18:00
at the end of next month => 2026-12-31 00:00
20261225T090000Z => 2026-12-25 10:00
20261225T090000 => 2026-12-25 09:00
12/25/26 => 2026-12-25 00:00
tomorrow 9am => 2026-11-18 09:00
Tomorrow At 9AM => 2026-11-18 09:00
tomorrow => 2026-11-18 00:00
tomorrow at noon => 2026-11-18 12:00
noon tomorrow => 2026-11-18 12:00
noon => 2026-11-18 12:00
midnight => 2026-11-18 00:00
6pm => 2026-11-17 18:00
9am => 2026-11-18 09:00
at 9 => 2026-11-18 09:00
at 18 => 2026-11-17 18:00
18:00 => 2026-11-17 18:00
half past nine => 2026-11-18 09:30
friday 5pm => 2026-11-20 17:00
5pm friday => 2026-11-20 17:00
on friday at 17:00 => 2026-11-20 17:00
tuesday 5pm => 2026-11-17 17:00
tuesday 9am => 2026-11-24 09:00
next friday 17:00 => 2026-11-20 17:00
next tuesday at 17:00 => 2026-11-24 17:00
this friday at noon => 2026-11-20 12:00
coming monday 8am => 2026-11-23 08:00
last friday => 2026-11-13 00:00
25 dec => 2026-12-25 00:00
dec 25 => 2026-12-25 00:00
1 jan => 2027-01-01 00:00
17 nov => 2027-11-17 00:00
17 nov 18:00 => 2026-11-17 18:00
25 dec 9am => 2026-12-25 09:00
9am on 25 dec => 2026-12-25 09:00
25 dec 2027 9am => 2027-12-25 09:00
december 25th, 2027 at 9am => 2027-12-25 09:00
the 25th of december at noon => 2026-12-25 12:00
feb 29 => 2028-02-29 00:00
on the 15th => 2026-12-15 00:00
next month on the 15th at 9 => 2026-12-15 09:00
next week on tuesday => 2026-11-24 00:00
tuesday next week at 9 => 2026-11-24 09:00
last day of the month at 23:00 => 2026-11-30 23:00
first monday of next month at 9am => 2026-12-07 09:00
first monday of january at 9 => 2027-01-04 09:00
last friday of january 2028 => 2028-01-28 00:00
+2h => 2026-11-17 17:30
+90m => 2026-11-17 17:00
in 10 minutes => 2026-11-17 15:40
in an hour => 2026-11-17 16:30
in half an hour => 2026-11-17 16:00
in 1h30m => 2026-11-17 17:00
in 1 hour and 30 minutes => 2026-11-17 17:00
in two days => 2026-11-19 15:30
in 2 days at 9am => 2026-11-19 09:00
in 3 weeks => 2026-12-08 15:30
in a month => 2026-12-17 15:30
10 minutes from now => 2026-11-17 15:40
2h ago => 2026-11-17 13:30
yesterday 9:00 => 2026-11-16 09:00
2026-12-25 09:00 => 2026-12-25 09:00
2026-12-25T09:00 => 2026-12-25 09:00
2026-12-25T09:00Z => 2026-12-25 10:00
2026-12-25 09:00Z => 2026-12-25 10:00
2026-12-25T09:00:00+01:00 => 2026-12-25 09:00
2026-12-25T09:00:00.5+0100 => 2026-12-25 09:00
2026-12-25 09:00 UTC => 2026-12-25 10:00
2026-12-25 => 2026-12-25 00:00
friday 2026-12-25 at 9 => 2026-12-25 09:00
2026/12/25 9am => 2026-12-25 09:00
25.12.2026 09:00 => 2026-12-25 09:00
25.12. => 2026-12-25 00:00
12/25/2026 => 2026-12-25 00:00
25/12/2026 => 2026-12-25 00:00
5/5/2027 => 2027-05-05 00:00
today 18:00 => 2026-11-17 18:00
today => 2026-11-17 00:00
tonight at 9 => 2026-11-17 21:00
tonight at midnight => 2026-11-18 00:00
tomorrow morning at 8 => 2026-11-18 08:00
tomorrow evening at 7:30 => 2026-11-18 19:30
day after tomorrow at noon => 2026-11-19 12:00
tomorrow 9am America/New_York => 2026-11-18 15:00
9pm utc => 2026-11-17 22:00
at(2026-12-25T09:00:00) => 2026-12-25 09:00
@1767225600 => 2026-01-01 01:00
now + 2h => 2026-11-17 17:30
2026-12-25T9:00 => 2026-12-25 09:00
2026-10-25T02:30:00+01:00 => 2026-10-25 02:30
"""
ROWS = [line.split(" => ") for line in PHRASES.strip().splitlines()]

REFUSED = """
01/02/2027 => 1 february 2027; or 2 january 2027
1/2 => 1 february; or 2 january
01-02-2027 => 1 february 2027; or 2 january 2027
2026-10-25 02:30 => 2026-10-25T02:30:00+02:00; or 2026-10-25T02:30:00+01:00
tomorrow at half nine => write half past 9 or 8:30
2027-03-28 02:30 => 2027-03-28 03:30
tomorrow morning => tomorrow morning at 9am
tonight => tonight at 10pm
this monday => next monday
next week => next week on monday
next month => 1st of next month, or a date
15m => in 15 m
1767225600 => @1767225600
every day => the same text as a recurrence (every)
tomorrow at 13am => 13:00 without am
tomorrow 25:00 => write the hour as 0 to 23
30 feb => write the date as 2026-12-25
31 april 2027 => write the date as 2026-12-25
2026-13-01 => write the date as 2026-12-25
2026-12-25T25:00 => 2026-12-25T09:00:00Z
friday 2026-12-24 => only the date
tomorrow at 9am and 5pm => only one of them
tomorrow friday at 9 => only the date
in 2h at 9am => in 2 days at 9am
foo => tomorrow at 09:00
tomorow 9am => did you mean 'tomorrow'?
in 99999999 years => 2026-12-25 09:00
05/06/26 => 2026-06-05; or 2026-05-06
18h30 => at 18h30
six => at six
6 => at 6
in 2 weeks on monday => 2 weeks from monday, or a date
saturday night at 2 => the day without night, as in sunday at 02:00
tomorrow 9 => tomorrow at 9
20261225 => 2026-12-25
1798185600000 => @1798185600, in seconds
before friday => tomorrow at 09:00
easter => tomorrow at 09:00
9am gmt+2 => the name of a zone instead of the offset, such as Europe/Berlin
tomorrow 9am berlin => write the zone as Europe/Berlin
"""


@pytest.mark.parametrize(("text", "local"), ROWS)
def test_an_instant_is_read_in_its_zone(text: str, local: str) -> None:
    found = parse_moment(text, now=NOW, zone=BERLIN)
    from zoneinfo import ZoneInfo

    assert f"{found.at.astimezone(ZoneInfo(BERLIN)):%Y-%m-%d %H:%M}" == local
    assert found.at.tzinfo is UTC
    again = parse_moment(found.read_as, now=NOW, zone=BERLIN)
    assert again.at == found.at.replace(microsecond=0)


def test_more_than_37_instants_are_read() -> None:
    assert len(ROWS) > 75


@pytest.mark.parametrize(("text", "fix"), [line.split(" => ") for line in REFUSED.strip().splitlines()])
def test_an_instant_that_is_ambiguous_or_wrong_is_refused(text: str, fix: str) -> None:
    with pytest.raises(InvalidInstant) as refusal:
        parse_moment(text, now=NOW, zone=BERLIN, field="start_at")
    assert refusal.value.fix == fix
    assert refusal.value.field == "start_at"
    assert refusal.value.rule


def test_an_example_of_the_past_is_shown_where_the_past_is_asked_for() -> None:
    with pytest.raises(InvalidInstant) as refusal:
        parse_moment("gestern", now=NOW, zone=BERLIN, field="since", past=True)
    assert refusal.value.fix == "yesterday at 09:00"


def test_an_abbreviation_of_a_zone_is_refused() -> None:
    with pytest.raises(InvalidZone):
        parse_moment("tomorrow 9am EST", now=NOW, zone=BERLIN)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("09:00", "2026-11-17T08:00"),
        ("18:00", "2026-11-16T17:00"),
        ("friday", "2026-11-12T23:00"),
        ("tuesday", "2026-11-16T23:00"),
        ("25 dec", "2025-12-24T23:00"),
        ("on the 15th", "2026-11-14T23:00"),
    ],
)
def test_the_last_such_time_is_read_where_the_past_is_asked_for(text: str, at: str) -> None:
    found = parse_moment(text, now=NOW, zone=BERLIN, past=True)
    assert f"{found.at:%Y-%m-%dT%H:%M}" == at


def test_the_sentence_names_weekday_date_time_and_zone() -> None:
    assert (
        parse_moment("25 dec 9am", now=NOW, zone=BERLIN).read_as
        == "Friday 2026-12-25 at 09:00, Europe/Berlin"
    )


def test_days_keep_the_time_of_day_over_a_clock_change_and_hours_do_not() -> None:
    before = datetime(2027, 3, 27, 11, tzinfo=UTC)
    assert parse_moment("in 1 day", now=before, zone=BERLIN).at == datetime(2027, 3, 28, 10, tzinfo=UTC)
    assert parse_moment("in 24 hours", now=before, zone=BERLIN).at == datetime(2027, 3, 28, 11, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", " ", "9" * 300])
def test_empty_and_long_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_moment(text, now=NOW, zone=BERLIN)
