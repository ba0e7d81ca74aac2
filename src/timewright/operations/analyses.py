"""Analyses: who deserves a look, what was seen and proposed, and what that cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from timewright.core.hints import deserves_a_look
from timewright.core.moments import DAY, MINUTE, ZERO, spell_duration
from timewright.core.schedule import ScheduleState
from timewright.core.telling_names import hide_named
from timewright.core.triggers import After, Every
from timewright.errors import InvalidInput
from timewright.ledger.analyses import (
    Analysis,
    Confidence,
    Line,
    Spent,
    ToolCall,
    Trace,
    analyses_of,
    find_analysis,
    keep_analysis,
    newest_analyses,
    spent_in,
    traces,
)
from timewright.ledger.namespaces import namespace_of
from timewright.operations.context import Context
from timewright.operations.examples import ANALYSIS
from timewright.operations.find import find_schedule, no_such
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Request, Write, operations
from timewright.ports import Due, Page, ScheduleFilter, Transaction

SOONEST_LOOK = 5 * MINUTE
LATEST_LOOK = DAY
LARGEST = 64_000
FAILURES_ROSE = "failures rose"

Word = Annotated[str, Meta(max_length=200)]


class List(Listing, frozen=True, kw_only=True):
    """Whose analyses; without a schedule, those of the namespace."""

    schedule: str = ""


class Get(Request, frozen=True, kw_only=True):
    """Which analysis, by its id."""

    analysis: Named


class Wanting(Listing, frozen=True, kw_only=True):
    """Which schedules deserve a look now."""


class Submit(Write, frozen=True, kw_only=True):
    """What one look at a schedule came to; `look_again_in` is 5m to 24h, else as often as it runs."""

    schedule: Named
    advisor: Annotated[str, Meta(min_length=1, max_length=200)]
    reasoning: Annotated[str, Meta(min_length=1, max_length=4000)]
    model: Word = ""
    tools: Annotated[tuple[ToolCall, ...], Meta(max_length=32)] = ()
    proposals: Annotated[tuple[Line, ...], Meta(max_length=32)] = ()
    confidence: Confidence = "medium"
    tokens: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    cost: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    took: timedelta = ZERO
    warnings: Annotated[tuple[Line, ...], Meta(max_length=32)] = ()
    look_again_in: timedelta | None = None


class AnalysisRow(Struct, frozen=True, kw_only=True):
    """An analysis as a list shows it: the tools by their names."""

    id: str
    schedule_id: str
    schedule: str
    at: datetime
    advisor: str
    model: str
    tools: tuple[str, ...]
    reasoning: str
    proposals: tuple[str, ...]
    confidence: Confidence
    tokens: int
    cost: float
    took: timedelta
    warnings: tuple[str, ...]
    look_again_at: datetime | None


class Analyses(Struct, frozen=True, kw_only=True):
    """A page of analyses, newest first, and what this month has cost so far."""

    analyses: tuple[AnalysisRow, ...]
    spent: Spent
    cursor: str = ""


class Wanted(Struct, frozen=True, kw_only=True):
    """A schedule that deserves a look, and why."""

    schedule: str
    schedule_id: str
    why: str
    failures: int


class Attention(Struct, frozen=True, kw_only=True):
    """The schedules that deserve a look, by name, and how many tokens this month has left for that."""

    schedules: tuple[Wanted, ...]
    tokens_left: int
    cursor: str = ""


@operations.add("analysis", "list", List, scope="read", examples=({}, {"schedule": "orders-poll"}))
def list_analyses(context: Context, ask: List) -> Analyses:
    """List what the planner has looked at, newest first; of each schedule the last twenty are kept."""

    def work(tx: Transaction) -> Analyses:
        schedule_id = ""
        if ask.schedule:
            schedule_id = find_schedule(tx, context.namespace, ask.schedule).schedule.id

        def find(limit: int, place: str) -> Page:
            if schedule_id:
                return analyses_of(tx, context.namespace, schedule_id, limit=limit, place=place)
            return newest_analyses(tx, context.namespace, limit=limit, place=place)

        rows, cursor = paged(context, ask, find)
        spent = spent_in(tx, context.namespace, now=context.now())
        return Analyses(analyses=tuple(map(_row, rows)), spent=spent, cursor=cursor)

    return context.store.read(work)


@operations.add("analysis", "get", Get, scope="read", examples=({"analysis": ANALYSIS},))
def get_analysis(context: Context, ask: Get) -> Analysis:
    """Show one analysis with every tool that was used, what it was told, and what was refused."""
    found = context.store.read(lambda tx: find_analysis(tx, context.namespace, ask.analysis))
    if found is None:
        raise no_such("analysis", ask.analysis, (), lister="analysis list")
    return found


@operations.add("analysis", "due", Wanting, scope="read", examples=({}, {"limit": 5}))
def due_analyses(context: Context, ask: Wanting) -> Attention:
    """List the adaptive schedules that deserve a look: never seen, their time has come, failures rose."""
    now = context.now()

    def work(tx: Transaction) -> Attention:
        def find(limit: int, place: str) -> Page:
            which = ScheduleFilter(
                namespace=context.namespace, state=ScheduleState.ACTIVE, limit=limit, cursor=place
            )
            return tx.find_schedules(which)

        def fits(found: Sequence[Any]) -> list[bool]:
            known = traces(tx, context.namespace, [due.schedule.id for due in found])
            return [bool(_why(due, known.get(due.schedule.id), now=now)) for due in found]

        rows, cursor = paged(context, ask, find, fits=fits)
        known = traces(tx, context.namespace, [due.schedule.id for due in rows])
        wanted = tuple(_wanted(due, known.get(due.schedule.id), now=now) for due in rows)
        terms = namespace_of(tx, context.namespace)
        spent = spent_in(tx, context.namespace, now=now).tokens
        left = max(terms.advisor_tokens_per_month - spent, 0)
        return Attention(schedules=wanted, tokens_left=left, cursor=cursor)

    return context.store.read(work)


@operations.add(
    "analysis",
    "submit",
    Submit,
    scope="hint",
    examples=(
        {
            "schedule": "orders-poll",
            "advisor": "ada",
            "reasoning": "the queue has been empty for an hour",
            "confidence": "high",
            "look_again_in": "1h",
        },
    ),
)
def submit_analysis(context: Context, ask: Submit) -> Analysis:
    """Keep what one look at a schedule came to, and when to look again; the next look is planned by it."""
    now = context.now()
    _check(ask)
    analysis_id = context.ids.new("analysis", now=now)

    def work(tx: Transaction) -> Analysis:
        due = find_schedule(tx, context.namespace, ask.schedule)
        one = Analysis(
            id=analysis_id,
            schedule_id=due.schedule.id,
            schedule=due.schedule.name,
            at=now,
            advisor=ask.advisor,
            model=ask.model,
            tools=ask.tools,
            reasoning=hide_named(ask.reasoning),
            proposals=tuple(map(hide_named, ask.proposals)),
            confidence=ask.confidence,
            tokens=ask.tokens,
            cost=ask.cost,
            took=ask.took,
            warnings=tuple(map(hide_named, ask.warnings)),
            look_again_at=now + (ask.look_again_in or _usual_look(due)),
            failures=due.standing.failures,
        )
        keep_analysis(tx, one, namespace=context.namespace, keep=context.settings.keep_history)
        by = context.because(ask.reason)
        entry = by.entry(
            "analysis.submit", namespace=context.namespace, subject=due.schedule.id, now=now, after=one.id
        )
        tx.add_audit([entry])
        return one

    return context.store.write(work)


def _check(ask: Submit) -> None:
    looks = ask.look_again_in
    if looks is not None and not SOONEST_LOOK <= looks <= LATEST_LOOK:
        raise InvalidInput(
            f"look_again_in {spell_duration(looks)} is out of range",
            field="look_again_in",
            value=spell_duration(looks),
            rule=f"{spell_duration(SOONEST_LOOK)} to {spell_duration(LATEST_LOOK)}",
            fix="look_again_in: 30m",
        )
    if not ZERO <= ask.took <= LATEST_LOOK:
        raise InvalidInput(
            "took is out of range", field="took", value=str(ask.took), rule="0s to 24h", fix="took: 2s"
        )
    size = len(msgspec.json.encode(ask.tools))
    if size > LARGEST:
        raise InvalidInput(
            f"tools have {size} bytes",
            field="tools",
            value=size,
            rule=f"at most {LARGEST}",
            fix="shorter results",
        )


def _usual_look(due: Due) -> timedelta:
    """As often as it runs, within bounds; what has no interval is looked at every five minutes."""
    trigger = due.schedule.trigger
    usual = ZERO
    if isinstance(trigger, Every):
        usual = trigger.interval
    elif isinstance(trigger, After):
        usual = trigger.delay
    return min(max(usual, SOONEST_LOOK), LATEST_LOOK)


def _why(due: Due, trace: Trace | None, *, now: datetime) -> str:
    """Why a schedule deserves a look; nothing if it does not, or has nothing to look at."""
    standing = due.standing
    last = trace.last if trace is not None else None
    if not due.schedule.adaptive or standing.last_finished_at is None:
        return ""
    if not deserves_a_look(last, failures=standing.failures, now=now):
        return ""
    if last is None:
        return "never looked at"
    rose = standing.failures > last.failures
    return FAILURES_ROSE if rose else "its time has come"


def _wanted(due: Due, trace: Trace | None, *, now: datetime) -> Wanted:
    return Wanted(
        schedule=due.schedule.name,
        schedule_id=due.schedule.id,
        why=_why(due, trace, now=now),
        failures=due.standing.failures,
    )


def _row(one: Analysis) -> AnalysisRow:
    own = {name: getattr(one, name) for name in AnalysisRow.__struct_fields__ if name != "tools"}
    return AnalysisRow(tools=tuple(call.tool for call in one.tools), **own)
