"""Instants that must be decided because a hint asked for them or a pause ended there."""

from __future__ import annotations

from collections.abc import Iterator

from timewright.verification.oracle.revision_spans import history_starts_at, last_instant
from timewright.verification.rows import AdjustmentRow, ScheduleRow
from timewright.verification.view import NEVER, HistoryView

# Adjustments after which a hint for one instant may be over, or waits for the end of a pause.
_REPLACING = ("skip", "move", "edit")
# Those that end it only before its instant: what is due stays due.
_ENDING = ("one_shot", "clear_hints")


def undecided_requests(view: HistoryView, schedule: ScheduleRow) -> Iterator[int]:
    """The ends of pauses and the instants of hints that have no row, though the cursor has passed them."""
    revisions = view.revisions.get(schedule.id, ())
    policies = [view.policies[schedule.id, row.revision] for row in revisions]
    if history_starts_at(view, schedule) or not policies:
        return
    if any(one is None or one.has_bounds or one.clamp_min or one.clamp_max for one in policies):
        return
    rows = view.occurrences.get(schedule.id, [])
    spans = [(row.planned_at, last_instant(row)) for row in rows]
    required: list[int] = []
    if all(one is not None and one.aligned_to_now for one in policies):
        required += _pause_ends(view, schedule)
    elif all(one is not None and one.follows_trigger and one.adaptive for one in policies):
        required += _one_shots(view, schedule)
    for at in required:
        if at <= schedule.cursor and not any(first <= at <= last for first, last in spans):
            yield at


def _pause_ends(view: HistoryView, schedule: ScheduleRow) -> Iterator[int]:
    """With `align: now`, a schedule runs at the very end of a pause (ruling 2).

    What was due before the pause is still due at its end, and then decided instead.
    """
    adjustments, rows = view.adjustments.get(schedule.id, ()), view.occurrences.get(schedule.id, ())
    pauses = view.pauses.get(schedule.id, ())
    stops = [row.at for row in adjustments if row.kind == "failing"]
    for pause, ended in pauses:
        begins = min([pause.at, *(one.at for one, end in pauses if one.at <= pause.at <= end)])
        goes_on = any(one is not pause and one.at <= ended < end for one, end in pauses)
        was_due = any(row.planned_at < begins and row.created_at >= ended for row in rows)
        is_ahead = any(row.cursor > ended for row in adjustments if row.at <= ended)
        is_ahead |= any(row.kind == "skip" and (row.planned_at or 0) >= ended for row in adjustments)
        is_stopped = any(begins <= at <= ended for at in stops)
        if begins < ended <= view.now and not (goes_on or was_due or is_ahead or is_stopped):
            yield ended


def _one_shots(view: HistoryView, schedule: ScheduleRow) -> Iterator[int]:
    """A hint for one instant decides it, unless something else ended the hint before its admission."""
    adjustments, rows = view.adjustments.get(schedule.id, ()), view.occurrences.get(schedule.id, ())
    for hint in adjustments:
        at = hint.planned_at if hint.kind == "one_shot" else None
        if at is None or hint.until is None or at >= hint.until or at > view.now:
            continue
        admitted = min((row.created_at for row in rows if row.created_at >= at), default=view.now)
        if not _is_replaced(view, schedule, hint, at=at, until=admitted):
            yield at


def _is_replaced(
    view: HistoryView, schedule: ScheduleRow, hint: AdjustmentRow, *, at: int, until: int
) -> bool:
    """Whether anything else may have decided between the request of a hint and its admission."""
    later = [row for row in view.adjustments.get(schedule.id, ()) if row.seq > hint.seq]
    if any(row.at <= at for row in later if row.kind in _ENDING):
        return True
    # A hint for an instant behind one that a person skips stays.
    later = [row for row in later if row.kind == "edit" or (row.planned_at or 0) >= at]
    spans = [*view.interval_hints.get(schedule.id, ()), *view.streaks.get(schedule.id, ())]
    return any(row.at <= until for row in later if row.kind in _REPLACING) or any(
        began < until and hint.at <= min(ended, NEVER) for began, ended in spans
    )
