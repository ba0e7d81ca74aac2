"""Budgets: how much may be spent in a period, on whose behalf or on what, and how much was."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from timewright.core.budgets import MOST_COUNTED, Account, Budget, Unit
from timewright.core.costs import Currency, Quantity, millionths
from timewright.core.leasing import Waits
from timewright.core.periods import check_period
from timewright.core.spending import reason_prefix
from timewright.core.vocabulary import check_name
from timewright.core.zones import check_zone
from timewright.errors import InvalidInput, TimewrightError
from timewright.ledger.budget_shelf import delete_budget, read_budget, set_budget, users_of
from timewright.ledger.budgets import BUDGET
from timewright.operations.context import Context, together
from timewright.operations.find import no_such
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Request, Write, operations
from timewright.ports import Page, Transaction, Unreadable

NEWEST = 30

Covered = Annotated[str, Meta(max_length=255)]


class Set(Write, frozen=True, kw_only=True):
    """Which budget, what it counts, how much a period, and what it covers beside those that name it."""

    budget: Named
    unit: Unit
    limit: Quantity
    period: Annotated[str, Meta(min_length=1, max_length=64)] = "day"
    zone: str = "UTC"
    currency: Currency = ""
    principal: Covered = ""
    host: Covered = ""
    function: Covered = ""
    queue: Covered = ""
    provider: Covered = ""


class Which(Request, frozen=True, kw_only=True):
    """Which budget."""

    budget: Named


class List(Listing, frozen=True, kw_only=True):
    """Which budgets: all of the namespace."""


class Usage(Request, frozen=True, kw_only=True):
    """Which budget, and how many of its periods."""

    budget: Named
    periods: Annotated[int, Meta(ge=1, le=1000)] = NEWEST


class Delete(Write, frozen=True, kw_only=True):
    """Which budget to remove; one that a schedule names stays."""

    budget: Named


class BudgetRow(Struct, frozen=True, kw_only=True):
    """A budget, and how much of it is used and held in the period that is running; amounts are text."""

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


class BudgetDetail(BudgetRow, frozen=True, kw_only=True):
    """A budget, the schedules that name it, and how many runs wait for it."""

    named_by: tuple[str, ...]
    waiting: int


class Budgets(Struct, frozen=True, kw_only=True):
    """A page of budgets, by name; what draws on one that cannot be read waits."""

    budgets: tuple[BudgetRow, ...]
    cursor: str = ""
    unreadable: tuple[Unreadable, ...] = ()


class PeriodRow(Struct, frozen=True, kw_only=True):
    """How much was used in one period, and is held by what is still under way."""

    since: datetime
    used: str
    held: str


class Used(Struct, frozen=True, kw_only=True):
    """What was used of a budget, the newest period first; periods without any are left out."""

    budget: str
    unit: Unit
    currency: str
    limit: str
    waiting: int
    periods: tuple[PeriodRow, ...]


class Deleted(Struct, frozen=True, kw_only=True):
    """The budget that is gone."""

    budget: str


@operations.add(
    "budget",
    "set",
    Set,
    scope="admin",
    examples=(
        {"budget": "inference", "unit": "tokens", "limit": 2000000, "period": "day", "zone": "Europe/Berlin"},
        {"budget": "crm", "unit": "requests", "limit": 500, "period": "15m", "host": "crm.example.com"},
        {"budget": "agents", "unit": "money", "limit": "25.00", "currency": "EUR", "principal": "agent-7"},
    ),
)
def set_one(context: Context, ask: Set) -> BudgetRow:
    """Set how much may be spent in a period; what waited for it looks again at once."""
    now = context.now()
    budget = _asked(context, ask)

    def work(inside: Context) -> BudgetRow:
        by = inside.because(ask.reason)
        inside.store.write(lambda tx: set_budget(tx, budget, by=by, now=now))
        return inside.store.read(lambda tx: _row(tx, *_found(tx, budget.namespace, budget.name), now=now))

    return together(context, work)


@operations.add("budget", "get", Which, scope="read", examples=({"budget": "inference"},))
def get_one(context: Context, ask: Which) -> BudgetDetail:
    """Show a budget, how much of it is left, who names it and how many runs wait for it."""
    now = context.now()

    def work(tx: Transaction) -> BudgetDetail:
        budget, revision = _found(tx, context.namespace, ask.budget)
        return BudgetDetail(
            **structs.asdict(_row(tx, budget, revision, now=now)),
            named_by=tuple(users_of(tx, budget)),
            waiting=_waiting(tx, budget),
        )

    return context.store.read(work)


@operations.add("budget", "list", List, scope="read", examples=({},))
def list_all(context: Context, ask: List) -> Budgets:
    """List the budgets and how much is left of each."""
    now = context.now()

    def work(tx: Transaction) -> Budgets:
        stored = tx.get_objects(BUDGET, namespace=context.namespace)

        def find(limit: int, place: str) -> Page:
            after = [row for row in stored if row.name > place]
            return Page(tuple(after[:limit]), after[limit - 1].name if len(after) > limit else "")

        page, cursor = paged(context, ask, find)
        rows: list[BudgetRow] = []
        lost: list[Unreadable] = []
        for one in page:
            try:
                rows.append(_row(tx, read_budget(one), one.revision, now=now))
            except (msgspec.MsgspecError, ValueError, TimewrightError) as error:
                lost.append(Unreadable(one.name, one.name, str(error)))
        return Budgets(budgets=tuple(rows), cursor=cursor, unreadable=tuple(lost))

    return context.store.read(work)


@operations.add("budget", "usage", Usage, scope="read", examples=({"budget": "inference", "periods": 7},))
def usage_of(context: Context, ask: Usage) -> Used:
    """Show how much was spent of a budget in each period, the newest first."""

    def work(tx: Transaction) -> Used:
        budget, _ = _found(tx, context.namespace, ask.budget)
        return Used(
            budget=budget.name,
            unit=budget.unit,
            currency=budget.currency,
            limit=_amount(budget, budget.limit),
            waiting=_waiting(tx, budget),
            periods=tuple(
                PeriodRow(since=start, used=_amount(budget, one.used), held=_amount(budget, one.held))
                for start, one in tx.accounts_of(budget.key, limit=ask.periods)
            ),
        )

    return context.store.read(work)


@operations.add("budget", "delete", Delete, scope="admin", examples=({"budget": "old-trial"},))
def delete_one(context: Context, ask: Delete) -> Deleted:
    """Remove a budget that no schedule names; what waited for it may start."""
    now = context.now()
    by = context.because(ask.reason)

    def work(tx: Transaction) -> Deleted:
        budget, _ = _found(tx, context.namespace, ask.budget)
        delete_budget(tx, budget, by=by, now=now)
        return Deleted(budget=budget.name)

    return context.store.write(work)


def _asked(context: Context, ask: Set) -> Budget:
    """The budget that a request describes; what cannot be meant is refused."""
    covers = {
        name: check_name(getattr(ask, name), field=name)
        for name in ("principal", "function", "queue", "provider")
        if getattr(ask, name)
    }
    if ask.currency and ask.unit is not Unit.MONEY:
        raise InvalidInput(
            f"a budget of {ask.unit.value} has no currency",
            field="currency",
            value=ask.currency,
            rule="a currency is the label of money",
            fix="unit: money, or leave it out",
        )
    return Budget(
        name=check_name(ask.budget, field="budget"),
        namespace=context.namespace,
        unit=ask.unit,
        limit=_limit(ask),
        currency=ask.currency,
        period=check_period(ask.period),
        zone=check_zone(ask.zone),
        host=check_name(ask.host, field="host").lower() if ask.host else "",
        **covers,
    )


def _limit(ask: Set) -> int:
    if ask.unit is not Unit.MONEY and "." in ask.limit:
        raise InvalidInput(
            f"limit {ask.limit} of {ask.unit.value}",
            field="limit",
            value=ask.limit,
            rule=f"{ask.unit.value} are whole",
            fix=f"limit: {ask.limit.partition('.')[0]}",
        )
    limit = millionths(ask.limit) if ask.unit is Unit.MONEY else int(ask.limit)
    if limit > MOST_COUNTED:
        raise InvalidInput(
            f"limit {ask.limit} is more than can be counted",
            field="limit",
            value=ask.limit,
            rule="at most 1000000000 of money, or a million times that of anything else",
            fix="limit: 1000000",
        )
    return limit


def _found(tx: Transaction, namespace: str, name: str) -> tuple[Budget, int]:
    rows = tx.get_objects(BUDGET, namespace=namespace, names=[name])
    if not rows:
        known = [row.name for row in tx.get_objects(BUDGET, namespace=namespace)]
        raise no_such("budget", name, known, lister="budget list")
    return read_budget(rows[0]), rows[0].revision


def _row(tx: Transaction, budget: Budget, revision: int, *, now: datetime) -> BudgetRow:
    period = budget.at(now)
    place = (budget.key, period.start)
    account = tx.read_accounts([place]).get(place, Account())
    left = max(budget.limit - account.used - account.held, 0)
    return BudgetRow(
        budget=budget.name,
        unit=budget.unit,
        limit=_amount(budget, budget.limit),
        currency=budget.currency,
        period=budget.period,
        zone=budget.zone,
        covers=budget.covers,
        revision=revision,
        used=_amount(budget, account.used),
        held=_amount(budget, account.held),
        left=_amount(budget, left),
        since=period.start,
        until=period.end,
    )


def _amount(budget: Budget, count: int) -> str:
    """An amount without its unit: decimal text for money, a whole number for all else."""
    return budget.spell(count).partition(" ")[0]


def _waiting(tx: Transaction, budget: Budget) -> int:
    return tx.count_deferred(budget.namespace, prefix=reason_prefix(Waits.BUDGET, budget.name))
