"""Phrases where triggers are decoded: as text, as `every` and `cron`, in lists, with zones and calendars."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from timewright.core.input.decode import decode, decode_changes, decode_schedule, describe_phrase
from timewright.core.recurrence.triggers import AnyOf, AnyTrigger, Cron, Every, Once, Rrule, every
from timewright.errors import InvalidCron, InvalidInput, InvalidInstant, UnknownField

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
WEEKDAYS = Cron("0 9 * * 1-5", "Europe/Berlin")


def make(**fields: Any) -> Any:
    return decode_schedule({"name": "x", "note": "x", **fields}, id="sch_x", now=NOW)


@pytest.mark.parametrize(
    "raw",
    [
        "every weekday at 9am Europe/Berlin",
        "weekdays at 9, Europe/Berlin",
        {"every": "weekday at 9am Europe/Berlin"},
        {"every": "weekdays at 9", "zone": "Europe/Berlin"},
        {"every": "every mon-fri at 09:00", "timezone": "Europe/Berlin"},
        {"cron": "weekdays at 9am", "zone": "Europe/Berlin"},
        {"cron": "every weekday at 9am Europe/Berlin"},
        {"cron": "0 9 * * 1-5", "zone": "Europe/Berlin"},
        {"kind": "every", "every": "weekday at 9", "zone": "Europe/Berlin"},
        ["weekdays at 9 Europe/Berlin"],
    ],
)
def test_a_phrase_is_the_same_trigger_wherever_it_is_written(raw: Any) -> None:
    assert decode(raw, AnyTrigger) == WEEKDAYS
    assert make(trigger=raw).trigger == WEEKDAYS


@pytest.mark.parametrize("text", ["15m", "PT15M", "every 15 minutes", "rate(15 minutes)", "@every 15m"])
def test_an_interval_in_text_is_an_interval(text: str) -> None:
    assert decode(text, AnyTrigger) == Every(timedelta(minutes=15))
    assert decode({"every": text}, AnyTrigger) == Every(timedelta(minutes=15))


def test_a_phrase_that_one_trigger_cannot_say_becomes_several() -> None:
    found = decode({"every": "day at 9:15am and 5:30pm", "zone": "Asia/Tokyo"}, AnyTrigger)
    assert found == AnyOf((Cron("15 9 * * *", "Asia/Tokyo"), Cron("30 17 * * *", "Asia/Tokyo")))
    listed = decode(["every day at 9:15am and 5:30pm", {"every": "6h"}, "@hourly"], AnyTrigger)
    assert [part.describe() for part in listed.triggers] == [
        "at 09:15 every day, UTC",
        "at 17:30 every day, UTC",
        "every 6h",
        "every hour",
    ]


def test_text_after_the_word_after_still_names_a_schedule() -> None:
    assert decode("after nightly-load", AnyTrigger).describe() == "after nightly-load succeeded"
    assert decode({"cron": "after 5m"}, AnyTrigger).describe() == "5m after the last run ended"


def test_the_function_every_reads_phrases_too() -> None:
    assert every("5m") == every(minutes=5) == Every(timedelta(minutes=5))
    assert every("weekday at 9am Europe/Berlin") == WEEKDAYS
    assert every("2 weeks on mon at 09:00 UTC").describe() == "every 2 weeks on Monday at 09:00, UTC"
    assert isinstance(every("day at 9:15 and 17:30"), AnyOf)
    with pytest.raises(InvalidInput, match="calendar"):
        every("day except holidays")
    untyped: Any = every
    with pytest.raises(InvalidInput, match="two intervals, 5m and 1h"):
        untyped("5m", hours=1)
    with pytest.raises(InvalidInput):
        every()


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ("every monkey", "trigger"),
        ({"every": "mon at 13pm"}, "trigger.every"),
        ({"cron": "sat3 at 9"}, "trigger.cron"),
        ("every 2nd tuesday", "trigger"),
        ({"every": "2nd tuesday"}, "trigger.every"),
        (["hourly", "every day at 13:01am"], "trigger.triggers[1]"),
        ({"every": "day at 9 UTC", "zone": "Europe/Berlin"}, "trigger.every"),
    ],
)
def test_a_refusal_names_the_field(raw: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        make(trigger=raw)
    assert refusal.value.field == field
    assert refusal.value.fix


@pytest.mark.parametrize("text", ["61 * * * *", "0 9 * *", "@dayly", "0 9 * * * # nine"])
def test_text_that_is_meant_as_cron_is_refused_in_the_words_of_cron(text: str) -> None:
    with pytest.raises(InvalidCron):
        decode(text, AnyTrigger)
    with pytest.raises(InvalidCron):
        decode({"cron": text}, AnyTrigger)


def test_a_stable_hash_still_gets_its_key() -> None:
    assert make(cron="H 9 * * *").trigger.key == "sch_x"
    assert make(trigger="H 9 * * *").trigger.key == "sch_x"


# ------------------------------------------------------------------------------------------------ calendars


def test_calendars_in_a_phrase_become_the_calendar_rule_of_the_schedule() -> None:
    made = make(every="weekday at 9 except holidays and calendar quiet")
    assert made.trigger == Cron("0 9 * * 1-5")
    assert made.calendar.except_ == ("holidays", "quiet")
    assert make(every="hour on calendar office").calendar.only == ("office",)


def test_a_calendar_is_refused_where_it_would_be_lost_or_is_given_twice() -> None:
    with pytest.raises(InvalidInput, match="calendar"):
        decode("every day except holidays", AnyTrigger)
    with pytest.raises(InvalidInput, match="twice"):
        make(every="day except holidays", calendar="except quiet")


def test_an_edit_with_a_phrase_changes_trigger_and_calendar() -> None:
    made = make(every="5m")
    changed = decode_changes({"every": "day at 9 except holidays"}, of=made, now=NOW)
    assert changed.trigger == Cron("0 9 * * *")
    assert changed.calendar is not None
    assert changed.calendar.except_ == ("holidays",)


# ------------------------------------------------------------------------------------------------- instants


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"at": "tomorrow 9am"}, datetime(2026, 3, 11, 9, tzinfo=UTC)),
        ({"once": "in 10 minutes"}, datetime(2026, 3, 10, 12, 10, tzinfo=UTC)),
        ({"at": "2026-12-25T09:00", "zone": "Europe/Berlin"}, datetime(2026, 12, 25, 8, tzinfo=UTC)),
        ({"trigger": {"at": "friday 5pm", "tz": "Europe/Berlin"}}, datetime(2026, 3, 13, 16, tzinfo=UTC)),
        ({"trigger": {"kind": "once", "at": "25 dec"}}, datetime(2026, 12, 25, tzinfo=UTC)),
        ({"at": "2026-12-25T09:00:00+01:00"}, datetime(2026, 12, 25, 8, tzinfo=UTC)),
    ],
)
def test_a_point_in_time_may_be_written_in_words(fields: dict[str, Any], at: datetime) -> None:
    assert make(**fields).trigger == Once(at)


def test_start_and_end_are_read_in_the_zone_of_the_trigger() -> None:
    made = make(cron="0 9 * * *", zone="Asia/Tokyo", start_at="2026-04-01", end_at="1 june 2026 noon")
    assert made.start_at == datetime(2026, 3, 31, 15, tzinfo=UTC)
    assert made.end_at == datetime(2026, 6, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize("text", ["01/02/2027", "tomorrow at 13am", "octopus", "5 minutes", "next week"])
def test_a_point_in_time_that_is_not_clear_is_refused(text: str) -> None:
    for fields in ({"at": text}, {"every": "5m", "start_at": text}):
        with pytest.raises(InvalidInstant) as refusal:
            make(**fields)
        assert refusal.value.field in ("trigger.once", "start_at")
        assert refusal.value.fix


def test_a_zone_beside_an_interval_is_still_refused() -> None:
    with pytest.raises(UnknownField):
        make(every="5m", zone="UTC")


# -------------------------------------------------------------------------------------------------- read as


@pytest.mark.parametrize(
    ("fields", "read_as"),
    [
        ({"every": "weekday at 9", "zone": "Europe/Berlin"}, "every weekday at 09:00, Europe/Berlin"),
        ({"trigger": "daily at noon"}, "every day at 12:00, UTC"),
        ({"cron": "nightly Asia/Tokyo"}, "every day at 00:00, Asia/Tokyo"),
        ({"trigger": ["hourly", "every day at 9:05"]}, "every hour at :00, UTC; every day at 09:05, UTC"),
        ({"at": "tomorrow 9am", "zone": "Europe/Berlin"}, "Wednesday 2026-03-11 at 09:00, Europe/Berlin"),
        ({"at": "tomorrow 9am Europe/Berlin"}, "Wednesday 2026-03-11 at 09:00, Europe/Berlin"),
        ({"every": "half hour"}, "every 30 minutes"),
        ({"every": "5m"}, ""),
        ({"rrule": "FREQ=DAILY"}, ""),
    ],
)
def test_how_a_phrase_was_read_is_repeated_with_its_zone(fields: dict[str, Any], read_as: str) -> None:
    draft = {"name": "x", "note": "x", **fields}
    assert describe_phrase(draft, make(**fields)) == read_as


def test_a_rule_text_is_a_trigger() -> None:
    assert decode("FREQ=WEEKLY;BYDAY=MO", AnyTrigger) == Rrule("FREQ=WEEKLY;BYDAY=MO")
