"""Budgets and provider windows as people set them: kept with a revision, and in force at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from timewright.core.budgets import Budget, Window
from timewright.core.facts import Fact, ProviderClosed, ProviderOpened
from timewright.core.leasing import Waits
from timewright.core.schedule import ScheduleState
from timewright.core.spending import reason_prefix
from timewright.errors import NotAllowed
from timewright.ledger.budgets import BUDGET
from timewright.ledger.policy import keep_objects
from timewright.ledger.replan import By
from timewright.ledger.windows import PROVIDER
from timewright.ports import ScheduleFilter, Stored, Transaction

MOST_USERS = 20


def read_budget(row: Stored) -> Budget:
    """A budget from its row."""
    return msgspec.json.decode(row.body, type=Budget)


def read_window(row: Stored) -> Window:
    """A provider's window from its row."""
    return msgspec.json.decode(row.body, type=Window)


def set_budget(tx: Transaction, budget: Budget, *, by: By, now: datetime) -> None:
    """Keep a budget; it holds from this commit on, and whoever waited for it looks again at once."""
    namespace, name = budget.namespace, budget.name
    tx.hold_book()
    last = _last(tx, budget)
    if last is not None and (last.unit, last.currency) != (budget.unit, budget.currency):
        raise NotAllowed(
            f"budget {name} counts {last.currency or last.unit.value}",
            field="unit",
            value=budget.unit.value,
            rule="what a budget counts stays the same, or what was counted would mean nothing",
            fix="another name for another unit",
        )
    keep_objects(tx, BUDGET, {name: budget}, namespace=namespace, by=by, now=now)
    if last is not None and (last.period, last.zone) != (budget.period, budget.zone):
        tx.recount(budget.key, since=budget.at(now).start)
    tx.change_book()
    tx.undefer(namespace, prefix=reason_prefix(Waits.BUDGET, name), now=now)


def delete_budget(tx: Transaction, budget: Budget, *, by: By, now: datetime) -> None:
    """Remove a budget that no schedule names, with what was counted of it."""
    namespace, name = budget.namespace, budget.name
    tx.hold_book()
    users = list(users_of(tx, budget))
    if users:
        raise NotAllowed(
            f"budget {name} is named by {', '.join(users)}",
            field="budget",
            value=name,
            rule="a budget that a schedule names stays",
            fix=f"schedule update {users[0]} with other budgets first",
        )
    tx.delete_object(BUDGET, namespace=namespace, name=name)
    body = msgspec.json.encode(budget).decode()
    tx.add_audit([by.entry("budget.delete", namespace=namespace, subject=name, now=now, before=body)])
    tx.forget_budget(budget.key)
    tx.change_book()
    tx.undefer(namespace, prefix=reason_prefix(Waits.BUDGET, name), now=now)


def users_of(tx: Transaction, budget: Budget) -> Iterator[str]:
    """The first living schedules that name a budget."""
    cursor, more, found = "", True, 0
    while more and found < MOST_USERS:
        which = ScheduleFilter(namespace=budget.namespace, limit=1000, cursor=cursor)
        page = tx.find_schedules(which)
        for due in page.rows:
            named = budget.name in due.schedule.budgets
            if named and due.standing.state is not ScheduleState.ARCHIVED and found < MOST_USERS:
                found += 1
                yield due.schedule.name
        cursor, more = page.cursor, bool(page.cursor)


def close_provider(
    tx: Transaction, namespace: str, provider: str, *, until: datetime, by: By, now: datetime
) -> Fact:
    """Let nothing of a provider start before an instant, sooner or later than it was closed before."""
    window = Window(until=until, reason=by.reason, actor=by.actor)
    tx.hold_book()
    keep_objects(tx, PROVIDER, {provider: window}, namespace=namespace, by=by, now=now)
    tx.change_book()
    # Those who wait for a later instant than this one wait for this one.
    tx.undefer(namespace, prefix=reason_prefix(Waits.PROVIDER, provider), now=now)
    return ProviderClosed(at=now, namespace=namespace, provider=provider, until=until, reason=by.reason)


def open_provider(tx: Transaction, namespace: str, provider: str, *, by: By, now: datetime) -> Fact:
    """Let a provider's work start again, at once."""
    tx.hold_book()
    keep_objects(tx, PROVIDER, {provider: Window()}, namespace=namespace, by=by, now=now)
    tx.change_book()
    tx.undefer(namespace, prefix=reason_prefix(Waits.PROVIDER, provider), now=now)
    return ProviderOpened(at=now, namespace=namespace, provider=provider)


def _last(tx: Transaction, budget: Budget) -> Budget | None:
    """The budget as it was, if it was there and can be read."""
    rows = tx.get_objects(BUDGET, namespace=budget.namespace, names=[budget.name])
    try:
        return read_budget(rows[0]) if rows else None
    except (msgspec.MsgspecError, ValueError):
        return None
