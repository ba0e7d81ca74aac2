"""Schedules for properties, and a small world that walks one of them through time by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from timewright.core.admission import (
    Admission,
    Drop,
    Fire,
    Flight,
    Hold,
    Replace,
    Skip,
    Verdict,
    admit,
    judge,
    resumed,
)
from timewright.core.calendars import Calendar, CalendarRule, Span
from timewright.core.governor import plan_next
from timewright.core.moments import HOUR, MINUTE, SECOND, Window
from timewright.core.policies import CatchUp, Overlap
from timewright.core.schedule import Schedule, ScheduleState, Standing, decided, opening
from timewright.core.target import Note
from timewright.core.triggers import AnyOf, AnyTrigger, Cron, Every, Once

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
    """A schedule made at noon, with a note as its target."""
    given = {
        "id": "sch_1",
        "name": "walked",
        "created_at": NOON,
        "trigger": trigger or Every(MINUTE, NOON),
        "target": Note(text="hello"),
        **fields,
    }
    return Schedule(**given)


def opened(made: Schedule, *, now: datetime = NOON, calendars: Any = CALENDARS) -> Standing:
    """Where a schedule stands once its first time is decided."""
    standing = opening(made)
    return decided(made, standing, plan_next(made, standing, now=now, calendars=calendars))


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


class World:
    """One schedule, its runs under way, and everything that was decided."""

    def __init__(self, made: Schedule) -> None:
        self.schedule = made
        self.now = NOON
        self.standing = opened(made)
        self.flight = Flight()
        self.verdicts: list[Verdict] = []
        self.pauses: list[Window] = []

    def admit(self) -> Admission:
        """One pass; it must give the same answer twice, and never move the cursor back."""
        asked = {"flight": self.flight, "now": self.now, "calendars": CALENDARS}
        admission = admit(self.schedule, self.standing, **asked)  # type: ignore[arg-type]
        assert admission == admit(self.schedule, self.standing, **asked)  # type: ignore[arg-type]
        assert admission == judge(self.schedule, self.standing, **asked)  # type: ignore[arg-type]
        assert admission.standing.cursor >= self.standing.cursor
        assert all(v.planned_at > self.standing.cursor for v in admission.verdicts)
        assert all(_last(v) <= admission.standing.cursor for v in admission.verdicts)
        self.standing = admission.standing
        self.verdicts += admission.verdicts
        self._keep(admission.verdicts)
        return admission

    def settle(self) -> None:
        """What runs ends, and the first that is held starts."""
        held = min(self.flight.held, 1)
        self.flight = Flight(live=held, held=self.flight.held - held)

    def pause(self, length: timedelta, *, state: ScheduleState) -> None:
        """Someone pauses the schedule for a while."""
        self.pauses.append(Window(self.now, self.now + length))
        paused = replace(self.standing, paused_at=self.now, paused_until=self.now + length, state=state)
        decision = plan_next(self.schedule, paused, now=self.now, calendars=CALENDARS)
        self.standing = decided(self.schedule, paused, decision)

    def resume(self) -> None:
        """Someone ends the pause early."""
        last = self.pauses.pop()
        self.pauses.append(Window(last.start, min(last.end or self.now, self.now)))
        self.standing = resumed(self.standing, now=self.now)

    def is_paused(self) -> bool:
        """Whether a pause is in force."""
        return any(pause.end is not None and self.now < pause.end for pause in self.pauses)

    def _keep(self, verdicts: tuple[Verdict, ...]) -> None:
        live, held = self.flight.live, self.flight.held
        for verdict in verdicts:
            if isinstance(verdict, Fire):
                assert self.schedule.overlap is Overlap.ALLOW or (live, held) == (0, 0)
                live += 1
            elif isinstance(verdict, Hold):
                assert live or held
                held += 1
            elif isinstance(verdict, Replace):
                live, held = 0, 1
        self.flight = Flight(live=live, held=held)


def decided_instants(verdicts: list[Verdict], made: Schedule) -> list[datetime]:
    """Every instant that has a verdict, with what a drop counts written out."""
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
    """The instants of the trigger inside the schedule's life, one by one."""
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
