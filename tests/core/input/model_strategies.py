"""Hypothesis strategies for schedules and their parts, for round-trip tests."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from timewright.core.calendars import Calendar, CalendarRule, DateRange, Roll, Span, WeeklyHours
from timewright.core.policies.backoff import Constant, Exponential, Ladder, Steady, Stretch
from timewright.core.policies.policies import (
    Align,
    CatchUp,
    Clamp,
    Delivery,
    Exhausted,
    JitterSide,
    LeaseTerms,
    Offset,
    Overlap,
    QueuePolicy,
    Retry,
)
from timewright.core.recurrence.triggers import After, AnyOf, Cron, Every, Manual, Once, Rrule
from timewright.core.schedule.hints import Hints, IntervalHint, OneShotHint, PauseHint
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Call, Handoff, Http, Note, Publish, Shell, Workflow

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
names = st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True)
durations = st.timedeltas(timedelta(0), timedelta(days=36_525))
waits = st.timedeltas(timedelta(seconds=1), timedelta(days=400))
moments = st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 31), timezones=st.just(UTC))
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
mappings = st.dictionaries(texts, plain, max_size=3)
headers = st.dictionaries(texts, texts, max_size=3)
fractions = st.floats(0, 1)

crons = st.builds(
    Cron,
    st.sampled_from(["0 9 * * 1-5", "*/5 * * * *", "@daily", "0 0 L * *", "*/10 * * * * *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    st.sampled_from(["vixie", "match", "skip_once"]),
    st.none() | names,
)
everies = st.builds(Every, waits, st.none() | moments)
onces = st.builds(Once, moments)
rrules = st.builds(
    Rrule,
    st.sampled_from(["FREQ=DAILY", "FREQ=MONTHLY;BYDAY=2TU;COUNT=10", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO"]),
    st.sampled_from(["UTC", "Europe/Berlin"]),
    st.sampled_from(["vixie", "match", "skip_once"]),
    st.none() | moments,
)
triggers = st.one_of(
    crons,
    everies,
    onces,
    rrules,
    st.builds(After, waits),
    st.just(Manual()),
    st.lists(crons | everies | onces | rrules, min_size=1, max_size=4).map(lambda parts: AnyOf(tuple(parts))),
)
targets = st.one_of(
    st.builds(
        Call, name=names, args=mappings, isolation=st.sampled_from(["inherit", "loop", "thread", "process"])
    ),
    st.builds(
        Http,
        url=st.just("https://example.com/a?b=c"),
        method=st.sampled_from(["GET", "POST", "DELETE"]),
        headers=headers,
        body=plain,
        timeout=st.timedeltas(timedelta(seconds=1), timedelta(minutes=30)),
        max_response_kb=st.integers(1, 10_000),
        redirects=st.integers(0, 3),
        sign_with=st.none() | names,
    ),
    st.builds(
        Shell, command=st.lists(texts, min_size=1, max_size=4).map(tuple), env=headers, cwd=st.none() | texts
    ),
    st.builds(
        Workflow,
        workflow=names,
        version=st.none() | st.integers(1, 99),
        input=mappings,
        user=st.none() | texts,
    ),
    st.builds(Handoff, payload=plain),
    st.builds(Publish, to=names, name=names, payload=plain, options=mappings, wait=st.booleans()),
    st.builds(Note, text=names),
)
ladders = st.builds(Ladder, steps=st.lists(durations, min_size=1, max_size=5).map(tuple), jitter=fractions)
backoffs = st.one_of(
    st.builds(Exponential, base=durations, factor=st.floats(1, 1000), cap=durations, jitter=fractions).filter(
        lambda backoff: backoff.base <= backoff.cap
    ),
    ladders,
    st.builds(Constant, wait=durations, jitter=fractions),
)
cadences = st.one_of(st.just(Steady()), st.builds(Stretch, st.integers(1, 20)), ladders)
retries = st.builds(
    Retry,
    max_attempts=st.integers(1, 1000),
    backoff=backoffs,
    exhausted=st.sampled_from(Exhausted),
    max_wait=durations,
)
leases = st.builds(LeaseTerms, length=waits, time_limit=waits, grace=durations)
clamps = st.builds(lambda low, more: Clamp(min=low, max=low + more), waits, waits) | st.just(Clamp())
rules = st.builds(
    CalendarRule,
    only=st.lists(names, max_size=2, unique=True).map(lambda found: tuple(f"only-{name}" for name in found)),
    except_=st.lists(names, max_size=2, unique=True).map(tuple),
    roll=st.sampled_from(Roll),
)
policies = st.builds(
    QueuePolicy,
    max_running=st.integers(1, 100_000),
    max_attempts=st.integers(1, 1000),
    lease=waits,
    backoff=backoffs,
    exhausted=st.sampled_from(Exhausted),
    ageing=st.none() | waits,
)
hints = st.builds(
    Hints,
    interval=st.none()
    | st.builds(IntervalHint, interval=durations, expires_at=moments, reason=texts, actor=texts),
    one_shot=st.none()
    | st.builds(OneShotHint, at=moments, expires_at=moments, created_at=st.none() | moments),
    pause=st.none() | st.builds(PauseHint, until=moments, reason=texts),
)
days = st.dates(date(2000, 1, 1), date(2100, 1, 1))
calendars = st.builds(
    Calendar,
    name=names,
    zone=st.sampled_from(["UTC", "Asia/Tokyo"]),
    dates=st.lists(days, max_size=3).map(tuple),
    yearly=st.lists(st.sampled_from(["12-25", "01-01"]), max_size=2).map(tuple),
    ranges=st.lists(days.map(lambda day: DateRange(first=day, last=day)), max_size=2).map(tuple),
    weekly=st.lists(st.just(WeeklyHours(days=(0, 1), start="09:00", end="17:30")), max_size=1).map(tuple),
    spans=st.lists(moments.map(lambda at: Span(start=at, end=at + timedelta(hours=1))), max_size=2).map(
        tuple
    ),
)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    start, end = sorted([draw(moments), draw(moments)])
    jitter = draw(durations)
    fields: dict[str, Any] = {
        "id": "sch_1",
        "name": draw(names),
        "namespace": draw(names),
        "group": draw(st.none() | names),
        "description": draw(texts),
        "tags": tuple(draw(st.lists(names, max_size=3))),
        "metadata": draw(mappings),
        "revision": draw(st.integers(1, 10**6)),
        "created_at": draw(moments),
        "created_by": draw(texts),
        "preset": draw(st.none() | st.sampled_from(["routine", "queue", "adaptive", "desktop", "workflow"])),
        "trigger": draw(triggers),
        "target": draw(targets),
        "start_at": draw(st.none() | st.just(start)),
        "end_at": draw(st.none() | st.just(end)),
        "max_runs": draw(st.none() | st.integers(1, 10**9)),
        "calendar": draw(st.none() | rules),
        "align": draw(st.sampled_from(Align)),
        "catch_up": draw(st.sampled_from(CatchUp)),
        "catch_up_limit": draw(st.integers(1, 10_000)),
        "catch_up_window": draw(st.none() | durations),
        "grace": draw(durations),
        "spread_over": draw(durations),
        "overlap": draw(st.sampled_from(Overlap)),
        "queue_limit": draw(st.integers(1, 100_000)),
        "jitter": jitter,
        "jitter_side": draw(st.sampled_from(JitterSide)),
        "offset": draw(st.sampled_from(Offset)) if jitter else Offset.NONE,
        "retry": draw(retries),
        "cadence": draw(cadences),
        "disable_after": draw(st.none() | st.integers(1, 1000)),
        "delivery": draw(st.sampled_from(Delivery)),
        "lease": draw(leases),
        "deadline": draw(st.none() | durations),
        "queue": draw(st.none() | names),
        "limits": tuple(draw(st.lists(names, max_size=2))),
        "priority": draw(st.integers(0, 1000)),
        "adaptive": draw(st.booleans()),
        "clamp": draw(clamps),
    }
    return Schedule(**fields)
