"""Properties of every cron expression, zone, policy and instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.core.recurrence.cron_scan import (
    MINUTE,
    SECOND,
    is_occurrence,
    parse_cron,
    readings,
    scan,
    scan_backwards,
    whole_minute,
)
from tests.core.recurrence.cron_strategies import (
    expressions,
    five,
    fixed_daily,
    instants,
    made,
    near_changes,
    policies,
    six,
    zones,
)


@given(expressions, zones, policies, instants)
@example("30 2 * * *", "America/New_York", "vixie", datetime(2021, 3, 14, 6, 59, 59, tzinfo=UTC))
def test_the_next_is_strictly_later_and_the_previous_strictly_earlier(
    expression: str, zone: str, policy: str, moment: datetime
) -> None:
    cron = made(expression, zone, policy)
    after, before = cron.next_after(moment), cron.previous_before(moment)
    assert after is None or after > moment
    assert before is None or before < moment


@given(expressions, zones, policies, instants)
def test_nothing_lies_between_an_instant_and_its_next(
    expression: str, zone: str, policy: str, moment: datetime
) -> None:
    cron = made(expression, zone, policy)
    after = cron.next_after(moment)
    assume(after is not None)
    assert after is not None
    back = cron.previous_before(after)
    assert back is None or back <= moment
    assert cron.next_after(after - timedelta(microseconds=1)) == after
    assert cron.previous_before(after + timedelta(microseconds=1)) == after


@given(expressions, zones, policies, instants)
def test_every_occurrence_matches_in_the_reference_implementation(
    expression: str, zone: str, policy: str, moment: datetime
) -> None:
    after = made(expression, zone, policy).next_after(moment)
    if after is not None:
        (reading,) = readings(zone, after, after, SECOND)
        assert is_occurrence(parse_cron(expression), policy, reading)


@settings(max_examples=60)
@given(five, zones, policies, instants)
def test_five_fields_agree_with_a_scan_of_every_minute(
    expression: str, zone: str, policy: str, moment: datetime
) -> None:
    cron, start = made(expression, zone, policy), whole_minute(moment)
    end = start + timedelta(days=3)
    expected = scan(expression, zone, policy, start, end)
    assert list(cron.between(start - SECOND, end, limit=10_000)) == expected


@settings(max_examples=200)
@given(st.one_of(five, fixed_daily), near_changes, policies)
def test_clock_changes_agree_with_a_scan_of_every_minute(
    expression: str, place: tuple[str, datetime], policy: str
) -> None:
    zone, start = place
    end = start + timedelta(hours=30)
    cron, expected = made(expression, zone, policy), scan(expression, zone, policy, start, end)
    assert list(cron.between(start - SECOND, end, limit=10_000)) == expected
    assert scan_backwards(cron, start, end) == expected


@settings(max_examples=40)
@given(six, zones, policies, instants)
def test_six_fields_agree_with_a_scan_of_every_second(
    expression: str, zone: str, policy: str, moment: datetime
) -> None:
    cron, start = made(expression, zone, policy), moment.replace(microsecond=0)
    end = start + timedelta(hours=2)
    expected = scan(expression, zone, policy, start, end, step=SECOND)
    assert list(cron.between(start - SECOND, end, limit=10_000)) == expected
    assert scan_backwards(cron, start, end) == expected


@settings(max_examples=60)
@given(expressions, zones, policies, instants)
def test_walking_back_gives_the_same_instants_as_walking_forward(
    expression: str, zone: str, policy: str, moment: datetime
) -> None:
    cron = made(expression, zone, policy)
    forward = [moment]
    while len(forward) < 20 and (found := cron.next_after(forward[-1])) is not None:
        forward.append(found)
    backward = forward[-1:]
    while len(backward) < len(forward) - 1 and (found := cron.previous_before(backward[-1])) is not None:
        backward.append(found)
    assert backward[::-1] == forward[-len(backward) :]
    assert all(a < b for a, b in pairwise(forward))


@given(expressions, zones, policies, instants)
def test_equal_triggers_give_equal_results_regardless_of_earlier_calls(
    expression: str, zone: str, policy: str, moment: datetime
) -> None:
    cron, same = made(expression, zone, policy), made(expression, zone, policy)
    cron.next_after(moment + timedelta(days=4000))
    cron.previous_before(moment - timedelta(days=100))
    assert cron == same
    assert hash(cron) == hash(same)
    assert cron.next_after(moment) == same.next_after(moment)


OVERLAPS = (
    ("America/New_York", datetime(2021, 11, 7, 6, tzinfo=UTC), 60),
    ("Europe/London", datetime(2024, 10, 27, 1, tzinfo=UTC), 60),
    ("Australia/Lord_Howe", datetime(2024, 4, 6, 15, tzinfo=UTC), 30),
    ("Antarctica/Troll", datetime(2024, 10, 27, 1, tzinfo=UTC), 120),
    ("Africa/Casablanca", datetime(2024, 3, 10, 2, tzinfo=UTC), 60),
    ("Africa/Cairo", datetime(2024, 10, 31, 21, tzinfo=UTC), 60),
)


@given(expressions, st.sampled_from(OVERLAPS), policies, st.integers(0, 3 * 3600), st.integers(0, 999_999))
def test_in_a_repeated_hour_the_next_occurrence_is_never_in_the_past(
    expression: str, overlap: tuple[str, datetime, int], policy: str, second: int, microsecond: int
) -> None:
    zone, change, minutes = overlap
    moment = change + timedelta(seconds=second % (minutes * 60), microseconds=microsecond)
    cron = made(expression, zone, policy)
    after, before = cron.next_after(moment), cron.previous_before(moment)
    assert after is None or after > moment
    assert before is None or before < moment


def test_the_reference_implementation_sees_gaps_and_overlaps() -> None:
    gap = datetime(2021, 3, 14, 7, tzinfo=UTC)
    (reading,) = readings("America/New_York", gap, gap)
    assert len(reading.lost) == 60
    overlap = datetime(2021, 11, 7, 6, tzinfo=UTC)
    assert [r.again for r in readings("America/New_York", overlap - MINUTE, overlap)] == [False, True]
