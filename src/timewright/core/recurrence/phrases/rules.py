"""The table of rules: everything that the grammar reads, what it means, and examples.

A rule is `name = notation` (see `grammar`), continued by lines that begin with `|`. Its meaning follows `#`,
and its examples follow `>`, for the documentation.
"""

from __future__ import annotations

import re
from fractions import Fraction

from timewright.core.recurrence.phrases import instant_parts, parts
from timewright.core.recurrence.phrases.grammar import Builder, Grammar, Rule, take_first

# Used by both kinds of phrases.
_SHARED = """
separator = , and | , & | , or | , | and | & | / | plus
to = RANGE | to | through | thru | until | till
half_unit = half [RANGE] [a|an] UNIT
quarter_hour = [a] quarter [of] [a|an] hour
one_and_a_half = [a|an] UNIT and a half
and_a_half = NUMBER and a half UNIT
number_of = NUMBER UNIT | DECIMAL UNIT | [NUMBER] FRACTION [of] [a|an] UNIT
one_unit = [a|an] UNIT
length = ISO_LENGTH | <half_unit> | <quarter_hour> | <one_and_a_half> | <and_a_half>
    | <number_of> ([,|and] <number_of>)* | <one_unit>
    # an amount of time; minutes and hours, `d` (24 h) and `w` (7 d) have a fixed length, days and longer
    # follow the calendar
    > 15m; 1h 30m; 90 minutes; half an hour; 1/2 hour; an hour and a half; PT15M
named_time = [NUMBER] NAMED_TIME
part_of_day = in the PART | at PART
hour = <named_time> | NUMBER
spoken_time = {half} past <hour> [HALF|<part_of_day>]
    | [a] {quarter} {past|after|to|before|till} <hour> [HALF|<part_of_day>]
    | NUMBER (minutes|minute|min|mins) {past|after|to|before|till} <hour> [HALF|<part_of_day>]
ten_to_nine = NUMBER {past|after|to|before|till} <hour> [HALF|<part_of_day>]
half_nine = half NUMBER
nine_thirty = SPELLED SPELLED [HALF|<part_of_day>]
digits = CLOCK [HALF|<part_of_day>] | NUMBER HALF | DECIMAL HALF | NUMBER OCLOCK [HALF|<part_of_day>]
    | NUMBER <part_of_day>
time = <digits> | <named_time> | <spoken_time> | <ten_to_nine> | <half_nine> | <nine_thirty>
    # a time of day
    > 9am; 9:30 pm; 17:00; noon; midnight; half past nine; quarter to ten; 9 in the morning
bare_time = FOUR_DIGITS [hours|hrs|h] | HOUR_MINUTE | NUMBER h | DECIMAL | NUMBER !UNIT !MONTH !x !times
any_time = <time> | <bare_time>
times = {at|@} <any_time> (<separator> [at] <any_time>)* | (every|each) <named_time>
    | <time> (<separator> [at] <any_time>)*
    # times of day; an hour without am or pm is read on the 24-hour clock, so `at 9` is 09:00
    > at 9; 9am and 5pm; at 09:00, 13:00 and 17:30
part = (in the|every|each|this|at|on) PART | PART
zone = [in] ['('] ZONE [time] [')']
    # a time zone
    > Europe/Berlin; UTC
month_name = MONTH
day_number = (NUMBER|ORDINAL) !HALF !UNIT !OCLOCK !MONTH
weekly = [from] WEEKDAY <to> WEEKDAY | between WEEKDAY and WEEKDAY | WEEKDAY | DAY_SET
    | {business|working|work|week} (days|day) | {m} RANGE f
    # days of the week
    > monday; mon-fri; weekdays; weekends; business days
nth = {last|final|penultimate} | ORDINAL [to] {last} | ORDINAL
first_days = {first|last} NUMBER
nth_range = <nth> <to> <nth> | <nth>
date_number = DATE_NUMBER <to> DATE_NUMBER | DATE_NUMBER
nth_days = <first_days> {days|day} | <nth_range> (<separator> [the] <nth_range>)* (<weekly>|{day|days})
    | <nth_range> (<separator> [the] <nth_range>)* !!(of|at)
    | <date_number> (<separator> [the] <date_number> !WEEKDAY)*
    # days counted within a month, from its end with `last`
    > first monday; 1st and 3rd friday; last day; first weekday; 15th
"""


