"""Aliases for enum values and field names, taken from other schedulers; accepted as input, never emitted.

Field names are looked up in lower snake case, so `maxRetries` and `max_retries` are the same. Each alias maps
to the path of a field; a path of several names reaches into a nested object (`retry.backoff.delay`).
"""

from __future__ import annotations

import re
from enum import StrEnum

from timewright.core.calendars import CalendarRule
from timewright.core.policies.policies import Align, CatchUp, LeaseTerms, Overlap, QueuePolicy, Retry
from timewright.core.recurrence.triggers import After, AnyOf, Cron, Every, Once, Rrule
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.hints import IntervalHint, OneShotHint, PauseHint
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.core.schedule.upstream import EndKind
from timewright.core.target import Call, Http, Note, Publish, Shell, Workflow

FieldPath = tuple[str, ...]

CHOICE_ALIASES: dict[type[StrEnum], dict[str, str]] = {
    Overlap: {
        "forbid": "skip",
        "coalesce": "skip",
        "coalesce_if_active": "skip",
        "skip_if_active": "skip",
        "serial": "queue",
        "allow_multiple": "allow",
        "always_enqueue": "allow",
    },
    CatchUp: {
        "skip": "none",
        "skip_missed": "none",
        "run_once": "last",
        "latest": "last",
        "fire_immediately": "all",
        "run_all_missed": "all",
        "enqueue_missed_with_cap": "all",
    },
    Align: {"from_now": "now", "start": "now", "anchor": "grid"},
    RunState: {
        "pending": "ready",
        "enqueued": "ready",
        "running": "leased",
        "started": "leased",
        "success": "succeeded",
        "completed": "succeeded",
        "done": "succeeded",
        "drained": "succeeded",
        "error": "failed",
        "timeout": "failed",
        "canceled": "cancelled",
    },
    EndKind: {"succeeded": "success", "failed": "failure", "ended": "end", "any": "end"},
    ScheduleState: {"idle": "active", "running": "active", "enabled": "active", "disabled": "parked"},
}

_TRIGGER = {
    "cron": "cron",
    "cron_expr": "cron",
    "cron_expression": "cron",
    "baseline_cron": "cron",
    "every": "every",
    "interval": "every",
    "baseline_interval": "every",
    "after": "after",
    "on": "on",
    "delay": "delay",
    "once": "once",
    "at": "once",
    "manual": "manual",
    "rrule": "rrule",
    "zone": "zone",
    "timezone": "zone",
    "tz": "zone",
    "anchor": "anchor",
    "dst": "dst",
    "key": "key",
}
_TARGET = {
    "http": "http",
    "call": "call",
    "shell": "shell",
    "workflow": "workflow",
    "handoff": "handoff",
    "publish": "publish",
    "note": "note",
    "url": "url",
    "method": "method",
    "headers": "headers",
    "headers_json": "headers",
    "body": "body",
    "body_json": "body",
    "max_response_size_kb": "max_response_kb",
    "http_timeout": "timeout",
    "handler": "call",
    "workflow_id": "workflow",
    "version": "version",
    "user_id": "user",
}
_SCHEDULE: dict[str, FieldPath] = {
    "schedule_id": ("id",),
    "schedule": ("trigger",),
    "triggers": ("trigger",),
    "overlap_policy": ("overlap",),
    "concurrency_policy": ("overlap",),
    "catchup": ("catch_up",),
    "catchup_policy": ("catch_up",),
    "catch_up_policy": ("catch_up",),
    "max_catchup_per_tick": ("catch_up_limit",),
    "max_retries": ("retry", "max_attempts"),
    "max_attempts": ("retry", "max_attempts"),
    "retry_delay": ("retry", "backoff", "delay"),
    "backoff": ("retry", "backoff"),
    "backoff_base": ("retry", "backoff", "base"),
    "backoff_factor": ("retry", "backoff", "factor"),
    "backoff_cap": ("retry", "backoff", "cap"),
    "exhausted": ("retry", "exhausted"),
    "timeout": ("lease", "time_limit"),
    "time_limit": ("lease", "time_limit"),
    "max_execution_time": ("lease", "time_limit"),
    "lease_ttl": ("lease", "length"),
    "min_interval": ("clamp", "min"),
    "max_interval": ("clamp", "max"),
    "max_consecutive_errors": ("disable_after",),
}

# The short fields of a schedule that people write, for lists of its fields.
SHORT_FIELDS = (
    *("after", "at", "call", "cron", "every", "handoff", "http", "manual", "note", "publish", "rrule"),
    *("shell", "workflow", "zone", "backoff", "max_attempts", "time_limit"),
)

