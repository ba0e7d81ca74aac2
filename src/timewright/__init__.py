"""Timewright: a persistent scheduler for applications and AI agents."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from timewright.core.policies.policies import CatchUp, Clamp, LeaseTerms, Overlap, QueuePolicy, Retry
from timewright.core.recurrence.triggers import (
    After,
    AnyOf,
    Cron,
    Every,
    Manual,
    Once,
    Rrule,
    after,
    cron,
    every,
)
from timewright.core.run.run import Outcome, Run, RunState
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.hints import Hints
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.core.target import Call, Handoff, Http, Note, Publish, Shell, Workflow
from timewright.errors import InvalidInput, NotFound, TimewrightError
from timewright.settings import Settings

if TYPE_CHECKING:
    from timewright.interfaces.python.async_scheduler import AsyncScheduler
    from timewright.interfaces.python.scheduler import Scheduler
    from timewright.targets.context import Context, Later, NotBefore

# Imported on first use, so that `import timewright` stays fast.
_LATER = {
    "AsyncScheduler": "timewright.interfaces.python.async_scheduler",
    "Context": "timewright.targets.context",
    "Later": "timewright.targets.context",
    "NotBefore": "timewright.targets.context",
    "Scheduler": "timewright.interfaces.python.scheduler",
}

__all__ = [
    "After",
    "AnyOf",
    "AsyncScheduler",
    "Call",
    "CatchUp",
    "Clamp",
    "Context",
    "Cron",
    "Decision",
    "Every",
    "Handoff",
    "Hints",
    "Http",
    "InvalidInput",
    "Later",
    "LeaseTerms",
    "Manual",
    "NotBefore",
    "NotFound",
    "Note",
    "Once",
    "Outcome",
    "Overlap",
    "Publish",
    "QueuePolicy",
    "Retry",
    "Rrule",
    "Run",
    "RunState",
    "Schedule",
    "ScheduleState",
    "Scheduler",
    "Settings",
    "Shell",
    "Source",
    "TimewrightError",
    "Workflow",
    "after",
    "cron",
    "every",
]


def __getattr__(name: str) -> Any:
    """Import the names of the Python interface on first use."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'timewright' has no attribute {name!r}")
