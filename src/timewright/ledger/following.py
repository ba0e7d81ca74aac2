"""The end of a run reaches those who wait for it: one occurrence each, or leave to start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from timewright.core.decision import Decision, Source
from timewright.core.facts import Fact, RunFreed
from timewright.core.following import End, Followed, ends_as, follow, follows, follows_at
from timewright.core.lifecycle import RunEvent, run_after
from timewright.core.moments import LATEST_STORED
from timewright.core.run import Reason, Run, RunState
from timewright.core.schedule import Schedule
from timewright.core.upstream import On, Otherwise, Unmet, Wait, weigh
from timewright.ledger.links import last_ends
from timewright.ledger.shelf import Calendars, readable_schedules
from timewright.ledger.telling import about, schedule_moved
from timewright.ports import Change, Due, Transaction
from timewright.ports.links import FollowUp, Link

MOST_AT_ONCE = 100


def pass_on(tx: Transaction, ended: Sequence[Run], *, now: datetime) -> list[Fact]:
    """Note the ends of runs for every schedule that asks for them, and let go whoever waited for one.

    Schedules before links: whoever starts only if an end came takes them in this order too.
    """
    counts = {run.id: ends_as(run) for run in ended if run.schedule_id}
    heard = [run for run in ended if counts.get(run.id)]
    links = tx.links_from({run.schedule_id for run in heard}) if heard else []
    if not links:
        return []
    asking: dict[str, list[Link]] = {}
    for link in links:
        asking.setdefault(link.upstream, []).append(link)
    met = [
        (link, run) for run in heard for link in asking.get(run.schedule_id, ()) if link.on in counts[run.id]
    ]
    follow_ups = [_follow_up(link, run, now=now) for link, run in met if link.kind == "after"]
    tx.add_follow_ups(follow_ups)
    tx.rouse([(one.downstream, one.due_at) for one in follow_ups])
    tx.meet_links([replace(link, met_at=run.finished_at or now, met_by=run.id) for link, run in met])
    waited = {link.downstream for link, _ in met if link.kind == "needs"}
    return [*_roused(tx, follow_ups, now=now), *(release(tx, waited, now=now) if waited else ())]


def ends_heard(tx: Transaction, due: Iterable[Due]) -> dict[str, list[FollowUp]]:
    """What those who follow have heard of and not decided: as many as one pass takes, and one more."""
    followers = [one.schedule.id for one in due if follows(one.schedule.trigger)]
    return tx.open_follow_ups(followers, limit=MOST_AT_ONCE + 1) if followers else {}


def take_ends(
    due: Due, rows: Sequence[FollowUp], calendars: Calendars, *, now: datetime
) -> tuple[Followed, bool]:
    """Decide the ends that a schedule has heard of; says too whether there are more than one pass takes."""
    ends = [End(run_id=row.upstream_run, due_at=row.due_at) for row in rows[:MOST_AT_ONCE]]
    followed = follow(
        due.schedule,
        due.standing,
        ends,
        flight=due.flight,
        now=now,
        calendars=calendars.of(due.schedule),
    )
    return followed, len(rows) > MOST_AT_ONCE


def close(tx: Transaction, decided: Sequence[tuple[Schedule, Followed]], runs: Sequence[Run]) -> None:
    """Note what became of ends: the run of each, by its instant."""
    made = {(run.schedule_id, run.planned_at): run.id for run in runs}
    rows = [
        FollowUp(
            downstream=schedule.id,
            upstream_run=end.run_id,
            upstream="",
            on=On.END,
            due_at=end.due_at,
            state="done" if at is not None else "void",
            run_id=_made_at(tx, schedule, at, made) if at is not None else "",
        )
        for schedule, followed in decided
        for end, at in followed.taken
    ]
    tx.close_follow_ups(rows)


def take_first_end(tx: Transaction, due: Due, run: Run) -> datetime | None:
    """Let a run that was decided by hand stand for the next end, and say when the one after it asks for."""
    ends = tx.open_follow_ups([due.schedule.id], limit=2)[due.schedule.id]
    tx.close_follow_ups([replace(end, state="done", run_id=run.id) for end in ends[:1]])
    return follows_at(ends[1].due_at, cursor=run.planned_at) if ends[1:] else None


def _made_at(
    tx: Transaction, schedule: Schedule, at: datetime, made: Mapping[tuple[str, datetime], str]
) -> str:
    """The run of an instant; one that was there already, because someone else came first, is looked up."""
    if (schedule.id, at) in made:
        return made[schedule.id, at]
    there = tx.find_occurrence(schedule.id, at)
    return there.id if there is not None else ""


def weighed(tx: Transaction, runs: Sequence[Run], *, now: datetime) -> dict[str, Wait | Unmet]:
    """What runs that were never leased still wait for, or will not get, by the words of today.

    What a person asked for, and what was tried before, waits for nothing.
    """
    new = [run for run in runs if not run.lane and not run.fence]
    found = tx.get_schedules({run.schedule_id for run in new}) if new else {}
    met = last_ends(tx, found, lock=True)
    weights = {
        run.id: weigh(
            found[run.schedule_id].schedule.needs, met[run.schedule_id], planned_at=run.planned_at, now=now
        )
        for run in new
        if run.schedule_id in found
    }
    return {run_id: one for run_id, one in weights.items() if one is not None}


def without_needs(
    tx: Transaction, runs: Sequence[Run], *, now: datetime
) -> tuple[list[Change], list[Change]]:
    """Of runs about to start, those that go to sleep until what they need has come, and those that end."""
    unmet = weighed(tx, runs, now=now)
    asleep = [
        Change(replace(run, fire_at=found.until, reason=_missing(found)), run.state, run.fence)
        for run in runs
        if isinstance(found := unmet.get(run.id), Wait)
    ]
    ends = [_given_up(run, found, now=now) for run in runs if isinstance(found := unmet.get(run.id), Unmet)]
    tx.add_waits([(change.run.id, change.run.schedule_id) for change in asleep])
    tx.drop_waits(run.id for run in runs if waits(run) and not isinstance(unmet.get(run.id), Wait))
    return asleep, ends


def _given_up(run: Run, found: Unmet, *, now: datetime) -> Change:
    event = RunEvent.PARK if found.need.else_ is Otherwise.PARK else RunEvent.SKIP
    reason = f"{Reason.NEEDS.value}: {found.describe()}"
    after = replace(run, state=run_after(run.state, event), reason=reason, finished_at=now)
    return Change(after, run.state, run.fence)


def _missing(found: Wait) -> str:
    return f"{Reason.NEEDS.value}: waits for {found.need.describe()}"


def _follow_up(link: Link, run: Run, *, now: datetime) -> FollowUp:
    ended_at = run.finished_at or now
    return FollowUp(
        downstream=link.downstream,
        upstream_run=run.id,
        upstream=link.upstream,
        on=link.on,
        due_at=min(ended_at + link.delay, LATEST_STORED),
    )


def _roused(tx: Transaction, rows: Sequence[FollowUp], *, now: datetime) -> list[Fact]:
    """That the next time of those who follow was decided."""
    found = readable_schedules(tx, {row.downstream for row in rows})
    return [
        schedule_moved(due.schedule, Decision(due.standing.next_at, Source.BASELINE_AFTER), now=now)
        for due in found.values()
    ]


def release(tx: Transaction, schedule_ids: Iterable[str], *, now: datetime) -> list[Fact]:
    """Let runs start that have now all they need."""
    asleep = tx.waits_of(schedule_ids)
    if not asleep:
        return []
    runs = tx.get_runs(asleep)
    waiting = [run for run in runs.values() if run.state is RunState.READY and waits(run)]
    over = set(asleep) - {run.id for run in waiting}
    unmet = weighed(tx, waiting, now=now)
    freed = [
        Change(replace(run, fire_at=now, reason=""), run.state, run.fence)
        for run in waiting
        if run.id not in unmet
    ]
    gone = tx.change_runs(freed)
    tx.drop_waits(gone | over)
    return [RunFreed(**about(change.run, now=now)) for change in freed if change.run.id in gone]


def waits(run: Run) -> bool:
    """Whether a run sleeps until something it needs has come."""
    return run.reason.startswith(Reason.NEEDS.value)