# Recurrences: `recurrence` is the whole phrase, a sequence of elements in any order.
_RECURRENCE = """
every_nth_unit = [once|of|in] (every|each) {other|alternate} UNIT
    | [once|of|in] (every|each) ORDINAL UNIT !of | [on] {alternate|alternating} UNIT
    # every second, third, … unit
    > every other day; alternate days; every 3rd week on monday
period = [once|of|in] (every|each|per) [single] <length> | (of|in|per) (the|a|an) <one_length>
    | of <one_length> | <length>
    # minutes and hours are an interval from the start of the schedule; days and longer are calendar times:
    # without a time 00:00, without a day Monday, the 1st, or 1 January
    > every 15 minutes; every day; every 2 weeks on mon; every quarter; 15m
one_length = <one_unit>
rate = rate '(' <length> ')'
    # as AWS writes it
    > rate(5 minutes)
counted = {once|twice|thrice} (a|an|per|each|every|/) UNIT | {once|twice|thrice} ADVERB
    | NUMBER (times|time|x) (a|an|per|each|every|/) UNIT | NUMBER (times|time|x) ADVERB | NUMBER (per|/) UNIT
    # spread evenly from 00:00, or from minute 0
    > twice a day; three times a day; 4x daily; twice an hour; once a week
adverb = ADVERB
    # `hourly` is at minute 0, `nightly` at 00:00
    > daily at 9am; hourly; monthly
half_hourly = half [RANGE] hourly
    # at minutes 0 and 30
    > half-hourly
two_readings = BI_ADVERB
    # has two readings, and needs a day that decides
    > biweekly on friday
to_hour = NUMBER [minutes|minute|min|mins] (to|before) (the|each|every) hour
past_hour = PAST_HOUR | [the] (minute|minutes) NUMBER | <to_hour>
    | NUMBER [minutes|minute|min|mins] (past|after) [the|each|every] hour
    | NUMBER [minutes|minute|min|mins] (past|after) !NUMBER !NAMED_TIME
    | [a] {quarter} (past|after) [the|each|every] hour | {half} past [the|each|every] hour
    | [a] {quarter} (past|after) !NUMBER !NAMED_TIME | {half} past !NUMBER !NAMED_TIME
    | [a] quarter {to} [the|each|every] hour | the {top} of [the|each|every] hour | the {half} hour
    | the {hour}
each_past_hour = NUMBER (past|after) (the|each|every) hour
    | [a] {quarter} (past|after) (the|each|every) hour | {half} past (the|each|every) hour
    | [a] quarter {to} (the|each|every) hour | <to_hour>
    | [the] {top|start|beginning} of (the|each|every) hour
past_hours = <each_past_hour> | NUMBER (minutes|minute|min|mins) (past|after) (the|each|every) hour
    | (at|@) NUMBER (<separator> NUMBER)* [minutes] (past|after) [the|each|every] [hour] !NUMBER !NAMED_TIME
    | (at|@|on) <past_hour> (<separator> [at] (<past_hour>|NUMBER !HALF !UNIT))*
    | PAST_HOUR (<separator> PAST_HOUR)*
    # minutes past the hour
    > every hour at :15; hourly at 15 and 45 past; quarter past every hour; every 2 hours on the hour; at
    > minute 5
plain_time = CLOCK [HALF] | NUMBER HALF | NUMBER
window_time = <named_time> | <plain_time>
window = [only] (between|from) <window_time> (and|<to>) <window_time> | <window_time> <to> <window_time>
    | [only] (during|in|within|on) [the] (business|office|working|work) hours
    # part of the day, both ends included; business hours are Monday to Friday from 09:00 until before 17:00
    > every hour between 9am and 5pm; every 15 minutes during business hours; every 30 minutes 9-17
every_other_weekday = [on] (every|each) (other|alternate) <weekly> (<separator> <weekly>)*
    | [on] (every|each) NUMBER <weekly> | [on] (alternate|alternating) <weekly> (<separator> <weekly>)*
    # weekdays in every second week
    > every other monday at 9am
dates = <day_number_of> <month_name> (<separator> <month_name> !<day_number>)*
    | <month_name> <day_number> (<separator> <day_number>)*
day_number_of = (NUMBER|ORDINAL) [of] !!MONTH
friday_the_13th = WEEKDAY the ORDINAL | WEEKDAY DATE_NUMBER
nearest = [the] (weekday|workday) (nearest|closest) [to] [the] (ORDINAL|NUMBER)
edge = {start|beginning|end} !!of
lead = [only] on [the|all] | the
lead_every = [on] (every|each|all) [single]
month_end = month [RANGE] {end}
day = <month_end> | <nearest> | <friday_the_13th> | <nth_days> | <dates> | <weekly> | <edge>
plain_number = NUMBER <to> NUMBER !HALF | NUMBER !UNIT !HALF !MONTH !OCLOCK
numbered_days = on [the] [day|days] <plain_number> (<separator> [the] (<plain_number>|<nth_days>))*
    | (day|days) <plain_number> (<separator> <plain_number>)* !!of
    # days of the month; the 29th to 31st mean the last day of a shorter month, unless `or skip` is written
    > every month on 15; on day 1 and 15 of every month
days = [<lead_every>|<lead>] <day> (<separator> [<lead_every>|<lead>] <day>)*
    # days of the week, of the month or of the year
    > weekdays at 9; every mon, wed and fri at 10:30; first monday of the month at 9am; on the 15th and the
    > last day of each month; last weekday of the month; every 25 dec; 1 jan and 1 jul; friday the 13th;
    > weekday nearest the 15th of the month
months = [only] [in|during|of|every|each|for] [each|every] <one_month> (<separator> <one_month>)*
    | [only] (from|between) <month_ends>
    # months of the year
    > every day in december at 8; mondays from march to october; every january
one_month = MONTH <to> MONTH | MONTH
month_ends = MONTH (and|<to>) MONTH
holidays = [public|bank|national|legal] (holidays|holiday) | CALENDAR
excepted = <holidays> | <weekly> | <one_month> | <nth_days>
except = <except_word> [for] <excepted_list>
    # what is left out; `holidays` is the calendar of that name, another one is `calendar NAME`
    > every day except sunday; weekdays at 9 except holidays; daily at 6 except calendar quiet
except_word = except | excluding | without | skipping | omitting | not | but not | but | apart from
    | other than | unless [it is] [a]
excepted_list = <one_excepted> ((<separator>|or) <one_excepted>)*
one_excepted = [on|in|during] [the|every] <excepted>
only = [only] [on|in|during] <holidays> [only]
    # only in a calendar
    > hourly on calendar office
only_word = only
short = or {skip} | or [on] [the] last day
    # for months without the day
    > every month on 31 or skip
from_start = counted from its start
date_pattern = DATE_PATTERN
    # as systemd writes it
    > *-*-01 09:00; Mon *-*-* 09:00:00
time_pattern = TIME_PATTERN
    # as systemd writes it
    > *:0/15; *:30
bounded = {starting|beginning|starts|until|till|ending|ends|for|from|after|before} ANY (ANY)*
element = <except> | <zone> | <only> | <short> | <from_start> | <rate> | <counted> | <adverb> | <half_hourly>
    | <two_readings> | <every_other_weekday> | <every_nth_unit> | <past_hours> | <window>
    | <numbered_days> | <days> | <period> | <months> | <part> | <date_pattern> | <time_pattern> | <times>
    | <bounded> | <only_word>
recurrence = <element> ([,] <element>)*
"""


