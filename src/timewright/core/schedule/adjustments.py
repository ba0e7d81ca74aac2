"""Adjustments: what changed when a schedule runs without changing its definition."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct


class AdjustmentKind(StrEnum):
    """What was adjusted: by a hint, by a person, or by failures in a row under a cadence.

    An edit says up to where the revision before it had decided.
    """

    INTERVAL = "interval"
    ONE_SHOT = "one_shot"
    HINT_PAUSE = "hint_pause"
    CLEAR_HINTS = "clear_hints"
    PAUSE = "pause"
    RESUME = "resume"
    SKIP = "skip"
    MOVE = "move"
    EDIT = "edit"
    FAILING = "failing"
    RECOVERED = "recovered"


class Adjustment(Struct, frozen=True, kw_only=True):
    """One adjustment; it is stored once and never changed, and its end is another one.

    `cursor` is the schedule's cursor when it was made: everything up to there was decided before. `until` is
    when it ends by itself, `planned_at` the instant that is requested, skipped or moved.
    """

    schedule_id: str
    namespace: str
    kind: AdjustmentKind
    at: datetime
    cursor: datetime
    until: datetime | None = None
    planned_at: datetime | None = None
    moved_to: datetime | None = None
    interval: timedelta | None = None
    actor: str
    origin: str
    reason: str = ""