FIELD_ALIASES: dict[type, dict[str, FieldPath]] = {
    Schedule: {
        **{word: ("trigger", name) for word, name in _TRIGGER.items()},
        **{word: ("target", name) for word, name in _TARGET.items()},
        **_SCHEDULE,
    },
    ScheduleProgress: {
        "failure_count": ("failures",),
        "consecutive_errors": ("failures",),
        "next_run_at": ("next_at",),
        "last_run_at": ("last_started_at",),
        "status": ("state",),
    },
    Retry: {
        "max_retries": ("max_attempts",),
        "delay": ("backoff", "delay"),
        "retry_delay": ("backoff", "delay"),
        "backoff_base": ("backoff", "base"),
        "backoff_factor": ("backoff", "factor"),
        "backoff_cap": ("backoff", "cap"),
    },
    LeaseTerms: {"ttl": ("length",), "lease_ttl": ("length",), "timeout": ("time_limit",)},
    QueuePolicy: {
        "concurrency": ("max_concurrent",),
        "max_retries": ("max_attempts",),
        "lease_ttl": ("lease",),
        "backoff_base": ("backoff", "base"),
        "backoff_factor": ("backoff", "factor"),
        "backoff_cap": ("backoff", "cap"),
    },
    CalendarRule: {"without": ("except_",)},
    Cron: {
        "cron": ("expression",),
        "cron_expr": ("expression",),
        "cron_expression": ("expression",),
        "baseline_cron": ("expression",),
        "timezone": ("zone",),
        "tz": ("zone",),
    },
    Every: {"every": ("interval",), "baseline_interval": ("interval",)},
    Rrule: {"rrule": ("rule",), "timezone": ("zone",), "tz": ("zone",), "dtstart": ("anchor",)},
    After: {"after": ("delay",)},
    Once: {"once": ("at",)},
    AnyOf: {"any_of": ("triggers",)},
    Http: {
        "headers_json": ("headers",),
        "body_json": ("body",),
        "json": ("body",),
        "max_response_size_kb": ("max_response_kb",),
    },
    Call: {"call": ("name",), "handler": ("name",), "function": ("name",)},
    Shell: {"argv": ("command",)},
    Workflow: {"workflow_id": ("workflow",), "user_id": ("user",)},
    Publish: {"task": ("name",)},
    Note: {"note": ("text",)},
    IntervalHint: {"ai_hint_interval": ("interval",), "ai_hint_expires_at": ("expires_at",)},
    OneShotHint: {"ai_hint_next_run_at": ("at",), "ai_hint_expires_at": ("expires_at",)},
    PauseHint: {"paused_until": ("until",)},
    Run: {
        "run_at": ("planned_at",),
        "next_eligible_at": ("fire_at",),
        "lease_expires_at": ("lease_until",),
        "attempt": ("attempts",),
        "status": ("state",),
        "parked_reason": ("reason",),
    },
}

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_PAUSE = "the command schedule pause, after creating the schedule"
_ONE_AT_A_TIME = "overlap: skip, queue, replace or allow; limits: [name] for a limit over several schedules"
_ONCE = "once: 2026-12-24T18:00:00Z"
_DEADLINE = "deadline: 10m"
_EVERY = "every: 90s, 15m or 1h30m"
_CRON = "cron: '30 3 * * mon-fri'"
_ARGUMENTS = "call: {name: reports.nightly, args: {team: finance}}"

REPLACEMENTS: dict[type, dict[str, str]] = {
    Schedule: {
        "coalesce": "catch_up: last",
        "misfire_grace_time": "grace: 30s",
        "misfire_policy": "catch_up: none, last, all or spread",
        "max_instances": _ONE_AT_A_TIME,
        "max_active_runs": _ONE_AT_A_TIME,
        "concurrency": _ONE_AT_A_TIME,
        "depends_on": "after: nightly-load, or needs: ['nightly-load:2h']",
        "retries": "retry: 3, which includes the first attempt",
        "backoff_limit": "max_attempts: 3, which includes the first attempt",
        "start_date": "start_at: 2026-12-01T00:00:00Z",
        "end_date": "end_at: 2026-12-31T00:00:00Z",
        "starting_deadline_seconds": _DEADLINE,
        "active_deadline_seconds": "time_limit: 10m",
        "soft_time_limit": "time_limit: 10m",
        "expires": _DEADLINE,
        "expire_seconds": _DEADLINE,
        "eta": _ONCE,
        "countdown": _ONCE,
        "run_date": _ONCE,
        "crontab": "cron: '0 9 * * 1-5'",
        "schedule_interval": "cron: '0 9 * * 1-5', or every: 15m",
        "args": _ARGUMENTS,
        "kwargs": _ARGUMENTS,
        "func": "call: reports.nightly",
        "rate_limit": "a named limit, a budget, or a queue with its policy",
        "enabled": _PAUSE,
        "paused": _PAUSE,
        "suspend": _PAUSE,
        "replace_existing": "schedule put, which creates or replaces",
        "tag": "tags: [finance]",
        **dict.fromkeys(("seconds", "minutes", "hours", "days", "weeks", "run_every", "period"), _EVERY),
        **dict.fromkeys(("second", "minute", "hour", "day", "month", "day_of_week", "day_of_month"), _CRON),
    },
    Every: {"zone": "leave it out: an interval has no time zone"},
}


def snake_case(word: str) -> str:
    """Convert a field name to lower snake case: `maxRetries` to `max_retries`."""
    lower = word.lower()
    # Usual case: a name without capitals needs no conversion.
    return word if lower == word else _HUMP.sub("_", word).lower()


def normalize_choice(text: str) -> str:
    """Convert an enum value to lower snake case: `FORBID`, `skip-missed`, `Skip Missed`."""
    return snake_case(text.strip()).replace("-", "_").replace(" ", "_")
