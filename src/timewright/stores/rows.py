"""Rows ↔ values: how runs and attempts are spelled in a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from timewright.core.costs import Cost
from timewright.core.decision import Candidate, Source
from timewright.core.moments import EPOCH
from timewright.core.run import Attempt, Run, RunState
from timewright.errors import UnreadableRow

Row = Sequence[Any]

MICROSECOND = timedelta(microseconds=1)
_RUN_STATES = {state.value: state for state in RunState}
SOURCES = {source.value: source for source in Source}

_write_json = msgspec.json.Encoder().encode
_read_any = msgspec.json.Decoder().decode
_read_cost = msgspec.json.Decoder(Cost).decode


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


@lru_cache(maxsize=256)
def _shared_extra(more: str) -> Extra:
    return _read_extra(more)


def _new_extra(more: str) -> Extra:
    """What few runs have; read once for all of a batch, unless each must have a payload of its own."""
    return _read_extra(more) if "payload" in more else _shared_extra(more)


def to_int(moment: datetime | None) -> int | None:
    """An instant as a table keeps it."""
    return None if moment is None else (moment - EPOCH) // MICROSECOND


@lru_cache(maxsize=256)
def shared_int(moment: datetime) -> int:
    """The same for an instant that a whole batch shares, such as now."""
    return (moment - EPOCH) // MICROSECOND


def to_instant(value: int | None) -> datetime | None:
    """An instant as everyone else knows it."""
    return None if value is None else EPOCH + value * MICROSECOND


@lru_cache(maxsize=256)
def shared_instant(value: int) -> datetime:
    """The same for an instant that a whole batch shares."""
    return EPOCH + value * MICROSECOND


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


def new_run_row(run: Run) -> tuple[Any, ...]:
    """A run to insert, in the order of the statement book.

    A ready run sleeps until its instant has come; waking is what puts it into its line.
    """
    planned_at = (run.planned_at - EPOCH) // MICROSECOND
    return (
        run.id,
        run.namespace,
        run.schedule_id,
        run.lane,
        planned_at,
        planned_at if run.fire_at is run.planned_at else (run.fire_at - EPOCH) // MICROSECOND,
        run.state._value_,
        1 if run.fire_at > run.created_at and run.state is RunState.READY else 0,
        run.reason,
        run.source._value_,
        run.revision,
        run.queue,
        line_of(run.gates) if run.gates else "",
        run.priority,
        1 if run.alone else 0,
        1 if run.handoff else 0,
        run.fence,
        None if run.last_of is None else to_int(run.last_of),
        run.dropped,
        shared_int(run.created_at),
        None if run.finished_at is None else shared_int(run.finished_at),
        run.lease_id,
        run.holder,
        None if run.leased_at is None else shared_int(run.leased_at),
        None if run.lease_until is None else shared_int(run.lease_until),
        run.parent,
        run.previous,
        extra_of(run),
    )


def read_run(row: Row) -> Run:
    """A run from the columns of `statements.RUN_COLUMNS`."""
    try:
        planned_at = EPOCH + row[4] * MICROSECOND
        fire_at = planned_at if row[5] == row[4] else EPOCH + row[5] * MICROSECOND
        extra = _read_extra(row[32]) if row[32] else _NO_EXTRA
        return Run(
            id=row[0],
            namespace=row[1],
            schedule_id=row[2],
            lane=row[3],
            planned_at=planned_at,
            fire_at=fire_at,
            state=_RUN_STATES[row[6]],
            reason=row[7],
            source=SOURCES[row[8]],
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
            created_at=EPOCH + row[20] * MICROSECOND,
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


def read_new_run(row: Row, gates: tuple[str, ...]) -> Run:
    """A run to which nothing has happened yet, from the few columns in which such runs differ."""
    (
        run_id,
        namespace,
        schedule_id,
        lane,
        planned_at,
        fire_at,
        state,
        source,
        revision,
        queue,
        priority,
        alone,
        handoff,
        created_at,
        previous,
        more,
        *_,
    ) = row
    try:
        planned = EPOCH + planned_at * MICROSECOND
        extra = _new_extra(more) if more else _NO_EXTRA
        return Run(
            id=run_id,
            namespace=namespace,
            schedule_id=schedule_id,
            lane=lane,
            planned_at=planned,
            fire_at=planned if fire_at == planned_at else shared_instant(fire_at),
            state=_RUN_STATES[state],
            source=SOURCES[source],
            revision=revision,
            queue=queue,
            gates=gates,
            priority=priority,
            alone=alone == 1,
            handoff=handoff == 1,
            created_at=shared_instant(created_at),
            previous=previous,
            trail=extra.trail,
            missed=extra.missed,
            fired_by=extra.fired_by,
            backfill_of=extra.backfill_of,
            made_by=extra.made_by,
            payload=extra.payload,
        )
    except (KeyError, TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise UnreadableRow(f"run {run_id} cannot be read: {error}", field="runs", value=run_id) from error


def settled_columns(settled: Sequence[tuple[Run, Attempt]]) -> tuple[list[Any], ...]:
    """Runs after their leases ended, column by column in the order of the statement book."""
    runs = [run for run, _ in settled]
    return (
        [run.id for run in runs],
        [attempt.fence for _, attempt in settled],
        [run.state._value_ for run in runs],
        [1 if run.state is RunState.READY else 0 for run in runs],
        [(run.fire_at - EPOCH) // MICROSECOND if run.state is RunState.READY else None for run in runs],
        [clean(run.reason) if run.reason else "" for run in runs],
        [run.attempts for run in runs],
        [run.refunds for run in runs],
        [shared_int(run.started_at) if run.started_at is not None else None for run in runs],
        [shared_int(run.finished_at) if run.finished_at is not None else None for run in runs],
        [clean(run.word) if run.word else "" for run in runs],
        [clean(run.error) if run.error else "" for run in runs],
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


def attempt_columns(attempts: Sequence[Attempt]) -> tuple[list[Any], ...]:
    """Ended leases to insert, column by column in the order of the statement book."""
    return (
        [attempt.run_id for attempt in attempts],
        [attempt.fence for attempt in attempts],
        [attempt.number for attempt in attempts],
        [attempt.lease_id for attempt in attempts],
        [attempt.holder for attempt in attempts],
        [shared_int(attempt.leased_at) for attempt in attempts],
        [shared_int(attempt.lease_until) for attempt in attempts],
        [shared_int(attempt.started_at) if attempt.started_at is not None else None for attempt in attempts],
        [shared_int(attempt.ended_at) for attempt in attempts],
        [attempt.outcome for attempt in attempts],
        [1 if attempt.charged else 0 for attempt in attempts],
        [clean(attempt.word) if attempt.word else "" for attempt in attempts],
        [clean(attempt.error) if attempt.error else "" for attempt in attempts],
        [text(attempt.result) if attempt.result is not None else "" for attempt in attempts],
        [text(attempt.cost) if attempt.cost is not None else "" for attempt in attempts],
    )


def read_attempt(row: Row) -> Attempt:
    """The reverse of `attempt_columns`."""
    return Attempt(
        run_id=row[0],
        fence=row[1],
        number=row[2],
        lease_id=row[3],
        holder=row[4],
        leased_at=EPOCH + row[5] * MICROSECOND,
        lease_until=EPOCH + row[6] * MICROSECOND,
        started_at=to_instant(row[7]),
        ended_at=EPOCH + row[8] * MICROSECOND,
        outcome=row[9],
        charged=row[10] == 1,
        word=row[11],
        error=row[12],
        result=_read_any(row[13]) if row[13] else None,
        cost=_read_cost(row[14]) if row[14] else None,
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


def extra_of(run: Run) -> str:
    """What few runs have, as one text; empty for most."""
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
