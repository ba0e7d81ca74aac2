"""Rows as they are, for the checker: page by page, in the picture of one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from sys import intern
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from timewright.core.moments import micros
from timewright.ids import first_id
from timewright.proof.rows import (
    AccountRow,
    AttemptRow,
    AuditRow,
    ChargeRow,
    GateRow,
    HoldRow,
    ObjectRow,
    Plain,
    RevisionRow,
    RunRow,
    ScheduleRow,
)
from timewright.stores.rows import Row, gates_of
from timewright.stores.verbs import LAST, Verbs, page_limit

T = TypeVar("T", bound=Struct)

_read = msgspec.json.Decoder().decode


class ProofVerbs(Verbs):
    """What the checker reads."""

    def history(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        since: datetime | None = None,
        after: T | None = None,
        limit: int = 1000,
    ) -> list[T]:
        """A page of plain rows after the last one of the page before; runs and audit lines newest first."""
        place = _PLACES[kind](after)
        parameters = {
            **place,
            "namespace": namespace or "",
            "since": micros(since) if since is not None else 0,
            "first": first_id("run", at=since) if since is not None else "",
            "limit": page_limit(limit),
        }
        statement, read = _TABLES[kind]
        wanted = {
            name: parameters[name] for name in (*place, *_PARAMETERS.get(kind, ("namespace",)), "limit")
        }
        return [read(row) for row in self._ask(statement, wanted)]

    def unfinished_history(
        self, *, before: datetime, namespace: str | None = None, after: str = "", limit: int = 1000
    ) -> list[RunRow]:
        """A page of the runs made before an instant that are still to be finished, by id."""
        parameters = {
            "first": first_id("run", at=before),
            "after": after,
            "namespace": namespace or "",
            "limit": page_limit(limit),
        }
        return [_run(row) for row in self._ask("history_unfinished", parameters)]

    def ended_leases(self, run_ids: list[str]) -> list[AttemptRow]:
        """The ended leases of runs, as plain rows."""
        return [_attempt(row) for row in self._ask("history_attempts", {"ids": run_ids})]

    def meta_starting(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[tuple[str, str]]:
        """A page of small facts about the store whose names begin so, by name."""
        parameters = {"prefix": prefix, "after": after, "limit": page_limit(limit)}
        return [(row[0], row[1]) for row in self._ask("meta_starting", parameters)]


def _plain(text: str) -> Plain:
    """What a text says; one that cannot be read says nothing, which is for the checker to find."""
    try:
        said = _read(text) if text else {}
    except msgspec.MsgspecError:
        said = {}
    return said if isinstance(said, Mapping) else {}


def _trail(text: str) -> tuple[Plain, ...]:
    try:
        return tuple(_read(text)) if text else ()
    except (msgspec.MsgspecError, TypeError):
        return ()


def _schedule(row: Row) -> ScheduleRow:
    return ScheduleRow(
        id=row[0],
        namespace=row[1],
        name=row[2],
        revision=row[3],
        state=row[4],
        reason=row[5],
        cursor=row[6],
        next_at=row[7],
        wake_at=row[8],
        source=row[9],
        trail=_trail(row[10]),
        failures=row[11],
        runs=row[12],
        missed=row[13],
        paused_at=row[14],
        paused_until=row[15],
        last_started_at=row[16],
        last_finished_at=row[17],
        hints=_plain(row[18]),
        last_run=row[19],
    )


def _revision(row: Row) -> RevisionRow:
    return RevisionRow(
        schedule_id=row[0], revision=row[1], body=_plain(row[2]), at=row[3], actor=row[4], reason=row[5]
    )


def _run(row: Row) -> RunRow:
    # A hundred thousand runs say the same few words; each word is kept once.
    extra = _plain(row[32])
    return RunRow(
        id=row[0],
        namespace=intern(row[1]),
        schedule_id=intern(row[2]),
        lane=row[3],
        planned_at=row[4],
        fire_at=row[5],
        state=intern(row[6]),
        reason=intern(row[7]),
        source=intern(row[8]),
        revision=row[9],
        queue=intern(row[10]),
        gates=gates_of(row[11]),
        priority=row[12],
        alone=row[13] == 1,
        handoff=row[14] == 1,
        attempts=row[15],
        refunds=row[16],
        fence=row[17],
        last_of=row[18],
        dropped=row[19],
        created_at=row[20],
        started_at=row[21],
        finished_at=row[22],
        lease_id=row[23],
        holder=intern(row[24]),
        leased_at=row[25],
        lease_until=row[26],
        cancel_at=row[27],
        word=row[28],
        error=row[29],
        parent=row[30],
        previous=row[31],
        trail=tuple(extra.get("trail", ())),
        missed=extra.get("missed", 0),
        backfill_of=extra.get("backfill_of", ""),
        made_by=extra.get("made_by", ""),
        size=len(row[32]) + len(row[29]) + len(row[28]),
    )


def _attempt(row: Row) -> AttemptRow:
    return AttemptRow(
        run_id=row[0],
        fence=row[1],
        number=row[2],
        lease_id=row[3],
        holder=intern(row[4]),
        leased_at=row[5],
        lease_until=row[6],
        started_at=row[7],
        ended_at=row[8],
        outcome=intern(row[9]),
        charged=row[10] == 1,
        size=row[11],
    )


def _gate(row: Row) -> GateRow:
    return GateRow(gate=row[0], most=row[1])


def _hold(row: Row) -> HoldRow:
    return HoldRow(gate=row[0], run_id=row[1], fence=row[2])


def _object(row: Row) -> ObjectRow:
    return ObjectRow(
        kind=row[0], namespace=row[1], name=row[2], revision=row[3], body=_plain(row[4]), at=row[5]
    )


def _audit(row: Row) -> AuditRow:
    return AuditRow(
        seq=row[0],
        at=row[1],
        namespace=row[2],
        actor=row[3],
        origin=row[4],
        action=row[5],
        subject=row[6],
        before=row[7],
        after=row[8],
        reason=row[9],
    )


def _account(row: Row) -> AccountRow:
    return AccountRow(budget=row[0], period=row[1], used=row[2], held=row[3])


def _charge(row: Row) -> ChargeRow:
    return ChargeRow(
        run_id=row[0],
        fence=row[1],
        budget=intern(row[2]),
        period=row[3],
        used=row[4],
        held=row[5],
        open=row[6] == 1,
    )


_TABLES: dict[Any, tuple[str, Callable[[Row], Any]]] = {
    ScheduleRow: ("history_schedules", _schedule),
    RevisionRow: ("history_revisions", _revision),
    RunRow: ("history_runs", _run),
    GateRow: ("history_gates", _gate),
    HoldRow: ("history_holds", _hold),
    ObjectRow: ("history_objects", _object),
    AuditRow: ("history_audit", _audit),
    AccountRow: ("history_accounts", _account),
    ChargeRow: ("history_charges", _charge),
}

_PARAMETERS: dict[Any, tuple[str, ...]] = {
    RunRow: ("namespace", "first"),
    AuditRow: ("namespace", "since"),
    GateRow: (),
    HoldRow: (),
    AccountRow: (),
    ChargeRow: (),
}

# Where a page begins, from the last row of the page before.
_PLACES: dict[Any, Callable[[Any], dict[str, Any]]] = {
    ScheduleRow: lambda row: {"after": row.id if row else ""},
    RevisionRow: lambda row: {
        "after": row.schedule_id if row else "",
        "after_revision": row.revision if row else 0,
    },
    RunRow: lambda row: {"before": row.id if row else LAST},
    GateRow: lambda row: {"after": row.gate if row else ""},
    HoldRow: lambda row: {"after": row.gate if row else "", "after_run": row.run_id if row else ""},
    ObjectRow: lambda row: {
        "after_kind": row.kind if row else "",
        "after_namespace": row.namespace if row else "",
        "after_name": row.name if row else "",
    },
    AuditRow: lambda row: {"before": row.seq if row else 2**62},
    AccountRow: lambda row: {
        "after": row.budget if row else "",
        "after_period": row.period if row else 0,
    },
    ChargeRow: lambda row: {
        "after": row.run_id if row else "",
        "after_fence": row.fence if row else 0,
        "after_budget": row.budget if row else "",
    },
}
