"""The oracle agrees with recorded cases and with the engine on every expression."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.recurrence.cron_strategies import expressions, instants, made, near_changes, policies
from timewright.core.calendars import Calendar, DateRange, Span, WeeklyHours
from timewright.core.moments import to_micros
from timewright.core.policies.backoff import Backoff, Constant, Exponential, Ladder
from timewright.core.policies.backoff import hash_fraction as core_share
from timewright.core.policies.policies import QueuePolicy
from timewright.core.recurrence.cron import Cron
from timewright.core.recurrence.triggers import Every
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Note
from timewright.ids import TimedIds
from timewright.verification.oracle.calendars import calendar_covers
from timewright.verification.oracle.cron_scan import CronScan
from timewright.verification.oracle.instant_sets import IntervalInstants, parse_trigger
from timewright.verification.oracle.schedule_policy import parse_backoff, parse_policy, parse_queue_budget
from timewright.verification.oracle.times import (
    DAY,
    from_micros,
    hash_fraction,
    id_created_at,
    parse_duration,
    parse_instant,
)

DATA = Path(__file__).parents[1] / "core" / "data" / "cron"
NOON = datetime.fromisoformat("2026-03-10T12:00:00+00:00")
MOST = 2_000


def recorded(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))["cases"]
    return cases


def instants_of(trigger: Cron | Every, after: datetime, until: datetime) -> list[int]:
    """The engine's instants between two others."""
    found: list[int] = []
    at = trigger.next_after(after)
    while at is not None and at <= until and len(found) <= MOST:
        found.append(to_micros(at))
        at = trigger.next_after(at)
    return found


def test_the_oracle_answers_ordinary_cases_as_three_libraries_do() -> None:
    for case in recorded("cron_basic.json"):
        expected = [parse_instant(text) for text in case["next"]]
        scan = CronScan(case["expr"], zone=case["tz"])
        assert scan.between(parse_instant(case["after"]), expected[-1], limit=100) == expected, case["id"]


def test_the_oracle_follows_every_recorded_change_of_the_clock() -> None:
    looked_at = count()
    for case in recorded("cron_dst.json"):
        for policy, texts in case["expected"].items():
            expected = [parse_instant(text) for text in texts]
            if expected:
                scan = CronScan(case["expr"], zone=case["tz"], dst=policy)
                found = scan.between(parse_instant(case["after"]), expected[-1], limit=1000)
                assert found == expected, (case["id"], policy)
                next(looked_at)
    assert next(looked_at) > 400


def test_the_oracle_finds_the_recorded_next_instants() -> None:
    for case in recorded("cron_basic.json"):
        after, scan = parse_instant(case["after"]), CronScan(case["expr"], zone=case["tz"])
        for text in case["next"][:2]:
            found = scan.first_after(after, until=after + 800 * DAY)
            if found is not None:
                assert found == parse_instant(text), case["id"]
                after = found


@settings(max_examples=100)
@example(
    expression="30 2 * * *",
    near=("Europe/Berlin", datetime.fromisoformat("2026-03-29T00:30Z")),
    policy="vixie",
)
@given(expression=expressions, near=near_changes, policy=policies)
def test_the_oracle_and_the_engine_agree_around_every_change(
    expression: str, near: tuple[str, datetime], policy: str
) -> None:
    zone, begins = near
    cron = made(expression, zone, policy)
    ends = begins + timedelta(hours=30)
    scan = CronScan(expression, zone=zone, dst=policy)
    found = scan.between(to_micros(begins), to_micros(ends), limit=MOST)
    assert found[:MOST] == instants_of(cron, begins, ends)[:MOST]
    first = cron.next_after(begins)
    if first is not None and first <= ends:
        assert scan.first_after(to_micros(begins), until=to_micros(ends)) == to_micros(first)
        assert scan.has(to_micros(first))
        assert not scan.has(to_micros(first) - 1)


@pytest.mark.parametrize("expression", ["H H * * *", "H/15 * * * *", "H(0-29)/10 H(9-17) H * *", "0 0 * * H"])
def test_both_resolve_hashed_fields_alike(expression: str) -> None:
    for key in ("a", "nightly-report", "sch_01"):
        cron = Cron(expression, key=key)
        scan = CronScan(expression, zone="UTC", key=key)
        until = NOON + timedelta(days=40)
        assert scan.between(to_micros(NOON), to_micros(until), limit=MOST) == instants_of(cron, NOON, until)


@given(
    seconds=st.integers(1, 100_000),
    anchor=instants,
    after=st.integers(-1_000_000, 1_000_000),
    length=st.integers(0, 500_000),
)
def test_both_compute_the_same_intervals(seconds: int, anchor: datetime, after: int, length: int) -> None:
    every, begins = Every(timedelta(seconds=seconds), anchor), anchor + timedelta(seconds=after)
    ends = begins + timedelta(seconds=length)
    grid = IntervalInstants(seconds * 1_000_000, to_micros(anchor))
    expected = instants_of(every, begins, ends)
    assert grid.between(to_micros(begins), to_micros(ends), limit=MOST)[:MOST] == expected[:MOST]
    if len(expected) <= MOST:
        assert grid.count(to_micros(begins), to_micros(ends), limit=MOST) == len(expected)


