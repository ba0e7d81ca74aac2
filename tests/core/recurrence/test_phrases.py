"""Calendar phrases: weekdays, hours and times such as 9am, and errors for similar text."""

from __future__ import annotations

import pytest

from timewright.core.input.decode import decode
from timewright.core.recurrence.triggers import AnyTrigger, every
from timewright.errors import InvalidCron, InvalidDuration, InvalidInput


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("every monday at 9:00", "every week on Monday at 09:00"),
        ("every mon, wed and fri at 9am", "every week on Monday, Wednesday and Friday at 09:00"),
        ("every sun at 9am, 5pm", "every week on Sunday at 09:00 and 17:00"),
        ("every weekday at 09:00 Europe/Berlin", None),
        ("every weekend", "every week on Saturday and Sunday"),
        ("every Thursdays at 12:30am", "every week on Thursday at 00:30"),
        ("every day at 12pm", "every day at 12:00"),
        ("every month on 2nd tue at 9:30pm", "every month on the second Tuesday at 21:30"),
        ("every hour", "every 1h"),
        ("every minute", "every 1m"),
        ("every 5 minutes", "every 5m"),
    ],
)
def test_a_phrase_is_parsed_as_the_expected_trigger(text: str, words: str | None) -> None:
    weekdays = "every week on Monday, Tuesday, Wednesday, Thursday and Friday at 09:00, Europe/Berlin time"
    assert decode(text, AnyTrigger).describe() == (words or weekdays)
    assert decode({"every": text.removeprefix("every ")}, AnyTrigger).describe() == (words or weekdays)


@pytest.mark.parametrize("text", ["every monkey", "every monday 9:00", "every mon at 13pm", "every sat3"])
def test_an_invalid_day_or_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        decode(text, AnyTrigger)
    assert refusal.value.fix


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("5m", "the interval trigger: every 5m"),
        ("1h30m", "the interval trigger: every 1h30m"),
        ("daily", "'@daily'"),
        ("2026-12-01T09:00:00Z", "the one-time trigger: once: 2026-12-01T09:00:00Z"),
        ("5", "'5 * * * *'"),
    ],
)
def test_the_error_for_another_kind_of_trigger_names_it(text: str, fix: str) -> None:
    with pytest.raises(InvalidCron) as refusal:
        decode(text, AnyTrigger)
    assert refusal.value.fix == fix


def test_every_with_a_calendar_unit_suggests_the_phrase() -> None:
    with pytest.raises(InvalidDuration) as refusal:
        every("monday at 09:00")
    assert str(refusal.value.fix).startswith('"every monday at 09:00" as text')
