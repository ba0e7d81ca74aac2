"""Timewright: a persistent scheduler for applications and AI agents."""

from __future__ import annotations

from timewright.core.decision import Decision, Source
from timewright.core.hints import Hints
from timewright.core.policies import CatchUp, Clamp, LeaseTerms, Overlap, QueuePolicy, Retry
from timewright.core.run import Outcome, Run, RunState
from timewright.core.schedule import Schedule, ScheduleState
from timewright.core.target import Call, Handoff, Http, Note, Publish, Shell, Workflow
from timewright.core.triggers import After, AnyOf, Cron, Every, Manual, Once, every
from timewright.errors import InvalidInput, NotFound, TimewrightError

__all__ = [
    "After",
    "AnyOf",
    "Call",
    "CatchUp",
    "Clamp",
    "Cron",
    "Decision",
    "Every",
    "Handoff",
    "Hints",
    "Http",
    "InvalidInput",
    "LeaseTerms",
    "Manual",
    "NotFound",
    "Note",
    "Once",
    "Outcome",
    "Overlap",
    "Publish",
    "QueuePolicy",
    "Retry",
    "Run",
    "RunState",
    "Schedule",
    "ScheduleState",
    "Shell",
    "Source",
    "TimewrightError",
    "Workflow",
    "every",
]
