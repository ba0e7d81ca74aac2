"""Splits a phrase into tokens, and lists the words that the grammar knows.

A token has its text and every meaning of it: `second` is a unit and an ordinal, `sun` is a weekday. Splitting
is one pass of one regular expression without nested repetition, so it takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import available_timezones

from timewright.core.recurrence.words import MONTHS, ORDINALS, WEEKDAYS

WEEKDAY_NAMES = tuple(name.lower() for name in WEEKDAYS)
MONTH_NAMES = tuple(name.lower() for name in MONTHS)

_NUMBER_NAMES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
_NUMBERS = {name: value for value, name in enumerate(_NUMBER_NAMES.split())} | {
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "ninety": 90,
}
_NUMBERS |= {
    f"{tens}{ones}": _NUMBERS[tens] + _NUMBERS[ones]
    for tens in ("twenty", "thirty", "forty", "fifty")
    for ones in _NUMBER_NAMES.split()[1:10]
}
# `d` and `w` are 24 hours and 7 × 24 hours; `day` and `week` follow the calendar.
_UNITS = {
    "second": "second seconds sec secs s",
    "minute": "minute minutes min mins m",
    "hour": "hour hours hr hrs h",
    "d": "d",
    "w": "w wk wks",
    "day": "day days",
    "week": "week weeks",
    "fortnight": "fortnight fortnights",
    "month": "month months mo mos",
    "quarter": "quarter quarters",
    "year": "year years yr yrs",
}
_ADVERBS = {
    "minutely": (1, "minute"),
    "hourly": (1, "hour"),
    "daily": (1, "day"),
    "everyday": (1, "day"),
    "nightly": (1, "night"),
    "weekly": (1, "week"),
    "fortnightly": (2, "week"),
    "monthly": (1, "month"),
    "quarterly": (1, "quarter"),
    "yearly": (1, "year"),
    "annually": (1, "year"),
}
# Each of these has two readings, and only some phrases decide between them.
_BI_ADVERBS = {
    "biweekly": "week",
    "bimonthly": "month",
    "biannually": "year",
    "biannual": "year",
    "biyearly": "year",
}
_DAY_SETS = {
    **dict.fromkeys(("weekday", "weekdays", "workday", "workdays"), (0, 1, 2, 3, 4)),
    **dict.fromkeys(("weekend", "weekends"), (5, 6)),
}
_PARTS = {
    **dict.fromkeys(("morning", "mornings"), "morning"),
    **dict.fromkeys(("afternoon", "afternoons"), "afternoon"),
    **dict.fromkeys(("evening", "evenings"), "evening"),
    **dict.fromkeys(("night", "nights"), "night"),
}
_TIMES_OF_DAY = {"noon": 12 * 3600, "midday": 12 * 3600, "midnight": 0}


_US_ZONES = {
    "eastern": "America/New_York",
    "central": "America/Chicago",
    "mountain": "America/Denver",
    "pacific": "America/Los_Angeles",
}


class Token(NamedTuple):
    """A piece of a phrase: its text, and its value for every kind of token that it can be."""

    text: str
    kinds: Mapping[str, Any]


class PhraseProblem(Exception):
    """Why a phrase is refused; the caller adds the field and the text."""

    def __init__(self, why: str, *, rule: str, fix: str) -> None:
        super().__init__(why)
        self.why, self.rule, self.fix = why, rule, fix


class TwoReadings(PhraseProblem):
    """A phrase with two meanings; the fix has both, as phrases or as `parts` of the phrase."""

    def __init__(self, what: str, first: str, second: str, *, parts: bool = False) -> None:
        fix = f"write {first} or {second}" if parts else f"{first}; or {second}"
        super().__init__(f"has two readings: {what}", rule="an ambiguous phrase is refused", fix=fix)


class TwoWays(PhraseProblem):
    """A phrase that repeats in two ways at once."""

    def __init__(self, why: str, *, fix: str = "leave out one of them") -> None:
        super().__init__(why, rule="a phrase repeats in one way", fix=fix)


def _weekday_words() -> dict[str, int]:
    words: dict[str, int] = {}
    for number, name in enumerate(WEEKDAY_NAMES):
        words |= dict.fromkeys((name, f"{name}s", name[:3], f"{name[:3]}s"), number)
    return words | {"tues": 1, "weds": 2, "wednes": 2, "thur": 3, "thurs": 3, "satur": 5}


def _month_words() -> dict[str, int]:
    words = {"sept": 9}
    for number, name in enumerate(MONTH_NAMES, 1):
        words |= dict.fromkeys((name, name[:3]), number)
    return words


_TEENS = "eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth"
# Without `twenty-second`, which may also be a length.
_ORDINAL_WORDS = {
    **{word: number for number, word in enumerate((*ORDINALS, *_TEENS.split(), "twentieth"), 1)},
    **{f"twenty{word}": 20 + number for number, word in enumerate(ORDINALS[:9], 1) if number != 2},
    "thirtieth": 30,
    "thirtyfirst": 31,
}
_FRACTION_SIGNS = str.maketrans({"½": " 1/2", "¼": " 1/4", "¾": " 3/4"})


def _vocabulary() -> dict[str, dict[str, Any]]:
    tables: dict[str, Mapping[str, Any]] = {
        "NUMBER": _NUMBERS,
        "SPELLED": _NUMBERS,
        "ORDINAL": _ORDINAL_WORDS,
        "DATE_NUMBER": {word: number for word, number in _ORDINAL_WORDS.items() if word != "second"},
        "UNIT": {word: unit for unit, words in _UNITS.items() for word in words.split()},
        "WEEKDAY": _weekday_words(),
        "MONTH": _month_words(),
        "ADVERB": _ADVERBS,
        "BI_ADVERB": _BI_ADVERBS,
        "DAY_SET": _DAY_SETS,
        "PART": _PARTS,
        "NAMED_TIME": _TIMES_OF_DAY,
    }
    words: dict[str, dict[str, Any]] = {}
    for kind, table in tables.items():
        for word, value in table.items():
            words.setdefault(word, {})[kind] = value
    return words


VOCABULARY = _vocabulary()

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<INSTANT>[0-9]{4}-[0-9]{2}-[0-9]{2}(?:t[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:z|[+-][0-9]{2}:?[0-9]{2})?
        |\ [0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?\ ?(?:z(?![a-z])|[+-][0-9]{2}:?[0-9]{2}))(?![\w:]))
    | (?P<BASIC>[0-9]{8}t[0-9]{6}z?(?![\w:]))
    | (?P<DATE>[0-9]{4}(?:-[0-9]{1,2}-[0-9]{1,2}|/[0-9]{1,2}/[0-9]{1,2})(?![0-9/-]))
    | (?P<DATE_PATTERN>(?:\*-[0-9*,./]{1,40}|[0-9]{1,2}-\*)-[0-9*,./]{1,40})
    | (?P<SLASHED>[0-9]{1,2}/[0-9]{1,2}(?:/[0-9]{2,4})?(?![0-9/:])|[0-9]{1,2}-[0-9]{1,2}-[0-9]{2,4}(?![0-9]))
    | (?P<DOTTED>[0-9]{1,2}\.[0-9]{1,2}\.(?:[0-9]{4})?(?![0-9.]))
    | (?P<TIME_PATTERN>(?:\*|[0-9]{1,2}\.\.[0-9]{1,2}|[0-9]{1,2}/[0-9]{1,2}):[0-9*,./]{1,40}(?::[0-9]{1,2})?)
    | (?P<CLOCK>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?![0-9:]))
    | (?P<HOUR_MINUTE>[0-9]{1,2}h[0-9]{2}(?![0-9a-z]))
    | (?P<PAST_HOUR>:[0-9]{2}(?![0-9:]))
    | (?P<ORDINAL>[0-9]{1,3}(?:st|nd|rd|th)(?![a-z0-9]))
    | (?P<DECIMAL>[0-9]{1,9}\.[0-9]{1,9}(?![0-9.]))
    | (?P<NUMBER>[0-9]{1,15}(?![0-9]))
    | (?P<HALF>[ap]\.?m\.?(?![a-z0-9]))
    | (?P<ISO_LENGTH>p(?:[0-9]|t[0-9])[0-9ywdthms.]*(?![a-z]))
    | (?P<CALENDAR>calendar\s+[\w.-]{1,255}(?<![.-]))
    | (?P<ZONE>[a-z_]+(?:/[a-z0-9_+-]+)+|(?:utc|gmt|z|[ecmp][sd]t|[bijkh]st|cest|cet|eest|eet|wet|msk
        |hkt|sgt|ae[sd]t|ac[sd]t|nz[sd]t|ak[sd]t|sast)(?![a-z]))
    | (?P<OCLOCK>o['\u2019]?\s?clock(?![a-z]))
    | (?P<WORD>(?:twenty|thirty|forty|fifty)[\ -](?:one|two|three|four|five|six|seven|eight|nine)(?![a-z])
        |(?:twenty[\ -](?:first|third|fourth|fifth|sixth|seventh|eighth|ninth)|thirty[\ -]first)(?![a-z])
        |(?:bi|semi)-[a-z]+|[a-z]+(?![^\W\d_]))
    | (?P<RANGE>\.\.|[-\u2013\u2014])
    | (?P<SIGN>[,&/+@()])
    | (?P<UNKNOWN>[^\W\d_]+|\S)
    )\s*""",
    re.VERBOSE,
)
_LOWER = str.maketrans({chr(code): chr(code + 32) for code in range(65, 91)})
_END = re.compile(r"(?<=[a-zA-Z)])[.!;]$")
_WRITTEN = re.compile(r"([0-9-]{10})[t ]([0-9:]+)(?:\.([0-9]+))? ?(z|[+-][0-9]{2}:?[0-9]{2})?")


