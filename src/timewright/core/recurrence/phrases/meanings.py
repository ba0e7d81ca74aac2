"""What the rules of the grammar mean, with examples, for the documentation."""

from __future__ import annotations

import re

# An entry of the documentation: name, meaning, and examples, which are indented.
_ENTRY = re.compile(r"^(\w+): ((?:.+\n(?:  (?! )))*.+)\n((?: {4}.+\n)+)", re.MULTILINE)

# What a rule means, and in the lines below it examples, for the documentation.
_DOCUMENTED = """
length: an amount of time; minutes and hours, `d` (24 h) and `w` (7 d) have a fixed length, days and
  longer follow the calendar
    15m; 1h 30m; 90 minutes; half an hour; an hour and a half; PT15M
time: a time of day
    9am; 9:30 pm; 17:00; noon; midnight; half past nine; quarter to ten; 9 in the morning
times: times of day; an hour without am or pm is read on the 24-hour clock, so `at 9` is 09:00
    at 9; 9am and 5pm; at 09:00, 13:00 and 17:30
zone: a time zone
    Europe/Berlin; UTC
weekly: days of the week
    monday; mon-fri; weekdays; weekends; business days
nth_days: days counted within a month, from its end with `last`
    first monday; 1st and 3rd friday; last day; first weekday; 15th
every_nth_unit: every second, third, … unit
    every other day; every 3rd week on monday
period: minutes and hours are an interval from the start of the schedule; days and longer are calendar
  times: without a time 00:00, without a day Monday, the 1st, or 1 January
    every 15 minutes; every day; every 2 weeks on mon; every quarter; 15m
rate: as AWS writes it
    rate(5 minutes)
counted: spread evenly from 00:00, or from minute 0
    twice a day; three times a day; 4x daily; twice an hour; once a week
adverb: `hourly` is at minute 0, `nightly` at 00:00
    daily at 9am; hourly; monthly
half_hourly: at minutes 0 and 30
    half-hourly
two_readings: has two readings, and needs a day that decides
    biweekly on friday
past_hours: minutes past the hour
    every hour at :15; hourly at 15 and 45 past; quarter past every hour; every 2 hours on the hour; at
    minute 5
window: part of the day, both ends included; business hours are Monday to Friday from 09:00 until before
  17:00
    every hour between 9am and 5pm; every 15 minutes during business hours; every 30 minutes 9-17
every_other_weekday: weekdays in every second week
    every other monday at 9am
numbered_days: days of the month; the 29th to 31st mean the last day of a shorter month, unless `or skip`
  is written
    every month on 15; on day 1 and 15 of every month
days: days of the week, of the month or of the year
    weekdays at 9; every mon, wed and fri at 10:30; first monday of the month at 9am; on the 15th and
    the last day of each month; last weekday of the month; every 25 dec; 1 jan and 1 jul; friday the
    13th; weekday nearest the 15th of the month
months: months of the year
    every day in december at 8; mondays from march to october; every january
except: what is left out; `holidays` is the calendar of that name, another one is `calendar NAME`
    every day except sunday; weekdays at 9 except holidays; daily at 6 except calendar quiet
only: only in a calendar
    hourly on calendar office
short: for months without the day
    every month on 31 or skip
date_pattern: as systemd writes it
    *-*-01 09:00; Mon *-*-* 09:00:00
time_pattern: as systemd writes it
    *:0/15; *:30
from_now: a length of time from now; days and longer keep the time of day
    in 10 minutes; +2h; half an hour from now; in 2 days at 9am
ago: before now
    2h ago
after_day: days or longer after another day; without a time 00:00
    a week from tomorrow at 9am; two weeks from monday
next_working_day: the next day from Monday to Friday
    next business day at 9am
relative_day: a day by its distance; without a time 00:00
    tomorrow 9am; today at 18:00; this afternoon at 3; tonight at 9; day after tomorrow at noon
near_weekday: the first such day whose time is after now; `next` leaves out today, `this` is in the week
  of today, which begins on Monday
    friday 5pm; next friday 17:00; this friday at noon
nth_date: a day counted within a month
    last day of the month at 23:00; first monday of january 2027 at 9am; end of this month at 18:00
date: a date; without a year the next one after now
    25 dec; dec 25th at 9am; 25 December 2027 09:00
written_date: a date in digits; 01/02/2027 is refused because day and month could be meant either way
    2026-12-25; 2026-12-25 09:00; 2026-12-25T09:00:00+01:00; 25.12.2026 09:00; 12/25/2026
unix: seconds since 1970
    @1767225600
"""


def _read_documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, meaning, examples in _ENTRY.findall(_DOCUMENTED):
        words = " ".join(examples.split())
        found[name] = (" ".join(meaning.split()), tuple(one.strip() for one in words.split(";")))
    return found


RULE_MEANINGS = _read_documented()
