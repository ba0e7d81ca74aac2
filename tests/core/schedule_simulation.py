"""Hypothesis strategies for schedules, and a simulation that admits one schedule over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from timewright.core.calendars import Calendar, CalendarRule, Span
from timewright.core.moments import HOUR, MINUTE, SECOND, Window
from timewright.core.policies.policies import CatchUp, Overlap
from timewright.core.recurrence.triggers import AnyOf, AnyTrigger, Cron, Every, Once
from timewright.core.run.admission import (
    Admission,
    Drop,
    Fire,
    Hold,
    InFlightCounts,
    Replace,
    Skip,
    Verdict,
    admit,
    admit_general,
)
from timewright.core.schedule.governor import plan_next
from timewright.core.schedule.pauses import resume_progress
from timewright.core.schedule.schedule import (
    Schedule,
    ScheduleProgress,
    ScheduleState,
    apply_decision,
    initial_progress,
)
from timewright.core.target import Note

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
CALENDARS = {
    "closed": Calendar(
        name="closed",
        spans=(
            Span(start=NOON + 3 * MINUTE, end=NOON + 8 * MINUTE),
            Span(start=NOON + 30 * MINUTE, end=NOON + HOUR),
        ),
    )
}


def schedule(trigger: AnyTrigger | None = None, **fields: Any) -> Schedule:
    """A schedule created at noon, with a note as its target."""
    given = {
        "id": "sch_1",
        "name": "walked",
        "created_at": NOON,
        "trigger": trigger or Every(MINUTE, NOON),
        "target": Note(text="hello"),
        **fields,
    }
    return Schedule(**given)


def first_progress(made: Schedule, *, now: datetime = NOON, calendars: Any = CALENDARS) -> ScheduleProgress:
    """The progress of a schedule after its first decision."""
    progress = initial_progress(made)
    return apply_decision(made, progress, plan_next(made, progress, now=now, calendars=calendars))


seconds = st.integers(1, 600).map(lambda n: n * SECOND)
triggers = st.one_of(
    st.builds(
        Every,
        st.integers(20, 900).map(lambda n: n * SECOND),
        st.integers(-50, 50).map(lambda n: NOON + n * SECOND),
    ),
    st.sampled_from(["* * * * *", "*/7 * * * *", "*/20 * * * * *", "5,6,40 * * * *", "0 13 * * *"]).map(Cron),
    st.just(AnyOf((Cron("*/5 * * * *"), Every(150 * SECOND, NOON), Once(NOON + 11 * MINUTE)))),
    st.just(Once(NOON + 5 * MINUTE)),
)


@st.composite
def steady_schedules(draw: st.DrawFn) -> Schedule:
    """Schedules whose trigger alone decides, under every catch-up, overlap and limit."""
    return schedule(
        draw(triggers),
        catch_up=draw(st.sampled_from(CatchUp)),
        catch_up_limit=draw(st.integers(1, 6)),
        catch_up_window=draw(st.none() | st.sampled_from([2 * MINUTE, 20 * MINUTE])),
        overlap=draw(st.sampled_from(Overlap)),
        queue_limit=draw(st.integers(1, 4)),
        grace=draw(st.sampled_from([0 * SECOND, 5 * SECOND, MINUTE])),
        deadline=draw(st.none() | st.sampled_from([30 * SECOND, 10 * MINUTE])),
        start_at=draw(st.none() | st.just(NOON + 4 * MINUTE)),
        end_at=draw(st.none() | st.just(NOON + 40 * MINUTE)),
        calendar=draw(st.none() | st.just(CalendarRule(except_=("closed",)))),
        jitter=draw(st.sampled_from([0 * SECOND, 15 * SECOND, 10 * MINUTE])),
    )


class ScheduleSimulation:
    """One schedule, its unfinished runs, and every verdict so far."""

    def __init__(self, made: Schedule) -> None:
        self.schedule = made
        self.now = NOON
        self.progress = first_progress(made)
        self.in_flight = InFlightCounts()
        self.verdicts: list[Verdict] = []
        self.pauses: list[Window] = []

    def admit(self) -> Admission:
        """Admit once; the result must be repeatable and must not move the cursor back."""
        asked = {"in_flight": self.in_flight, "now": self.now, "calendars": CALENDARS}
        admission = admit(self.schedule, self.progress, **asked)  # type: ignore[arg-type]
        assert admission == admit(self.schedule, self.progress, **asked)  # type: ignore[arg-type]
        assert admission == admit_general(self.schedule, self.progress, **asked)  # type: ignore[arg-type]
        assert admission.progress.cursor >= self.progress.cursor
        assert all(v.planned_at > self.progress.cursor for v in admission.verdicts)
        assert all(_last(v) <= admission.progress.cursor for v in admission.verdicts)
        self.progress = admission.progress
        self.verdicts += admission.verdicts
        self._count_verdicts(admission.verdicts)
        return admission

    def settle(self) -> None:
        """Finish the live runs and start the first held one."""
        held = min(self.in_flight.held, 1)
        self.in_flight = InFlightCounts(live=held, held=self.in_flight.held - held)

    def pause(self, length: timedelta, *, state: ScheduleState) -> None:
        """Pause the schedule for a while."""
        self.pauses.append(Window(self.now, self.now + length))
        paused = replace(self.progress, paused_at=self.now, paused_until=self.now + length, state=state)
        decision = plan_next(self.schedule, paused, now=self.now, calendars=CALENDARS)
        self.progress = apply_decision(self.schedule, paused, decision)

    def resume(self) -> None:
        """Resume the schedule early."""
        last = self.pauses.pop()
        self.pauses.append(Window(last.start, min(last.end or self.now, self.now)))
        self.progress = resume_progress(self.progress, now=self.now)

    def is_paused(self) -> bool:
        """Whether a pause is active."""
        return any(pause.end is not None and self.now < pause.end for pause in self.pauses)

    def _count_verdicts(self, verdicts: tuple[Verdict, ...]) -> None:
        live, held = self.in_flight.live, self.in_flight.held
        for verdict in verdicts:
            if isinstance(verdict, Fire):
                assert self.schedule.overlap is Overlap.ALLOW or (live, held) == (0, 0)
                live += 1
            elif isinstance(verdict, Hold):
                assert live or held
                held += 1
            elif isinstance(verdict, Replace):
                live, held = 0, 1
        self.in_flight = InFlightCounts(live=live, held=held)


def expanded_instants(verdicts: list[Verdict], made: Schedule) -> list[datetime]:
    """Every instant with a verdict; drops are expanded."""
    found: list[datetime] = []
    for verdict in verdicts:
        if isinstance(verdict, Drop):
            inside = instants(made, verdict.planned_at - TICK, verdict.last_of)
            assert len(inside) == verdict.count
            found += inside
        else:
            found.append(verdict.planned_at)
    return found


def instants(made: Schedule, after: datetime, until: datetime) -> list[datetime]:
    """The instants of the trigger between `start_at` and `end_at`."""
    found, at = [], made.trigger.next_after(after)
    while at is not None and at <= until:
        if made.window.contains(at):
            found.append(at)
        at = made.trigger.next_after(at)
    return found


def is_run(verdict: Verdict) -> bool:
    """Whether an occurrence became a run."""
    return not isinstance(verdict, Skip | Drop)


def _last(verdict: Verdict) -> datetime:
    return verdict.last_of if isinstance(verdict, Drop) else verdict.planned_at
