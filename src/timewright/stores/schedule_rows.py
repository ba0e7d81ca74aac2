"""Encoding and decoding of schedules as table rows: definition and progress."""

from __future__ import annotations

from typing import Any

import msgspec

from timewright.core.moments import EPOCH
from timewright.core.policies.backoff import hash_fraction
from timewright.core.schedule.decision import Candidate
from timewright.core.schedule.hints import NO_HINTS, Hints
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.core.schedule.shards import SHARD_SLOTS
from timewright.errors import TimewrightError, UnreadableRow
from timewright.stores.rows import MICROSECOND, SOURCES, Row, json_text, micros_or_none, to_instant

_SCHEDULE_STATES = {state.value: state for state in ScheduleState}

_write_json = msgspec.json.Encoder().encode
_read_schedule = msgspec.json.Decoder(Schedule).decode
_read_hints = msgspec.json.Decoder(Hints).decode
_read_trail = msgspec.json.Decoder(tuple[Candidate, ...]).decode


def schedule_body(schedule: Schedule) -> str:
    """Return the definition of a schedule as JSON; default values are omitted."""
    return _write_json(schedule).decode()


def read_schedule(body: str) -> Schedule:
    """Decode a schedule definition from JSON."""
    try:
        return _read_schedule(body)
    except (msgspec.MsgspecError, ValueError, TimewrightError) as error:
        raise UnreadableRow(f"a stored schedule cannot be read: {error}", field="revisions.body") from error


def shard_of(schedule_id: str) -> int:
    """Return the smallest shard of a schedule; larger shards combine these."""
    return int(hash_fraction(schedule_id) * SHARD_SLOTS)


def progress_row(progress: ScheduleProgress) -> tuple[Any, ...]:
    """The progress of a schedule, from the column state to the column hints."""
    next_at = micros_or_none(progress.next_at)
    return (
        progress.state._value_,
        progress.reason,
        micros_or_none(progress.cursor),
        next_at,
        next_at if progress.wake_at is progress.next_at else micros_or_none(progress.wake_at),
        progress.source._value_ if progress.source is not None else "",
        json_text(progress.trail) if progress.trail else "",
        progress.failures,
        progress.runs,
        progress.missed,
        micros_or_none(progress.paused_at),
        micros_or_none(progress.paused_until),
        micros_or_none(progress.last_started_at),
        micros_or_none(progress.last_finished_at),
        micros_or_none(progress.failing_since),
        micros_or_none(progress.replaced_after),
        json_text(progress.hints) if progress.hints is not NO_HINTS and progress.hints != NO_HINTS else "",
    )


def advance_row(schedule_id: str, progress: ScheduleProgress, last_run: str) -> tuple[Any, ...]:
    """The changed progress of a schedule, with the columns of `advance_progress`."""
    next_at = micros_or_none(progress.next_at)
    wake_at = next_at if progress.wake_at is progress.next_at else micros_or_none(progress.wake_at)
    return (
        schedule_id,
        micros_or_none(progress.cursor),
        next_at,
        wake_at,
        progress.runs,
        progress.missed,
        last_run,
    )


def read_progress(row: Row) -> ScheduleProgress:
    """The inverse of `standing_row`."""
    (
        state,
        reason,
        cursor,
        planned,
        wakes,
        source,
        trail,
        failures,
        runs,
        missed,
        paused_at,
        paused_until,
        started,
        finished,
        failing,
        replaced,
        hints,
    ) = row
    try:
        next_at = None if planned is None else EPOCH + planned * MICROSECOND
        return ScheduleProgress(
            state=_SCHEDULE_STATES[state],
            reason=reason,
            cursor=EPOCH + cursor * MICROSECOND,
            next_at=next_at,
            wake_at=next_at if wakes == planned else to_instant(wakes),
            source=SOURCES[source] if source else None,
            trail=_read_trail(trail) if trail else (),
            failures=failures,
            runs=runs,
            missed=missed,
            paused_at=None if paused_at is None else to_instant(paused_at),
            paused_until=None if paused_until is None else to_instant(paused_until),
            last_started_at=None if started is None else to_instant(started),
            last_finished_at=None if finished is None else to_instant(finished),
            failing_since=None if failing is None else to_instant(failing),
            replaced_after=None if replaced is None else to_instant(replaced),
            hints=_read_hints(hints) if hints else NO_HINTS,
        )
    except (KeyError, TypeError, OverflowError, msgspec.MsgspecError, TimewrightError) as error:
        raise UnreadableRow(f"a stored schedule cannot be read: {error}", field="schedules") from error
