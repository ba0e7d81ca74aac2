"""Hypothesis strategies for every value that a store accepts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from tests.conformance.support.builders import new_id
from timewright.core.calendars import CalendarRule, Roll
from timewright.core.moments import MAX_STORED_INSTANT, MIN_STORED_INSTANT, from_micros, to_micros
from timewright.core.policies.backoff import Cadence, Constant, Exponential, Ladder, Steady, Stretch
from timewright.core.policies.policies import (
    Align,
    CatchUp,
    Clamp,
    Delivery,
    Exhausted,
    JitterSide,
    LeaseTerms,
    Overlap,
    Retry,
)
from timewright.core.recurrence.cron import Cron
from timewright.core.recurrence.triggers import After, AnyOf, Every, Manual, Once
from timewright.core.run.run import Attempt, Run, RunState
from timewright.core.schedule.decision import Candidate, Source
from timewright.core.schedule.hints import NO_HINTS, Hints, IntervalHint, OneShotHint, PauseHint
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.core.target import Call, Handoff, Http, Note, Publish, Shell, Workflow

FIRST, LAST = to_micros(MIN_STORED_INSTANT), to_micros(MAX_STORED_INSTANT)

instants: st.SearchStrategy[datetime] = st.one_of(
    st.sampled_from([MIN_STORED_INSTANT, MAX_STORED_INSTANT]), st.integers(FIRST, LAST).map(from_micros)
)
maybe_instants = st.none() | instants
durations = st.integers(1_000_000, 86_400_000_000).map(lambda value: timedelta(microseconds=value))
# Every character except NUL, which PostgreSQL cannot store and which has its own test; no lone surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
objects = st.dictionaries(names, json_values, max_size=3)
counts = st.integers(0, 2**31)
candidates = st.builds(Candidate, maybe_instants, st.sampled_from(Source), texts)
trails = st.lists(candidates, max_size=3).map(tuple)

triggers = st.one_of(
    st.sampled_from(["*/5 * * * *", "0 3 * * 1-5", "0 0 29 2 *", "@daily"]).map(Cron),
    st.builds(Every, durations, instants),
    st.builds(After, durations),
    st.builds(Once, instants),
    st.just(Manual()),
    st.lists(st.builds(Every, durations, instants), min_size=1, max_size=3).map(tuple).map(AnyOf),
)
targets = st.one_of(
    st.builds(Call, name=names, args=objects),
    st.builds(
        Http,
        url=st.just("https://example.invalid/x"),
        headers=st.dictionaries(names, texts, max_size=2),
        body=json_values,
    ),
    st.builds(Shell, command=st.lists(texts, min_size=1, max_size=3).map(tuple), cwd=st.none() | names),
    st.builds(Workflow, workflow=names, input=objects),
    st.builds(Handoff, payload=json_values),
    st.builds(Publish, to=names, name=names, payload=json_values),
    st.builds(Note, text=texts.filter(bool)),
)
backoffs = st.one_of(
    st.builds(Exponential, durations, st.floats(1, 1000), durations, st.floats(0, 1)),
    st.builds(Ladder, st.lists(durations, min_size=1, max_size=4).map(tuple)),
    st.builds(Constant, durations),
)
retries = st.builds(
    Retry, max_attempts=st.integers(1, 1000), backoff=backoffs, exhausted=st.sampled_from(Exhausted)
)
cadences: st.SearchStrategy[Cadence] = st.sampled_from([Steady(), Stretch(), Ladder()])
rules = st.builds(
    CalendarRule, only=st.just(("work",)), except_=st.just(("holidays",)), roll=st.sampled_from(Roll)
)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """A schedule with arbitrary values in every field."""
    start, end = sorted((draw(instants), draw(instants)))
    few, most = sorted((draw(durations), draw(durations)))
    return Schedule(
        id=new_id("schedule"),
        name=f"{draw(texts)}{new_id('schedule')}",
        namespace=draw(names),
        group=draw(st.none() | names),
        description=draw(texts),
        tags=draw(st.lists(names, max_size=3).map(tuple)),
        metadata=draw(objects),
        created_at=draw(instants),
        created_by=draw(texts),
        origin=draw(texts),
        preset=draw(st.none() | st.sampled_from(["routine", "queue", "adaptive", "desktop", "workflow"])),
        trigger=draw(triggers),
        target=draw(targets),
        start_at=draw(st.sampled_from([None, start])),
        end_at=draw(st.sampled_from([None, end])),
        max_runs=draw(st.none() | st.integers(1, 2**31)),
        calendar=draw(st.none() | rules),
        align=draw(st.sampled_from(Align)),
        catch_up=draw(st.sampled_from(CatchUp)),
        catch_up_limit=draw(st.integers(1, 10_000)),
        catch_up_window=draw(st.none() | durations),
        grace=draw(durations),
        spread_over=draw(durations),
        overlap=draw(st.sampled_from(Overlap)),
        queue_limit=draw(st.integers(1, 100_000)),
        jitter=draw(durations),
        jitter_side=draw(st.sampled_from(JitterSide)),
        retry=draw(retries),
        cadence=draw(cadences),
        disable_after=draw(st.none() | st.integers(1, 1000)),
        delivery=draw(st.sampled_from(Delivery)),
        lease=LeaseTerms(length=draw(durations), time_limit=draw(durations), grace=draw(durations)),
        deadline=draw(st.none() | durations),
        queue=draw(st.none() | names),
        limits=draw(st.lists(names, max_size=3).map(tuple)),
        priority=draw(st.integers(0, 1000)),
        adaptive=draw(st.booleans()),
        clamp=draw(st.sampled_from([Clamp(), Clamp(min=few, max=most)])),
    )


hints = st.just(NO_HINTS) | st.builds(
    Hints,
    interval=st.none()
    | st.builds(
        IntervalHint,
        interval=durations,
        expires_at=instants,
        reason=texts,
        actor=texts,
        created_at=maybe_instants,
    ),
    one_shot=st.none()
    | st.builds(
        OneShotHint, at=instants, expires_at=instants, reason=texts, actor=texts, created_at=maybe_instants
    ),
    pause=st.none()
    | st.builds(PauseHint, until=instants, reason=texts, actor=texts, created_at=maybe_instants),
)
standings = st.builds(
    ScheduleProgress,
    state=st.sampled_from(ScheduleState),
    reason=texts,
    cursor=instants,
    next_at=maybe_instants,
    wake_at=maybe_instants,
    source=st.none() | st.sampled_from(Source),
    trail=trails,
    failures=counts,
    runs=counts,
    missed=counts,
    paused_at=maybe_instants,
    paused_until=maybe_instants,
    last_started_at=maybe_instants,
    last_finished_at=maybe_instants,
    failing_since=maybe_instants,
    replaced_after=maybe_instants,
    hints=hints,
)


@st.composite
def new_runs(draw: st.DrawFn) -> Run:
    """A run as admission may write it, also leased."""
    state = draw(st.sampled_from(RunState))
    is_leased = state is RunState.LEASED
    return Run(
        id=new_id(),
        namespace=draw(names),
        schedule_id=new_id("schedule"),
        dedupe_scope=draw(texts),
        planned_at=draw(instants),
        fire_at=draw(instants),
        state=state,
        reason=draw(texts),
        source=draw(st.sampled_from(Source)),
        trail=draw(trails),
        revision=draw(counts),
        queue=draw(texts),
        limit_keys=draw(st.lists(names, max_size=3, unique=True).map(tuple)),
        priority=draw(st.integers(0, 1000)),
        exclusive=draw(st.booleans()),
        handoff=draw(st.booleans()),
        fence=1 if is_leased else 0,
        missed=draw(counts),
        fired_by=draw(st.lists(st.integers(0, 19), max_size=3).map(tuple)),
        last_of=draw(maybe_instants),
        dropped=draw(counts),
        created_at=draw(instants),
        finished_at=draw(maybe_instants),
        lease_id=new_id("lease") if is_leased else "",
        holder=draw(texts) if is_leased else "",
        leased_at=draw(instants) if is_leased else None,
        lease_until=draw(instants) if is_leased else None,
        backfill_of=draw(texts),
        parent=draw(texts),
        previous=draw(texts),
        payload=draw(json_values),
    )


@st.composite
def endings(draw: st.DrawFn, run: Run) -> tuple[Run, Attempt]:
    """The end of a lease with arbitrary values."""
    from msgspec.structs import replace

    state = draw(st.sampled_from([s for s in RunState if s is not RunState.LEASED]))
    after = replace(
        run,
        state=state,
        fire_at=draw(instants) if state is RunState.READY else run.fire_at,
        reason=draw(texts),
        attempts=draw(counts),
        refunds=draw(counts),
        started_at=draw(maybe_instants),
        finished_at=draw(maybe_instants),
        outcome_label=draw(texts),
        error=draw(texts),
    )
    attempt = Attempt(
        run_id=run.id,
        fence=run.fence,
        number=draw(counts),
        lease_id=run.lease_id,
        holder=run.holder,
        leased_at=draw(instants),
        lease_until=draw(instants),
        started_at=draw(maybe_instants),
        ended_at=draw(instants),
        outcome=draw(st.sampled_from(["succeeded", "failed", "timed_out", "lost", "cancelled", "released"])),
        charged=draw(st.booleans()),
        outcome_label=draw(texts),
        error=draw(texts),
        result=draw(json_values),
    )
    return after, attempt
