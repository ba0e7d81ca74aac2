"""Stored analyses: the newest of each schedule, when to look again, and what a month cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.schedule.hints import LastAnalysis
from timewright.errors import Conflict
from timewright.ports import Page, StoredObject, Transaction
from timewright.ports.rows import ObjectPrune

ANALYSIS = "analysis"
ANALYSED = "analysed"
ADVISED = "advised"
# Older analyses of a schedule are deleted when a new one is stored.
MAX_KEPT_PER_SCHEDULE = 20
MAX_WRITE_ATTEMPTS = 5

Confidence = Literal["low", "medium", "high"]
ShortText = Annotated[str, Meta(max_length=500)]


class ToolCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tool call of an advisor: its arguments, its result, and the error if it was refused."""

    tool: Annotated[str, Meta(max_length=100)]
    arguments: dict[str, Any] = {}
    result: Any = None
    refused: Annotated[str, Meta(max_length=1000)] = ""


class Analysis(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One analysis of a schedule: the advisor, its tool calls, proposals and cost."""

    id: str
    schedule_id: str
    schedule: str
    at: datetime
    advisor: str
    model: str = ""
    tools: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    proposals: tuple[str, ...] = ()
    confidence: Confidence = "medium"
    tokens: int = 0
    cost: float = 0.0
    took: timedelta = timedelta(0)
    warnings: tuple[str, ...] = ()
    look_again_at: datetime | None = None
    failures: int = 0


class AnalysisHistory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stored analyses of a schedule, and what the last one asked for."""

    analysis_ids: tuple[str, ...] = ()
    look_again_at: datetime | None = None
    failures: int = 0

    @property
    def last(self) -> LastAnalysis:
        """What the last analysis asked for."""
        return LastAnalysis(next_analysis_at=self.look_again_at, failures=self.failures)


class AnalysisSpending(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the analyses of one month cost a namespace; months are in UTC."""

    month: str
    analyses: int = 0
    tokens: int = 0
    cost: float = 0.0


def save_analysis(tx: Transaction, analysis: Analysis, *, namespace: str, keep: timedelta) -> None:
    """Store an analysis and its cost; delete the oldest ones of its schedule, and expired ones."""
    row = StoredObject.of(ANALYSIS, analysis.id, analysis, namespace=namespace, at=analysis.at)
    tx.put_objects([row], replaces={analysis.id: 0})
    before = analysis_histories(tx, namespace, [analysis.schedule_id]).get(
        analysis.schedule_id, AnalysisHistory()
    )
    kept = (*before.analysis_ids, analysis.id)
    for deleted_id in kept[:-MAX_KEPT_PER_SCHEDULE]:
        tx.delete_object(ANALYSIS, namespace=namespace, name=deleted_id)
    trace = AnalysisHistory(
        analysis_ids=kept[-MAX_KEPT_PER_SCHEDULE:],
        look_again_at=analysis.look_again_at,
        failures=analysis.failures,
    )
    tx.put_objects(
        [StoredObject.of(ANALYSED, analysis.schedule_id, trace, namespace=namespace, at=analysis.at)]
    )
    tx.prune(ObjectPrune(kind=ANALYSIS, namespace=namespace, older_than=analysis.at - keep))
    _add_spending(tx, analysis, namespace=namespace)


def find_analysis(tx: Transaction, namespace: str, analysis_id: str) -> Analysis | None:
    """An analysis by its id."""
    rows = tx.get_objects(ANALYSIS, namespace=namespace, names=[analysis_id])
    return rows[0].decode(Analysis) if rows else None


def newest_analyses(tx: Transaction, namespace: str, *, limit: int, cursor: str) -> Page:
    """A page of the analyses of a namespace, newest first."""
    rows = tx.get_objects(ANALYSIS, namespace=namespace, before=cursor, newest=limit)
    more = len(rows) == limit and tx.get_objects(
        ANALYSIS, namespace=namespace, before=rows[-1].name, newest=1
    )
    return Page(tuple(row.decode(Analysis) for row in rows), rows[-1].name if more else "")


def schedule_analyses(tx: Transaction, namespace: str, schedule_id: str, *, limit: int, cursor: str) -> Page:
    """A page of the analyses of one schedule, newest first."""
    known = analysis_histories(tx, namespace, [schedule_id]).get(schedule_id, AnalysisHistory()).analysis_ids
    wanted = sorted((name for name in known if not cursor or name < cursor), reverse=True)
    found = tx.get_objects(ANALYSIS, namespace=namespace, names=wanted[:limit])
    rows = tuple(sorted((row.decode(Analysis) for row in found), key=lambda one: one.id, reverse=True))
    return Page(rows, wanted[limit - 1] if len(wanted) > limit else "")


def analysis_histories(
    tx: Transaction, namespace: str, schedule_ids: Iterable[str]
) -> dict[str, AnalysisHistory]:
    """The analysis histories of schedules by id; schedules without analyses are left out."""
    rows: Sequence[StoredObject] = tx.get_objects(
        ANALYSED, namespace=namespace, names=sorted(set(schedule_ids))
    )
    return {row.name: row.decode(AnalysisHistory) for row in rows}


def month_spending(tx: Transaction, namespace: str, *, now: datetime) -> AnalysisSpending:
    """What the current month has cost so far."""
    return _read_spending(tx, namespace, now)[0]


def _read_spending(tx: Transaction, namespace: str, now: datetime) -> tuple[AnalysisSpending, int]:
    month = f"{now:%Y-%m}"
    rows = tx.get_objects(ADVISED, namespace=namespace, names=[month])
    if not rows:
        return AnalysisSpending(month=month), 0
    return rows[0].decode(AnalysisSpending), rows[0].revision


def _add_spending(tx: Transaction, analysis: Analysis, *, namespace: str) -> None:
    """Add the cost to the month; if another process wrote first, read again and add to its value."""
    for _ in range(MAX_WRITE_ATTEMPTS):
        before, revision = _read_spending(tx, namespace, analysis.at)
        after = replace(
            before,
            analyses=before.analyses + 1,
            tokens=before.tokens + analysis.tokens,
            cost=before.cost + analysis.cost,
        )
        row = StoredObject.of(
            ADVISED, after.month, after, namespace=namespace, revision=revision + 1, at=analysis.at
        )
        try:
            tx.put_objects([row], replaces={after.month: revision})
        except Conflict:
            continue
        return
    raise Conflict(
        "the monthly cost was changed by other planners",
        field="tokens",
        rule="one planner at a time adds to the cost of a month",
        fix="submit the analysis again",
    )
