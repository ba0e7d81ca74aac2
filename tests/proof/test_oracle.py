"""The oracle beside what it is to judge: recorded cases, and every expression anyone may write."""

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

from tests.core.test_cron_properties import expressions, instants, made, near_changes, policies
from timewright.core.backoff import Backoff, Constant, Exponential, Ladder
from timewright.core.calendars import Calendar, DateRange, Span, WeeklyHours
from timewright.core.cron import Cron
from timewright.core.jitter import share as core_share
from timewright.core.moments import micros
from timewright.core.policies import QueuePolicy
from timewright.core.schedule import Schedule
from timewright.core.target import Note
from timewright.core.triggers import Every
from timewright.ids import TimedIds
from timewright.proof.calendars import covers
from timewright.proof.cron_scan import CronScan
from timewright.proof.plans import Grid, trigger_of
from timewright.proof.policy import backoff_of, policy_of, queue_budget
from timewright.proof.spans import DAY, instant, made_at, moment, share, span

DATA = Path(__file__).parents[1] / "core" / "data" / "cron"
NOON = datetime.fromisoformat("2026-03-10T12:00:00+00:00")
MOST = 2_000


def recorded(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))["cases"]
    return cases


def instants_of(trigger: Cron | Every, after: datetime, until: datetime) -> list[int]:
    """What the code that plans says lies between two instants."""
    found: list[int] = []
    at = trigger.next_after(after)
    while at is not None and at <= until and len(found) <= MOST:
        found.append(micros(at))
        at = trigger.next_after(at)
    return found


def test_the_oracle_answers_ordinary_cases_as_three_libraries_do() -> None:
    for case in recorded("cron_basic.json"):
        expected = [instant(text) for text in case["next"]]
        scan = CronScan(case["expr"], zone=case["tz"])
        assert scan.between(instant(case["after"]), expected[-1], most=100) == expected, case["id"]


def test_the_oracle_follows_every_recorded_change_of_the_clock() -> None:
    looked_at = count()
    for case in recorded("cron_dst.json"):
        for policy, texts in case["expected"].items():
            expected = [instant(text) for text in texts]
            if expected:
                scan = CronScan(case["expr"], zone=case["tz"], dst=policy)
                found = scan.between(instant(case["after"]), expected[-1], most=1000)
                assert found == expected, (case["id"], policy)
                next(looked_at)
    assert next(looked_at) > 400


def test_the_oracle_finds_what_comes_next_as_recorded() -> None:
    for case in recorded("cron_basic.json"):
        after, scan = instant(case["after"]), CronScan(case["expr"], zone=case["tz"])
        for text in case["next"][:2]:
            found = scan.first_after(after, until=after + 800 * DAY)
            if found is not None:
                assert found == instant(text), case["id"]
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
    found = scan.between(micros(begins), micros(ends), most=MOST)
    assert found[:MOST] == instants_of(cron, begins, ends)[:MOST]
    first = cron.next_after(begins)
    if first is not None and first <= ends:
        assert scan.first_after(micros(begins), until=micros(ends)) == micros(first)
        assert scan.has(micros(first))
        assert not scan.has(micros(first) - 1)


@pytest.mark.parametrize("expression", ["H H * * *", "H/15 * * * *", "H(0-29)/10 H(9-17) H * *", "0 0 * * H"])
def test_hashed_fields_mean_the_same_to_both(expression: str) -> None:
    for key in ("a", "nightly-report", "sch_01"):
        cron = Cron(expression, key=key)
        scan = CronScan(expression, zone="UTC", key=key)
        until = NOON + timedelta(days=40)
        assert scan.between(micros(NOON), micros(until), most=MOST) == instants_of(cron, NOON, until)


@given(
    seconds=st.integers(1, 100_000),
    anchor=instants,
    after=st.integers(-1_000_000, 1_000_000),
    length=st.integers(0, 500_000),
)
def test_a_grid_is_a_grid_to_both(seconds: int, anchor: datetime, after: int, length: int) -> None:
    every, begins = Every(timedelta(seconds=seconds), anchor), anchor + timedelta(seconds=after)
    ends = begins + timedelta(seconds=length)
    grid = Grid(seconds * 1_000_000, micros(anchor))
    expected = instants_of(every, begins, ends)
    assert grid.between(micros(begins), micros(ends), most=MOST)[:MOST] == expected[:MOST]
    if len(expected) <= MOST:
        assert grid.count(micros(begins), micros(ends), most=MOST) == len(expected)


