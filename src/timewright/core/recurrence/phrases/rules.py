"""The table of rules: everything that the grammar reads, what it means, and examples.

A line is `name = notation` (see `grammar`); a line that begins with `|` continues the one before.
"""

from __future__ import annotations

from fractions import Fraction

from timewright.core.recurrence.phrases.builders import (
    build_adverb,
    build_clock,
    build_counted,
    build_date,
    build_dates,
    build_days,
    build_every_other,
    build_first,
    build_first_days,
    build_fixed_period,
    build_flat,
    build_half_hour,
    build_half_unit,
    build_length,
    build_month_range,
    build_months,
    build_named_time,
    build_near_weekday,
    build_nothing,
    build_nth,
    build_nth_date,
    build_nth_days,
    build_nth_range,
    build_numbered,
    build_other_period,
    build_past,
    build_relative_day,
    build_spoken,
    build_weekly,
)
from timewright.core.recurrence.phrases.grammar import Builder, Grammar, Rule
from timewright.core.recurrence.phrases.meanings import RULE_MEANINGS
from timewright.core.recurrence.phrases.parts import (
    Ambiguous,
    Bounded,
    CalendarName,
    ClockTime,
    Counted,
    DateOfYear,
    Except,
    FromNow,
    HoursBetween,
    Lead,
    Length,
    Months,
    Nearest,
    NextWorkingDay,
    Nth,
    PartOfDay,
    PastHour,
    Pattern,
    PhrasePeriod,
    Short,
    Times,
    UnitRef,
    WeekdayAndDate,
    Weekly,
    WrittenDate,
    Zone,
)

# Used by both kinds of phrases.
_SHARED = """
separator = , and | , & | , or | , | and | & | / | plus
to = RANGE | to | through | thru | until | till
half_unit = half [RANGE] [a|an] UNIT
quarter_hour = [a] quarter [of] [a|an] hour
one_and_a_half = [a|an] UNIT and a half
and_a_half = NUMBER and a half UNIT
number_of = NUMBER UNIT | DECIMAL UNIT
one_unit = [a|an] UNIT
length = ISO_LENGTH | <half_unit> | <quarter_hour> | <one_and_a_half> | <and_a_half>
    | <number_of> ([,|and] <number_of>)* | <one_unit>
named_time = [NUMBER] NAMED_TIME
part_of_day = in the PART | at PART
hour = <named_time> | NUMBER
spoken_time = {half} past <hour> [HALF|<part_of_day>]
    | [a] {quarter} {past|after|to|before|till} <hour> [HALF|<part_of_day>]
    | NUMBER [minutes|minute|min|mins] {past|after|to|before|till} <hour> [HALF|<part_of_day>]
half_nine = half NUMBER
nine_thirty = SPELLED SPELLED [HALF|<part_of_day>]
digits = CLOCK [HALF|<part_of_day>] | NUMBER HALF | DECIMAL HALF | NUMBER OCLOCK [HALF|<part_of_day>]
    | NUMBER <part_of_day>
time = <digits> | <named_time> | <spoken_time> | <half_nine> | <nine_thirty>
bare_time = FOUR_DIGITS [hours|hrs|h] | HOUR_MINUTE | NUMBER h | DECIMAL | NUMBER !UNIT !MONTH !x !times
any_time = <time> | <bare_time>
times = {at|@} <any_time> (<separator> [at] <any_time>)* | (every|each) <named_time>
    | <time> (<separator> [at] <any_time>)*
part = (in the|every|each|this|at|on) PART | PART
zone = [in] ['('] ZONE [time] [')']
month_name = MONTH
weekday_name = WEEKDAY
day_number = (NUMBER|ORDINAL) !HALF !UNIT !OCLOCK !MONTH
weekly = [from] WEEKDAY <to> WEEKDAY | between WEEKDAY and WEEKDAY | WEEKDAY | DAY_SET
    | {business|working|work} (days|day) | {m} RANGE f
nth = {last|final|penultimate} | ORDINAL [to] {last} | ORDINAL
first_days = {first|last} NUMBER
nth_range = <nth> <to> <nth> | <nth>
date_number = DATE_NUMBER <to> DATE_NUMBER | DATE_NUMBER
nth_days = <first_days> {days|day} | <nth_range> (<separator> [the] <nth_range>)* (<weekly>|{day|days})
    | <nth_range> (<separator> [the] <nth_range>)* !!(of|at)
    | <date_number> (<separator> [the] <date_number> !WEEKDAY)*
"""


