"""Only with what it needs: no occurrence starts before the end of another schedule that it asks for."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from timewright.proof.checking import Seen, invariant
from timewright.proof.followed import ends_of
from timewright.proof.rows import Plain, RunRow
from timewright.proof.spans import DAY, span, spelled
from timewright.proof.stretches import known_from
from timewright.proof.view import View

Broken = Iterator[tuple[str, tuple[Struct, ...]]]

# A run that was made before history begins may have ended so much later, and be gone all the same.
LONGEST = DAY


@invariant("I43", "nothing starts before what it needs", counts="first leases")
def what_is_needed_comes_first(view: View, seen: Seen) -> Broken:
    """An occurrence is leased only after a fresh end of all it needs, or when it has waited long enough."""
    for schedule in view.history.schedules:
        if not any(revision.body.get("needs") for revision in view.revisions.get(schedule.id, ())):
            continue
        for run in view.occurrences.get(schedule.id, ()):
            leased_at = view.first_lease(run)
            if leased_at is None:
                continue
            seen.count += 1
            missing = [_missing(view, run, needs, leased_at) for needs in _said(view, run, leased_at)]
            if missing and all(missing):
                said = f"{schedule.name}: {spelled(run.planned_at)} was leased at {spelled(leased_at)}"
                yield f"{said} without {missing[-1]}", (run,)


def _said(view: View, run: RunRow, at: int) -> list[list[Plain]]:
    """What the schedule of a run may have said at an instant: a date is as sure as the skew."""
    revisions = view.revisions.get(run.schedule_id, ())
    before = [one for one in revisions if one.at < at - view.skew][-1:]
    around = [one for one in revisions if at - view.skew <= one.at <= at + view.skew]
    return [one.body.get("needs", []) for one in (*before, *around)]


def _missing(view: View, run: RunRow, needs: list[Plain], leased_at: int) -> str:
    """The first need that was not met at a lease, in words; nothing if all were."""
    for need in needs:
        wait = span(need.get("wait", "PT0S"))
        gave_up = need.get("else") == "run" and leased_at >= run.planned_at + wait - view.skew
        if gave_up or _is_met(view, run, need, leased_at):
            continue
        return f"an end of {need['schedule']}"
    return ""


def _is_met(view: View, run: RunRow, need: Plain, leased_at: int) -> bool:
    oldest, newest = run.planned_at - span(need["within"]), leased_at + view.skew
    known = known_from(view, view.schedules[run.schedule_id])
    if known and oldest < known + LONGEST:
        # The run that was needed may be gone.
        return True
    ids = {
        one.id
        for one in view.history.schedules
        if (one.namespace, one.name) == (run.namespace, need["schedule"])
    }
    return any(
        oldest <= end <= newest
        for one in ids
        for other in view.of_schedule.get(one, ())
        if other.source != "backfill"
        for end in _ends_as(view, other, need.get("on", "success"))
    )


def _ends_as(view: View, run: RunRow, on: str) -> list[int]:
    """When a run may have ended so; one that was tried again may have failed before."""
    won = [one.ended_at for one in view.attempts.get(run.id, ()) if one.outcome == "succeeded"]
    if on == "success":
        return won
    every = ends_of(view, run) if run.fence else []
    return every if on == "end" else [end for end in every if end not in won]
