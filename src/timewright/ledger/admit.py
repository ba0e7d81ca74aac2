"""Due schedules become runs: the runs, the skips and the advance of the cursor are one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.admission import Admission, Drop, Fire, Replace, Skip, Verdict, judge
from timewright.core.budgets import Book, Load, told_window
from timewright.core.decision import Candidate
from timewright.core.facts import Fact
from timewright.core.following import Followed, follows
from timewright.core.moments import ZERO
from timewright.core.ordinary import next_on_time, stepped
from timewright.core.policies import Overlap
from timewright.core.run import Run, RunState
from timewright.core.schedule import Schedule, ScheduleState, Standing, is_step
from timewright.core.shards import WHOLE, Shard, check_shard
from timewright.core.target import Handoff
from timewright.errors import Conflict, OutcomeUnknown
from timewright.ledger.endings import parked
from timewright.ledger.following import close, ends_heard, take_ends
from timewright.ledger.lease import found_again
from timewright.ledger.shelf import Calendars, calendars_for
from timewright.ledger.supersede import make_way
from timewright.ledger.telling import advanced, new_run, schedule_stopped
from timewright.ports import Advance, Due, Ids, Stood, Store, Transaction
from timewright.ports.links import FollowUp

MOST_RACES = 3

_NOT_RUN = (Skip, Drop)


class Offer(Struct, frozen=True, kw_only=True):
    """Free capacity: so many runs may be inserted already leased to this holder."""

    holder: str
    capacity: int


class Admitted(Struct, frozen=True, kw_only=True):
    """What one pass of admission did; `full` says that there may be more."""

    facts: tuple[Fact, ...] = ()
    leased: tuple[tuple[Run, Schedule], ...] = ()
    looked_at: int = 0
    full: bool = False
    latest: datetime | None = None


def admit_due(
    store: Store,
    *,
    ids: Ids,
    now: datetime,
    limit: int,
    since: datetime | None = None,
    offer: Offer | None = None,
    shard: Shard = WHOLE,
    waited: timedelta = ZERO,
) -> Admitted:
    """Decide every due occurrence of at most `limit` schedules.

    With a shard (k, n), of that part of them; with `waited`, of those that nobody looked at for so long.
    """
    check_shard(shard)
    batch = ids.new("lease", now=now) if offer is not None else ""

    def work(tx: Transaction) -> Admitted:
        due = tx.due_schedules(now=now - waited, limit=limit, since=since, shard=shard)
        calendars = calendars_for(tx, [d.schedule for d in due])
        taken = offer if offer is not None and _in_order(due, room=offer.capacity) else None
        # What starts here takes the place of what ended while we stood still or waited for the store.
        dated = max(now, tx.now()) if due and taken is not None else now
        admission = AdmissionPass(tx, ids=ids, now=dated, offer=taken, batch=batch)
        admission.hear(due)
        for d in due:
            if not admission.advance(d):
                admission.take(d, calendars)
        admission.write()
        return Admitted(
            facts=tuple(admission.facts),
            leased=admission.leased(),
            looked_at=len(due),
            full=len(due) >= limit or admission.more,
            latest=due[-1].standing.wake_at if due else None,
        )

    try:
        return _write(store, work)
    except OutcomeUnknown:
        if offer is None:
            return Admitted(full=True)
        # Our lease ids were chosen before the commit, so the store can tell whether it happened.
        mine = store.read(lambda tx: found_again(tx, batch, holder=offer.holder, now=now))
        started = tuple((one.run, one.schedule) for one in mine.leases if one.schedule is not None)
        return Admitted(facts=mine.facts, leased=started, full=True)


def joined(passes: Sequence[Admitted]) -> Admitted:
    """What several passes did, as one."""
    return Admitted(
        facts=tuple(fact for one in passes for fact in one.facts),
        leased=tuple(pair for one in passes for pair in one.leased),
        looked_at=sum(one.looked_at for one in passes),
        full=any(one.full for one in passes),
        latest=max((one.latest for one in passes if one.latest is not None), default=None),
    )


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

        The short way, for one that stands as the store has it: what starts here and now goes the long one.
        """
        schedule, standing = due.schedule, due.standing
        if self._room > 0 or standing.missed:
            return False
        try:
            following = next_on_time(schedule, standing, flight=due.flight, now=self._now)
        except Exception:  # noqa: BLE001 - whoever takes it next will meet this again, and say so
            return False
        if following is None or self._load_of(schedule) is not None:
            return False
        self._advances.append(Advance(due, self._ids.new("run", now=self._now), following))
        return True

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
        self.facts += [advanced(row, now=self._now) for row in self._advances if row.run_id in gone_on]

    def leased(self) -> tuple[tuple[Run, Schedule], ...]:
        """The runs that start here and now."""
        return tuple((run, self._owners[run.id]) for run in self._runs if run.state is RunState.LEASED)

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
        if self._room < 1 or run.gates or run.handoff or schedule.needs or run.fire_at > self._now:
            return run
        self._room -= 1
        return replace(
            run,
            state=RunState.LEASED,
            fence=1,
            lease_id=f"{self._batch}-{len(self._runs) + 1}",
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


def _waiting(run: Run, load: Load, *, now: datetime) -> Run:
    """A run whose provider is closed says in its trail what its instant lost against."""
    if load.window is None or load.window.closed_until(now=now) is None:
        return run
    why = f"provider {load.provider} is {told_window(load.window)}"
    return replace(run, trail=(*run.trail, Candidate(run.fire_at, run.source, why)))


def _in_order(due: Sequence[Due], *, room: int) -> bool:
    """Whether those due first may start first: all have room, or none of them is more urgent than another."""
    return len(due) <= room or len({one.schedule.priority for one in due}) == 1


def _write(store: Store, work: Callable[[Transaction], Admitted]) -> Admitted:
    """Someone who makes a run by hand may come between our look and our write: then look again."""
    for _ in range(MOST_RACES - 1):
        try:
            return store.write(work)
        except Conflict:
            continue
    return store.write(work)
