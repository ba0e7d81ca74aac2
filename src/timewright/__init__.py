"""Timewright: a persistent scheduler for applications and AI agents."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from timewright.core.decision import Decision, Source
from timewright.core.hints import Hints
from timewright.core.policies import CatchUp, Clamp, LeaseTerms, Overlap, QueuePolicy, Retry
from timewright.core.run import Outcome, Run, RunState
from timewright.core.schedule import Schedule, ScheduleState
from timewright.core.target import Call, Handoff, Http, Note, Publish, Shell, Workflow
from timewright.core.triggers import After, AnyOf, Cron, Every, Manual, Once, Rrule, after, every
from timewright.errors import InvalidInput, NotFound, TimewrightError
from timewright.settings import Settings

if TYPE_CHECKING:
    from timewright.doors.python import Scheduler
    from timewright.doors.python_async import AsyncScheduler
    from timewright.targets.context import Context, NotBefore

# Imported when they are first asked for, so that `import timewright` stays light.
_LATER = {
    "AsyncScheduler": "timewright.doors.python_async",
    "Context": "timewright.targets.context",
    "NotBefore": "timewright.targets.context",
    "Scheduler": "timewright.doors.python",
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
    "every",
]


def __getattr__(name: str) -> Any:
    """The names of the embedded door."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'timewright' has no attribute {name!r}")
