"""Values for dependencies between schedules: links and follow-ups."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.moments import ZERO
from timewright.core.schedule.upstream import EndKind

LinkKind = Literal["after", "needs"]
FollowUpState = Literal["open", "done", "void"]


class RunEndEffects(Struct, frozen=True):
    """Whether any run is held, any schedule depends on another, or any schedule failed last."""

    has_held_runs: bool
    has_links: bool
    has_failing_schedules: bool = False


class Link(Struct, frozen=True, kw_only=True):
    """A dependency of one schedule on the end of another, and the last end that met it."""

    upstream: str
    downstream: str
    kind: LinkKind
    on: EndKind
    delay: timedelta = ZERO
    met_at: datetime | None = None
    met_by: str = ""


class FollowUp(Struct, frozen=True, kw_only=True):
    """An ended run and a schedule that follows it: when the follow-up is due, and the run it led to.

    It is `open` until decided, then `done`, or `void` if it makes no occurrence.
    """

    downstream: str
    upstream_run: str
    upstream: str
    on: EndKind
    due_at: datetime
    state: FollowUpState = "open"
    run_id: str = ""
