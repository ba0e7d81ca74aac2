"""What the end of a run means downstream: a new occurrence of a follower, or the start of a waiting run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from timewright.core.facts import Fact, RunFreed
from timewright.core.moments import MAX_STORED_INSTANT
from timewright.core.run.following import (
    FollowResult,
    UpstreamEnd,
    end_kinds,
    follow_ends,
    follow_instant,
    follows_upstream,
)
from timewright.core.run.lifecycle import RunEvent, next_run_state
from timewright.core.run.run import Reason, Run, RunState
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.pauses import NO_PAUSES, Pauses
from timewright.core.schedule.schedule import Schedule
from timewright.core.schedule.upstream import EndKind, NeedWait, UnmetAction, UnmetNeed, check_needs
from timewright.ledger.dependencies.links import last_upstream_ends
from timewright.ledger.fact_builders import run_fields, schedule_moved_fact
from timewright.ledger.lookups import CalendarLookup, lock_readable_schedules
from timewright.ports import RunChange, ScheduleRecord, Transaction
from timewright.ports.rows import RunsWithNeeds
from timewright.ports.workflow import DependencyWait, DownstreamLinks, FollowUp, Link, OpenFollowUps

MAX_FOLLOW_UPS = 100


def notify_downstream(tx: Transaction, ended: Sequence[Run], *, now: datetime) -> list[Fact]:
    """Record the ends of runs for the schedules that follow them, and release runs that waited for them.

    Locks schedules before links, in the same order as `split_by_needs`.
    """
    counts = {run.id: end_kinds(run) for run in ended if run.schedule_id}
    relevant = [run for run in ended if counts.get(run.id)]
    links = tx.select(DownstreamLinks({run.schedule_id for run in relevant})) if relevant else []
    if not links:
        return []
    links_by_upstream: dict[str, list[Link]] = {}
    for link in links:
        links_by_upstream.setdefault(link.upstream, []).append(link)
    met = [
        (link, run)
        for run in relevant
        for link in links_by_upstream.get(run.schedule_id, ())
        if link.on in counts[run.id]
    ]
    follow_ups = [_follow_up(link, run, now=now) for link, run in met if link.kind == "after"]
    tx.put_run_rows(follow_ups)
    tx.wake_schedules([(one.downstream, one.due_at) for one in follow_ups])
    tx.mark_links_met([replace(link, met_at=run.finished_at or now, met_by=run.id) for link, run in met])
    waited = {link.downstream for link, _ in met if link.kind == "needs"}
    return [*_moved_facts(tx, follow_ups, now=now), *(release_waiting(tx, waited, now=now) if waited else ())]


def load_follow_ups(tx: Transaction, record: Iterable[ScheduleRecord]) -> dict[str, list[FollowUp]]:
    """The undecided upstream ends of followers: at most one pass's worth for each, and one more."""
    followers = [one.schedule.id for one in record if follows_upstream(one.schedule.trigger)]
    found: dict[str, list[FollowUp]] = {schedule_id: [] for schedule_id in followers}
    for one in tx.select(OpenFollowUps(followers, MAX_FOLLOW_UPS + 1)) if followers else ():
        found[one.downstream].append(one)
    return found


def decide_follow_ups(
    record: ScheduleRecord,
    rows: Sequence[FollowUp],
    calendars: CalendarLookup,
    *,
    now: datetime,
    scoped_pauses: Pauses = NO_PAUSES,
) -> tuple[FollowResult, bool]:
    """Decide the upstream ends of a schedule; also return whether more are left for the next pass."""
    ends = [UpstreamEnd(run_id=row.upstream_run, due_at=row.due_at) for row in rows[:MAX_FOLLOW_UPS]]
    followed = follow_ends(
        record.schedule,
        record.progress,
        ends,
        in_flight=record.in_flight,
        now=now,
        calendars=calendars.for_schedule(record.schedule),
        scoped_pauses=scoped_pauses,
    )
    return followed, len(rows) > MAX_FOLLOW_UPS


def close_follow_ups(
    tx: Transaction, decided: Sequence[tuple[Schedule, FollowResult]], runs: Sequence[Run]
) -> None:
    """Close the decided upstream ends, each with the run that follows it."""
    made = {(run.schedule_id, run.planned_at): run.id for run in runs}
    rows = [
        FollowUp(
            downstream=schedule.id,
            upstream_run=end.run_id,
            upstream="",
            on=EndKind.END,
            due_at=end.due_at,
            state="done" if at is not None else "void",
            run_id=_run_at(tx, schedule, at, made) if at is not None else "",
        )
        for schedule, followed in decided
        for end, at in followed.taken
    ]
    tx.put_run_rows(rows)


