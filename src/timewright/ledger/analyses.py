"""Keeps analyses: the newest of each schedule, what the last one asked for, and what a month cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.hints import Analysed
from timewright.errors import Conflict
from timewright.ports import Page, Stored, Transaction

ANALYSIS = "analysis"
ANALYSED = "analysed"
ADVISED = "advised"
# Of each schedule so many are kept; older ones go when a new one comes.
KEPT_OF_EACH = 20
MOST_TRIES = 5

Confidence = Literal["low", "medium", "high"]
Line = Annotated[str, Meta(max_length=500)]


class ToolCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tool that an advisor used: with what, what it was told, and why it was refused if it was."""

    tool: Annotated[str, Meta(max_length=100)]
    arguments: dict[str, Any] = {}
    result: Any = None
    refused: Annotated[str, Meta(max_length=1000)] = ""


class Analysis(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One look at a schedule: who looked, at what, what came of it, and what it cost."""

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


class Trace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is remembered of a schedule's analyses: which are kept, and what the last one left behind."""

    kept: tuple[str, ...] = ()
    look_again_at: datetime | None = None
    failures: int = 0

    @property
    def last(self) -> Analysed:
        """What the last analysis left behind."""
        return Analysed(look_again_at=self.look_again_at, failures=self.failures)


class Spent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the analyses of one month cost a namespace; a month begins at midnight UTC."""

    month: str
    analyses: int = 0
    tokens: int = 0
    cost: float = 0.0


def keep_analysis(tx: Transaction, one: Analysis, *, namespace: str, keep: timedelta) -> None:
    """Write an analysis and its cost; the oldest of its schedule go, and those that are too old."""
    body = msgspec.json.encode(one)
    row = Stored(kind=ANALYSIS, namespace=namespace, name=one.id, body=body, at=one.at)
    tx.put_objects([row], replaces={one.id: 0})
    before = traces(tx, namespace, [one.schedule_id]).get(one.schedule_id, Trace())
    kept = (*before.kept, one.id)
    for gone in kept[:-KEPT_OF_EACH]:
        tx.delete_object(ANALYSIS, namespace=namespace, name=gone)
    trace = Trace(kept=kept[-KEPT_OF_EACH:], look_again_at=one.look_again_at, failures=one.failures)
    encoded = msgspec.json.encode(trace)
    tx.put_objects(
        [Stored(kind=ANALYSED, namespace=namespace, name=one.schedule_id, body=encoded, at=one.at)]
    )
    tx.prune_objects(ANALYSIS, namespace=namespace, older_than=one.at - keep)
    _spend(tx, one, namespace=namespace)


def find_analysis(tx: Transaction, namespace: str, analysis_id: str) -> Analysis | None:
    """An analysis by its id."""
    rows = tx.get_objects(ANALYSIS, namespace=namespace, names=[analysis_id])
    return _read(rows[0]) if rows else None


def newest_analyses(tx: Transaction, namespace: str, *, limit: int, place: str) -> Page:
    """A page of the analyses of a namespace, newest first."""
    rows = tx.newest_objects(ANALYSIS, namespace=namespace, before=place, limit=limit)
    more = len(rows) == limit and tx.newest_objects(
        ANALYSIS, namespace=namespace, before=rows[-1].name, limit=1
    )
    return Page(tuple(map(_read, rows)), rows[-1].name if more else "")


def analyses_of(tx: Transaction, namespace: str, schedule_id: str, *, limit: int, place: str) -> Page:
    """A page of the analyses of one schedule, newest first."""
    known = traces(tx, namespace, [schedule_id]).get(schedule_id, Trace()).kept
    wanted = sorted((name for name in known if not place or name < place), reverse=True)
    found = tx.get_objects(ANALYSIS, namespace=namespace, names=wanted[:limit])
    rows = tuple(sorted(map(_read, found), key=lambda one: one.id, reverse=True))
    return Page(rows, wanted[limit - 1] if len(wanted) > limit else "")


def traces(tx: Transaction, namespace: str, schedule_ids: Iterable[str]) -> dict[str, Trace]:
    """What is remembered of the analyses of schedules, by id; nothing of one that nobody looked at."""
    rows: Sequence[Stored] = tx.get_objects(ANALYSED, namespace=namespace, names=sorted(set(schedule_ids)))
    return {row.name: msgspec.json.decode(row.body, type=Trace) for row in rows}


def spent_in(tx: Transaction, namespace: str, *, now: datetime) -> Spent:
    """What the month of an instant has cost so far."""
    return _spent(tx, namespace, now)[0]


def _spent(tx: Transaction, namespace: str, now: datetime) -> tuple[Spent, int]:
    month = f"{now:%Y-%m}"
    rows = tx.get_objects(ADVISED, namespace=namespace, names=[month])
    if not rows:
        return Spent(month=month), 0
    return msgspec.json.decode(rows[0].body, type=Spent), rows[0].revision


def _spend(tx: Transaction, one: Analysis, *, namespace: str) -> None:
    """Add to the month; whoever was quicker is added to, because the second look holds the row."""
    for _ in range(MOST_TRIES):
        before, revision = _spent(tx, namespace, one.at)
        after = replace(
            before,
            analyses=before.analyses + 1,
            tokens=before.tokens + one.tokens,
            cost=before.cost + one.cost,
        )
        body = msgspec.json.encode(after)
        row = Stored(
            kind=ADVISED,
            namespace=namespace,
            name=after.month,
            revision=revision + 1,
            body=body,
            at=one.at,
        )
        try:
            tx.put_objects([row], replaces={after.month: revision})
        except Conflict:
            continue
        return
    raise Conflict(
        "several planners spend at once",
        field="tokens",
        rule="what a month costs is added up one after another",
        fix="submit it again",
    )


def _read(row: Stored) -> Analysis:
    return msgspec.json.decode(row.body, type=Analysis)
