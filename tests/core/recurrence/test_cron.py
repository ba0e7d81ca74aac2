"""`Cron` as a value: construction, equality, encoding, queries, and the meaning of `H`."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from timewright.core.recurrence import Trigger
from timewright.core.recurrence.cron import Cron
from timewright.core.recurrence.cron.grammar import needs_key
from timewright.errors import InvalidCron, InvalidInput, InvalidInstant, InvalidZone

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_positions_are_expression_zone_policy_and_key() -> None:
    cron = Cron("H 9 * * *", "Europe/Berlin", "match", "report")
    assert (cron.expression, cron.zone, cron.dst, cron.key) == (
        "H 9 * * *",
        "Europe/Berlin",
        "match",
        "report",
    )
    assert Cron("0 9 * * *") == Cron(expression="0 9 * * *", zone="UTC", dst="vixie", key=None)


def test_a_cron_is_a_trigger_that_cannot_be_changed() -> None:
    cron = Cron("0 9 * * *")
    assert issubclass(Cron, Trigger)
    with pytest.raises(AttributeError):
        setattr(cron, "expression", "* * * * *")  # noqa: B010 - a plain assignment would not pass the types


def test_equal_values_share_their_compiled_form() -> None:
    assert Cron("0 9 * * *", "Europe/Berlin")._search is Cron("0 9 * * *", "Europe/Berlin")._search
    assert Cron("0 9 * * *")._search is not Cron("0 9 * * *", "Europe/Berlin")._search
    assert len({Cron("0 9 * * *"), Cron("0 9 * * *"), Cron("0 9 * * *", "Europe/Berlin")}) == 2


def test_it_is_encoded_as_an_object_with_its_kind() -> None:
    cron = Cron("0 9 * * 1-5", "America/New_York", "skip_once")
    text = msgspec.json.encode(cron)
    assert msgspec.json.decode(text) == {
        "kind": "cron",
        "expression": "0 9 * * 1-5",
        "zone": "America/New_York",
        "dst": "skip_once",
        "key": None,
    }
    assert msgspec.json.decode(text, type=Cron) == cron
    assert pickle.loads(pickle.dumps(cron)) == cron
    assert copy.deepcopy(cron).next_after(NOON) == cron.next_after(NOON)


def test_a_bad_value_cannot_be_decoded_either() -> None:
    for text, refusal in (
        (b'{"kind": "cron", "expression": "0 0 31 2 *"}', InvalidCron),
        (b'{"kind": "cron", "expression": "0 0 * * *", "zone": "EST"}', InvalidZone),
        (b'{"kind": "cron", "expression": "0 0 * * *", "dst": "never"}', msgspec.ValidationError),
        (b'{"kind": "cron", "expression": "0 0 * * *", "timezone": "UTC"}', msgspec.ValidationError),
    ):
        with pytest.raises(refusal):
            msgspec.json.decode(text, type=Cron)


def test_an_invalid_policy_or_key_is_refused() -> None:
    wrong: Any
    for wrong in ("skip", None, 1):
        with pytest.raises(InvalidInput, match="is not a policy"):
            Cron("0 0 * * *", "UTC", wrong)
    for wrong in ("", "k" * 257, 5):
        with pytest.raises(InvalidInput, match="is not a key"):
            Cron("0 0 * * *", key=wrong)


def test_a_zone_that_is_not_text_is_refused() -> None:
    wrong: Any
    for wrong in (["UTC"], None, 5):
        with pytest.raises(InvalidZone, match="is not text"):
            Cron("0 0 * * *", wrong)


def test_instants_go_in_with_any_offset_and_come_out_in_utc() -> None:
    tokyo = timezone(9 * HOUR)
    found = Cron("0 9 * * *", "Asia/Tokyo").next_after(NOON.astimezone(tokyo))
    assert found == datetime(2026, 3, 11, 0, tzinfo=UTC)
    assert found is not None
    assert found.tzinfo is UTC


def test_a_naive_instant_is_refused() -> None:
    cron, naive = Cron("* * * * *"), NOON.replace(tzinfo=None)
    for ask in (cron.next_after, cron.previous_before):
        with pytest.raises(InvalidInstant):
            ask(naive)
    with pytest.raises(InvalidInstant):
        cron.between(naive, NOON)


def test_fractions_of_a_second_are_neither_lost_nor_rounded() -> None:
    cron, instant = Cron("0 12 * * *"), timedelta(microseconds=1)
    assert cron.next_after(NOON) == NOON + 24 * HOUR
    assert cron.next_after(NOON - instant) == NOON
    assert cron.previous_before(NOON) == NOON - 24 * HOUR
    assert cron.previous_before(NOON + instant) == NOON


def test_between_leaves_out_the_first_and_keeps_the_last() -> None:
    cron = Cron("0 * * * *")
    assert cron.between(NOON, NOON + 3 * HOUR) == (NOON + HOUR, NOON + 2 * HOUR, NOON + 3 * HOUR)
    assert cron.between(NOON, NOON + 3 * HOUR, 2) == (NOON + HOUR, NOON + 2 * HOUR)
    assert cron.between(NOON, NOON) == ()
    assert cron.between(NOON, NOON - HOUR) == ()
    assert cron.between(NOON, NOON + HOUR, limit=0) == ()
    assert len(cron.between(NOON, NOON + 5000 * HOUR)) == 1000


@pytest.mark.parametrize("expression", ["* * * * *", "* * * * 0-6"])
@pytest.mark.parametrize(
    ("zone", "hour"),
    [("UTC", 23), ("America/New_York", 23), ("Pacific/Kiritimati", 9), ("Pacific/Pago_Pago", 23)],
)
def test_answers_lie_between_1970_and_9999(expression: str, zone: str, hour: int) -> None:
    cron = Cron(expression, zone)
    first, last = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert cron.next_after(datetime(1900, 1, 1, tzinfo=UTC)) == first
    assert cron.next_after(first - timedelta(microseconds=1)) == first
    assert cron.previous_before(first) is None
    assert cron.previous_before(datetime(1900, 1, 1, tzinfo=UTC)) is None
    assert cron.next_after(last) is None
    # East of Greenwich, the year 9999 ends before it does in UTC.
    newest = datetime(9999, 12, 31, hour, 59, tzinfo=UTC)
    assert cron.previous_before(last) == newest
    assert cron.next_after(newest) is None
    assert cron.next_after(newest - timedelta(seconds=1)) == newest


def test_there_are_no_occurrences_before_1970() -> None:
    for expression in ("30 12 * * *", "0 0 31 12 *", "0 0 0 * * * 1970"):
        assert (
            Cron(expression, "America/New_York").previous_before(datetime(1970, 1, 1, 4, tzinfo=UTC)) is None
        )


def test_a_past_year_has_no_occurrence_and_a_distant_one_is_found() -> None:
    assert Cron("0 0 0 1 1 * 1970").next_after(NOON) is None
    assert Cron("0 0 0 31 12 * 9998", "America/New_York").next_after(NOON) == datetime(
        9998, 12, 31, 5, tzinfo=UTC
    )
    assert Cron("0 0 0 31 12 * 9998").previous_before(NOON) is None
    assert Cron("0 0 0 1 1 * 1970,2024").previous_before(NOON) == datetime(2024, 1, 1, tzinfo=UTC)
    assert Cron("0 0 0 29 2 +MON 9900-9999").next_after(NOON) == datetime(9904, 2, 29, tzinfo=UTC)


def test_a_pattern_in_the_last_repeated_hour_of_its_year_still_fires() -> None:
    # Dhaka set its clock back at midnight of the last day of 2009.
    cron = Cron("0 30 23 31 12 * 2009", "Asia/Dhaka", "match")
    found = cron.between(datetime(2009, 12, 31, 12, tzinfo=UTC), datetime(2010, 1, 2, tzinfo=UTC))
    first, second = datetime(2009, 12, 31, 16, 30, tzinfo=UTC), datetime(2009, 12, 31, 17, 30, tzinfo=UTC)
    assert found == (first, second)
    assert cron.previous_before(second) == first
    assert cron.previous_before(second - timedelta(minutes=20)) == first
    assert cron.next_after(first + timedelta(minutes=20)) == second


SAME = [
    ("0 0 * * 7", "0 0 * * 0"),
    ("0 0 * * SUN-MON", "0 0 * * 0,1"),
    ("0 0 * * MON-SUN", "0 0 * * 0-6"),
    ("0 0 * * SAT-SUN", "0 0 * * 0,6"),
    ("0 0 * * SUN-SUN", "0 0 * * 0"),
    ("0 0 * * 5-7", "0 0 * * 0,5,6"),
    ("0 0 * * 1-7/2", "0 0 * * 0,1,3,5"),
    ("0 0 * * 7L", "0 0 * * SUNL"),
    ("0 0 * * 7#2", "0 0 * * SUN#2"),
    ("0 0 * feb-apr mon", "0 0 * FEB-APR 1"),
    ("00 09 * * *", "0 9 * * *"),
    ("0 0 9 * * *", "0 9 * * *"),
    ("0 0 9 * * * *", "0 9 * * *"),
    ("1-1 * * * *", "1 * * * *"),
    ("0 0 ? * ?", "0 0 * * *"),
    ("0 0 1-31 * MON", "0 0 * * *"),
    ("0 0 * * +MON", "0 0 * * MON"),
    ("0 0 13 * +*", "0 0 13 * *"),
    ("@Hourly", "0 * * * *"),
    ("@daily", "@midnight"),
    ("@yearly", "@annually"),
    ("@yearly", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
]


@pytest.mark.parametrize(("written", "meant"), SAME)
def test_two_spellings_mean_the_same(written: str, meant: str) -> None:
    end = NOON + timedelta(days=800)
    assert Cron(written).between(NOON, end, 100) == Cron(meant).between(NOON, end, 100)


SPREAD = [
    # Recorded values: a changed hash would move every schedule that uses it.
    ("H * * * *", "44 * * * *"),
    ("H H * * *", "44 20 * * *"),
    ("H H H * *", "44 20 20 * *"),
    ("0 0 1 H *", "0 0 1 3 *"),
    ("0 0 * * H", "0 0 * * 6"),
    ("H H * * * *", "37 44 * * * *"),
    ("H/15 * * * *", "14-59/15 * * * *"),
    ("H(0-29) 3 * * *", "14 3 * * *"),
    ("H(10-40)/10 3 * * *", "14-40/10 3 * * *"),
    ("H,30 3 * * *", "30,44 3 * * *"),
]


@pytest.mark.parametrize(("hashed", "plain"), SPREAD)
def test_h_always_has_the_same_value(hashed: str, plain: str) -> None:
    cron = Cron(hashed, key="nightly-report")
    end = NOON + timedelta(days=800)
    assert cron.between(NOON, end, 300) == Cron(plain).between(NOON, end, 300)


def test_h_spreads_different_keys_over_the_whole_field() -> None:
    minutes = {Cron("H * * * *", key=f"sch_{n}").between(NOON, NOON + HOUR)[0].minute for n in range(600)}
    assert minutes == set(range(60))
    days = {Cron("0 0 H * *", key=f"sch_{n}").between(NOON, NOON + 800 * HOUR)[0].day for n in range(600)}
    assert days == set(range(1, 29))


def test_fields_of_one_key_are_spread_apart() -> None:
    differing = sum(
        found.minute != found.second
        for n in range(100)
        for found in Cron("H H * * * *", key=f"sch_{n}").between(NOON, NOON + HOUR)
    )
    assert differing > 90


def test_h_without_a_key_is_refused_and_can_be_checked_beforehand() -> None:
    with pytest.raises(InvalidCron, match="has no key"):
        Cron("H 3 * * *")
    assert needs_key("H 3 * * *")
    assert needs_key("0 0 H(1-7) * *")
    assert not needs_key("0 0 * * THU")
    assert not needs_key("H H H")
    assert not needs_key("0 0 * * *")


def test_a_hashed_step_is_an_interval_like_the_step_it_replaces() -> None:
    overlap = datetime(2021, 11, 7, 4, tzinfo=UTC)
    hashed = Cron("H/20 1 * * *", "America/New_York", key="poll").between(overlap, overlap + 4 * HOUR)
    assert len(hashed) == 6


CLASSES = [
    ("30 1 * * *", 1),
    ("0 30 1 * * *", 1),
    ("0,30 1 * * *", 2),
    ("30 0-22 * * *", 3),
    ("30 0-23 * * *", 4),
    ("30 * * * *", 4),
    ("*/30 1 * * *", 4),
    ("0-59 1 * * *", 120),
    ("5,* 1 * * *", 120),
    ("30 */1 * * *", 4),
    ("* 30 1 * * *", 120),
    ("10,20 30 1 * * *", 2),
]


@pytest.mark.parametrize(("expression", "count"), CLASSES)
def test_a_wildcard_or_a_full_field_repeats_in_an_overlap_and_a_fixed_time_does_not(
    expression: str, count: int
) -> None:
    midnight = datetime(2021, 11, 7, 4, tzinfo=UTC)
    found = Cron(expression, "America/New_York").between(midnight, midnight + timedelta(hours=3, minutes=59))
    assert len(found) == count


def test_the_base_class_raises_not_implemented() -> None:
    for ask in (Trigger().next_after, Trigger().previous_before):
        with pytest.raises(NotImplementedError):
            ask(NOON)
    with pytest.raises(NotImplementedError):
        Trigger().describe()
