"""What holds for every expression, zone, policy and instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.core.cron_scan import (
    MINUTE,
    SECOND,
    backwards,
    changes,
    fires,
    plain,
    readings,
    scan,
    whole_minute,
)
from timewright.core.cron import Cron
from timewright.errors import InvalidCron

POLICIES = ("vixie", "match", "skip_once")
# Changes of every kind: half an hour, two hours, three, at midnight, a whole day, backwards in summer.
ZONES = (
    *("UTC", "America/New_York", "Europe/Berlin", "Europe/Dublin", "Australia/Lord_Howe", "America/St_Johns"),
    *("Africa/Cairo", "Africa/Casablanca", "Antarctica/Troll", "Antarctica/Casey", "America/Sao_Paulo"),
    *("Pacific/Apia", "Asia/Kathmandu", "Asia/Pyongyang", "America/Nuuk", "Pacific/Chatham", "Asia/Gaza"),
)

policies = st.sampled_from(POLICIES)
zones = st.sampled_from(ZONES)
instants = st.datetimes(datetime(1971, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))


near_changes = zones.filter(lambda zone: zone != "UTC").flatmap(
    lambda zone: st.tuples(
        st.just(zone),
        st.builds(
            lambda change, minutes: change.at + timedelta(minutes=minutes),
            st.sampled_from(changes(zone, 1985)),
            st.integers(-1500, 200),
        ),
    )
)


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    one = st.integers(low, high).map(str)
    span = st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda p: f"{min(p)}-{max(p)}")
    step = st.tuples(st.one_of(st.just("*"), span), st.integers(1, high)).map(lambda p: f"{p[0]}/{p[1]}")
    return st.lists(st.one_of(one, span, step), min_size=1, max_size=3).map(",".join)


def wild(field: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(st.just("*"), st.just("*"), field)


def join(*fields: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*fields).map(" ".join)


special_days = st.sampled_from(["L", "LW", "15W", "1W", "31W", "L-3", "1,L", "L-30", "29W,LW", "?"])
special_weekdays = st.sampled_from(
    ["MON#1", "5#5", "FRIL", "0L,3#2", "+MON", "+SAT,SUN", "SAT-SUN", "7", "?", "+5L"]
)
days = wild(st.one_of(numbers(1, 31), special_days))
weekdays = wild(st.one_of(numbers(0, 6), special_weekdays))
five = join(wild(numbers(0, 59)), wild(numbers(0, 23)), days, wild(numbers(1, 12)), weekdays)
six = join(wild(numbers(0, 59)), five)
fixed_daily = st.tuples(st.integers(0, 59), st.integers(0, 23)).map(lambda p: f"{p[0]} {p[1]} * * *")
expressions = st.one_of(five, six, fixed_daily)


def made(expression: str, zone: str, policy: str) -> Cron:
    """The cron of a random expression; one that can never fire is not a case."""
    try:
        return Cron(expression, zone, policy)  # type: ignore[arg-type]
    except InvalidCron as refused:
        assume("never fires" not in refused.message)
        raise


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
def test_what_is_found_matches_by_the_second_opinion(
    expression: str, zone: str, policy: str, moment: datetime
) -> None:
    after = made(expression, zone, policy).next_after(moment)
    if after is not None:
        (reading,) = readings(zone, after, after, SECOND)
        assert fires(plain(expression), policy, reading)


@settings(max_examples=60)
@given(five, zones, policies, instants)
def test_five_fields_agree_with_looking_at_every_minute(
    expression: str, zone: str, policy: str, moment: datetime
) -> None:
    cron, start = made(expression, zone, policy), whole_minute(moment)
    end = start + timedelta(days=3)
    expected = scan(expression, zone, policy, start, end)
    assert list(cron.between(start - SECOND, end, limit=10_000)) == expected


@settings(max_examples=200)
@given(st.one_of(five, fixed_daily), near_changes, policies)
def test_clock_changes_agree_with_looking_at_every_minute(
    expression: str, place: tuple[str, datetime], policy: str
) -> None:
    zone, start = place
    end = start + timedelta(hours=30)
    cron, expected = made(expression, zone, policy), scan(expression, zone, policy, start, end)
    assert list(cron.between(start - SECOND, end, limit=10_000)) == expected
    assert backwards(cron, start, end) == expected


@settings(max_examples=40)
@given(six, zones, policies, instants)
def test_six_fields_agree_with_looking_at_every_second(
    expression: str, zone: str, policy: str, moment: datetime
) -> None:
    cron, start = made(expression, zone, policy), moment.replace(microsecond=0)
    end = start + timedelta(hours=2)
    expected = scan(expression, zone, policy, start, end, step=SECOND)
    assert list(cron.between(start - SECOND, end, limit=10_000)) == expected
    assert backwards(cron, start, end) == expected


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
def test_equal_values_give_equal_answers_whatever_was_asked_before(
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
def test_asked_inside_the_second_pass_of_an_overlap_the_answer_is_never_in_the_past(
    expression: str, overlap: tuple[str, datetime, int], policy: str, second: int, microsecond: int
) -> None:
    zone, change, minutes = overlap
    moment = change + timedelta(seconds=second % (minutes * 60), microseconds=microsecond)
    cron = made(expression, zone, policy)
    after, before = cron.next_after(moment), cron.previous_before(moment)
    assert after is None or after > moment
    assert before is None or before < moment


def test_the_second_opinion_sees_gaps_and_overlaps() -> None:
    gap = datetime(2021, 3, 14, 7, tzinfo=UTC)
    (reading,) = readings("America/New_York", gap, gap)
    assert len(reading.lost) == 60
    overlap = datetime(2021, 11, 7, 6, tzinfo=UTC)
    assert [r.again for r in readings("America/New_York", overlap - MINUTE, overlap)] == [False, True]
