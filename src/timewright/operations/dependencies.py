"""What schedules wait for, in sentences: who stands before one and after it, and what a run still needs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.following import ends_as
from timewright.core.moments import ZERO, spell_duration, spell_instant
from timewright.core.run import Run, RunState
from timewright.core.schedule import Schedule
from timewright.core.upstream import Need, On, Otherwise, ended_words
from timewright.ledger.following import waits
from timewright.ledger.links import asks, last_ends, names_by_id
from timewright.operations.reasons import Remedy, Story, Told, remedy
from timewright.ports import Transaction

_THEN = {
    Otherwise.SKIP: "it is skipped",
    Otherwise.RUN: "it runs all the same",
    Otherwise.PARK: "it is parked",
}


class Upstream(Struct, frozen=True, kw_only=True):
    """A schedule that another waits for: which of its ends, in words, and when such an end last came."""

    schedule: str
    kind: Literal["after", "needs"]
    on: On
    words: str
    met_at: datetime | None
    met_by: str


class Downstream(Struct, frozen=True, kw_only=True):
    """A schedule that waits for another: which of its ends."""

    schedule: str
    kind: Literal["after", "needs"]
    on: On


def upstreams(tx: Transaction, schedule: Schedule) -> tuple[Upstream, ...]:
    """The schedules that one runs after, or needs."""
    links = tx.links_of([schedule.id]) if asks(schedule) else []
    names = names_by_id(tx, {link.upstream for link in links})
    return tuple(
        Upstream(
            schedule=names.get(link.upstream, link.upstream),
            kind=link.kind,
            on=link.on,
            words=_words(schedule, names.get(link.upstream, ""), link.kind, link.on),
            met_at=link.met_at,
            met_by=link.met_by,
        )
        for link in links
    )


def downstreams(tx: Transaction, schedule: Schedule) -> tuple[Downstream, ...]:
    """The schedules that run after one, or need it."""
    links = tx.links_from([schedule.id])
    names = names_by_id(tx, {link.downstream for link in links})
    found = [
        Downstream(schedule=names.get(link.downstream, link.downstream), kind=link.kind, on=link.on)
        for link in links
    ]
    return tuple(sorted(found, key=lambda one: (one.schedule, one.kind, one.on)))


def tell_waiting(story: Story) -> Told | None:
    """What a run still waits for, since when it was last there, and until when at most."""
    run, schedule = story.run, story.schedule
    if run.state is not RunState.READY or not waits(run) or schedule is None:
        return None
    met = last_ends(story.tx, [schedule.id])[schedule.id]
    unmet = [
        need
        for need in schedule.needs
        if not need.is_met(met.get((need.schedule, need.on)), planned_at=run.planned_at)
    ]
    because = tuple(
        f"it waits for {need.schedule}, {_last(need, met.get((need.schedule, need.on)), now=story.now)}, "
        f"at most until {spell_instant(run.planned_at + need.wait)}; then {_THEN[need.else_]}"
        for need in unmet
    )
    return Told(because=because, policy=("needs",), remedies=_remedies(unmet))


def tell_unmet(story: Story) -> Told | None:
    """Why a run whose need was not met in time was skipped or parked."""
    run, schedule = story.run, story.schedule
    if not waits(run) or schedule is None or run.state is RunState.READY:
        return None
    said = run.reason.partition(": ")[2] or "what it needs did not come"
    waited = max((need.wait for need in schedule.needs), default=ZERO)
    because = [said, f"it waited {spell_duration(waited)} for that"] if waited else [said]
    return Told(because=tuple(because), policy=("needs",), remedies=_remedies(schedule.needs))


def tell_links(tx: Transaction, run: Run) -> tuple[str, ...]:
    """Which end a run came from, and what came of its own."""
    if not run.schedule_id:
        return ()
    rows = tx.follow_ups_of(run_ids=[run.id], upstream_runs=[run.id])
    names = names_by_id(tx, {i for row in rows for i in (row.upstream, row.downstream)})
    told = []
    for row in rows:
        up, down = names.get(row.upstream, row.upstream), names.get(row.downstream, row.downstream)
        if row.run_id == run.id:
            told.append(f"run {row.upstream_run} of {up} {ended_words(row.on)}, and {down} runs after that")
        elif row.state == "open":
            told.append(f"{down} runs after it, at {spell_instant(row.due_at)}")
        else:
            told.append(f"{down} ran after it: {row.run_id or 'nothing, because it was over by then'}")
    return (*told, *_unheard(tx, run))


def tell_needs(tx: Transaction, schedule: Schedule, *, at: datetime, now: datetime) -> tuple[str, ...]:
    """What an occurrence that is still to come will need, and whether that is there already."""
    met = last_ends(tx, [schedule.id])[schedule.id] if schedule.needs else {}
    told = []
    for need in schedule.needs:
        last = met.get((need.schedule, need.on))
        there = "which is so now" if need.is_met(last, planned_at=at) else _last(need, last, now=now)
        patience = f", or waits {spell_duration(need.wait)} for it" if need.wait else ""
        told.append(f"it starts only if {need.describe()}{patience}: {there}; else {_THEN[need.else_]}")
    return tuple(told)


def tell_awaited(tx: Transaction, schedule: Schedule) -> tuple[str, ...]:
    """What a schedule without a next time of its own waits for, and when that was last there."""
    told = []
    for one in upstreams(tx, schedule):
        if one.kind == "after":
            last = f"last so at {spell_instant(one.met_at)}, run {one.met_by}" if one.met_at else "not so yet"
            told.append(f"it runs {schedule.trigger.describe()}: {last}")
    return tuple(told)


def _unheard(tx: Transaction, run: Run) -> tuple[str, ...]:
    """That nobody who follows hears of a run which was skipped, or stands for the past."""
    if ends_as(run) or run.state not in (
        RunState.SKIPPED,
        RunState.CANCELLED,
        RunState.SUCCEEDED,
        RunState.FAILED,
    ):
        return ()
    asking = [link for link in tx.links_from([run.schedule_id]) if link.kind == "after"]
    names = ", ".join(sorted(names_by_id(tx, {link.downstream for link in asking}).values()))
    why = "it never ran" if run.state in (RunState.SKIPPED, RunState.CANCELLED) else "it is a backfill"
    return (f"{why}, so nothing runs after it: {names}",) if names else ()


def _words(schedule: Schedule, upstream: str, kind: str, on: On) -> str:
    if kind == "after":
        return schedule.trigger.describe()
    found = [need for need in schedule.needs if (need.schedule, need.on) == (upstream, on)]
    return f"needs that {found[0].describe()}" if found else ""


def _last(need: Need, met_at: datetime | None, *, now: datetime) -> str:
    if met_at is None:
        return f"which never {ended_words(need.on)}"
    return f"which last {ended_words(need.on)} {spell_duration(_whole(now - met_at))} ago"


def _whole(length: timedelta) -> timedelta:
    """A length in whole seconds: nobody asks how many microseconds ago."""
    return timedelta(seconds=max(int(length.total_seconds()), 0))


def _remedies(needs: Iterable[Need]) -> tuple[Remedy, ...]:
    names = dict.fromkeys(need.schedule for need in needs if need.on is not On.FAILURE)
    return tuple(remedy("schedule run", ("schedule", name)) for name in names)