def use_first_follow_up(tx: Transaction, record: ScheduleRecord, run: Run) -> datetime | None:
    """Close the first upstream end with a run that was made by hand; return when the next one is due."""
    ends = tx.select(OpenFollowUps([record.schedule.id], limit=2))
    tx.put_run_rows([replace(end, state="done", run_id=run.id) for end in ends[:1]])
    return follow_instant(ends[1].due_at, cursor=run.planned_at) if ends[1:] else None


def _run_at(
    tx: Transaction, schedule: Schedule, at: datetime, made: Mapping[tuple[str, datetime], str]
) -> str:
    """The run of an instant; if another process inserted it first, it is looked up."""
    if (schedule.id, at) in made:
        return made[schedule.id, at]
    existing = tx.find_occurrence(schedule.id, at)
    return existing.id if existing is not None else ""


def unmet_needs(tx: Transaction, runs: Sequence[Run], *, now: datetime) -> dict[str, NeedWait | UnmetNeed]:
    """The unmet needs of runs that were never leased, by the current definition of their schedules.

    Manual runs and runs that were attempted before wait for nothing.
    """
    new = [run for run in runs if not run.dedupe_scope and not run.fence]
    found = tx.get_schedules({run.schedule_id for run in new}) if new else {}
    met = last_upstream_ends(tx, found, lock=True)
    weights = {
        run.id: check_needs(
            found[run.schedule_id].schedule.needs, met[run.schedule_id], planned_at=run.planned_at, now=now
        )
        for run in new
        if run.schedule_id in found
    }
    return {run_id: one for run_id, one in weights.items() if one is not None}


def split_by_needs(
    tx: Transaction, runs: Sequence[Run], *, now: datetime
) -> tuple[list[RunChange], list[RunChange]]:
    """Split off runs that cannot start: those deferred until their needs are met, and those that end."""
    unmet = unmet_needs(tx, runs, now=now)
    deferred = [
        RunChange(replace(run, fire_at=found.until, reason=_waiting_reason(found)), run.state, run.fence)
        for run in runs
        if isinstance(found := unmet.get(run.id), NeedWait)
    ]
    ends = [
        _end_unmet(run, found, now=now) for run in runs if isinstance(found := unmet.get(run.id), UnmetNeed)
    ]
    tx.put_run_rows([DependencyWait(change.run.id, change.run.schedule_id) for change in deferred])
    tx.delete_run_rows(
        DependencyWait,
        [run.id for run in runs if waits_for_needs(run) and not isinstance(unmet.get(run.id), NeedWait)],
    )
    return deferred, ends


def _end_unmet(run: Run, found: UnmetNeed, *, now: datetime) -> RunChange:
    event = RunEvent.PARK if found.need.else_ is UnmetAction.PARK else RunEvent.SKIP
    reason = f"{Reason.NEEDS.value}: {found.describe()}"
    after = replace(run, state=next_run_state(run.state, event), reason=reason, finished_at=now)
    return RunChange(after, run.state, run.fence)


def _waiting_reason(found: NeedWait) -> str:
    return f"{Reason.NEEDS.value}: waits for {found.need.describe()}"


def _follow_up(link: Link, run: Run, *, now: datetime) -> FollowUp:
    ended_at = run.finished_at or now
    return FollowUp(
        downstream=link.downstream,
        upstream_run=run.id,
        upstream=link.upstream,
        on=link.on,
        due_at=min(ended_at + link.delay, MAX_STORED_INSTANT),
    )


def _moved_facts(tx: Transaction, rows: Sequence[FollowUp], *, now: datetime) -> list[Fact]:
    """The facts that the next time of followers was planned."""
    found = lock_readable_schedules(tx, {row.downstream for row in rows})
    return [
        schedule_moved_fact(
            record.schedule, Decision(record.progress.next_at, Source.BASELINE_AFTER), now=now
        )
        for record in found.values()
    ]


def release_waiting(tx: Transaction, schedule_ids: Iterable[str], *, now: datetime) -> list[Fact]:
    """Make deferred runs ready whose needs are now met."""
    recorded = tx.select(RunsWithNeeds(list(schedule_ids)))
    if not recorded:
        return []
    waiting = [run for run in recorded if run.state is RunState.READY and waits_for_needs(run)]
    no_longer_waiting = {run.id for run in recorded} - {run.id for run in waiting}
    unmet = unmet_needs(tx, waiting, now=now)
    # The upstream's end may be dated before the admission of a run that waited for it.
    released = [
        RunChange(replace(run, fire_at=max(now, run.created_at), reason=""), run.state, run.fence)
        for run in waiting
        if run.id not in unmet
    ]
    changed = tx.change_runs(released)
    tx.delete_run_rows(DependencyWait, changed | no_longer_waiting)
    return [RunFreed(**run_fields(change.run, now=now)) for change in released if change.run.id in changed]


def waits_for_needs(run: Run) -> bool:
    """Whether a run is deferred because of its needs."""
    return run.reason.startswith(Reason.NEEDS.value)