def test_several_triggers_share_an_instant_once() -> None:
    several = parse_trigger(
        {
            "kind": "any_of",
            "triggers": [
                {"kind": "cron", "expression": "0 * * * *"},
                {"kind": "every", "interval": "PT1800S", "anchor": "2026-03-10T12:00:00Z"},
                {"kind": "once", "at": "2026-03-10T12:10:00Z"},
            ],
        }
    )
    found = several.between(to_micros(NOON), to_micros(NOON + timedelta(hours=1)), limit=10)
    assert [from_micros(at).minute for at in found] == [10, 30, 0]
    assert several.first_after(to_micros(NOON), until=to_micros(NOON) + DAY) == found[0]


BACKOFFS: tuple[Backoff, ...] = (
    Exponential(),
    Exponential(base=timedelta(seconds=0.5), factor=3.0, cap=timedelta(minutes=7), jitter=0.3),
    Ladder(),
    Ladder(steps=(timedelta(seconds=5), timedelta(hours=2)), jitter=1.0),
    Constant(wait=timedelta(seconds=42), jitter=0.1),
)


@pytest.mark.parametrize("backoff", BACKOFFS)
def test_both_compute_the_same_backoff(backoff: Backoff) -> None:
    told = parse_backoff(msgspec.json.decode(msgspec.json.encode(backoff)))
    for failures in range(1, 12):
        wait = backoff.delay(failures, seed="run_1") // timedelta(microseconds=1)
        # Formatting a fraction may lose a microsecond, never gain one.
        assert wait - 1 <= told.after(failures, run_id="run_1") <= wait


def test_both_compute_the_same_jitter_hash() -> None:
    assert hash_fraction("backoff", "run", "3") == core_share("backoff", "run", "3")


def test_omitted_fields_have_the_same_defaults_in_both() -> None:
    made_now = Schedule(
        id="sch",
        name="job",
        created_at=NOON,
        trigger=Every(timedelta(minutes=1), NOON),
        target=Note(text="x"),
    )
    policy = parse_policy("sch", msgspec.json.decode(msgspec.json.encode(made_now)))
    assert policy is not None
    tick = timedelta(microseconds=1)
    assert policy.catch_up == made_now.catch_up
    assert policy.catch_up_limit == made_now.catch_up_limit
    assert made_now.catch_up_window is not None
    assert policy.catch_up_window == made_now.catch_up_window // tick
    assert policy.grace == made_now.grace // tick
    assert policy.overlap == made_now.overlap
    assert policy.retry_budget.max_attempts == made_now.retry.max_attempts
    assert policy.retry_budget.parks_when_exhausted == (made_now.retry.exhausted == "park")
    assert policy.retry_budget.lease == made_now.lease.length // tick
    assert policy.retry_budget.time_limit == made_now.lease.time_limit
    assert policy.retry_budget.max_losses == made_now.retry.max_losses
    assert policy.retry_budget.losses_are_attempts == made_now.retry.losses_are_attempts
    assert policy.retry_budget.lease_grace == made_now.lease.grace // tick
    queue, told = QueuePolicy(), parse_queue_budget({})
    assert told.max_attempts == queue.max_attempts
    assert told.lease == queue.lease // tick
    assert told.parks_when_exhausted == (queue.exhausted == "park")


def test_an_unreadable_body_has_no_policy() -> None:
    assert parse_policy("sch", {}) is None
    assert parse_policy("sch", {"created_at": "yesterday", "trigger": {"kind": "every"}}) is None


CALENDAR = Calendar(
    name="mixed",
    zone="America/New_York",
    dates=(date(2026, 3, 9),),
    yearly=("12-25",),
    ranges=(DateRange(first=date(2026, 3, 20), last=date(2026, 3, 22)),),
    weekly=(WeeklyHours(days=(0, 4), start="09:00", end="17:30:15"), WeeklyHours(days=(6,), start="22:00")),
    spans=(Span(start=NOON, end=NOON + timedelta(seconds=90)),),
)


@given(at=st.datetimes(datetime(2026, 3, 1), datetime(2026, 4, 5), timezones=st.just(UTC)))
@example(at=NOON + timedelta(seconds=90))
@example(at=datetime.fromisoformat("2026-03-13T17:30:15-04:00"))
def test_both_include_the_same_instants_in_a_calendar(at: datetime) -> None:
    told = msgspec.json.decode(msgspec.json.encode(CALENDAR))
    assert calendar_covers(told, to_micros(at)) == CALENDAR.covers(at)


@given(value=st.integers(0, 10**16))
def test_durations_round_trip(value: int) -> None:
    text = msgspec.json.decode(msgspec.json.encode(timedelta(microseconds=value)))
    assert parse_duration(text) == value


def test_an_id_encodes_its_creation_time() -> None:
    assert id_created_at(TimedIds().new("run", now=NOON)) == to_micros(NOON)
    assert id_created_at("run_x") is None
    assert id_created_at("") is None