def test_several_triggers_share_an_instant_once() -> None:
    several = trigger_of(
        {
            "kind": "any_of",
            "triggers": [
                {"kind": "cron", "expression": "0 * * * *"},
                {"kind": "every", "interval": "PT1800S", "anchor": "2026-03-10T12:00:00Z"},
                {"kind": "once", "at": "2026-03-10T12:10:00Z"},
            ],
        }
    )
    found = several.between(micros(NOON), micros(NOON + timedelta(hours=1)), most=10)
    assert [moment(at).minute for at in found] == [10, 30, 0]
    assert several.first_after(micros(NOON), until=micros(NOON) + DAY) == found[0]


BACKOFFS: tuple[Backoff, ...] = (
    Exponential(),
    Exponential(base=timedelta(seconds=0.5), factor=3.0, cap=timedelta(minutes=7), jitter=0.3),
    Ladder(),
    Ladder(steps=(timedelta(seconds=5), timedelta(hours=2)), jitter=1.0),
    Constant(wait=timedelta(seconds=42), jitter=0.1),
)


@pytest.mark.parametrize("backoff", BACKOFFS)
def test_both_wait_as_long_after_a_failure(backoff: Backoff) -> None:
    told = backoff_of(msgspec.json.decode(msgspec.json.encode(backoff)))
    for failures in range(1, 12):
        wait = backoff.delay(failures, seed="run_1") // timedelta(microseconds=1)
        # A microsecond may be lost in spelling a fraction; never one gained.
        assert wait - 1 <= told.after(failures, run_id="run_1") <= wait


def test_both_hash_alike() -> None:
    assert share("backoff", "run", "3") == core_share("backoff", "run", "3")


def test_what_is_not_said_means_the_same_to_both() -> None:
    made_now = Schedule(
        id="sch",
        name="job",
        created_at=NOON,
        trigger=Every(timedelta(minutes=1), NOON),
        target=Note(text="x"),
    )
    policy = policy_of("sch", msgspec.json.decode(msgspec.json.encode(made_now)))
    assert policy is not None
    tick = timedelta(microseconds=1)
    assert policy.catch_up == made_now.catch_up
    assert policy.catch_up_limit == made_now.catch_up_limit
    assert made_now.catch_up_window is not None
    assert policy.catch_up_window == made_now.catch_up_window // tick
    assert policy.grace == made_now.grace // tick
    assert policy.overlap == made_now.overlap
    assert policy.budget.max_attempts == made_now.retry.max_attempts
    assert policy.budget.parks == (made_now.retry.exhausted == "park")
    assert policy.budget.lease == made_now.lease.length // tick
    assert policy.budget.time_limit == made_now.lease.time_limit // tick
    assert policy.budget.lease_grace == made_now.lease.grace // tick
    queue, told = QueuePolicy(), queue_budget({})
    assert told.max_attempts == queue.max_attempts
    assert told.lease == queue.lease // tick
    assert told.parks == (queue.exhausted == "park")


def test_a_body_that_cannot_be_read_is_no_policy() -> None:
    assert policy_of("sch", {}) is None
    assert policy_of("sch", {"created_at": "yesterday", "trigger": {"kind": "every"}}) is None


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
def test_a_calendar_holds_the_same_instants_for_both(at: datetime) -> None:
    told = msgspec.json.decode(msgspec.json.encode(CALENDAR))
    assert covers(told, micros(at)) == CALENDAR.covers(at)


@given(value=st.integers(0, 10**16))
def test_durations_are_read_as_they_are_written(value: int) -> None:
    text = msgspec.json.decode(msgspec.json.encode(timedelta(microseconds=value)))
    assert span(text) == value


def test_an_id_tells_when_it_was_made() -> None:
    assert made_at(TimedIds().new("run", now=NOON)) == micros(NOON)
    assert made_at("run_x") is None
    assert made_at("") is None
