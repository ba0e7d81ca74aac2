"""Collects what one admission transaction writes: runs, skips, and the progress of their schedules."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.budgets.budgets import ApplicableBudgets, BudgetCatalog, describe_window
from timewright.core.facts import Fact
from timewright.core.run.admission import Admission, Fire, Replace, Verdict, admit_general
from timewright.core.run.build import NewLease, build_schedule_run
from timewright.core.run.fast_path import next_if_on_time
from timewright.core.run.following import FollowResult, follows_upstream
from timewright.core.run.needs import LeaseOffer, SlotCount, needs_of_schedule
from timewright.core.run.replaced import has_reopened
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.decision import Candidate
from timewright.core.schedule.pauses import Pauses
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState, only_advances
from timewright.core.target import Handoff
from timewright.ledger.dependencies.follow_ups import close_follow_ups, decide_follow_ups, load_follow_ups
from timewright.ledger.fact_builders import new_run_facts, on_time_step_facts, schedule_stopped_fact
from timewright.ledger.lookups import CalendarLookup
from timewright.ledger.pauses import PauseLookup, load_pauses
from timewright.ledger.queues.limits import LimitResolver
from timewright.ledger.replacement import cancel_for_replacement
from timewright.ledger.run_ends import parked_progress
from timewright.ports import Ids, OnTimeStep, ProgressUpdate, RunFilter, ScheduleRecord, Transaction
from timewright.ports.workflow import FollowUp

# Rows of a schedule's history that are read at once.
PAGE_ROWS = 500


class LocalCapacity(Struct, frozen=True, kw_only=True):
    """An instance that may start runs as they are admitted: its free slots, and what it can run."""

    holder: str
    free_slots: int
    offer: LeaseOffer | None = None


class AdmissionBatch:
    """The decisions of one transaction, collected schedule by schedule and written together."""

    def __init__(
        self,
        tx: Transaction,
        *,
        ids: Ids,
        now: datetime,
        local_capacity: LocalCapacity | None = None,
        lease_batch: str = "",
        pauses: PauseLookup | None = None,
    ) -> None:
        self.facts: list[Fact] = []
        self.more = False
        self._tx = tx
        self._ids = ids
        self._now = now
        self._holder = local_capacity.holder if local_capacity is not None else ""
        self._free_slots = local_capacity.free_slots if local_capacity is not None else 0
        offer = local_capacity.offer if local_capacity is not None else None
        self._slots = SlotCount(offer) if offer is not None else None
        self._lease_batch = lease_batch
        self._lease_count = 0
        self._pauses = pauses
        self._on_time_steps: list[OnTimeStep] = []
        self._runs: list[Run] = []
        self._schedules: dict[str, Schedule] = {}
        self._updates: list[ProgressUpdate] = []
        self._followed: list[tuple[Schedule, FollowResult]] = []
        self._follow_ups: dict[str, list[FollowUp]] = {}
        self._budgets: BudgetCatalog | None = None
        self._limits = LimitResolver(tx)

    def load_follow_ups(self, records: Iterable[ScheduleRecord]) -> None:
        """Read in one query which upstream ends the schedules have to decide."""
        self._follow_ups |= load_follow_ups(self._tx, records)

    def decide_all(self, due: Iterable[ScheduleRecord], calendars: CalendarLookup) -> None:
        """Decide due schedules, and write what was decided."""
        for record in due:
            if not self.add_on_time_step(record):
                self.decide(record, calendars)
        self.write()

    def add_on_time_step(self, record: ScheduleRecord) -> bool:
        """Add a schedule whose only due occurrence is on time; return whether it was such a schedule.

        This is the fast path: it needs the record exactly as the store has it, and writes fewer columns.
        """
        schedule, progress = record.schedule, record.progress
        if progress.missed or self._skipping(record).spans:
            return False
        try:
            next_at = next_if_on_time(schedule, progress, in_flight=record.in_flight, now=self._now)
        except Exception:  # noqa: BLE001 - `decide` meets the same error, and parks the schedule
            return False
        if next_at is None or self._applicable_budgets(schedule) is not None:
            return False
        if (schedule.limits or schedule.queue) and not self._limits.has_fixed_keys(schedule):
            return False
        run_id = self._ids.new("run", now=self._now)
        started = None
        if self._can_start(schedule):
            assert progress.next_at is not None
            assert progress.source is not None
            fire = Fire(planned_at=progress.next_at, fire_at=progress.next_at, source=progress.source)
            started = self._build(schedule, fire, run_id, previous=record.last_run, starts=True)
        self._on_time_steps.append(OnTimeStep(record, run_id, next_at, started))
        return True

    def decide(
        self, record: ScheduleRecord, calendars: CalendarLookup, *, before_edit: bool = False
    ) -> ScheduleProgress:
        """Decide all due occurrences of one schedule; an error parks this schedule and no other."""
        schedule, progress, in_flight = record.schedule, record.progress, record.in_flight
        follows = follows_upstream(schedule.trigger)
        if follows and schedule.id not in self._follow_ups:
            self.load_follow_ups([record])
        try:
            if follows:
                return self._decide_follow_ups(record, calendars)
            named = calendars.for_schedule(schedule)
            admission = admit_general(
                schedule,
                progress,
                in_flight=in_flight,
                now=self._now,
                calendars=named,
                before_edit=before_edit,
                scoped_pauses=self._skipping(record),
                decided=self._decided_since(record),
            )
        except Exception as error:  # noqa: BLE001 - the decision is pure: nothing was written yet
            return self._update(record, parked_progress(record.progress, str(error)))
        self.more = self.more or admission.more
        return self._update(record, admission.progress, newest=self._add_runs(record, admission))

    def _decide_follow_ups(self, record: ScheduleRecord, calendars: CalendarLookup) -> ScheduleProgress:
        """Decide the upstream ends that a schedule follows."""
        follow_ups = self._follow_ups[record.schedule.id]
        followed, more = decide_follow_ups(
            record, follow_ups, calendars, now=self._now, scoped_pauses=self._skipping(record)
        )
        admission = followed.admission
        self.more = self.more or more or admission.more
        progress = self._update(record, admission.progress, newest=self._add_runs(record, admission))
        self._followed.append((record.schedule, followed))
        return progress

    def _decided_since(self, record: ScheduleRecord) -> frozenset[datetime]:
        """The instants that have a row, of those that a success reopened."""
        since = record.progress.replaced_after
        if since is None or not has_reopened(record.schedule, record.progress):
            return frozenset()
        found, which = set[datetime](), RunFilter(schedule_id=record.schedule.id, limit=PAGE_ROWS)
        while True:
            page = self._tx.find(which)
            occurrences = [run.planned_at for run in page.rows if not run.dedupe_scope]
            found.update(at for at in occurrences if at > since)
            if not page.cursor or any(at <= since for at in occurrences):
                return frozenset(found)
            which = replace(which, cursor=page.cursor)

    def _skipping(self, record: ScheduleRecord) -> Pauses:
        """The pauses of a group or another scope whose occurrences are skipped."""
        if self._pauses is None:
            self._pauses = load_pauses(self._tx, now=self._now, records=[record])
        return self._pauses.skipping(record.schedule, record.progress)

    def write(self) -> None:
        """Write the runs and the progress of their schedules."""
        new = self._tx.add_runs(self._runs)
        if len(new) != len(self._runs):
            self._relink(new)
        self._tx.save_progress(self._updates)
        advanced = self._tx.advance_schedules(self._on_time_steps, now=self._now)
        close_follow_ups(self._tx, self._followed, self._runs)
        for run in self._runs:
            self.facts += new_run_facts(run, now=self._now)
        self._on_time_steps = [step for step in self._on_time_steps if step.run_id in advanced]
        for step in self._on_time_steps:
            self.facts += on_time_step_facts(step, now=self._now)

    def leased_runs(self) -> tuple[tuple[Run, Schedule], ...]:
        """The runs that were inserted leased, in the order of their planned instants."""
        started = [
            (step.started_run, step.record.schedule)
            for step in self._on_time_steps
            if step.started_run is not None
        ]
        others = [(run, self._schedules[run.id]) for run in self._runs if run.state is RunState.LEASED]
        return tuple(sorted(started + others, key=_planned_at) if others else started)

    def _update(
        self, record: ScheduleRecord, progress: ScheduleProgress, *, newest: str = ""
    ) -> ScheduleProgress:
        self._updates.append(
            ProgressUpdate(record.schedule.id, progress, newest, only_advances(record.progress, progress))
        )
        if progress.state is not record.progress.state and progress.state is not ScheduleState.ACTIVE:
            self.facts.append(schedule_stopped_fact(record.schedule, progress, now=self._now))
        return progress

    def _add_runs(self, record: ScheduleRecord, admission: Admission) -> str:
        """Add a row for every verdict, each linked to the one before; return the id of the last, or ''."""
        newest = ""
        for verdict in admission.verdicts:
            if isinstance(verdict, Replace) and self._has_row(record.schedule, verdict):
                continue
            run_id = self._ids.new("run", now=max(self._now, verdict.planned_at))
            self._add_run(record.schedule, verdict, run_id, previous=newest or record.last_run)
            newest = run_id
        return newest

    def _has_row(self, schedule: Schedule, verdict: Replace) -> bool:
        """Whether the occurrence was skipped by hand before: it must not stop the run under way."""
        return self._tx.find_occurrence(schedule.id, verdict.planned_at) is not None

    def _add_run(self, schedule: Schedule, verdict: Verdict, run_id: str, *, previous: str) -> None:
        budgets = self._applicable_budgets(schedule) if isinstance(verdict, Fire) else None
        # A run that starts here at once is inserted leased: two writes in its life instead of three.
        starts = (
            isinstance(verdict, Fire)
            and budgets is None
            and verdict.fire_at <= self._now
            and self._can_start(schedule)
        )
        run = self._build(schedule, verdict, run_id, previous=previous, starts=starts)
        if budgets is not None:
            run = _with_closed_provider(run, budgets, now=self._now)
        if isinstance(verdict, Replace):
            replacement = cancel_for_replacement(self._tx, schedule, now=self._now)
            self.facts += replacement.facts
            run = replace(run, state=RunState.READY) if replacement.can_start else run
        self._runs.append(run)
        self._schedules[run_id] = schedule

    def _can_start(self, schedule: Schedule) -> bool:
        """Whether a run of a schedule can start here now; if so it takes a place."""
        return (
            self._free_slots > 0
            and can_start_immediately(schedule)
            and (
                self._slots is None
                or self._slots.take(needs_of_schedule(schedule), priority=schedule.priority)
            )
        )

    def _build(
        self, schedule: Schedule, verdict: Verdict, run_id: str, *, previous: str, starts: bool
    ) -> Run:
        """The row of a run; if it starts here, with a lease and one free slot less."""
        lease = None
        if starts:
            self._free_slots -= 1
            self._lease_count += 1
            lease_id = f"{self._lease_batch}-{self._lease_count}"
            lease = NewLease(lease_id, self._holder, self._now, self._now + schedule.lease.length)
        run = build_schedule_run(
            schedule, verdict, run_id=run_id, now=self._now, previous=previous, lease=lease
        )
        uses = self._limits.of_schedule(schedule) if schedule.limits or schedule.queue else ()
        return self._limits.resolve(run, uses, schedule=schedule)

    def _applicable_budgets(self, schedule: Schedule) -> ApplicableBudgets | None:
        """The budgets of a schedule, under which only `lease` may start its runs: others share them."""
        named = bool(schedule.budgets or schedule.provider)
        if self._budgets is None or (self._budgets.is_empty and named):
            self._budgets = self._tx.read_budgets(needed=lambda: named)
        return None if self._budgets.is_empty else self._budgets.budgets_of_schedule(schedule)

    def _relink(self, new: set[str]) -> None:
        """Leave out occurrences that already had a row, and link their neighbours to each other."""
        previous: dict[str, str] = {}
        links: list[tuple[str, str]] = []
        for run in self._runs:
            before = previous.setdefault(run.schedule_id, run.previous)
            if run.id in new:
                links.append((run.id, before))
                previous[run.schedule_id] = run.id
        self._tx.repair_history(relink=links)
        self._runs = [run for run in self._runs if run.id in new]
        self._updates = [
            replace(update, last_run=previous.get(update.schedule_id, "")) for update in self._updates
        ]


def can_start_immediately(schedule: Schedule) -> bool:
    """Whether no limit, no external worker and no upstream schedule decides about its start."""
    return not (schedule.limit_keys or isinstance(schedule.target, Handoff) or schedule.needs)


def _planned_at(leased: tuple[Run, Schedule]) -> datetime:
    return leased[0].planned_at


def _with_closed_provider(run: Run, budgets: ApplicableBudgets, *, now: datetime) -> Run:
    """If the provider is closed, note in the trail why the run does not start at its instant."""
    if budgets.window is None or budgets.window.closed_until(now=now) is None:
        return run
    reason = f"provider {budgets.provider} is {describe_window(budgets.window)}"
    return replace(run, trail=(*run.trail, Candidate(run.fire_at, run.source, reason)))
