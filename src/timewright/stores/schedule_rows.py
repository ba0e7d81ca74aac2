"""Rows ↔ values: how schedules are spelled in a table, what they say and where they stand."""

from __future__ import annotations

from typing import Any

import msgspec

from timewright.core.decision import Candidate
from timewright.core.hints import NO_HINTS, Hints
from timewright.core.jitter import share
from timewright.core.moments import EPOCH
from timewright.core.schedule import Schedule, ScheduleState, Standing
from timewright.core.shards import SMALLEST_PARTS
from timewright.errors import TimewrightError, UnreadableRow
from timewright.stores.rows import MICROSECOND, SOURCES, Row, text, to_instant, to_int

_SCHEDULE_STATES = {state.value: state for state in ScheduleState}

_write_json = msgspec.json.Encoder().encode
_read_schedule = msgspec.json.Decoder(Schedule).decode
_read_hints = msgspec.json.Decoder(Hints).decode
_read_trail = msgspec.json.Decoder(tuple[Candidate, ...]).decode


def schedule_body(schedule: Schedule) -> str:
    """What a schedule says, as one JSON text; fields at their defaults are left out."""
    return _write_json(schedule).decode()


def read_schedule(body: str) -> Schedule:
    """A schedule from its JSON text."""
    try:
        return _read_schedule(body)
    except (msgspec.MsgspecError, ValueError, TimewrightError) as error:
        raise UnreadableRow(f"a stored schedule cannot be read: {error}", field="revisions.body") from error


def shard_of(schedule_id: str) -> int:
    """Which of the smallest shards a schedule falls into; larger ones are made of these."""
    return int(share(schedule_id) * SMALLEST_PARTS)


def standing_row(standing: Standing) -> tuple[Any, ...]:
    """The changing part of a schedule: state to hints, in the order of the statement book."""
    next_at = to_int(standing.next_at)
    return (
        standing.state._value_,
        standing.reason,
        to_int(standing.cursor),
        next_at,
        next_at if standing.wake_at is standing.next_at else to_int(standing.wake_at),
        standing.source._value_ if standing.source is not None else "",
        text(standing.trail) if standing.trail else "",
        standing.failures,
        standing.runs,
        standing.missed,
        to_int(standing.paused_at),
        to_int(standing.paused_until),
        to_int(standing.last_started_at),
        to_int(standing.last_finished_at),
        text(standing.hints) if standing.hints is not NO_HINTS and standing.hints != NO_HINTS else "",
    )


def advance_row(schedule_id: str, standing: Standing, last_run: str) -> tuple[Any, ...]:
    """What an ordinary step changes of a schedule, in the order of the statement book."""
    next_at = to_int(standing.next_at)
    wake_at = next_at if standing.wake_at is standing.next_at else to_int(standing.wake_at)
    return (
        schedule_id,
        to_int(standing.cursor),
        next_at,
        wake_at,
        standing.runs,
        standing.missed,
        last_run,
    )


def read_standing(row: Row) -> Standing:
    """The reverse of `standing_row`."""
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
        hints,
    ) = row
    try:
        next_at = None if planned is None else EPOCH + planned * MICROSECOND
        return Standing(
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
            hints=_read_hints(hints) if hints else NO_HINTS,
        )
    except (KeyError, TypeError, OverflowError, msgspec.MsgspecError, TimewrightError) as error:
        raise UnreadableRow(f"a stored schedule cannot be read: {error}", field="schedules") from error
