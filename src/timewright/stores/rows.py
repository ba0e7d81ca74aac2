"""Encoding and decoding of runs and attempts as table rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Struct

from timewright.core.budgets.costs import Cost
from timewright.core.moments import EPOCH
from timewright.core.policies.limits import is_grouped_key
from timewright.core.run.run import Attempt, Run, RunState
from timewright.core.schedule.decision import Candidate, Source
from timewright.errors import UnreadableRow

Row = Sequence[Any]
T = TypeVar("T", bound=Struct)

MICROSECOND = timedelta(microseconds=1)
# Buckets of groups begin with the mark, so that they sort after all others.
GROUP_MARK, GROUP_KEYS = "~", "\n~"
_RUN_STATES = {state.value: state for state in RunState}
SOURCES = {source.value: source for source in Source}

_write_json = msgspec.json.Encoder().encode
_read_any = msgspec.json.Decoder().decode
_read_cost = msgspec.json.Decoder(Cost).decode


class Extra(Struct, frozen=True, omit_defaults=True):
    """Fields that few runs have, in one JSON column so that most rows stay narrow."""

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
    """Decode extra fields, cached for a batch unless there is a payload, which must not be shared."""
    return _read_extra(more) if "payload" in more else _shared_extra(more)


def micros_or_none(moment: datetime | None) -> int | None:
    """Return an instant in microseconds; None stays None."""
    return None if moment is None else (moment - EPOCH) // MICROSECOND


@lru_cache(maxsize=256)
def cached_micros(moment: datetime) -> int:
    """Return an instant in microseconds, cached because a whole batch shares it."""
    return (moment - EPOCH) // MICROSECOND


def to_instant(value: int | None) -> datetime | None:
    """Return a stored instant as a datetime; None stays None."""
    return None if value is None else EPOCH + value * MICROSECOND


@lru_cache(maxsize=256)
def cached_instant(value: int) -> datetime:
    """Return a stored instant as a datetime, cached because a whole batch shares it."""
    return EPOCH + value * MICROSECOND


def json_text(value: object) -> str:
    """Return a value as JSON text; lone surrogates become U+FFFD."""
    try:
        return _write_json(value).decode()
    except UnicodeEncodeError:
        return _write_json(_mended(msgspec.to_builtins(value))).decode()


def storable_text(value: str) -> str:
    """Return text that every database can store: NUL and lone surrogates become U+FFFD."""
    if "\0" not in value and value.isascii():
        return value
    whole = value.replace("\0", "\ufffd").encode("utf-16", "surrogatepass")
    return whole.decode("utf-16", "replace")


def struct_reader(kind: type[T], /, **decoders: Callable[[Any], Any]) -> Callable[[Row], T]:
    """Return what makes a struct of a row whose columns are its first fields.

    Instants, durations, booleans and enums are decoded by the type of the field; `decoders` are for others.
    """
    names, hints = kind.__struct_fields__, get_type_hints(kind)
    by_name = {name: decoders.get(name) or _decoder_of(hints[name]) for name in names}
    decoded = [(name, decode) for name, decode in by_name.items() if decode is not None]

    def read(row: Row) -> T:
        values = dict(zip(names, row, strict=False))
        for name, decode in decoded:
            if name in values:
                values[name] = decode(values[name])
        return kind(**values)

    return read


def _decoder_of(hint: Any) -> Callable[[Any], Any] | None:
    types = [one for one in get_args(hint) or (hint,) if isinstance(one, type)]
    if datetime in types:
        return to_instant
    if timedelta in types:
        return lambda value: None if value is None else value * MICROSECOND
    return next((one for one in types if one is bool or issubclass(one, Enum)), None)


def struct_row(value: Struct) -> tuple[Any, ...]:
    """The fields of a struct as the columns of a row: the inverse of `struct_reader`."""
    return tuple(column_value(getattr(value, name)) for name in value.__struct_fields__)


def column_value(value: Any) -> Any:
    """A value as databases store it: instants and durations in microseconds, text without NUL."""
    match value:
        case Enum():
            return value.value
        case str():
            return storable_text(value)
        case bytes():
            return value.decode()
        case bool():
            return int(value)
        case datetime():
            return (value - EPOCH) // MICROSECOND
        case timedelta():
            return value // MICROSECOND
    return value


def run_row(run: Run) -> tuple[Any, ...]:
    """A run to insert, with the columns of `insert_runs`.

    A ready run with a future `fire_at` is deferred until that instant.
    """
    planned_at = (run.planned_at - EPOCH) // MICROSECOND
    return (
        run.id,
        run.namespace,
        run.schedule_id,
        run.dedupe_scope,
        planned_at,
        planned_at if run.fire_at is run.planned_at else (run.fire_at - EPOCH) // MICROSECOND,
        run.state._value_,
        1 if run.fire_at > run.created_at and run.state is RunState.READY else 0,
        run.reason,
        run.source._value_,
        run.revision,
        run.queue,
        ready_bucket(run.needs, run.limit_keys) if run.needs or run.limit_keys else "",
        run.priority,
        1 if run.exclusive else 0,
        1 if run.handoff else 0,
        run.fence,
        None if run.last_of is None else micros_or_none(run.last_of),
        run.dropped,
        cached_micros(run.created_at),
        None if run.finished_at is None else cached_micros(run.finished_at),
        run.lease_id,
        run.holder,
        None if run.leased_at is None else cached_micros(run.leased_at),
        None if run.lease_until is None else cached_micros(run.lease_until),
        run.parent,
        run.previous,
        extra_json(run),
    )


def read_run(row: Row) -> Run:
    """Decode a run from the columns of `statements.RUN_COLUMNS`."""
    try:
        planned_at = EPOCH + row[4] * MICROSECOND
        fire_at = planned_at if row[5] == row[4] else EPOCH + row[5] * MICROSECOND
        extra = _read_extra(row[32]) if row[32] else _NO_EXTRA
        needs, limit_keys = split_bucket(row[11])
        return Run(
            id=row[0],
            namespace=row[1],
            schedule_id=row[2],
            dedupe_scope=row[3],
            planned_at=planned_at,
            fire_at=fire_at,
            state=_RUN_STATES[row[6]],
            reason=row[7],
            source=SOURCES[row[8]],
            revision=row[9],
            queue=row[10],
            limit_keys=limit_keys,
            needs=needs,
            priority=row[12],
            exclusive=row[13] == 1,
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
            outcome_label=row[28],
            error=row[29],
            parent=row[30],
            previous=row[31],
            losses=row[33],
            deferred_since=to_instant(row[34]),
            trail=extra.trail,
            missed=extra.missed,
            fired_by=extra.fired_by,
            backfill_of=extra.backfill_of,
            made_by=extra.made_by,
            payload=extra.payload,
        )
    except (KeyError, TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise UnreadableRow(f"run {row[0]} cannot be read: {error}", field="runs", value=row[0]) from error


def read_fresh_run(row: Row, needs: tuple[str, ...], limit_keys: tuple[str, ...]) -> Run:
    """Decode a run that was never leased, from the few columns of `ready_runs_of_bucket`."""
    try:
        planned = EPOCH + row[4] * MICROSECOND
        extra = _new_extra(row[15]) if row[15] else _NO_EXTRA
        return Run(
            id=row[0],
            namespace=row[1],
            schedule_id=row[2],
            dedupe_scope=row[3],
            planned_at=planned,
            fire_at=planned if row[5] == row[4] else cached_instant(row[5]),
            state=_RUN_STATES[row[6]],
            source=SOURCES[row[7]],
            revision=row[8],
            queue=row[9],
            limit_keys=limit_keys,
            needs=needs,
            priority=row[10],
            exclusive=row[11] == 1,
            handoff=row[12] == 1,
            created_at=cached_instant(row[13]),
            previous=row[14],
            trail=extra.trail,
            missed=extra.missed,
            fired_by=extra.fired_by,
            backfill_of=extra.backfill_of,
            made_by=extra.made_by,
            payload=extra.payload,
        )
    except (KeyError, TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise UnreadableRow(f"run {row[0]} cannot be read: {error}", field="runs", value=row[0]) from error


def settled_columns(settled: Sequence[tuple[Run, Attempt]]) -> tuple[list[Any], ...]:
    """Settled runs, with the columns of `settle_runs`."""
    runs = [run for run, _ in settled]
    return (
        [run.id for run in runs],
        [attempt.fence for _, attempt in settled],
        [run.state._value_ for run in runs],
        [1 if run.state is RunState.READY else 0 for run in runs],
        [(run.fire_at - EPOCH) // MICROSECOND if run.state is RunState.READY else None for run in runs],
        [storable_text(run.reason) if run.reason else "" for run in runs],
        [run.attempts for run in runs],
        [run.refunds for run in runs],
        [run.losses for run in runs],
        [micros_or_none(run.deferred_since) for run in runs],
        [cached_micros(run.started_at) if run.started_at is not None else None for run in runs],
        [cached_micros(run.finished_at) if run.finished_at is not None else None for run in runs],
        [storable_text(run.outcome_label) if run.outcome_label else "" for run in runs],
        [storable_text(run.error) if run.error else "" for run in runs],
    )


def changed_row(run: Run, *, expected_state: RunState, expected_fence: int) -> tuple[Any, ...]:
    """A rewritten run, with the columns of `change_runs`."""
    return (
        run.id,
        expected_state.value,
        expected_fence,
        run.state.value,
        1 if run.state is RunState.READY else 0,
        micros_or_none(run.fire_at),
        storable_text(run.reason),
        run.attempts,
        run.refunds,
        run.losses,
        micros_or_none(run.deferred_since),
        micros_or_none(run.finished_at),
        storable_text(run.error),
    )


def attempt_columns(attempts: Sequence[Attempt]) -> tuple[list[Any], ...]:
    """Ended attempts, with the columns of `insert_attempts`."""
    return (
        [attempt.run_id for attempt in attempts],
        [attempt.fence for attempt in attempts],
        [attempt.number for attempt in attempts],
        [attempt.lease_id for attempt in attempts],
        [attempt.holder for attempt in attempts],
        [cached_micros(attempt.leased_at) for attempt in attempts],
        [cached_micros(attempt.lease_until) for attempt in attempts],
        [
            cached_micros(attempt.started_at) if attempt.started_at is not None else None
            for attempt in attempts
        ],
        [cached_micros(attempt.ended_at) for attempt in attempts],
        [attempt.outcome for attempt in attempts],
        [1 if attempt.charged else 0 for attempt in attempts],
        [storable_text(attempt.outcome_label) if attempt.outcome_label else "" for attempt in attempts],
        [storable_text(attempt.error) if attempt.error else "" for attempt in attempts],
        [json_text(attempt.result) if attempt.result is not None else "" for attempt in attempts],
        [json_text(attempt.cost) if attempt.cost is not None else "" for attempt in attempts],
    )


read_attempt = struct_reader(
    Attempt,
    result=lambda text: _read_any(text) if text else None,
    cost=lambda text: _read_cost(text) if text else None,
)


def _mended(value: Any) -> Any:
    """Return the data with lone surrogates replaced in every text."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_mended(key): _mended(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(inner) for inner in value]
    return value


