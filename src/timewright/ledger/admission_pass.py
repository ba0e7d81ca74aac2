"""What a pass of admission writes, gathered schedule by schedule: runs, skips, and where schedules stand."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.admission import Admission, Drop, Fire, Replace, Skip, Verdict, judge
from timewright.core.budgets import Book, Load, told_window
from timewright.core.decision import Candidate
from timewright.core.facts import Fact
from timewright.core.following import Followed, follows
from timewright.core.ordinary import next_on_time, stepped
from timewright.core.policies import Overlap
from timewright.core.run import Run, RunState
from timewright.core.schedule import Schedule, ScheduleState, Standing, is_step
from timewright.core.target import Handoff
from timewright.ledger.endings import parked
from timewright.ledger.following import close, ends_heard, take_ends
from timewright.ledger.shelf import Calendars
from timewright.ledger.supersede import make_way
from timewright.ledger.telling import advanced, new_run, schedule_stopped
from timewright.ports import Advance, Due, Ids, Stood, Transaction
from timewright.ports.links import FollowUp

_NOT_RUN = (Skip, Drop)


class Offer(Struct, frozen=True, kw_only=True):
    """Free capacity: so many runs may be inserted already leased to this holder."""

    holder: str
    capacity: int


def run_of(schedule: Schedule, verdict: Verdict, *, run_id: str, now: datetime, previous: str) -> Run:
    """The row of an occurrence, whatever becomes of it."""
    if isinstance(verdict, _NOT_RUN):
        return Run(
            id=run_id,
            namespace=schedule.namespace,
            schedule_id=schedule.id,
            planned_at=verdict.planned_at,
            fire_at=verdict.planned_at,
            state=RunState.SKIPPED,
            reason=verdict.reason.value,
            source=verdict.source,
            revision=schedule.revision,
            last_of=verdict.last_of if isinstance(verdict, Drop) else None,
            dropped=verdict.count if isinstance(verdict, Drop) else 0,
            created_at=now,
            finished_at=now,
            previous=previous,
        )
    return Run(
        id=run_id,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        planned_at=verdict.planned_at,
        fire_at=verdict.fire_at,
        state=RunState.READY if isinstance(verdict, Fire) else RunState.HELD,
        source=verdict.source,
        trail=verdict.trail,
        revision=schedule.revision,
        queue=schedule.queue or "",
        gates=schedule.gates if schedule.queue or schedule.limits else (),
        priority=schedule.priority,
        alone=schedule.overlap is not Overlap.ALLOW,
        handoff=isinstance(schedule.target, Handoff),
        missed=verdict.missed,
        fired_by=verdict.fired_by,
        created_at=now,
        previous=previous,
    )


class AdmissionPass:
    """What is to be written, gathered schedule by schedule and written together."""

    def __init__(
        self, tx: Transaction, *, ids: Ids, now: datetime, offer: Offer | None = None, batch: str = ""
    ) -> None:
        self.facts: list[Fact] = []
        self.more = False
        self._tx = tx
        self._ids = ids
        self._now = now
        self._holder = offer.holder if offer is not None else ""
        self._room = offer.capacity if offer is not None else 0
        self._batch = batch
        self._leases = 0
        self._advances: list[Advance] = []
        self._runs: list[Run] = []
        self._owners: dict[str, Schedule] = {}
        self._stood: list[Stood] = []
        self._ends: list[tuple[Schedule, Followed]] = []
        self._heard: dict[str, list[FollowUp]] = {}
        self._book: Book | None = None

    def hear(self, due: Iterable[Due]) -> None:
        """Read for all who follow, at once, which ends they have to decide."""
        self._heard |= ends_heard(self._tx, due)

    def advance(self, due: Due) -> bool:
        """Let a schedule go on in the ordinary way, if this is what is due of it; says whether it was.

        The short way, for one that stands as the store has it.
        """
        schedule, standing = due.schedule, due.standing
        if standing.missed:
            return False
        try:
            following = next_on_time(schedule, standing, flight=due.flight, now=self._now)
        except Exception:  # noqa: BLE001 - whoever takes it next will meet this again, and say so
            return False
        if following is None or self._load_of(schedule) is not None:
            return False
        run_id = self._ids.new("run", now=self._now)
        started = self._started(due, run_id) if self._room > 0 and starts_at_once(schedule) else None
        self._advances.append(Advance(due, run_id, following, started))
        return True

    def _started(self, due: Due, run_id: str) -> Run:
        """The run of an ordinary step that starts here and now."""
        schedule, at, source = due.schedule, due.standing.next_at, due.standing.source
        assert at is not None
        assert source is not None
        return Run(
            id=run_id,
            namespace=schedule.namespace,
            schedule_id=schedule.id,
            planned_at=at,
            fire_at=at,
            state=RunState.LEASED,
            source=source,
            revision=schedule.revision,
            priority=schedule.priority,
            alone=schedule.overlap is not Overlap.ALLOW,
            created_at=self._now,
            previous=due.last_run,
            fence=1,
            lease_id=self._take_lease(),
            holder=self._holder,
            leased_at=self._now,
            lease_until=self._now + schedule.lease.length,
        )

    def _take_lease(self) -> str:
        """A place of those that were offered, and the id under which it is found again."""
        self._room -= 1
        self._leases += 1
        return f"{self._batch}-{self._leases}"

    def take(self, due: Due, calendars: Calendars) -> Standing:
        """Decide what is due of one schedule; its error stops that schedule and no other."""
        schedule, standing, flight = due.schedule, due.standing, due.flight
        if follows(schedule.trigger) and schedule.id not in self._heard:
            self.hear([due])
        try:
            following = next_on_time(schedule, standing, flight=flight, now=self._now)
            if following is None and follows(schedule.trigger):
                return self._follow(due, calendars)
            named = calendars.of(schedule)
            admission = following or judge(schedule, standing, flight=flight, now=self._now, calendars=named)
        except Exception as error:  # noqa: BLE001 - the decision is pure: nothing of it is half done
            return self._stand(due, parked(due.standing, str(error)))
        if isinstance(admission, datetime):
            return self._step(due, admission)
        self.more = self.more or admission.more
        return self._stand(due, admission.standing, newest=self._add_runs(due, admission))

    def _step(self, due: Due, following: datetime) -> Standing:
        """The ordinary step: one run, and on to the following instant."""
        fire, standing = stepped(due.standing, following)
        newest = self._add_run(due.schedule, fire, now=self._now, previous=due.last_run)
        self._stood.append(Stood(due.schedule.id, standing, newest, is_step=True))
        return standing

    def _follow(self, due: Due, calendars: Calendars) -> Standing:
        """Decide the ends of another's runs that a schedule has heard of."""
        followed, more = take_ends(due, self._heard[due.schedule.id], calendars, now=self._now)
        admission = followed.admission
        self.more = self.more or more or admission.more
        standing = self._stand(due, admission.standing, newest=self._add_runs(due, admission))
        self._ends.append((due.schedule, followed))
        return standing

    def write(self) -> None:
        """Write the runs and where their schedules stand."""
        new = self._tx.add_runs(self._runs)
        if len(new) != len(self._runs):
            self._relink(new)
        self._tx.stand(self._stood)
        gone_on = self._tx.advance(self._advances, now=self._now)
        close(self._tx, self._ends, self._runs)
        for run in self._runs:
            self.facts += new_run(run, now=self._now)
        self._advances = [row for row in self._advances if row.run_id in gone_on]
        for row in self._advances:
            self.facts += advanced(row, now=self._now)

    def leased(self) -> tuple[tuple[Run, Schedule], ...]:
        """The runs that start here and now, those that were due first before the others."""
        started = [(row.started, row.due.schedule) for row in self._advances if row.started is not None]
        others = [(run, self._owners[run.id]) for run in self._runs if run.state is RunState.LEASED]
        return tuple(sorted(started + others, key=_planned_at) if others else started)

    def _stand(self, due: Due, standing: Standing, *, newest: str = "") -> Standing:
        self._stood.append(Stood(due.schedule.id, standing, newest, is_step(due.standing, standing)))
        if standing.state is not due.standing.state and standing.state is not ScheduleState.ACTIVE:
            self.facts.append(schedule_stopped(due.schedule, standing, now=self._now))
        return standing

    def _add_runs(self, due: Due, admission: Admission) -> str:
        """A row for every verdict, each naming the one before it; gives back the newest, if there is one."""
        newest = ""
        for verdict in admission.verdicts:
            now = max(self._now, verdict.planned_at)
            newest = self._add_run(due.schedule, verdict, now=now, previous=newest or due.last_run)
        return newest

    def _add_run(self, schedule: Schedule, verdict: Verdict, *, now: datetime, previous: str) -> str:
        run_id = self._ids.new("run", now=now)
        run = run_of(schedule, verdict, run_id=run_id, now=self._now, previous=previous)
        if isinstance(verdict, Fire):
            run = self._leased_here(run, schedule)
        elif isinstance(verdict, Replace):
            run = self._replacing(run, schedule)
        self._runs.append(run)
        self._owners[run_id] = schedule
        return run_id

    def _leased_here(self, run: Run, schedule: Schedule) -> Run:
        """One that starts here and now is inserted leased: two writes in its life instead of three."""
        load = self._load_of(schedule)
        if load is not None:
            return _waiting(run, load, now=self._now)
        if self._room < 1 or run.fire_at > self._now or not starts_at_once(schedule):
            return run
        return replace(
            run,
            state=RunState.LEASED,
            fence=1,
            lease_id=self._take_lease(),
            holder=self._holder,
            leased_at=self._now,
            lease_until=self._now + schedule.lease.length,
        )

    def _load_of(self, schedule: Schedule) -> Load | None:
        """What a run stands under that only a lease may decide, because others draw on it too."""
        if self._book is None or (self._book.is_empty and (schedule.budgets or schedule.provider)):
            self._book = self._tx.book(needed=lambda: bool(schedule.budgets or schedule.provider))
        return None if self._book.is_empty else self._book.of_schedule(schedule)

    def _replacing(self, run: Run, schedule: Schedule) -> Run:
        way = make_way(self._tx, schedule, now=self._now)
        self.facts += way.facts
        return replace(run, state=RunState.READY) if way.clear else run

    def _relink(self, new: set[str]) -> None:
        """Some occurrences were already there: leave them out, and close the chain around them."""
        before: dict[str, str] = {}
        links: list[tuple[str, str]] = []
        for run in self._runs:
            start = before.setdefault(run.schedule_id, run.previous)
            if run.id in new:
                links.append((run.id, start))
                before[run.schedule_id] = run.id
        self._tx.link_runs(links)
        self._runs = [run for run in self._runs if run.id in new]
        self._stood = [replace(s, last_run=before.get(s.schedule_id, "")) for s in self._stood]


def starts_at_once(schedule: Schedule) -> bool:
    """Whether no ceiling, no outside holder and no other schedule has a word in its start."""
    return not (
        (schedule.gates if schedule.queue or schedule.limits else ())
        or isinstance(schedule.target, Handoff)
        or schedule.needs
    )


def _planned_at(started: tuple[Run, Schedule]) -> datetime:
    return started[0].planned_at


def _waiting(run: Run, load: Load, *, now: datetime) -> Run:
    """A run whose provider is closed says in its trail what its instant lost against."""
    if load.window is None or load.window.closed_until(now=now) is None:
        return run
    why = f"provider {load.provider} is {told_window(load.window)}"
    return replace(run, trail=(*run.trail, Candidate(run.fire_at, run.source, why)))
