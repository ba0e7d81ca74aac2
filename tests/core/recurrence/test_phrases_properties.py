"""Properties of the phrase grammar: generated phrases mean what they say, and reading takes linear time."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from timewright.core.input.decode import decode
from timewright.core.recurrence.phrases import Recurrence, list_rules, parse_moment, parse_recurrence
from timewright.core.recurrence.phrases.rules import GRAMMAR
from timewright.core.recurrence.phrases.tokens import MONTH_NAMES, VOCABULARY, WEEKDAY_NAMES, split
from timewright.core.recurrence.triggers import AnyTrigger, with_anchor
from timewright.errors import TimewrightError

START = datetime(2027, 1, 1, tzinfo=UTC)
DAYS = 400
NOW = datetime(2026, 11, 17, 14, 30, tzinfo=UTC)


def occurrences(found: Recurrence, until: datetime) -> set[datetime]:
    """Return the instants of all triggers of a recurrence."""
    instants: set[datetime] = set()
    for spec in found.triggers:
        trigger = with_anchor(decode(spec.fields(), AnyTrigger), START - timedelta(minutes=1))
        instants |= set(trigger.between(START - timedelta(seconds=1), until, limit=50_000))
    return instants


# ------------------------------------------------------------------------- phrases with their meaning


@st.composite
def clocks(draw: st.DrawFn) -> tuple[str, int]:
    """A time of day as text, and its seconds."""
    hour, minute = draw(st.integers(0, 23)), draw(st.sampled_from([0, 0, 15, 30, 59]))
    half = "am" if hour < 12 else "pm"
    twelve = hour % 12 or 12
    forms = [f"{hour:02}:{minute:02}", f"{twelve}:{minute:02}{half}", f"{twelve}:{minute:02} {half.upper()}"]
    if not minute:
        forms += [f"{twelve}{half}", f"{twelve} {half}", f"{twelve} {half[0]}.m."]
        forms += ["noon"] if hour == 12 else ["midnight"] if hour == 0 else []
    return draw(st.sampled_from(forms)), hour * 3600 + minute * 60


def joined(draw: st.DrawFn, words: list[str]) -> str:
    """Join words as a list, in one of the ways in which people do."""
    *head, last = words
    if not head:
        return last
    return (
        draw(st.sampled_from([", ", ",", " and ", " & "])).join(head)
        + draw(st.sampled_from([" and ", ", and ", ", ", " & "]))
        + last
    )


@st.composite
def weekly_phrases(draw: st.DrawFn) -> tuple[str, Any]:
    days = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True))
    names = [
        draw(st.sampled_from([WEEKDAY_NAMES[day], WEEKDAY_NAMES[day][:3], f"{WEEKDAY_NAMES[day]}s".title()]))
        for day in days
    ]
    lead = draw(st.sampled_from(["every ", "each ", "on ", ""]))
    return f"{lead}{joined(draw, names)}", lambda day: day.weekday() in days


@st.composite
def monthly_phrases(draw: st.DrawFn) -> tuple[str, Any]:
    numbers = draw(st.lists(st.integers(1, 28), min_size=1, max_size=3, unique=True))
    endings = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}
    names = [f"{number}{endings.get(number, 'th')}" for number in numbers]
    tail = draw(st.sampled_from([" of the month", " of every month", " of each month", ""]))
    return f"on the {joined(draw, names)}{tail}", lambda day: day.day in numbers


@st.composite
def counted_phrases(draw: st.DrawFn) -> tuple[str, Any]:
    place, weekday = draw(st.integers(1, 4)), draw(st.integers(0, 6))
    word = draw(st.sampled_from([("first", "second", "third", "fourth"), ("1st", "2nd", "3rd", "4th")]))[
        place - 1
    ]
    tail = draw(st.sampled_from([" of the month", " of every month", " of month"]))
    text = f"{draw(st.sampled_from(['the ', '', 'every ']))}{word} {WEEKDAY_NAMES[weekday]}{tail}"
    return text, lambda day: day.weekday() == weekday and (day.day - 1) // 7 == place - 1


def always(text: str) -> st.SearchStrategy[tuple[str, Any]]:
    return st.just((text, lambda day: True))


DAY_PHRASES = st.one_of(
    weekly_phrases(),
    monthly_phrases(),
    counted_phrases(),
    always("every day"),
    always("daily"),
    st.just(("weekdays", lambda day: day.weekday() < 5)),
    st.just(("every mon-fri", lambda day: day.weekday() < 5)),
    st.just(("weekends", lambda day: day.weekday() > 4)),
    st.just(("last day of the month", lambda day: (day + timedelta(days=1)).day == 1)),
    st.just(("every quarter", lambda day: day.day == 1 and day.month in (1, 4, 7, 10))),
    st.just(("every 25 dec", lambda day: (day.month, day.day) == (12, 25))),
)


@st.composite
def phrases(draw: st.DrawFn) -> tuple[str, set[datetime]]:
    """A phrase of days, times, perhaps months and exceptions, and the instants that it means."""
    text, fits = draw(DAY_PHRASES)
    times = draw(st.lists(clocks(), max_size=3))
    at = f"at {joined(draw, [word for word, _ in times])}" if times else ""
    parts = [text, at] if draw(st.booleans()) else [at, text]
    months: list[int] = []
    if "quarter" not in text and "dec" not in text:
        months = draw(st.lists(st.integers(1, 12), max_size=2, unique=True))
    parts += [f"in {joined(draw, [MONTH_NAMES[month - 1] for month in months])}"] if months else []
    excepted: int | None = None
    if text in ("every day", "daily"):
        excepted = draw(st.none() | st.integers(0, 6))
    parts += [f"except {WEEKDAY_NAMES[excepted]}s"] if excepted is not None else []
    parts += draw(st.sampled_from([[], ["UTC"], ["in UTC"]]))
    seconds = {second for _, second in times} or {0}
    wanted = {
        START + timedelta(days=day, seconds=second)
        for day, second in itertools.product(range(DAYS), seconds)
        if fits(date := START + timedelta(days=day))
        and (not months or date.month in months)
        and date.weekday() != excepted
    }
    return " ".join(part for part in parts if part), wanted


@given(phrases())
@settings(max_examples=300, deadline=None)
def test_a_generated_phrase_means_the_days_and_times_that_it_says(case: tuple[str, set[datetime]]) -> None:
    text, wanted = case
    found = parse_recurrence(text)
    until = START + timedelta(days=DAYS)
    assert occurrences(found, until - timedelta(seconds=1)) == wanted
    again = parse_recurrence(found.read_as)
    assert again.triggers == found.triggers
    assert again.read_as == found.read_as


@given(
    st.integers(1, 120),
    st.sampled_from(["minutes", "min", "hours", "h", "seconds", "m"]),
    st.sampled_from(["every ", "", "once every ", "@every "]),
)
@settings(deadline=None)
def test_a_generated_interval_is_read_as_its_length(count: int, unit: str, lead: str) -> None:
    size = {"m": 60, "h": 3600, "s": 1}[unit[0]]
    found = parse_recurrence(f"{lead}{count} {unit}")
    trigger = decode(found.triggers[0].fields(), AnyTrigger)
    assert trigger.interval == timedelta(seconds=count * size)
    assert parse_recurrence(found.read_as) == found


@given(
    st.sampled_from([5, 10, 15, 20, 30, 60, 90, 120]),
    st.integers(0, 21),
    st.integers(1, 23),
    st.sampled_from(["", "on weekdays"]),
)
@settings(max_examples=100, deadline=None)
def test_a_generated_window_has_every_step_from_its_start_to_its_end(
    step: int, first: int, length: int, days: str
) -> None:
    last = min(first + length, 23)
    found = parse_recurrence(f"every {step} minutes between {first:02}:00 and {last:02}:00 {days}")
    times = [first * 60 + at for at in range(0, (last - first) * 60 + 1, step)]
    wanted = {
        START + timedelta(days=day, minutes=at)
        for day in range(14)
        for at in times
        if not days or (START + timedelta(days=day)).weekday() < 5
    }
    assert occurrences(found, START + timedelta(days=14, seconds=-1)) == wanted
    assert parse_recurrence(found.read_as).triggers == found.triggers


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)), st.sampled_from(["UTC", "Europe/Berlin"]))
@settings(deadline=None)
def test_the_sentence_of_an_instant_reads_as_the_same_instant(at: datetime, zone: str) -> None:
    moment = at.replace(tzinfo=UTC, microsecond=0)
    found = parse_moment(f"{moment:%Y-%m-%dT%H:%M:%S}Z", now=NOW, zone=zone)
    assert found.at == moment
    assert parse_moment(found.read_as, now=NOW, zone="Asia/Tokyo").at == moment


# -------------------------------------------------------------------------------------------------- any text

WORDS = st.sampled_from(
    sorted(
        {*VOCABULARY, *GRAMMAR.words, "9am", "17:00", "1st", "15th", "2026-12-25", "*:0/15", "Europe/Berlin"}
    )
)


@given(st.one_of(st.text(max_size=80), st.lists(WORDS, max_size=12).map(" ".join)))
@settings(max_examples=1500, deadline=None)
def test_any_text_is_read_or_refused_with_the_error_of_the_project(text: str) -> None:
    for read in (
        lambda: parse_recurrence(text, zone="Europe/Berlin"),
        lambda: parse_moment(text, now=NOW, zone="Europe/Berlin"),
    ):
        try:
            found = read()
        except TimewrightError as error:
            said: tuple[object, ...] = (error.field, error.rule, error.fix)
        else:
            said = (found.read_as,)
        assert all(said)


@given(st.lists(WORDS, max_size=10).map(" ".join))
@settings(max_examples=1000, deadline=None)
def test_a_rule_read_from_random_words_is_repeated_by_its_sentence(text: str) -> None:
    try:
        found = parse_recurrence(text, zone="Europe/Berlin")
    except TimewrightError:
        return
    again = parse_recurrence(found.read_as, zone="Europe/Berlin")
    assert again == found


def steps(text: str, start: str) -> int:
    return GRAMMAR.parse(start, split(text)).steps


def test_reading_takes_linear_time() -> None:
    patterns = [
        "monday, ",
        "1st, ",
        "first and ",
        "at 9 ",
        "every ",
        "15 ",
        "1 jan, ",
        "a ",
        "(",
        "every day ",
        "mon-",
    ]
    patterns += [f"{example} " for rule in list_rules() for example in rule.examples]
    for pattern in patterns:
        for start in ("recurrence", "instant"):
            # Repetitions have at most 31 items: beyond, ten times the text takes at most ten times the steps.
            small, large = (steps(pattern * size, start) for size in (40, 400))
            assert large <= 11 * small, pattern
            assert small <= 40_000, pattern


@given(st.lists(WORDS, min_size=20, max_size=20))
@settings(max_examples=200, deadline=None)
def test_the_steps_of_random_words_are_bounded_by_their_number(words: list[str]) -> None:
    text = " ".join(words)
    assert steps(text, "recurrence") <= 600 * len(split(text)) + 600