# Points in time: `instant` is the whole phrase.
_INSTANT = """
now = now !+
from_now = in <length> | [now] + <length> | <length> (from now|hence|later)
    # a length of time from now; days and longer keep the time of day
    > in 10 minutes; +2h; half an hour from now; in 2 days at 9am
ago = <length> ago
    # before now
    > 2h ago
relative_day = [on] {today|tonight|tomorrow|tmrw|yesterday} | [the] day {after} tomorrow
    | [the] day {before} yesterday | this PART
    # a day by its distance; without a time 00:00
    > tomorrow 9am; today at 18:00; this afternoon at 3; tonight at 9; day after tomorrow at noon
next_working_day = [on] [the] next (weekday|workday|(business|working|work) day)
    # the next day from Monday to Friday
    > next business day at 9am
after_day = <length> from (<relative_day>|<near_weekday>)
    # days or longer after another day; without a time 00:00
    > a week from tomorrow at 9am; two weeks from monday
near_weekday = [on] {this|next|coming|last|previous} WEEKDAY | [on] WEEKDAY
    # the first such day whose time is after now; `next` leaves out today, `this` is in the week of today,
    # which begins on Monday
    > friday 5pm; next friday 17:00; this friday at noon
unit_ref = {next|this|last} UNIT
nth_date = [on|at] [the] (<nth_days>|<edge>) of {this|next|the} month
    | [on] [the] <nth_days> of <month_name> [,] [YEAR]
    # a day counted within a month
    > last day of the month at 23:00; first monday of january 2027 at 9am; end of this month at 18:00
date = [on] [the] <day_and_of> <month_name> [,] [YEAR] | [on] <month_name> <day_of_month> [,] [YEAR]
    # a date; without a year the next one after now
    > 25 dec; dec 25th at 9am; 25 December 2027 09:00
day_and_of = (NUMBER|ORDINAL) [of]
day_of_month = (NUMBER|ORDINAL) !HALF
numeric_day = [on] the DATE_NUMBER
written_date = [on] <iso_date> | [on] <slashed> | [on] <dotted> | <instant_token>
    # a date in digits; 01/02/2027 is refused because day and month could be meant either way
    > 2026-12-25; 2026-12-25 09:00; 2026-12-25T09:00:00+01:00; 25.12.2026 09:00; 12/25/2026
iso_date = DATE
slashed = SLASHED
dotted = DOTTED
instant_token = INSTANT
unix = @ LONG_NUMBER
    # seconds since 1970
    > @1767225600
moment_element = <zone> | <now> | <unix> | <after_day> | <from_now> | <ago> | <relative_day> | <nth_date>
    | <next_working_day> | <near_weekday> | <unit_ref> | <date> | <numeric_day> | <written_date>
    | <part> | <times>
instant = <moment_element> ([,] <moment_element>)*
"""


