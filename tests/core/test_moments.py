"""Instants, durations and windows: parsing, formatting and limits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.core.moments import (
    DAY,
    HOUR,
    MAX_DURATION,
    MAX_STORED_INSTANT,
    MIN_STORED_INSTANT,
    MINUTE,
    SECOND,
    Window,
    as_instant,
    check_duration,
    check_storable,
    format_duration,
    format_instant,
    from_micros,
    from_ms,
    parse_duration,
    parse_instant,
    to_micros,
)
from timewright.errors import InvalidDuration, InvalidInput, InvalidInstant

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)

durations = st.timedeltas(min_value=timedelta(0), max_value=MAX_DURATION)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90 * SECOND),
        ("15m", 15 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("1.5h", 90 * MINUTE),
        ("7d", 7 * DAY),
        ("1w", 7 * DAY),
        ("1w1d1h1m1s", 8 * DAY + HOUR + MINUTE + SECOND),
        ("0s", timedelta(0)),
        ("0.5s", SECOND / 2),
        ("90M", 90 * MINUTE),
        (" 5m\t", 5 * MINUTE),
        ("PT15M", 15 * MINUTE),
        ("pt15m", 15 * MINUTE),
        ("P1DT2H", DAY + 2 * HOUR),
        ("P2W", 14 * DAY),
        ("PT0S", timedelta(0)),
        ("PT1.25S", 1.25 * SECOND),
        ("36525d", MAX_DURATION),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("60", "60s for seconds or 60m for minutes"),
        ("0", "90s, 15m, 1h30m, 1.5h, 7d, PT15M"),
        ("-5m", "5m: a duration is never negative"),
        ("500ms", "write milliseconds as a fraction (0.5s) or use the field that ends in _ms"),
        ("P1M", "PT15M for minutes; months and years are calendar steps, use a cron trigger"),
        ("soon", "90s, 15m, 1h30m, 1.5h, 7d, PT15M"),
    ],
)
def test_a_duration_that_is_refused_says_what_was_probably_meant(text: str, fix: str) -> None:
    with pytest.raises(InvalidDuration) as refusal:
        parse_duration(text, field="every")
    assert (refusal.value.field, refusal.value.fix) == ("every", fix)


@given(duration=durations)
def test_a_duration_survives_being_written_and_read(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [(90 * SECOND, "1m30s"), (timedelta(0), "0s"), (DAY + SECOND / 2, "1d0.5s"), (90 * MINUTE, "1h30m")],
)
def test_a_duration_has_one_canonical_form(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(text=st.text(max_size=80))
def test_any_text_is_a_duration_or_a_refusal(text: str) -> None:
    try:
        assert parse_duration(text) >= timedelta(0)
    except InvalidDuration as refusal:
        said = (refusal.field, refusal.rule, refusal.fix)
        if not all(said):
            raise AssertionError(said) from refusal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-10T12:00:00Z", NOON),
        ("2026-03-10t12:00:00z", NOON),
        ("2026-03-10 13:00:00+01:00", NOON),
        ("2026-03-10T12:00Z", NOON),
        ("2026-03-10T12:00:00-00:00", NOON),
        ("2026-03-10T12:00:00.5Z", NOON + SECOND / 2),
        ("2026-03-10T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
        ("2026-03-10T17:30:00+05:30", NOON),
    ],
)
def test_an_instant_is_read_with_its_offset(text: str, expected: datetime) -> None:
    found = parse_instant(text)
    assert found == expected
    assert found.tzinfo is UTC


@given(moment=moments)
def test_an_instant_survives_being_written_and_read_and_counted(moment: datetime) -> None:
    assert parse_instant(format_instant(moment)) == moment
    assert from_micros(to_micros(moment)) == moment


@given(
    text=st.text(max_size=60)
    | st.from_regex(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})", fullmatch=True
    )
)
def test_any_text_is_an_instant_or_a_refusal(text: str) -> None:
    try:
        assert parse_instant(text).tzinfo is UTC
    except InvalidInstant as refusal:
        said = (refusal.field, refusal.rule, refusal.fix)
        if not all(said):
            raise AssertionError(said) from refusal


def test_an_instant_without_an_offset_is_refused_with_a_way_out() -> None:
    with pytest.raises(InvalidInstant) as refusal:
        parse_instant("2026-03-10T12:00:00", field="start_at")
    assert refusal.value.fix == "2026-03-10T12:00:00Z, or with an offset: 2026-03-10T12:00:00+01:00"
    with pytest.raises(InvalidInstant):
        as_instant(datetime(2026, 3, 10))


def test_instants_are_converted_to_utc() -> None:
    berlin = NOON.astimezone(timezone(HOUR))
    assert as_instant(berlin) == NOON
    assert as_instant(berlin).tzinfo is UTC
    assert as_instant(NOON) is NOON


def test_only_instants_of_two_centuries_are_stored() -> None:
    for moment in (MIN_STORED_INSTANT, MAX_STORED_INSTANT, NOON):
        assert check_storable(moment, field="at") == moment
    for moment in (MIN_STORED_INSTANT - SECOND, MAX_STORED_INSTANT + SECOND):
        with pytest.raises(InvalidInstant) as refusal:
            check_storable(moment, field="at")
        assert refusal.value.field == "at"


@pytest.mark.parametrize("value", [0, 1, 999, 2**31, 60_000.0])
def test_milliseconds_are_whole_numbers(value: float) -> None:
    assert from_ms(value, field="jitter_ms") == timedelta(milliseconds=value)


@pytest.mark.parametrize(
    "value",
    [-1, 0.5, 2**63, pytest.param(10**5000, id="huge"), 1e308, float("nan"), float("inf"), True, "60", None],
)
def test_an_invalid_number_of_milliseconds_is_refused(value: object) -> None:
    with pytest.raises(InvalidDuration) as refusal:
        from_ms(value, field="jitter_ms")  # type: ignore[arg-type]
    assert refusal.value.field == "jitter_ms"
    assert refusal.value.explain()
    assert str(refusal.value.value)


def test_a_duration_is_never_negative_and_never_longer_than_a_century() -> None:
    assert check_duration(MAX_DURATION) == MAX_DURATION
    for duration in (-SECOND, MAX_DURATION + SECOND):
        with pytest.raises(InvalidDuration):
            check_duration(duration)


def test_a_window_may_be_open_on_either_side() -> None:
    assert Window().contains(NOON)
    assert Window(start=NOON).contains(NOON + DAY)
    assert not Window(end=NOON).contains(NOON + DAY)
    with pytest.raises(InvalidInput):
        Window(NOON, NOON - SECOND)