@lru_cache(maxsize=4096)
def ready_bucket(needs: tuple[str, ...], limit_keys: tuple[str, ...]) -> str:
    """Return the bucket of ready runs that share their needs and limits. Neither contains a line feed.

    With limits that have a key or a rate it begins with `~`, and their keys come last, after the base: the
    part that groups with other keys share.
    """
    bucket = "\n".join(needs)
    grouped = [key for key in limit_keys if is_grouped_key(key)]
    if grouped:
        others = [key for key in limit_keys if not is_grouped_key(key)]
        base = GROUP_MARK + "\n\n".join((bucket, "\n".join(others)))
        return storable_text(base + GROUP_KEYS + "\n".join(grouped))
    return storable_text("\n\n".join((bucket, "\n".join(limit_keys))) if limit_keys else bucket)


@lru_cache(maxsize=4096)
def split_bucket(bucket: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The inverse of `ready_bucket`: the needs and the limit keys, of a base without those of groups."""
    base, _, grouped = bucket.removeprefix(GROUP_MARK).partition(GROUP_KEYS)
    needs, _, limit_keys = base.partition("\n\n")
    keys = (*limit_keys.split("\n"), *grouped.split("\n"))
    return tuple(needs.split("\n")) if needs else (), tuple(key for key in keys if key)


def extra_json(run: Run) -> str:
    """Return the extra fields of a run as JSON; empty for most runs."""
    has_extra = run.trail or run.missed or run.fired_by or run.backfill_of or run.made_by
    if not has_extra and run.payload is None:
        return ""
    return json_text(
        Extra(
            trail=run.trail,
            missed=run.missed,
            fired_by=run.fired_by,
            backfill_of=run.backfill_of,
            made_by=run.made_by,
            payload=run.payload,
        )
    )
