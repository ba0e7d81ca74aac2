"""Rows ↔ values: how schedules are spelled in a table, what they say and where they stand."""

from __future__ import annotations

from typing import Any

import msgspec

from timewright.core.decision import Candidate
from timewright.core.hints import NO_HINTS, Hints
from timewright.core.jitter import share
from timewright.core.moments import EPOCH
from timewright.core.schedule import Schedule, ScheduleState, Standing
from timewright.errors import TimewrightError, UnreadableRow
from timewright.stores.rows import MICROSECOND, SOURCES, Row, text, to_instant, to_int

SHARDS = 4096

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
    return int(share(schedule_id) * SHARDS)


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
    try:
        next_at = to_instant(row[3])
        return Standing(
            state=_SCHEDULE_STATES[row[0]],
            reason=row[1],
            cursor=EPOCH + row[2] * MICROSECOND,
            next_at=next_at,
            wake_at=next_at if row[4] == row[3] else to_instant(row[4]),
            source=SOURCES[row[5]] if row[5] else None,
            trail=_read_trail(row[6]) if row[6] else (),
            failures=row[7],
            runs=row[8],
            missed=row[9],
            paused_at=to_instant(row[10]),
            paused_until=to_instant(row[11]),
            last_started_at=to_instant(row[12]),
            last_finished_at=to_instant(row[13]),
            hints=_read_hints(row[14]) if row[14] else NO_HINTS,
        )
    except (KeyError, TypeError, OverflowError, msgspec.MsgspecError, TimewrightError) as error:
        raise UnreadableRow(f"a stored schedule cannot be read: {error}", field="schedules") from error