# Recurrences: `recurrence` is the whole phrase, a sequence of elements in any order.
_RECURRENCE = """
every_nth_unit = [once|of|in] (every|each) {other|alternate} UNIT
    | [once|of|in] (every|each) ORDINAL UNIT !of
period = [once|of|in] (every|each|per) [single] <length> | (of|in|per) (the|a|an) <one_length>
    | of <one_length> | <length>
one_length = <one_unit>
rate = rate '(' <length> ')'
counted = {once|twice|thrice} (a|an|per|each|every|/) UNIT | {once|twice|thrice} ADVERB
    | NUMBER (times|time|x) (a|an|per|each|every|/) UNIT | NUMBER (times|time|x) ADVERB
adverb = ADVERB
half_hourly = half [RANGE] hourly
two_readings = BI_ADVERB
past_hour = PAST_HOUR | [the] (minute|minutes) NUMBER
    | NUMBER [minutes|minute|min|mins] (past|after) [the|each|every] hour
    | NUMBER [minutes|minute|min|mins] (past|after) !NUMBER !NAMED_TIME
    | [a] {quarter} (past|after) [the|each|every] hour | {half} past [the|each|every] hour
    | [a] quarter {to} [the|each|every] hour | the {top} of [the|each|every] hour | the {half} hour
    | the {hour}
each_past_hour = NUMBER (past|after) (the|each|every) hour
    | [a] {quarter} (past|after) (the|each|every) hour | {half} past (the|each|every) hour
past_hours = <each_past_hour> | NUMBER (minutes|minute|min|mins) (past|after) (the|each|every) hour
    | (at|@) NUMBER (<separator> NUMBER)* [minutes] (past|after) [the|each|every] [hour] !NUMBER !NAMED_TIME
    | (at|@|on) <past_hour> (<separator> [at] (<past_hour>|NUMBER !HALF !UNIT))*
    | PAST_HOUR (<separator> PAST_HOUR)*
plain_time = CLOCK [HALF] | NUMBER HALF | NUMBER
window_time = <named_time> | <plain_time>
window = [only] (between|from) <window_time> (and|<to>) <window_time> | <window_time> <to> <window_time>
    | [only] (during|in|within|on) [the] (business|office|working|work) hours
every_other_weekday = [on] (every|each) (other|alternate) <weekly> (<separator> <weekly>)*
    | [on] (every|each) NUMBER <weekly> | [on] (alternate|alternating) <weekly> (<separator> <weekly>)*
dates = <day_number_of> <month_name> (<separator> <month_name> !<day_number>)*
    | <month_name> <day_number> (<separator> <day_number>)*
day_number_of = (NUMBER|ORDINAL) [of] !!MONTH
friday_the_13th = WEEKDAY the ORDINAL
nearest = [the] (weekday|workday) (nearest|closest) [to] [the] (ORDINAL|NUMBER)
edge = {start|beginning|end} !!of
lead = [only] on [the|all] | the
lead_every = [on] (every|each|all) [single]
month_end = month [RANGE] {end}
day = <month_end> | <nearest> | <friday_the_13th> | <nth_days> | <dates> | <weekly> | <edge>
plain_number = NUMBER <to> NUMBER !HALF | NUMBER !UNIT !HALF !MONTH !OCLOCK
numbered_days = on [the] [day|days] <plain_number> (<separator> [the] (<plain_number>|<nth_days>))*
    | (day|days) <plain_number> (<separator> <plain_number>)* !!of
days = [<lead_every>|<lead>] <day> (<separator> [<lead_every>|<lead>] <day>)*
months = [only] [in|during|of|every|each|for] [each|every] <one_month> (<separator> <one_month>)*
    | [only] (from|between) <month_ends>
one_month = MONTH <to> MONTH | MONTH
month_ends = MONTH (and|<to>) MONTH
holidays = [public|bank|national|legal] (holidays|holiday) | CALENDAR
excepted = <holidays> | <weekly> | <one_month> | <nth_days>
except = <except_word> [for] <excepted_list>
except_word = except | excluding | without | skipping | omitting | not | but not | but | apart from
    | other than | unless [it is] [a]
excepted_list = <one_excepted> ((<separator>|or) <one_excepted>)*
one_excepted = [on|in|during] [the|every] <excepted>
only = [only] [on|in|during] <holidays> [only]
short = or {skip} | or [on] [the] last day
from_start = counted from its start
date_pattern = DATE_PATTERN
time_pattern = TIME_PATTERN
bounded = {starting|beginning|starts|until|till|ending|ends|for|from|after|before} ANY (ANY)*
element = <except> | <zone> | <only> | <short> | <from_start> | <rate> | <counted> | <adverb> | <half_hourly>
    | <two_readings> | <every_other_weekday> | <every_nth_unit> | <past_hours> | <window>
    | <numbered_days> | <days> | <period> | <months> | <part> | <date_pattern> | <time_pattern> | <times>
    | <bounded>
recurrence = <element> ([,] <element>)*
"""