def split(text: str) -> list[Token]:
    """Split a phrase into tokens; a character that belongs to none becomes a token of no kind."""
    written_text = _END.sub("", text.translate(_FRACTION_SIGNS).strip())
    lowered = written_text.translate(_LOWER)
    tokens: list[Token] = []
    position = 0
    while position < len(lowered):
        found = _TOKEN.match(lowered, position)
        # Only white space can be left without a match.
        if found is None:
            break
        kind = found.lastgroup or "UNKNOWN"
        written = found[kind]
        if kind == "CALENDAR":
            written = written_text[found.start(kind) : found.end(kind)]
        end = found.end()
        if kind == "ZONE" and written.partition("/")[0] in VOCABULARY:
            # `mon/wed/fri` is a list of days, not a zone.
            written = written.partition("/")[0]
            kind, end = "WORD", found.start(kind) + len(written)
        tokens.append(_token(kind, written))
        position = end
    return tokens


def _token(kind: str, text: str) -> Token:
    if kind in ("WORD", "ZONE") and text in VOCABULARY:
        return Token(text, VOCABULARY[text])
    if kind in ("WORD", "SIGN", "UNKNOWN"):
        plain = text.replace("-", "").replace(" ", "") if kind == "WORD" else text
        return Token(plain, VOCABULARY.get(plain, {}))
    if kind == "BASIC":
        # 20261225T090000Z, as calendars write it.
        date, clock = re.findall("..", text[:8]), re.findall("..", text[9:15])
        written = f"{''.join(date[:2])}-{date[2]}-{date[3]}t{':'.join(clock)}"
        return _token("INSTANT", f"{written}z" if text.endswith("z") else written)
    kinds = {kind: _VALUES.get(kind, str)(text)}
    if kind == "ORDINAL":
        kinds["DATE_NUMBER"] = kinds[kind]
    if kind == "SLASHED" and len(kinds[kind]) == 2 and 0 < kinds[kind][0] < kinds[kind][1]:
        kinds["FRACTION"] = Fraction(*kinds[kind])
    if kind == "NUMBER" and len(text) == 4:
        kinds |= {"YEAR": int(text)} if "1970" <= text <= "2199" else {}
        kinds |= {"FOUR_DIGITS": (int(text[:2]), int(text[2:]))}
    if kind == "NUMBER" and len(text) > 4:
        kinds["LONG_NUMBER"] = int(text)
    return Token(text, kinds)


