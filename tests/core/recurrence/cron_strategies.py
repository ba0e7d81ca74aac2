"""Hypothesis strategies for cron expressions, zones, policies and instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import assume
from hypothesis import strategies as st

from tests.core.recurrence.cron_scan import changes
from timewright.core.recurrence.cron import Cron
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
    """The cron trigger of a random expression; discards one that can never fire."""
    try:
        return Cron(expression, zone, policy)  # type: ignore[arg-type]
    except InvalidCron as refused:
        assume("never fires" not in refused.message)
        raise