# Points in time: `instant` is the whole phrase.
_INSTANT = """
now = now
from_now = in <length> | + <length> | <length> (from now|hence|later)
ago = <length> ago
relative_day = [on] {today|tonight|tomorrow|tmrw|yesterday} | [the] day {after} tomorrow
    | [the] day {before} yesterday | this PART
next_working_day = [on] [the] next (weekday|workday|(business|working|work) day)
after_day = <length> from (<relative_day>|<near_weekday>)
near_weekday = [on] {this|next|coming|last|previous} WEEKDAY | [on] WEEKDAY
unit_ref = {next|this|last} UNIT
nth_date = [on|at] [the] (<nth_days>|<edge>) of {this|next|the} month
    | [on] [the] <nth_days> of <month_name> [,] [YEAR]
date = [on] [the] <day_and_of> <month_name> [,] [YEAR] | [on] <month_name> <day_of_month> [,] [YEAR]
day_and_of = (NUMBER|ORDINAL) [of]
day_of_month = (NUMBER|ORDINAL) !HALF
numeric_day = [on] the DATE_NUMBER
written_date = [on] <iso_date> | [on] <slashed> | [on] <dotted> | <instant_token>
iso_date = DATE
slashed = SLASHED
dotted = DOTTED
instant_token = INSTANT
unix = @ LONG_NUMBER
moment_element = <zone> | <now> | <unix> | <after_day> | <from_now> | <ago> | <relative_day> | <nth_date>
    | <next_working_day> | <near_weekday> | <unit_ref> | <date> | <numeric_day> | <written_date>
    | <part> | <times>
instant = <moment_element> ([,] <moment_element>)*
"""


