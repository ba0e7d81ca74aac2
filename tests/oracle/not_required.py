"""Rules by which a row need not exist: an instance may also have decided without it, given all other rows."""

from __future__ import annotations

from collections.abc import Callable

from timewright.verification import History
from timewright.verification.rows import RunRow

NEVER = 2**62
ENGINE = ("failing", "recovered")


def rule_against(history: History, lost: RunRow, *, from_now: bool) -> str:
    """The rule that shows that a lost row of a schedule was not required; "" if none does."""
    return next((name for name, holds in RULES.items() if holds(history, lost, from_now)), "")


def _run_decided_again(history: History, lost: RunRow, from_now: bool) -> bool:
    """With `align: now`, the end of a run decides again what came due during it, if the instance was late.

    Nothing may show that an instance was not late: no row that was decided, and no request, before that end.
    """
    if not from_now or lost.source in ("paused", "ai-oneshot"):
        return False
    due = lost.planned_at
    rows = [row for row in history.runs if not row.dedupe_scope]
    ends = [row.finished_at for row in rows if row.started_at and row.planned_at < due]
    passes = [row.created_at for row in rows if row.reason != "by_hand"]
    passes += [row.at for row in history.adjustments if row.kind not in ENGINE]
    end = min((at for at in ends if at is not None and at >= due), default=NEVER)
    return end < NEVER and end <= min((at for at in passes if at >= due), default=NEVER)


def _pause_suppressed(history: History, lost: RunRow, from_now: bool) -> bool:
    """At the end of a pause the schedule is decided again; only the trigger's instants in it have rows."""
    if not from_now and lost.source != "ai-interval":
        return False
    pauses = [row for row in history.adjustments if row.kind in ("pause", "hint_pause")]
    return any(row.at == lost.planned_at for row in pauses)


def _hint_replaced(history: History, lost: RunRow, from_now: bool) -> bool:
    """A hint for one instant replaces another that no pass has decided, if something else is due first."""
    later = [row.at for row in history.adjustments if row.kind == "one_shot" and row.at >= lost.planned_at]
    at = min(later, default=NEVER)
    was_due = any(row.planned_at < lost.planned_at and row.created_at >= at for row in history.runs)
    return lost.source == "ai-oneshot" and was_due


RULES: dict[str, Callable[[History, RunRow, bool], bool]] = {
    "the end of a run decided again (ruling 3)": _run_decided_again,
    "a pause began at that instant (ruling 2)": _pause_suppressed,
    "another hint replaced it (§3.8)": _hint_replaced,
}