# What a rule makes of its values: a function gets their list, a class each as an argument; without an entry
# it is the first value.
_BUILDERS: dict[str, Builder] = {
    "to": lambda _: None,
    "half_unit": lambda values: (Fraction(1, 2), values[-1]),
    "quarter_hour": lambda _: (Fraction(1, 4), "hour"),
    "one_and_a_half": lambda values: (Fraction(3, 2), values[0]),
    "and_a_half": lambda values: (values[0] + Fraction(1, 2), values[1]),
    "number_of": lambda values: (sum(map(Fraction, values[:-1])), values[-1]),
    "one_unit": lambda values: (Fraction(1), values[0]),
    "length": parts.build_length,
    "named_time": lambda values: parts.ClockTime(values[-1] // 3600),
    "part_of_day": parts.PartOfDay,
    "spoken_time": parts.build_spoken,
    "ten_to_nine": parts.build_spoken_number,
    "half_nine": lambda values: parts.ClockTime(values[0], 30, half="half"),
    "nine_thirty": lambda values: parts.build_clock([tuple(values[:2]), *values[2:]]),
    "digits": parts.build_clock,
    "bare_time": parts.build_clock,
    "times": lambda values: parts.Times(
        tuple(value for value in values if isinstance(value, parts.ClockTime))
    ),
    "part": parts.PartOfDay,
    "zone": parts.Zone,
    "month_name": lambda values: parts.Months((values[0],)),
    "weekly": parts.build_weekly,
    "nth": parts.build_nth,
    "first_days": parts.build_first_days,
    "nth_range": parts.build_nth_range,
    "date_number": parts.build_nth_range,
    "nth_days": parts.build_nth_days,
    "every_nth_unit": parts.build_other_period,
    "period": parts.PhrasePeriod,
    "one_length": parts.build_length,
    "rate": parts.build_fixed_period,
    "counted": parts.build_counted,
    "adverb": parts.build_adverb,
    "half_hourly": lambda _: parts.Counted(2, "hour"),
    "two_readings": parts.Ambiguous,
    "to_hour": lambda values: 60 - values[0],
    "past_hour": parts.build_past,
    "each_past_hour": parts.build_past,
    "past_hours": lambda values: parts.PastHour(tuple(sorted(set(values)))),
    "plain_time": parts.build_clock,
    "window": lambda values: parts.HoursBetween(tuple(values)),
    "every_other_weekday": parts.build_every_other,
    "dates": parts.build_dates,
    "friday_the_13th": lambda values: parts.Days((values[0],), month_days=(values[1],), both=True),
    "nearest": lambda values: parts.Days(nearest=(values[0],)),
    "edge": lambda values: parts.Days(month_days=(-1 if values[0] == "end" else 1,), edge=True),
    "month_end": lambda _: parts.Days(month_days=(-1,)),
    "lead": lambda _: "on",
    "lead_every": lambda _: "every",
    "plain_number": parts.build_nth_range,
    "numbered_days": parts.build_numbered,
    "days": lambda values: parts.build_days(parts.build_flat(values)),
    "months": parts.build_months,
    "one_month": parts.build_month_range,
    "month_ends": parts.build_month_range,
    "holidays": lambda values: parts.CalendarName(values[0] if values else "holidays"),
    "excepted_list": lambda values: parts.Except(tuple(values)),
    "short": lambda values: parts.Short(skip=bool(values)),
    "date_pattern": parts.Pattern,
    "time_pattern": parts.Pattern,
    "bounded": parts.Bounded,
    "recurrence": parts.build_recurrence,
    "now": lambda _: instant_parts.FromNow(parts.Length(), ago=False),
    "from_now": lambda values: instant_parts.FromNow(values[0], ago=False),
    "ago": lambda values: instant_parts.FromNow(values[0], ago=True),
    "relative_day": instant_parts.build_relative_day,
    "next_working_day": instant_parts.NextWorkingDay,
    "after_day": lambda values: instant_parts.FromNow(values[0], ago=False, start=values[1]),
    "near_weekday": instant_parts.build_near_weekday,
    "unit_ref": instant_parts.UnitRef,
    "nth_date": instant_parts.build_nth_date,
    "date": instant_parts.build_date,
    "numeric_day": lambda values: instant_parts.DateOfYear(values[0], ()),
    "iso_date": lambda values: instant_parts.WrittenDate("DATE", values[0]),
    "slashed": lambda values: instant_parts.WrittenDate("SLASHED", values[0]),
    "dotted": lambda values: instant_parts.WrittenDate("DOTTED", values[0]),
    "instant_token": lambda values: instant_parts.WrittenDate("INSTANT", values[0]),
    "unix": lambda values: instant_parts.WrittenDate("UNIX", values[0]),
    "instant": parts.build_flat,
}


def _read_table(table: str, group: str) -> tuple[Rule, ...]:
    return tuple(_read_rule(block, group) for block in re.split(r"\n(?=\w)", table.strip()))


def _read_rule(block: str, group: str) -> Rule:
    first, *more = block.splitlines()
    name, _, notation = first.partition(" = ")
    lines = {mark: [line.strip() for line in more if line.strip()[0] == mark] for mark in "|#>"}
    meaning, examples = (" ".join(line[2:] for line in lines[mark]) for mark in "#>")
    return Rule(
        name,
        " ".join([notation, *lines["|"]]),
        meaning,
        tuple(examples.split("; ")) if examples else (),
        group,
        _BUILDERS.get(name, take_first),
    )


SHARED_RULES = _read_table(_SHARED, "both")
RECURRENCE_RULES = _read_table(_RECURRENCE, "recurrence")
INSTANT_RULES = _read_table(_INSTANT, "instant")
GRAMMAR = Grammar((*SHARED_RULES, *RECURRENCE_RULES, *INSTANT_RULES))
# Notations with a parser of their own, which are recognised before the rules apply.
CODE_RULES = (
    Rule(
        "cron",
        "five to seven fields, or a nickname; a zone before or after it",
        "a cron expression",
        ("0 9 * * 1-5", "@daily", "CRON_TZ=Europe/Berlin 0 9 * * *", "0 9 * * 1-5 Europe/Berlin"),
        "recurrence",
    ),
    Rule(
        "aws_cron",
        "cron(minute hour day month weekday year)",
        "as AWS writes it, with weekdays from Sunday = 1",
        ("cron(0 9 ? * MON-FRI *)",),
        "recurrence",
    ),
    Rule(
        "rrule",
        "FREQ=…;NAME=VALUE",
        "a recurrence rule of RFC 5545, counted from the start of the schedule",
        ("FREQ=WEEKLY;BYDAY=MO", "RRULE:FREQ=MONTHLY;BYDAY=2TU"),
        "recurrence",
    ),
)
