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
        parameters = {
            **{name: getattr(after, field, first) for name, (field, first) in _POSITIONS[kind].items()},
            "namespace": namespace or "",
            "since": to_micros(since) if since is not None else 0,
            "first": first_id("run", at=since) if since is not None else "",
            "limit": page_limit(limit),
        }
        statement, read = _TABLES[kind]
        return [read(row) for row in self._query(statement, parameters)]


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

# The parameters that begin a page: the field of the last row of the page before, and the value for the first.
_POSITIONS: dict[Any, dict[str, tuple[str, str | int]]] = {
    ScheduleRow: {"after": ("id", "")},
    RevisionRow: {"after": ("schedule_id", ""), "after_revision": ("revision", 0)},
    RunRow: {"before": ("id", LAST_KEY)},
    LimitRow: {"after": ("limit_key", "")},
    LimitHoldRow: {"after": ("limit_key", ""), "after_run": ("run_id", "")},
    ObjectRow: {"after_kind": ("kind", ""), "after_namespace": ("namespace", ""), "after_name": ("name", "")},
    MetaRow: {"after": ("name", "")},
    IncidentRow: {"after": ("id", "")},
    PauseRow: {"after": ("id", "")},
    AdjustmentRow: {"after": ("schedule_id", ""), "after_seq": ("seq", 0)},
    AuditRow: {"before": ("seq", 2**62)},
    BudgetAccountRow: {"after": ("budget", ""), "after_period": ("period", 0)},
    BudgetChargeRow: {"after": ("run_id", ""), "after_fence": ("fence", 0), "after_budget": ("budget", "")},
}