def find_zone(text: str) -> str:
    """Return the name of a zone in its own case; unknown text is returned as it is, and refused later."""
    return _zone_names().get(text.lower(), text if "/" in text else text.upper())


def _numbers_in(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.split(r"[:/.h-]", text) if part)


# What the text of a token means; of other kinds it is the text itself.
_VALUES: dict[str, Callable[[str], Any]] = {
    "NUMBER": int,
    "ORDINAL": lambda text: int(text[:-2]),
    "DECIMAL": Fraction,
    **dict.fromkeys(("CLOCK", "HOUR_MINUTE", "DATE", "SLASHED", "DOTTED"), _numbers_in),
    "PAST_HOUR": lambda text: int(text[1:]),
    "HALF": lambda text: text[0],
    "CALENDAR": lambda text: text.split(None, 1)[1],
    "ZONE": find_zone,
}


def find_zone_of_city(word: str) -> str:
    """Return the zone that is named after a city; "" if there is none."""
    if word in _US_ZONES:
        return _US_ZONES[word]
    found = [name for lowered, name in _zone_names().items() if lowered.endswith(f"/{word}")]
    return min(found, key=lambda name: (name.count("/"), name), default="")


@cache
def _zone_names() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones()}


def read_written_instant(text: str) -> tuple[datetime, timedelta | None]:
    """Return the local time and the offset of `2026-12-25T09:00+01:00`; the offset may be missing."""
    found = _WRITTEN.fullmatch(text)
    assert found is not None
    day, clock, fraction, zone = found.groups()
    try:
        seconds = "" if clock.count(":") == 2 else ":00"
        local = datetime.strptime(f"{day} {clock}{seconds}", "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007 - the caller adds the zone
    except ValueError:
        raise PhraseProblem(
            f"has a time that does not exist: {text.upper()}",
            rule="a day of the calendar, an hour 0 to 23, a minute and second 0 to 59",
            fix="2026-12-25T09:00:00Z",
        ) from None
    local = local.replace(microsecond=int(f"{fraction[:6]:0<6}") if fraction else 0)
    if zone in (None, "z"):
        return local, None if zone is None else timedelta(0)
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    if hours > 23 or minutes > 59:
        raise PhraseProblem(
            "has an offset that does not exist", rule="an offset is less than 24 hours", fix="+01:00"
        )
    return local, timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
