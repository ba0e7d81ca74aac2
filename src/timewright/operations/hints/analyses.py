"""Analyses by the planner: which schedules are due for one, what was found and proposed, and its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from timewright.access.secret_records import read_secret_value
from timewright.core.moments import DAY, MINUTE, ZERO
from timewright.core.recurrence.triggers import After, Every
from timewright.core.schedule.hints import needs_analysis
from timewright.core.schedule.schedule import ScheduleState
from timewright.core.sensitive_keys import redact_text
from timewright.core.target import SECRET_PREFIX, SecretDestination
from timewright.errors import InvalidInput, NotFound
from timewright.ledger.records.analyses import (
    Analysis,
    AnalysisHistory,
    AnalysisSpending,
    Confidence,
    ShortText,
    ToolCall,
    analysis_histories,
    find_analysis,
    month_spending,
    newest_analyses,
    save_analysis,
    schedule_analyses,
)
from timewright.ledger.records.namespaces import read_namespace
from timewright.operations.access.authentication import require_auth_cache
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule, not_found
from timewright.operations.pagination import paginate
from timewright.operations.registry import (
    ANALYSIS,
    ListRequest,
    ObjectName,
    OperationRequest,
    WriteRequest,
    answer_from,
    operations,
)
from timewright.operations.request_parsing import check_length
from timewright.ports import Page, ScheduleFilter, ScheduleRecord, Transaction

MIN_LOOK_AGAIN = 5 * MINUTE
MAX_LOOK_AGAIN = DAY
MAX_TOOLS_BYTES = 64_000
FAILURES_INCREASED = "failures rose"

ModelName = Annotated[str, Meta(max_length=200)]

ENV_PREFIX = "env:"


class ListAnalyses(ListRequest, frozen=True, kw_only=True):
    """Which schedule; the default is all of the namespace."""

    schedule: str = ""


class GetAnalysis(OperationRequest, frozen=True, kw_only=True):
    """Which analysis, by its id."""

    analysis: ObjectName


class ListDueAnalyses(ListRequest, frozen=True, kw_only=True):
    """List the schedules that are due for an analysis."""


class SubmitAnalysis(WriteRequest, frozen=True, kw_only=True):
    """The result of analysing a schedule; `look_again_in` is 5m to 24h, by default as often as it runs."""

    schedule: ObjectName
    advisor: Annotated[str, Meta(min_length=1, max_length=200)]
    reasoning: Annotated[str, Meta(min_length=1, max_length=4000)]
    model: ModelName = ""
    tools: Annotated[tuple[ToolCall, ...], Meta(max_length=32)] = ()
    proposals: Annotated[tuple[ShortText, ...], Meta(max_length=32)] = ()
    confidence: Confidence = "medium"
    tokens: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    cost: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    took: timedelta = ZERO
    warnings: Annotated[tuple[ShortText, ...], Meta(max_length=32)] = ()
    look_again_in: timedelta | None = None


class AnalysisSummary(Struct, frozen=True, kw_only=True):
    """An analysis in a list, with only the names of its tools."""

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


class AnalysisList(Struct, frozen=True, kw_only=True):
    """A page of analyses, newest first, and this month's cost so far."""

    analyses: tuple[AnalysisSummary, ...]
    spent: AnalysisSpending
    cursor: str = ""


class DueAnalysis(Struct, frozen=True, kw_only=True):
    """A schedule that is due for an analysis, and why."""

    schedule: str
    schedule_id: str
    why: str
    failures: int


class DueAnalysisList(Struct, frozen=True, kw_only=True):
    """The schedules that are due for an analysis, by name, and how many tokens this month has left."""

    schedules: tuple[DueAnalysis, ...]
    tokens_left: int
    cursor: str = ""


@operations.read("analysis list", scope="read", examples=({}, {"schedule": "orders-poll"}))
def list_analyses(context: OperationContext, tx: Transaction, request: ListAnalyses) -> AnalysisList:
    """List the planner's analyses, newest first; the last twenty of each schedule are kept."""
    schedule_id = ""
    if request.schedule:
        schedule_id = find_schedule(tx, context.namespace, request.schedule).schedule.id

    def find(limit: int, place: str) -> Page:
        if schedule_id:
            return schedule_analyses(tx, context.namespace, schedule_id, limit=limit, cursor=place)
        return newest_analyses(tx, context.namespace, limit=limit, cursor=place)

    rows, cursor = paginate(context, request, find)
    spent = month_spending(tx, context.namespace, now=context.now())
    return AnalysisList(analyses=tuple(map(_to_summary, rows)), spent=spent, cursor=cursor)


@operations.read("analysis get", scope="read", examples=({"analysis": ANALYSIS},))
def get_analysis(context: OperationContext, tx: Transaction, request: GetAnalysis) -> Analysis:
    """Show one analysis with every tool call, its arguments and result, and what was rejected."""
    found = find_analysis(tx, context.namespace, request.analysis)
    if found is None:
        raise not_found("analysis", request.analysis, (), list_command="analysis list")
    return found


