"""Rows ↔ values: how schedules, runs and attempts are spelled in a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from timewright.core.decision import Candidate, Source
from timewright.core.hints import NO_HINTS, Hints
from timewright.core.jitter import share
from timewright.core.moments import EPOCH
from timewright.core.run import Attempt, Run, RunState
from timewright.core.schedule import Schedule, ScheduleState, Standing
from timewright.errors import TimewrightError, UnreadableRow

Row = Sequence[Any]

SHARDS = 4096

_MICROSECOND = timedelta(microseconds=1)
_RUN_STATES = {state.value: state for state in RunState}
_SCHEDULE_STATES = {state.value: state for state in ScheduleState}
_SOURCES = {source.value: source for source in Source}

_write_json = msgspec.json.Encoder().encode
_read_schedule = msgspec.json.Decoder(Schedule).decode
_read_hints = msgspec.json.Decoder(Hints).decode
_read_trail = msgspec.json.Decoder(tuple[Candidate, ...]).decode
_read_any = msgspec.json.Decoder().decode


class Extra(Struct, frozen=True, omit_defaults=True):
    """What few runs have, kept together so that most rows stay narrow."""

    trail: tuple[Candidate, ...] = ()
    missed: int = 0
    fired_by: tuple[int, ...] = ()
    backfill_of: str = ""
    made_by: str = ""
    payload: Any = None


_read_extra = msgspec.json.Decoder(Extra).decode
_NO_EXTRA = Extra()


def to_int(moment: datetime | None) -> int | None:
    """An instant as a table keeps it."""
    return None if moment is None else (moment - EPOCH) // _MICROSECOND


def to_instant(value: int | None) -> datetime | None:
    """An instant as everyone else knows it."""
    return None if value is None else EPOCH + timedelta(microseconds=value)


def text(value: object) -> str:
    """A value as JSON text; half a character, which has no place in any text, becomes a mark."""
    try:
        return _write_json(value).decode()
    except UnicodeEncodeError:
        return _write_json(_mended(msgspec.to_builtins(value))).decode()


def clean(value: str) -> str:
    """A text that every database can keep: no NUL, no half a character."""
    if "\0" not in value and value.isascii():
        return value
    whole = value.replace("\0", "\ufffd").encode("utf-16", "surrogatepass")
    return whole.decode("utf-16", "replace")


def schedule_body(schedule: Schedule) -> str:
    """What a schedule says, as one JSON text; fields at their defaults are left out."""
    return _write_json(schedule).decode()


@lru_cache(maxsize=20_000)
def read_schedule(body: str) -> Schedule:
    """A schedule from its JSON text; equal texts share one value."""
    try:
        return _read_schedule(body)
    except (msgspec.MsgspecError, ValueError, TimewrightError) as error:
        raise UnreadableRow(f"a stored schedule cannot be read: {error}", field="revisions.body") from error


def shard_of(schedule_id: str) -> int:
    """Which of the smallest shards a schedule falls into; larger ones are made of these."""
    return int(share(schedule_id) * SHARDS)


def standing_row(standing: Standing) -> tuple[Any, ...]:
    """The changing part of a schedule: state to hints, in the order of the statement book."""
    return (
        standing.state.value,
        standing.reason,
        to_int(standing.cursor),
        to_int(standing.next_at),
        to_int(standing.wake_at),
        standing.source.value if standing.source is not None else "",
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


def read_standing(row: Row) -> Standing:
    """The reverse of `standing_row`."""
    try:
        return Standing(
            state=_SCHEDULE_STATES[row[0]],
            reason=row[1],
            cursor=EPOCH + timedelta(microseconds=row[2]),
            next_at=to_instant(row[3]),
            wake_at=to_instant(row[4]),
            source=_SOURCES[row[5]] if row[5] else None,
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


def new_run_row(run: Run) -> tuple[Any, ...]:
    """A run to insert, in the order of the statement book."""
    return (
        run.id,
        run.namespace,
        run.schedule_id,
        run.lane,
        (run.planned_at - EPOCH) // _MICROSECOND,
        (run.fire_at - EPOCH) // _MICROSECOND,
        run.state.value,
        _asleep(run),
        run.reason,
        run.source.value,
        run.revision,
        run.queue,
        line_of(run.gates),
        run.priority,
        int(run.alone),
        int(run.handoff),
        run.fence,
        to_int(run.last_of),
        run.dropped,
        (run.created_at - EPOCH) // _MICROSECOND,
        to_int(run.finished_at),
        run.lease_id,
        run.holder,
        to_int(run.leased_at),
        to_int(run.lease_until),
        run.parent,
        run.previous,
        _extra(run),
    )


def read_run(row: Row) -> Run:
    """A run from the columns of `statements.RUN_COLUMNS`."""
    try:
        extra = _read_extra(row[32]) if row[32] else _NO_EXTRA
        return Run(
            id=row[0],
            namespace=row[1],
            schedule_id=row[2],
            lane=row[3],
            planned_at=EPOCH + timedelta(microseconds=row[4]),
            fire_at=EPOCH + timedelta(microseconds=row[5]),
            state=_RUN_STATES[row[6]],
            reason=row[7],
            source=_SOURCES[row[8]],
            revision=row[9],
            queue=row[10],
            gates=gates_of(row[11]),
            priority=row[12],
            alone=row[13] == 1,
            handoff=row[14] == 1,
            attempts=row[15],
            refunds=row[16],
            fence=row[17],
            last_of=to_instant(row[18]),
            dropped=row[19],
            created_at=EPOCH + timedelta(microseconds=row[20]),
            started_at=to_instant(row[21]),
            finished_at=to_instant(row[22]),
            lease_id=row[23],
            holder=row[24],
            leased_at=to_instant(row[25]),
            lease_until=to_instant(row[26]),
            cancel_at=to_instant(row[27]),
            word=row[28],
            error=row[29],
            parent=row[30],
            previous=row[31],
            trail=extra.trail,
            missed=extra.missed,
            fired_by=extra.fired_by,
            backfill_of=extra.backfill_of,
            made_by=extra.made_by,
            payload=extra.payload,
        )
    except (KeyError, TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise UnreadableRow(f"run {row[0]} cannot be read: {error}", field="runs", value=row[0]) from error


def settled_row(run: Run, *, fence: int) -> tuple[Any, ...]:
    """A run after its lease ended, in the order of the statement book."""
    return (
        run.id,
        fence,
        run.state.value,
        1 if run.state is RunState.READY else 0,
        to_int(run.fire_at),
        clean(run.reason),
        run.attempts,
        run.refunds,
        to_int(run.started_at),
        to_int(run.finished_at),
        clean(run.word),
        clean(run.error),
    )


def changed_row(run: Run, *, was: RunState, fence: int) -> tuple[Any, ...]:
    """A run that was rewritten while nobody held it, in the order of the statement book."""
    return (
        run.id,
        was.value,
        fence,
        run.state.value,
        1 if run.state is RunState.READY else 0,
        to_int(run.fire_at),
        clean(run.reason),
        run.attempts,
        run.refunds,
        to_int(run.finished_at),
        clean(run.error),
    )


def attempt_row(attempt: Attempt) -> tuple[Any, ...]:
    """An ended lease to insert, in the order of the statement book."""
    return (
        attempt.run_id,
        attempt.fence,
        attempt.number,
        attempt.lease_id,
        attempt.holder,
        to_int(attempt.leased_at),
        to_int(attempt.lease_until),
        to_int(attempt.started_at),
        to_int(attempt.ended_at),
        attempt.outcome,
        int(attempt.charged),
        clean(attempt.word),
        clean(attempt.error),
        text(attempt.result) if attempt.result is not None else "",
    )


def read_attempt(row: Row) -> Attempt:
    """The reverse of `attempt_row`."""
    return Attempt(
        run_id=row[0],
        fence=row[1],
        number=row[2],
        lease_id=row[3],
        holder=row[4],
        leased_at=EPOCH + timedelta(microseconds=row[5]),
        lease_until=EPOCH + timedelta(microseconds=row[6]),
        started_at=to_instant(row[7]),
        ended_at=EPOCH + timedelta(microseconds=row[8]),
        outcome=row[9],
        charged=row[10] == 1,
        word=row[11],
        error=row[12],
        result=_read_any(row[13]) if row[13] else None,
    )


def _mended(value: Any) -> Any:
    """The same data with every text made whole."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_mended(key): _mended(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(inner) for inner in value]
    return value


def line_of(gates: tuple[str, ...]) -> str:
    """The line a run stands in: those who share their gates wait together. Names hold no line feed."""
    return "\n".join(gates)


def gates_of(line: str) -> tuple[str, ...]:
    """The reverse of `line_of`."""
    return tuple(line.split("\n")) if line else ()


def _asleep(run: Run) -> int:
    """A ready run sleeps until its instant has come; waking is what puts it into its line."""
    return 1 if run.state is RunState.READY and run.fire_at > run.created_at else 0


def _extra(run: Run) -> str:
    told = run.trail or run.missed or run.fired_by or run.backfill_of or run.made_by
    if not told and run.payload is None:
        return ""
    return text(
        Extra(
            trail=run.trail,
            missed=run.missed,
            fired_by=run.fired_by,
            backfill_of=run.backfill_of,
            made_by=run.made_by,
            payload=run.payload,
        )
    )
