"""Budgets: limits on what may be spent per period; and providers, external services that can be closed."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from timewright.core.budgets.budgets import (
    MAX_COUNTED,
    Budget,
    BudgetUsage,
    ProviderWindow,
    Unit,
    check_period,
)
from timewright.core.budgets.costs import Currency, Quantity, to_millionths
from timewright.core.budgets.spending import reason_prefix
from timewright.core.input.input_errors import check_name
from timewright.core.moments import check_storable, format_instant
from timewright.core.run.leasing import WaitReason
from timewright.core.zones import check_zone
from timewright.errors import InvalidInput, TimewrightError
from timewright.ledger.budgets.budget_records import (
    close_provider,
    delete_budget,
    open_provider,
    schedules_using,
    set_budget,
)
from timewright.ledger.budgets.charges import BUDGET, PROVIDER
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_object
from timewright.operations.pagination import paginate_rows
from timewright.operations.registry import (
    ListRequest,
    ObjectName,
    OperationRequest,
    WriteRequest,
    answer_from,
    operations,
)
from timewright.ports import StoredObject, Transaction, Unreadable
from timewright.ports.objects import UsageByPeriod
from timewright.ports.overview import DeferredRuns

Covered = Annotated[str, Meta(max_length=255)]


class SetBudget(WriteRequest, frozen=True, kw_only=True):
    """A budget: its unit, its limit per period, and what it covers besides the schedules that name it."""

    budget: ObjectName
    unit: Unit
    limit: Quantity
    period: Annotated[str, Meta(min_length=1, max_length=64)] = "day"
    zone: str = "UTC"
    currency: Currency = ""
    owner: Covered = ""
    host: Covered = ""
    function: Covered = ""
    queue: Covered = ""
    provider: Covered = ""


class GetBudget(OperationRequest, frozen=True, kw_only=True):
    """Which budget."""

    budget: ObjectName


class ListBudgets(ListRequest, frozen=True, kw_only=True):
    """List the budgets of the namespace."""


class GetBudgetUsage(OperationRequest, frozen=True, kw_only=True):
    """Which budget, and how many of its newest periods."""

    budget: ObjectName
    periods: Annotated[int, Meta(ge=1, le=1000)] = 30


class DeleteBudget(WriteRequest, frozen=True, kw_only=True):
    """Which budget to remove; one that a schedule names cannot be removed."""

    budget: ObjectName


class BudgetSummary(Struct, frozen=True, kw_only=True):
    """A budget, and how much is used and reserved in the current period; amounts are text."""

    budget: str
    unit: Unit
    limit: str
    currency: str
    period: str
    zone: str
    covers: dict[str, str]
    revision: int
    used: str
    held: str
    left: str
    since: datetime
    until: datetime


class BudgetDetail(BudgetSummary, frozen=True, kw_only=True):
    """A budget, the schedules that name it, and how many runs wait for it."""

    named_by: tuple[str, ...]
    waiting: int


class BudgetList(Struct, frozen=True, kw_only=True):
    """A page of budgets, by name; runs that need an unreadable budget wait."""

    budgets: tuple[BudgetSummary, ...]
    cursor: str = ""
    unreadable: tuple[Unreadable, ...] = ()


class BudgetPeriodUsage(Struct, frozen=True, kw_only=True):
    """How much was used in one period, and how much active runs have reserved."""

    since: datetime
    used: str
    held: str


class BudgetUsageReport(Struct, frozen=True, kw_only=True):
    """The usage of a budget, newest period first; periods without usage are left out."""

    budget: str
    unit: Unit
    currency: str
    limit: str
    waiting: int
    periods: tuple[BudgetPeriodUsage, ...]


class DeletedBudget(Struct, frozen=True, kw_only=True):
    """The budget that was deleted."""

    budget: str


@operations.write(
    "budget set",
    scope="admin",
    examples=(
        {"budget": "inference", "unit": "tokens", "limit": 2000000, "period": "day", "zone": "Europe/Berlin"},
        {"budget": "crm", "unit": "requests", "limit": 500, "period": "15m", "host": "crm.example.com"},
        {"budget": "agents", "unit": "money", "limit": "25.00", "currency": "EUR", "owner": "agent-7"},
    ),
)
def set_one(context: OperationContext, tx: Transaction, request: SetBudget) -> BudgetSummary:
    """Set how much may be spent per period; runs that wait for it are checked again at once."""
    budget, now = _parse_budget(context, request), context.now()
    set_budget(tx, budget, by=context.by, now=now)
    return _summarize(tx, *_require_budget(tx, budget.namespace, budget.name), now=now)


@operations.read("budget get", scope="read", examples=({"budget": "inference"},))
def get_budget(context: OperationContext, tx: Transaction, request: GetBudget) -> BudgetDetail:
    """Show a budget: how much is left, which schedules name it and how many runs wait for it."""
    budget, revision = _require_budget(tx, context.namespace, request.budget)
    return answer_from(
        BudgetDetail,
        _summarize(tx, budget, revision, now=context.now()),
        named_by=tuple(schedules_using(tx, budget)),
        waiting=_count_waiting(tx, budget),
    )


@operations.read("budget list", scope="read", examples=({},))
def list_budgets(context: OperationContext, tx: Transaction, request: ListBudgets) -> BudgetList:
    """List the budgets and how much is left of each."""
    now = context.now()
    stored = tx.get_objects(BUDGET, namespace=context.namespace)
    page, cursor = paginate_rows(context, request, stored, key=attrgetter("name"))
    rows: list[BudgetSummary] = []
    unreadable: list[Unreadable] = []
    for one in page:
        try:
            rows.append(_summarize(tx, one.decode(Budget), one.revision, now=now))
        except (msgspec.MsgspecError, ValueError, TimewrightError) as error:
            unreadable.append(Unreadable(one.name, one.name, str(error)))
    return BudgetList(budgets=tuple(rows), cursor=cursor, unreadable=tuple(unreadable))


@operations.read("budget usage", scope="read", examples=({"budget": "inference", "periods": 7},))
def get_budget_usage(
    context: OperationContext, tx: Transaction, request: GetBudgetUsage
) -> BudgetUsageReport:
    """Show the usage of a budget per period, newest first."""
    budget, _ = _require_budget(tx, context.namespace, request.budget)
    return BudgetUsageReport(
        budget=budget.name,
        unit=budget.unit,
        currency=budget.currency,
        limit=_format_amount(budget, budget.limit),
        waiting=_count_waiting(tx, budget),
        periods=tuple(
            BudgetPeriodUsage(
                since=start, used=_format_amount(budget, one.used), held=_format_amount(budget, one.held)
            )
            for start, one in tx.select(UsageByPeriod(budget.account_name, limit=request.periods))
        ),
    )


@operations.write("budget delete", scope="admin", examples=({"budget": "old-trial"},))
def delete_one(context: OperationContext, tx: Transaction, request: DeleteBudget) -> DeletedBudget:
    """Remove a budget that no schedule names; runs that waited for it may start."""
    budget, _ = _require_budget(tx, context.namespace, request.budget)
    delete_budget(tx, budget, by=context.by, now=context.now())
    return DeletedBudget(budget=budget.name)


def _parse_budget(context: OperationContext, request: SetBudget) -> Budget:
    """Return the budget that a request describes; invalid combinations raise InvalidInput."""
    covers = {
        name: check_name(getattr(request, name), field=name)
        for name in ("owner", "function", "queue", "provider")
        if getattr(request, name)
    }
    if request.currency and request.unit is not Unit.MONEY:
        raise InvalidInput(
            f"currency is only for money, not for {request.unit.value}",
            field="currency",
            value=request.currency,
            rule="currency needs unit: money",
            fix="unit: money, or leave it out",
        )
    return Budget(
        name=check_name(request.budget, field="budget"),
        namespace=context.namespace,
        unit=request.unit,
        limit=_limit(request),
        currency=request.currency,
        period=check_period(request.period),
        zone=check_zone(request.zone),
        host=check_name(request.host, field="host").lower() if request.host else "",
        **covers,
    )


def _limit(request: SetBudget) -> int:
    if request.unit is not Unit.MONEY and "." in request.limit:
        raise InvalidInput(
            f"limit {request.limit} is not a whole number",
            field="limit",
            value=request.limit,
            rule=f"{request.unit.value} are counted in whole numbers",
            fix=f"limit: {request.limit.partition('.')[0]}",
        )
    limit = to_millionths(request.limit) if request.unit is Unit.MONEY else int(request.limit)
    if limit > MAX_COUNTED:
        raise InvalidInput(
            f"limit {request.limit} is too large",
            field="limit",
            value=request.limit,
            rule="at most 1000000000 for money, or a million times that for other units",
            fix="limit: 1000000",
        )
    return limit


def _require_budget(tx: Transaction, namespace: str, name: str) -> tuple[Budget, int]:
    row = find_object(tx, BUDGET, namespace, name)
    return row.decode(Budget), row.revision


def _summarize(tx: Transaction, budget: Budget, revision: int, *, now: datetime) -> BudgetSummary:
    period = budget.period_at(now)
    place = (budget.account_name, period.start)
    account = tx.get_accounts([place]).get(place, BudgetUsage())
    left = max(budget.limit - account.used - account.held, 0)
    return answer_from(
        BudgetSummary,
        budget,
        budget=budget.name,
        limit=_format_amount(budget, budget.limit),
        covers=budget.scope,
        revision=revision,
        used=_format_amount(budget, account.used),
        held=_format_amount(budget, account.held),
        left=_format_amount(budget, left),
        since=period.start,
        until=period.end,
    )


def _format_amount(budget: Budget, count: int) -> str:
    """Return an amount without its unit: decimal text for money, a whole number otherwise."""
    return budget.format_amount(count).partition(" ")[0]


def _count_waiting(tx: Transaction, budget: Budget) -> int:
    prefix = reason_prefix(WaitReason.BUDGET, budget.name)
    return tx.count(DeferredRuns(namespace=budget.namespace, prefix=prefix))["runs"]


class CloseProvider(WriteRequest, frozen=True, kw_only=True):
    """Which provider, and until when no run that needs it starts."""

    provider: ObjectName
    until: datetime


class OpenProvider(WriteRequest, frozen=True, kw_only=True):
    """Which provider to open."""

    provider: ObjectName


class ListProviders(ListRequest, frozen=True, kw_only=True):
    """List the providers of the namespace that were ever closed."""


class ProviderSummary(Struct, frozen=True, kw_only=True):
    """A provider: until when it is closed, who closed it and why, and how many runs wait."""

    provider: str
    closed_until: datetime | None
    why: str
    closed_by: str
    waiting: int
    revision: int


class ProviderList(Struct, frozen=True, kw_only=True):
    """A page of providers, by name."""

    providers: tuple[ProviderSummary, ...]
    cursor: str = ""


@operations.write(
    "provider close",
    scope="write",
    examples=({"provider": "openai", "until": "2026-03-10T18:00:00Z", "reason": "quota used up"},),
)
def close_provider_until(
    context: OperationContext, tx: Transaction, request: CloseProvider
) -> ProviderSummary:
    """Close a provider until an instant: runs that need it wait, and do not fail."""
    now = context.now()
    provider = check_name(request.provider, field="provider")
    if check_storable(request.until, field="until") <= now:
        raise InvalidInput(
            f"until {format_instant(request.until)} is in the past",
            field="until",
            value=format_instant(request.until),
            rule="`until` must be in the future",
            fix="use a later instant, or provider open",
        )
    namespace = context.namespace
    context.notify([close_provider(tx, namespace, provider, until=request.until, by=context.by, now=now)])
    return _summarize_provider(tx, find_object(tx, PROVIDER, namespace, provider), now=now)


@operations.write(
    "provider open", scope="write", examples=({"provider": "mail-api", "reason": "back again"},)
)
def open_provider_now(context: OperationContext, tx: Transaction, request: OpenProvider) -> ProviderSummary:
    """Open a closed provider; runs that waited for it may start at once."""
    now, namespace = context.now(), context.namespace
    provider = find_object(tx, PROVIDER, namespace, request.provider).name
    context.notify([open_provider(tx, namespace, provider, by=context.by, now=now)])
    return _summarize_provider(tx, find_object(tx, PROVIDER, namespace, provider), now=now)


@operations.read("provider list", scope="read", examples=({},))
def list_providers(context: OperationContext, tx: Transaction, request: ListProviders) -> ProviderList:
    """List the providers, until when each is closed and why."""
    now = context.now()
    stored = tx.get_objects(PROVIDER, namespace=context.namespace)
    page, cursor = paginate_rows(context, request, stored, key=attrgetter("name"))
    return ProviderList(providers=tuple(_summarize_provider(tx, row, now=now) for row in page), cursor=cursor)


def _summarize_provider(tx: Transaction, row: StoredObject, *, now: datetime) -> ProviderSummary:
    try:
        window = row.decode(ProviderWindow)
    except (msgspec.MsgspecError, ValueError):
        window = ProviderWindow(unreadable=True, reason="the stored record cannot be read")
    until = window.closed_until(now=now)
    prefix = reason_prefix(WaitReason.PROVIDER, row.name)
    return ProviderSummary(
        provider=row.name,
        closed_until=until,
        why=window.reason if until is not None else "",
        closed_by=window.actor if until is not None else "",
        waiting=tx.count(DeferredRuns(namespace=row.namespace, prefix=prefix))["runs"],
        revision=row.revision,
    )
