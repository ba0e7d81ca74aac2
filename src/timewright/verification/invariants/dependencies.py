"""Invariant of `needs`: no occurrence starts before a fresh end of each schedule that it needs."""

from __future__ import annotations

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.invariants.follow_ups import possible_ends
from timewright.verification.oracle.revision_spans import history_starts_at
from timewright.verification.oracle.times import DAY, format_instant, parse_duration
from timewright.verification.rows import JsonObject, RunRow
from timewright.verification.view import HistoryView

# A run created before the history begins may have ended this much later and been pruned since.
MAX_RUN_LENGTH_US = DAY


@invariant("I43", "needs are met before the start", unit="first leases")
def dependencies_are_met_before_the_lease(view: HistoryView, coverage: Coverage) -> Violations:
    """An occurrence is leased only after a fresh end of everything it needs, or after its wait ran out."""
    for schedule in view.history.schedules:
        if not any(revision.body.get("needs") for revision in view.revisions.get(schedule.id, ())):
            continue
        for run in view.occurrences.get(schedule.id, ()):
            leased_at = view.first_lease(run)
            if leased_at is None:
                continue
            coverage.count += 1
            missing = [
                _unmet_need(view, run, needs, leased_at) for needs in _needs_in_force(view, run, leased_at)
            ]
            if missing and all(missing):
                planned = f"{schedule.name}: {format_instant(run.planned_at)}"
                message = f"{planned} was leased at {format_instant(leased_at)} without {missing[-1]}"
                yield message, (run,)


def _needs_in_force(view: HistoryView, run: RunRow, at: int) -> list[list[JsonObject]]:
    """The needs that may have been in force at an instant; revisions within the skew all count."""
    revisions = view.revisions.get(run.schedule_id, ())
    before = [one for one in revisions if one.at < at - view.skew][-1:]
    around = [one for one in revisions if at - view.skew <= one.at <= at + view.skew]
    return [one.body.get("needs", []) for one in (*before, *around)]


def _unmet_need(view: HistoryView, run: RunRow, needs: list[JsonObject], leased_at: int) -> str:
    """Describe the first unmet need at a lease; empty if all were met."""
    for need in needs:
        wait = parse_duration(need.get("wait", "PT0S"))
        gave_up = need.get("else") == "run" and leased_at >= run.planned_at + wait - view.skew
        if gave_up or _is_met(view, run, need, leased_at):
            continue
        return f"an end of {need['schedule']}"
    return ""


def _is_met(view: HistoryView, run: RunRow, need: JsonObject, leased_at: int) -> bool:
    oldest, newest = run.planned_at - parse_duration(need["within"]), leased_at + view.skew
    known = history_starts_at(view, view.schedules[run.schedule_id])
    if known and oldest < known + MAX_RUN_LENGTH_US:
        # The run that met the need may be pruned.
        return True
    ids = {
        one.id
        for one in view.history.schedules
        if (one.namespace, one.name) == (run.namespace, need["schedule"])
    }
    return any(
        oldest <= end <= newest
        for one in ids
        for other in view.runs_by_schedule.get(one, ())
        if other.source != "backfill"
        for end in _ends_as(view, other, need.get("on", "success"))
    )


def _ends_as(view: HistoryView, run: RunRow, on: str) -> list[int]:
    """The instants at which a run may have ended this way; a reset run may have failed before."""
    won = [one.ended_at for one in view.attempts.get(run.id, ()) if one.outcome == "succeeded"]
    if on == "success":
        return won
    every = possible_ends(view, run) if run.fence else []
    return every if on == "end" else [end for end in every if end not in won]
