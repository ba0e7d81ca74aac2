"""Converts endpoints of the recorded adaptive scheduler to schedules and their progress."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from timewright.core.input.aliases import snake_case
from timewright.core.input.decode import decode, decode_schedule
from timewright.core.moments import DAY
from timewright.core.schedule.hints import Hints, IntervalHint, OneShotHint
from timewright.core.schedule.schedule import Schedule, ScheduleProgress
from timewright.errors import InvalidInput

# The words of the recorded scheduler for the progress of a schedule, and ours.
PROGRESS_WORDS = {"failure_count": "failures", "next_run_at": "next_at", "last_run_at": "last_started_at"}
OF_THE_STANDING = {*PROGRESS_WORDS, "paused_until"}


def endpoint(given: Mapping[str, Any], *, now: datetime) -> tuple[Schedule, ScheduleProgress]:
    """Return an endpoint created one day before now: its schedule, its progress and its hints."""
    created_at = now - DAY
    words = {snake_case(key): value for key, value in given.items()}
    written = {
        key: value
        for key, value in words.items()
        if key not in OF_THE_STANDING and not key.startswith("ai_hint")
    }
    schedule = decode_schedule(
        {"name": "endpoint", "preset": "adaptive", "url": "https://example.com/", **written},
        id="sch_1",
        now=created_at,
    )
    stood = {PROGRESS_WORDS.get(key, key): value for key, value in words.items() if key in OF_THE_STANDING}
    progress = decode(stood, ScheduleProgress, base={"cursor": created_at, "hints": read_hints(words)})
    return schedule, progress


def read_hints(words: Mapping[str, Any]) -> Hints:
    """The hints of an endpoint, without those that never expire, because they are refused."""
    interval = one_shot = None
    expiry = {"expires_at": words.get("ai_hint_expires_at")}
    if words.get("ai_hint_interval_ms") is not None:
        interval = _kept({"interval_ms": words["ai_hint_interval_ms"], **expiry}, IntervalHint)
    if words.get("ai_hint_next_run_at") is not None:
        one_shot = _kept({"at": words["ai_hint_next_run_at"], **expiry}, OneShotHint)
    return Hints(interval=interval, one_shot=one_shot)


def _kept(raw: Mapping[str, Any], kind: Any) -> Any:
    try:
        return decode(raw, kind)
    except InvalidInput:
        assert raw["expires_at"] is None
        return None
