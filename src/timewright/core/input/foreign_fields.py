"""Field names of other schedulers that are not accepted here, each with what to write instead.

Unlike an alias, such a name has no exact equivalent, so it is refused with a suggestion.
"""

from __future__ import annotations

from timewright.core.schedule.schedule import Schedule

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
    }
}
