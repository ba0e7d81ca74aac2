"""Raw rows for `timewright verify`, in pages, on the snapshot of one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from sys import intern
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from timewright.core.moments import to_micros
from timewright.core.policies.limits import is_grouped_key
from timewright.ids import first_id
from timewright.stores.queries.base import LAST_KEY, SqlQueries, page_limit
from timewright.stores.rows import Row, split_bucket, struct_reader
from timewright.verification.rows import (
    AdjustmentRow,
    AttemptRow,
    AuditRow,
    BudgetAccountRow,
    BudgetChargeRow,
    IncidentRow,
    JsonObject,
    LimitHoldRow,
    LimitRow,
    MetaRow,
    ObjectRow,
    PauseRow,
    ProgressRow,
    RevisionRow,
    RunRow,
    ScheduleRow,
)

T = TypeVar("T", bound=Struct)

_read = msgspec.json.Decoder().decode


class SqlVerificationQueries(SqlQueries):
    """Pages of raw rows for `timewright verify`."""

    def list_rows(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        since: datetime | None = None,
        after: T | None = None,
        unfinished_before: datetime | None = None,
        run_ids: Sequence[str] | None = None,
        limit: int = 1000,
    ) -> list[T]:
        """Return a page of raw rows after the row `after`; runs and audit entries newest first."""
        if run_ids is not None:
            statement, read = _OF_RUNS[kind]
            return [read(row) for row in self._query(statement, {"ids": list(run_ids)})]
        if unfinished_before is not None:
            parameters = {
                "first": first_id("run", at=unfinished_before),
                "after": after.id if isinstance(after, RunRow) else "",
                "namespace": namespace or "",
                "limit": page_limit(limit),
            }
            rows = self._query("verify_unfinished_runs", parameters)
            return cast("list[T]", [_run(row) for row in rows])
        position = _POSITIONS[kind](after)
        parameters = {
            **position,
            "namespace": namespace or "",
            "since": to_micros(since) if since is not None else 0,
            "first": first_id("run", at=since) if since is not None else "",
            "limit": page_limit(limit),
        }
        statement, read = _TABLES[kind]
        wanted = {
            name: parameters[name] for name in (*position, *_PARAMETERS.get(kind, ("namespace",)), "limit")
        }
        return [read(row) for row in self._query(statement, wanted)]


def _decode_object(text: str) -> JsonObject:
    """Decode JSON; unreadable text becomes an empty mapping, which verification reports."""
    try:
        decoded = _read(text) if text else {}
    except msgspec.MsgspecError:
        decoded = {}
    return decoded if isinstance(decoded, Mapping) else {}


def _trail(text: str) -> tuple[JsonObject, ...]:
    try:
        return tuple(_read(text)) if text else ()
    except (msgspec.MsgspecError, TypeError):
        return ()


def _run(row: Row) -> RunRow:
    # Interned, because a hundred thousand rows repeat the same few strings.
    extra = _decode_object(row[32])
    needs, limit_keys = split_bucket(row[11])
    return RunRow(
        id=row[0],
        namespace=intern(row[1]),
        schedule_id=intern(row[2]),
        dedupe_scope=row[3],
        planned_at=row[4],
        fire_at=row[5],
        state=intern(row[6]),
        reason=intern(row[7]),
        source=intern(row[8]),
        revision=row[9],
        queue=intern(row[10]),
        limit_keys=limit_keys,
        needs=needs,
        priority=row[12],
        exclusive=row[13] == 1,
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
        outcome_label=row[28],
        error=row[29],
        parent=row[30],
        previous=row[31],
        payload=extra.get("payload") if any(map(is_grouped_key, limit_keys)) else None,
        losses=row[33],
        trail=tuple(extra.get("trail", ())),
        missed=extra.get("missed", 0),
        backfill_of=extra.get("backfill_of", ""),
        created_by=extra.get("made_by", ""),
        workflow=_workflow_of(extra) if row[30] else "",
        size=len(row[32]) + len(row[29]) + len(row[28]),
    )


def _workflow_of(extra: JsonObject) -> str:
    payload = extra.get("payload")
    if not isinstance(payload, dict) or "workflow" not in payload:
        return ""
    return intern(f"{payload['workflow']}@{payload.get('version', 0)}")


_TABLES: dict[Any, tuple[str, Callable[[Row], Any]]] = {
    ScheduleRow: ("verify_schedules", struct_reader(ScheduleRow, trail=_trail, hints=_decode_object)),
    RevisionRow: ("verify_revisions", struct_reader(RevisionRow, body=_decode_object)),
    RunRow: ("verify_runs", _run),
    LimitRow: ("verify_limits", struct_reader(LimitRow)),
    LimitHoldRow: ("verify_limit_holds", struct_reader(LimitHoldRow)),
    ObjectRow: ("verify_objects", struct_reader(ObjectRow, body=_decode_object)),
    AuditRow: ("verify_audit", struct_reader(AuditRow)),
    AdjustmentRow: ("verify_adjustments", struct_reader(AdjustmentRow, schedule_id=intern, kind=intern)),
    BudgetAccountRow: ("verify_accounts", struct_reader(BudgetAccountRow)),
    BudgetChargeRow: ("verify_charges", struct_reader(BudgetChargeRow, budget=intern)),
    IncidentRow: ("verify_incidents", struct_reader(IncidentRow)),
    PauseRow: ("verify_pauses", struct_reader(PauseRow)),
    MetaRow: ("verify_meta", struct_reader(MetaRow)),
}

_OF_RUNS: dict[Any, tuple[str, Callable[[Row], Any]]] = {
    AttemptRow: ("verify_attempts", struct_reader(AttemptRow, holder=intern, outcome=intern, error=intern)),
    ProgressRow: ("get_run_progress", struct_reader(ProgressRow)),
}

_PARAMETERS: dict[Any, tuple[str, ...]] = {
    RunRow: ("namespace", "first"),
    AuditRow: ("namespace", "since"),
    LimitRow: (),
    MetaRow: (),
    LimitHoldRow: (),
    BudgetAccountRow: (),
    BudgetChargeRow: (),
}

# The parameters that begin a page, from the last row of the page before.
_POSITIONS: dict[Any, Callable[[Any], dict[str, Any]]] = {
    ScheduleRow: lambda row: {"after": row.id if row else ""},
    RevisionRow: lambda row: {
        "after": row.schedule_id if row else "",
        "after_revision": row.revision if row else 0,
    },
    RunRow: lambda row: {"before": row.id if row else LAST_KEY},
    LimitRow: lambda row: {"after": row.limit_key if row else ""},
    LimitHoldRow: lambda row: {"after": row.limit_key if row else "", "after_run": row.run_id if row else ""},
    ObjectRow: lambda row: {
        "after_kind": row.kind if row else "",
        "after_namespace": row.namespace if row else "",
        "after_name": row.name if row else "",
    },
    MetaRow: lambda row: {"after": row.name if row else ""},
    IncidentRow: lambda row: {"after": row.id if row else ""},
    PauseRow: lambda row: {"after": row.id if row else ""},
    AdjustmentRow: lambda row: {
        "after": row.schedule_id if row else "",
        "after_seq": row.seq if row else 0,
    },
    AuditRow: lambda row: {"before": row.seq if row else 2**62},
    BudgetAccountRow: lambda row: {
        "after": row.budget if row else "",
        "after_period": row.period if row else 0,
    },
    BudgetChargeRow: lambda row: {
        "after": row.run_id if row else "",
        "after_fence": row.fence if row else 0,
        "after_budget": row.budget if row else "",
    },
}