# What a rule makes of its values; without an entry, the first one.
_BUILDERS: dict[str, Builder] = {
    "separator": build_nothing,
    "to": build_nothing,
    "half_unit": build_half_unit,
    "quarter_hour": lambda _: (Fraction(1, 4), "hour"),
    "one_and_a_half": lambda values: (Fraction(3, 2), values[0]),
    "and_a_half": lambda values: (values[0] + Fraction(1, 2), values[1]),
    "number_of": lambda values: (Fraction(values[0]), values[1]),
    "one_unit": lambda values: (Fraction(1), values[0]),
    "length": build_length,
    "named_time": build_named_time,
    "part_of_day": lambda values: PartOfDay(values[0]),
    "spoken_time": build_spoken,
    "half_nine": build_half_hour,
    "nine_thirty": lambda values: build_clock([tuple(values[:2]), *values[2:]]),
    "digits": build_clock,
    "bare_time": build_clock,
    "times": lambda values: Times(tuple(value for value in values if isinstance(value, ClockTime))),
    "part": lambda values: PartOfDay(values[0]),
    "zone": lambda values: Zone(values[0]),
    "month_name": lambda values: Months((values[0],)),
    "weekday_name": lambda values: Weekly((values[0],)),
    "day_number": lambda values: values[0],
    "weekly": build_weekly,
    "nth": lambda values: build_nth(["last" if v == "final" else v for v in values]),
    "first_days": build_first_days,
    "nth_range": build_nth_range,
    "date_number": build_nth_range,
    "nth_days": build_nth_days,
    "every_nth_unit": build_other_period,
    "period": lambda values: PhrasePeriod(values[0]),
    "one_length": build_length,
    "rate": build_fixed_period,
    "counted": build_counted,
    "adverb": build_adverb,
    "half_hourly": lambda _: Counted(2, "hour"),
    "two_readings": lambda values: Ambiguous(values[0]),
    "past_hour": build_past,
    "each_past_hour": build_past,
    "past_hours": lambda values: PastHour(tuple(sorted(set(values)))),
    "plain_time": build_clock,
    "window": lambda values: HoursBetween(tuple(values)),
    "every_other_weekday": build_every_other,
    "dates": build_dates,
    "friday_the_13th": lambda values: WeekdayAndDate(values[0], values[1]),
    "nearest": lambda values: Nearest(values[0]),
    "edge": lambda values: Nth((-1,) if values[0] == "end" else (1,)),
    "month_end": lambda _: Nth((-1,)),
    "lead": lambda _: Lead(every=False),
    "lead_every": lambda _: Lead(every=True),
    "plain_number": build_nth_range,
    "numbered_days": build_numbered,
    "days": lambda values: build_days(build_flat(values)),
    "months": build_months,
    "one_month": build_month_range,
    "month_ends": build_month_range,
    "holidays": lambda values: CalendarName(values[0] if values else "holidays"),
    "except": lambda values: Except(tuple(values[0])),
    "except_word": build_nothing,
    "excepted_list": list,
    "only": lambda values: values[0],
    "short": lambda values: Short(skip=bool(values)),
    "from_start": build_nothing,
    "date_pattern": lambda values: Pattern(values[0]),
    "time_pattern": lambda values: Pattern(values[0]),
    "bounded": lambda values: Bounded(values[0]),
    "recurrence": build_flat,
    "now": lambda _: FromNow(Length(), ago=False),
    "from_now": lambda values: FromNow(values[0], ago=False),
    "ago": lambda values: FromNow(values[0], ago=True),
    "relative_day": build_relative_day,
    "next_working_day": lambda _: NextWorkingDay(),
    "after_day": lambda values: FromNow(values[0], ago=False, start=values[1]),
    "near_weekday": build_near_weekday,
    "unit_ref": lambda values: UnitRef(*values),
    "nth_date": build_nth_date,
    "date": build_date,
    "numeric_day": lambda values: DateOfYear(values[0], ()),
    "iso_date": lambda values: WrittenDate("DATE", values[0]),
    "slashed": lambda values: WrittenDate("SLASHED", values[0]),
    "dotted": lambda values: WrittenDate("DOTTED", values[0]),
    "instant_token": lambda values: WrittenDate("INSTANT", values[0]),
    "unix": lambda values: WrittenDate("UNIX", values[0]),
    "instant": build_flat,
}


def _read_table(table: str) -> tuple[Rule, ...]:
    lines = table.strip().replace("\n    |", " |").splitlines()
    rules = []
    for line in lines:
        name, _, notation = line.partition(" = ")
        meaning, examples = RULE_MEANINGS.get(name, ("", ()))
        rules.append(Rule(name, notation, _BUILDERS.get(name, build_first), meaning, examples))
    return tuple(rules)


SHARED_RULES, RECURRENCE_RULES, INSTANT_RULES = map(_read_table, (_SHARED, _RECURRENCE, _INSTANT))
GRAMMAR = Grammar((*SHARED_RULES, *RECURRENCE_RULES, *INSTANT_RULES))