@operations.read("analysis due", scope="read", examples=({}, {"limit": 5}))
def list_due_analyses(
    context: OperationContext, tx: Transaction, request: ListDueAnalyses
) -> DueAnalysisList:
    """List the adaptive schedules that are due: never analysed, look_again_at reached, or more failures."""
    now = context.now()

    def find(limit: int, place: str) -> Page:
        which = ScheduleFilter(
            namespace=context.namespace, state=ScheduleState.ACTIVE, limit=limit, cursor=place
        )
        return tx.find(which)

    def fits(found: Sequence[Any]) -> list[bool]:
        known = analysis_histories(tx, context.namespace, [record.schedule.id for record in found])
        return [bool(_due_reason(record, known.get(record.schedule.id), now=now)) for record in found]

    rows, cursor = paginate(context, request, find, matches=fits)
    known = analysis_histories(tx, context.namespace, [record.schedule.id for record in rows])
    wanted = tuple(_due_analysis(record, known.get(record.schedule.id), now=now) for record in rows)
    quotas = read_namespace(tx, context.namespace)
    spent = month_spending(tx, context.namespace, now=now).tokens
    left = max(quotas.advisor_tokens_per_month - spent, 0)
    return DueAnalysisList(schedules=wanted, tokens_left=left, cursor=cursor)


@operations.write(
    "analysis submit",
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
def submit_analysis(context: OperationContext, tx: Transaction, request: SubmitAnalysis) -> Analysis:
    """Store the result of an analysis and when to analyse the schedule again."""
    now = context.now()
    _check(request)
    analysis_id = context.ids.new("analysis", now=now)
    record = find_schedule(tx, context.namespace, request.schedule)
    one = answer_from(
        Analysis,
        request,
        id=analysis_id,
        schedule_id=record.schedule.id,
        schedule=record.schedule.name,
        at=now,
        reasoning=redact_text(request.reasoning),
        proposals=tuple(map(redact_text, request.proposals)),
        warnings=tuple(map(redact_text, request.warnings)),
        look_again_at=now + (request.look_again_in or _default_look_again(record)),
        failures=record.progress.failures,
    )
    save_analysis(tx, one, namespace=context.namespace, keep=context.settings.keep_history)
    context.audit(tx, "analysis.submit", record.schedule.id, after=one.id)
    return one


def _check(request: SubmitAnalysis) -> None:
    if request.look_again_in is not None:
        fix = "look_again_in: 30m"
        check_length(request.look_again_in, "look_again_in", MIN_LOOK_AGAIN, MAX_LOOK_AGAIN, fix=fix)
    check_length(request.took, "took", ZERO, MAX_LOOK_AGAIN, fix="took: 2s")
    size = len(msgspec.json.encode(request.tools))
    if size > MAX_TOOLS_BYTES:
        raise InvalidInput(
            f"tools are too large: {size} bytes",
            field="tools",
            value=size,
            rule=f"at most {MAX_TOOLS_BYTES}",
            fix="shorten the results",
        )


def _default_look_again(record: ScheduleRecord) -> timedelta:
    """Return the schedule's interval, within 5 minutes and 24 hours; without one, five minutes."""
    trigger = record.schedule.trigger
    usual = ZERO
    if isinstance(trigger, Every):
        usual = trigger.interval
    elif isinstance(trigger, After):
        usual = trigger.delay
    return min(max(usual, MIN_LOOK_AGAIN), MAX_LOOK_AGAIN)


def _due_reason(record: ScheduleRecord, trace: AnalysisHistory | None, *, now: datetime) -> str:
    """Return why a schedule is due for an analysis; empty if it is not, or has not run yet."""
    progress = record.progress
    last = trace.last if trace is not None else None
    if not record.schedule.adaptive or progress.last_finished_at is None:
        return ""
    if not needs_analysis(last, failures=progress.failures, now=now):
        return ""
    if last is None:
        return "never analysed"
    increased = progress.failures > last.failures
    return FAILURES_INCREASED if increased else "look_again_at reached"


def _due_analysis(record: ScheduleRecord, trace: AnalysisHistory | None, *, now: datetime) -> DueAnalysis:
    return DueAnalysis(
        schedule=record.schedule.name,
        schedule_id=record.schedule.id,
        why=_due_reason(record, trace, now=now),
        failures=record.progress.failures,
    )


def _to_summary(one: Analysis) -> AnalysisSummary:
    return answer_from(AnalysisSummary, one, tools=tuple(call.tool for call in one.tools))


def read_advisor_key(
    context: OperationContext, reference: str, *, host: str, environment: Mapping[str, str]
) -> str:
    """Return the API key that a reference names, for the model's host; an empty reference is an empty key."""
    if reference.startswith(SECRET_PREFIX):
        name = reference.removeprefix(SECRET_PREFIX)
        keyring = require_auth_cache(context).keyring
        destination = SecretDestination("host", host)
        return read_secret_value(
            context.store, keyring, namespace=context.namespace, name=name, destination=destination
        )
    if not reference:
        return ""
    name = reference.removeprefix(ENV_PREFIX)
    if name not in environment:
        raise NotFound(
            f"environment variable {name} is not set",
            field="advisor.key",
            value=reference,
            rule="env:NAME of a variable that is set, or secret://NAME",
            fix=f"secret set {name.lower()}, then key: secret://{name.lower()}",
        )
    return environment[name]
