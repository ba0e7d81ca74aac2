"""Invariants of liveness and incidents: nothing due starves, each incident opens and closes once."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.oracle.times import format_instant
from timewright.verification.rows import IncidentRow, RunRow
from timewright.verification.view import HistoryView


@invariant("I27", "no starvation", unit="waits")
def nothing_starves(view: HistoryView, coverage: Coverage) -> Violations:
    """Nothing due waits while later work of its kind is decided, leased or reclaimed."""
    late = view.now - 3 * view.grace
    recent = [run for run in view.history.runs if late <= run.created_at <= view.now - view.grace]
    newest = max((run.planned_at for run in recent if _on_time(run, view.grace)), default=0)
    leased = [at for run in view.history.runs if not run.handoff for _, at, *_ in view.leases(run)]
    granted = max((at for at in leased if at <= view.now - view.grace), default=0)
    for schedule in view.history.schedules:
        coverage.count += 1
        wake_at = schedule.wake_at if schedule.state == "active" else None
        if wake_at is not None and wake_at < late and newest > wake_at + 3 * view.grace:
            yield (
                f"{schedule.name} has waited since {format_instant(wake_at)} while others were decided",
                (schedule,),
            )
    for run in view.history.runs:
        if run.state == "leased":
            coverage.count += 1
            if run.lease_until is not None and run.lease_until < late and granted > late:
                yield (
                    f"the lease of run {run.id} ended at {format_instant(run.lease_until)}, not reclaimed",
                    (run,),
                )
    yield from _check_ready_runs(view, coverage, late)


@invariant("I37", "graceful stops release leases", unit="stops")
def a_graceful_stop_releases_every_lease(view: HistoryView, coverage: Coverage) -> Violations:
    """After a graceful stop an instance holds no lease."""
    if view.history.events is None:
        coverage.not_checked_because = "not checked here: needs the events of a simulation"
        return
    stops = {event.subject: event.at for event in view.events.get("stopped", ())}
    coverage.count += len(stops)
    for run in view.history.runs:
        for _, began, ended, attempt in view.leases(run):
            holder = attempt.holder if attempt is not None else run.holder
            at = stops.get(holder)
            if at is not None and began <= at and (ended is None or ended > at):
                yield f"{holder} stopped at {format_instant(at)}, but still held run {run.id}", (run,)


def _on_time(run: RunRow, grace: int) -> bool:
    return bool(run.schedule_id) and not run.dedupe_scope and run.created_at - run.planned_at <= grace


def _check_ready_runs(view: HistoryView, coverage: Coverage, late: int) -> Violations:
    """Ready runs that no limit blocks, although a later run with the same limits and needs was leased."""
    counted = Counter(hold.limit_key for hold in view.history.limit_holds)
    full = {row.limit_key for row in view.history.limits if counted[row.limit_key] >= row.capacity}
    newest: dict[tuple[tuple[str, ...], tuple[str, ...], int], int] = {}
    for run in view.history.runs:
        began = view.first_lease(run) if not run.handoff else None
        if began is not None and late <= began <= view.now - view.grace:
            kind = (run.limit_keys, run.needs, run.priority)
            newest[kind] = max(newest.get(kind, 0), run.planned_at)
    for run in view.history.runs:
        if run.state == "ready" and not run.handoff:
            coverage.count += 1
            stuck = run.fire_at < late and not full.intersection(run.limit_keys)
            if (
                stuck
                and newest.get((run.limit_keys, run.needs, run.priority), 0) > run.fire_at + 3 * view.grace
            ):
                yield (
                    f"run {run.id} is ready since {format_instant(run.fire_at)} while later ones were leased",
                    (run,),
                )


@invariant("I48", "an incident opens once", unit="incidents")
def an_incident_opens_once(view: HistoryView, coverage: Coverage) -> Violations:
    """A finding has at most one open incident at any time, and none ends before it begins."""
    by_key: defaultdict[tuple[str, str, str], list[IncidentRow]] = defaultdict(list)
    for one in view.history.incidents:
        by_key[one.namespace, one.kind, one.subject].append(one)
    coverage.count = len(view.history.incidents)
    for (_, kind, subject), incidents in sorted(by_key.items()):
        incidents.sort(key=lambda one: (one.opened_at, one.id))
        for one in incidents:
            if one.closed_at is not None and one.closed_at < one.opened_at:
                yield f"{one.id} closed before it opened at {format_instant(one.opened_at)}", (one,)
        for before, after in itertools.pairwise(incidents):
            if before.closed_at is None or before.closed_at > after.opened_at:
                at = format_instant(after.opened_at)
                yield f"{kind} of {subject} was opened again at {at} while {before.id} was open", (after,)
