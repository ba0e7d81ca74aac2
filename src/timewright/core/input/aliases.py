"""Aliases for enum values and field names, taken from other schedulers; accepted as input, never emitted.

Field names are looked up in lower snake case, so `maxRetries` and `max_retries` are the same. Each alias maps
to the path of a field; a path of several names reaches into a nested object (`retry.backoff.delay`).
"""

from __future__ import annotations

import re
from enum import StrEnum

from timewright.core.calendars import CalendarRule
from timewright.core.policies.backoff import Exponential
from timewright.core.policies.policies import Align, CatchUp, LeaseTerms, Overlap, QueuePolicy, Retry
from timewright.core.recurrence.triggers import After, AnyOf, Cron, Every, Once, Rrule
from timewright.core.run.run import RunState
from timewright.core.schedule.schedule import Schedule, ScheduleState
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

# The words that name a trigger: its kind, and the field of that kind that has the value.
TRIGGER_WORDS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("cron", "cron_expr", "cron_expression", "baseline_cron", "expression"), ("cron", "expression")
    ),
    **dict.fromkeys(("every", "interval", "baseline_interval"), ("every", "interval")),
    **dict.fromkeys(("once", "at"), ("once", "at")),
    **dict.fromkeys(("triggers", "any_of"), ("any_of", "triggers")),
    "after": ("after", "delay"),
    "manual": ("manual", ""),
    "rrule": ("rrule", "rule"),
}
# These are fields of a trigger only, because a schedule has other meanings for them.
_ONLY_IN_TRIGGER = frozenset({"expression", "triggers", "any_of"})
_ZONE: dict[str, FieldPath] = {"timezone": ("zone",), "tz": ("zone",)}
_TRIGGER = {
    **{word: kind for word, (kind, _) in TRIGGER_WORDS.items() if word not in _ONLY_IN_TRIGGER},
    **{word: word for word in ("on", "delay", "zone", "anchor", "dst", "key")},
    **dict.fromkeys(_ZONE, "zone"),
}
# The field that a single value after the kind sets: `call: name`, `note: text`.
TARGET_VALUE_FIELDS = {
    "call": "name",
    "http": "url",
    "shell": "command",
    "workflow": "workflow",
    "handoff": "payload",
    "publish": "name",
    "note": "text",
}
_TARGET = {
    **{kind: kind for kind in TARGET_VALUE_FIELDS},
    **{word: word for word in ("url", "method", "headers", "body", "version", "args", "input", "command")},
    "kwargs": "args",
    "headers_json": "headers",
    "body_json": "body",
    "max_response_size_kb": "max_response_kb",
    "http_timeout": "timeout",
    "handler": "call",
    "workflow_id": "workflow",
    "user_id": "user",
}
_BACKOFF: dict[str, FieldPath] = {
    "backoff_base": ("backoff", "base"),
    "backoff_factor": ("backoff", "factor"),
    "backoff_cap": ("backoff", "cap"),
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
    **{word: ("retry", *path) for word, path in _BACKOFF.items()},
    "exhausted": ("retry", "exhausted"),
    "timeout": ("lease", "time_limit"),
    "time_limit": ("lease", "time_limit"),
    "max_execution_time": ("lease", "time_limit"),
    "lease_ttl": ("lease", "length"),
    "min_interval": ("clamp", "min"),
    "max_interval": ("clamp", "max"),
    "max_consecutive_errors": ("disable_after",),
    **dict.fromkeys(("until", "end_date", "stop_at"), ("end_at",)),
    "start_date": ("start_at",),
}

# The short fields of a schedule that people write, for lists of its fields.
SHORT_FIELDS = (
    *("after", "at", "call", "cron", "every", "handoff", "http", "manual", "note", "publish", "rrule"),
    *("shell", "workflow", "zone", "backoff", "max_attempts", "time_limit"),
)


def _words_of(kind: str) -> dict[str, FieldPath]:
    """Return the words for the value of a trigger, as aliases of its field."""
    return {
        word: (field,) for word, (found, field) in TRIGGER_WORDS.items() if found == kind and word != field
    }


FIELD_ALIASES: dict[type, dict[str, FieldPath]] = {
    Schedule: {
        **{word: ("trigger", name) for word, name in _TRIGGER.items()},
        **{word: ("target", name) for word, name in _TARGET.items()},
        **_SCHEDULE,
    },
    Retry: {
        "max_retries": ("max_attempts",),
        "delay": ("backoff", "delay"),
        "retry_delay": ("backoff", "delay"),
        **_BACKOFF,
    },
    LeaseTerms: {"ttl": ("length",), "lease_ttl": ("length",), "timeout": ("time_limit",)},
    QueuePolicy: {
        "concurrency": ("max_running",),
        "max_concurrent": ("max_running",),
        "max_retries": ("max_attempts",),
        "lease_ttl": ("lease",),
        **_BACKOFF,
    },
    Exponential: {**dict.fromkeys(("max", "max_delay"), ("cap",)), "initial": ("base",)},
    CalendarRule: {"without": ("except_",)},
    Cron: {**_words_of("cron"), **_ZONE},
    Every: _words_of("every"),
    Rrule: {**_words_of("rrule"), **_ZONE, "dtstart": ("anchor",)},
    After: _words_of("after"),
    Once: _words_of("once"),
    AnyOf: _words_of("any_of"),
    Http: {
        "headers_json": ("headers",),
        "body_json": ("body",),
        "json": ("body",),
        "max_response_size_kb": ("max_response_kb",),
    },
    Call: {
        **dict.fromkeys(("call", "handler", "function"), ("name",)),
        **dict.fromkeys(("kwargs", "arguments"), ("args",)),
    },
    Shell: {"argv": ("command",)},
    Workflow: {**dict.fromkeys(("workflow_id", "name"), ("workflow",)), "user_id": ("user",)},
    Publish: {"task": ("name",)},
    Note: {"note": ("text",)},
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
        "func": "call: reports.nightly",
        "payload": f"{_ARGUMENTS}; or schedule run NAME with payload: …",
        **dict.fromkeys(("cmd", "script", "argv"), "shell: [ls, -l]"),
        **dict.fromkeys(("count", "times", "repeat", "end_after"), "max_runs: 5"),
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
