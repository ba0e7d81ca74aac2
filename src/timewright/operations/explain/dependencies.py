"""Explain dependencies: the upstream and downstream schedules, and what a run still waits for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.moments import ZERO, format_duration, format_instant
from timewright.core.run.following import end_kinds
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.schedule import Schedule
from timewright.core.schedule.upstream import EndKind, Need, UnmetAction, end_verb
from timewright.ledger.dependencies.follow_ups import waits_for_needs
from timewright.ledger.dependencies.links import has_dependencies, last_upstream_ends, schedule_names
from timewright.operations.explain.reasons import ExplanationPart, Remedy, RunContext, remedy
from timewright.ports import Transaction
from timewright.ports.workflow import DownstreamLinks, FollowUpsOfRun, UpstreamLinks

_OTHERWISE_PHRASES = {
    UnmetAction.SKIP: "it is skipped",
    UnmetAction.RUN: "it runs anyway",
    UnmetAction.PARK: "it is parked",
}


class Upstream(Struct, frozen=True, kw_only=True):
    """An upstream schedule: which outcome is awaited, its description, and when it last occurred."""

    schedule: str
    kind: Literal["after", "needs"]
    on: EndKind
    words: str
    met_at: datetime | None
    met_by: str


class Downstream(Struct, frozen=True, kw_only=True):
    """A downstream schedule, and which outcome it waits for."""

    schedule: str
    kind: Literal["after", "needs"]
    on: EndKind


def upstreams(tx: Transaction, schedule: Schedule) -> tuple[Upstream, ...]:
    """Return the schedules that this one runs after or needs."""
    links = tx.select(UpstreamLinks([schedule.id])) if has_dependencies(schedule) else []
    names = schedule_names(tx, {link.upstream for link in links})
    return tuple(
        Upstream(
            schedule=names.get(link.upstream, link.upstream),
            kind=link.kind,
            on=link.on,
            words=_describe_link(schedule, names.get(link.upstream, ""), link.kind, link.on),
            met_at=link.met_at,
            met_by=link.met_by,
        )
        for link in links
    )


def downstreams(tx: Transaction, schedule: Schedule) -> tuple[Downstream, ...]:
    """Return the schedules that run after this one or need it."""
    links = tx.select(DownstreamLinks([schedule.id]))
    names = schedule_names(tx, {link.downstream for link in links})
    found = [
        Downstream(schedule=names.get(link.downstream, link.downstream), kind=link.kind, on=link.on)
        for link in links
    ]
    return tuple(sorted(found, key=lambda one: (one.schedule, one.kind, one.on)))


def explain_waiting(run_context: RunContext) -> ExplanationPart | None:
    """Explain what a run still waits for, when that last happened, and how long it waits at most."""
    run, schedule = run_context.run, run_context.schedule
    if run.state is not RunState.READY or not waits_for_needs(run) or schedule is None:
        return None
    met = last_upstream_ends(run_context.tx, [schedule.id])[schedule.id]
    unmet = [
        need
        for need in schedule.needs
        if not need.is_met(met.get((need.schedule, need.on)), planned_at=run.planned_at)
    ]
    because = tuple(
        f"it waits for {need.schedule}, {_last_met(need, last, now=run_context.now)}, "
        f"at most until {format_instant(run.planned_at + need.wait)}; then {_OTHERWISE_PHRASES[need.else_]}"
        for need in unmet
        for last in [met.get((need.schedule, need.on))]
    )
    return ExplanationPart(because=because, policy=("needs",), remedies=_remedies(unmet))


def explain_unmet(run_context: RunContext) -> ExplanationPart | None:
    """Explain why a run whose dependency was not met in time was skipped or parked."""
    run, schedule = run_context.run, run_context.schedule
    if not waits_for_needs(run) or schedule is None or run.state is RunState.READY:
        return None
    reason = run.reason.partition(": ")[2] or "its dependency was not met"
    waited = max((need.wait for need in schedule.needs), default=ZERO)
    because = [reason, f"it waited {format_duration(waited)} for it"] if waited else [reason]
    return ExplanationPart(because=tuple(because), policy=("needs",), remedies=_remedies(schedule.needs))


def explain_links(tx: Transaction, run: Run) -> tuple[str, ...]:
    """Explain which upstream run caused a run, and which downstream runs it caused."""
    if not run.schedule_id:
        return ()
    rows = tx.select(FollowUpsOfRun(run.id))
    names = schedule_names(tx, {i for row in rows for i in (row.upstream, row.downstream)})
    sentences = []
    for row in rows:
        up, down = names.get(row.upstream, row.upstream), names.get(row.downstream, row.downstream)
        if row.run_id == run.id:
            sentences.append(f"run {row.upstream_run} of {up} {end_verb(row.on)}, and {down} runs after that")
        elif row.state == "open":
            sentences.append(f"{down} runs after it, at {format_instant(row.due_at)}")
        else:
            sentences.append(
                f"{down} ran after it: {row.run_id or 'no run, because it had finished by then'}"
            )
    return (*sentences, *_no_downstream(tx, run))


def explain_needs(tx: Transaction, schedule: Schedule, *, at: datetime, now: datetime) -> tuple[str, ...]:
    """Explain what a future occurrence needs, and whether that is already met."""
    met = last_upstream_ends(tx, [schedule.id])[schedule.id] if schedule.needs else {}
    sentences = []
    for need in schedule.needs:
        last = met.get((need.schedule, need.on))
        state = "which is met now" if need.is_met(last, planned_at=at) else _last_met(need, last, now=now)
        wait = f", or waits {format_duration(need.wait)} for it" if need.wait else ""
        sentences.append(
            f"it starts only if {need.describe()}{wait}: {state}; else {_OTHERWISE_PHRASES[need.else_]}"
        )
    return tuple(sentences)


def explain_awaited(tx: Transaction, schedule: Schedule) -> tuple[str, ...]:
    """Explain what a schedule without its own next time waits for, and when that last happened."""
    sentences = []
    for one in upstreams(tx, schedule):
        if one.kind == "after":
            last = (
                f"last met at {format_instant(one.met_at)}, run {one.met_by}" if one.met_at else "not met yet"
            )
            sentences.append(f"it runs {schedule.trigger.describe()}: {last}")
    return tuple(sentences)


def _no_downstream(tx: Transaction, run: Run) -> tuple[str, ...]:
    """Explain that a skipped, cancelled or backfilled run triggers no downstream schedule."""
    if end_kinds(run) or run.state not in (
        RunState.SKIPPED,
        RunState.CANCELLED,
        RunState.SUCCEEDED,
        RunState.FAILED,
    ):
        return ()
    downstream_links = [
        link for link in tx.select(DownstreamLinks([run.schedule_id])) if link.kind == "after"
    ]
    names = ", ".join(sorted(schedule_names(tx, {link.downstream for link in downstream_links}).values()))
    cause = "it never ran" if run.state in (RunState.SKIPPED, RunState.CANCELLED) else "it is a backfill"
    return (f"{cause}, so nothing runs after it: {names}",) if names else ()


def _describe_link(schedule: Schedule, upstream: str, kind: str, on: EndKind) -> str:
    if kind == "after":
        return schedule.trigger.describe()
    found = [need for need in schedule.needs if (need.schedule, need.on) == (upstream, on)]
    return f"needs that {found[0].describe()}" if found else ""


def _last_met(need: Need, met_at: datetime | None, *, now: datetime) -> str:
    if met_at is None:
        return f"which never {end_verb(need.on)}"
    return f"which last {end_verb(need.on)} {format_duration(whole_seconds(now - met_at))} ago"


def whole_seconds(length: timedelta) -> timedelta:
    """Return a duration in whole seconds."""
    return timedelta(seconds=max(int(length.total_seconds()), 0))


def _remedies(needs: Iterable[Need]) -> tuple[Remedy, ...]:
    names = dict.fromkeys(need.schedule for need in needs if need.on is not EndKind.FAILURE)
    return tuple(remedy("schedule run", ("schedule", name)) for name in names)
