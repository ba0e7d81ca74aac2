"""Budgets and provider windows that people set: stored with a revision, in force at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from timewright.core.budgets.budgets import Budget, ProviderWindow
from timewright.core.budgets.spending import reason_prefix
from timewright.core.facts import Fact, ProviderClosed, ProviderOpened
from timewright.core.run.leasing import WaitReason
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import NotAllowed
from timewright.ledger.budgets.charges import BUDGET, PROVIDER
from timewright.ledger.queues.limits import delete_objects, save_objects
from timewright.ledger.replan import Actor
from timewright.ports import ScheduleFilter, Transaction

MAX_LISTED_USERS = 20


def set_budget(tx: Transaction, budget: Budget, *, by: Actor, now: datetime) -> None:
    """Store a budget; it is in force from this commit on, and deferred runs check it again at once."""
    namespace, name = budget.namespace, budget.name
    tx.lock("budgets")
    last = _read_stored(tx, budget)
    if last is not None and (last.unit, last.currency) != (budget.unit, budget.currency):
        raise NotAllowed(
            f"budget {name} counts {last.currency or last.unit.value}",
            field="unit",
            value=budget.unit.value,
            rule="the unit of a budget cannot change, because its usage is counted in it",
            fix="use another name for another unit",
        )
    save_objects(tx, BUDGET, {name: budget}, namespace=namespace, by=by, now=now)
    if last is not None and (last.period, last.zone) != (budget.period, budget.zone):
        tx.recount_budget(budget.account_name, since=budget.period_at(now).start)
    tx.release_deferred_runs(namespace, prefix=reason_prefix(WaitReason.BUDGET, name), now=now)


def delete_budget(tx: Transaction, budget: Budget, *, by: Actor, now: datetime) -> None:
    """Delete a budget that no schedule names, with its usage."""
    namespace, name = budget.namespace, budget.name
    tx.lock("budgets")
    users = list(schedules_using(tx, budget))
    if users:
        raise NotAllowed(
            f"budget {name} is used by {', '.join(users)}",
            field="budget",
            value=name,
            rule="a budget that a schedule names cannot be deleted",
            fix=f"give {users[0]} other budgets first: schedule update",
        )
    delete_objects(tx, BUDGET, [name], namespace=namespace, by=by, now=now)
    tx.release_deferred_runs(namespace, prefix=reason_prefix(WaitReason.BUDGET, name), now=now)


def schedules_using(tx: Transaction, budget: Budget) -> Iterator[str]:
    """The first schedules that name a budget and are not archived."""
    cursor, more, found = "", True, 0
    while more and found < MAX_LISTED_USERS:
        which = ScheduleFilter(namespace=budget.namespace, limit=1000, cursor=cursor)
        page = tx.find(which)
        for record in page.rows:
            named = budget.name in record.schedule.budgets
            if named and record.progress.state is not ScheduleState.ARCHIVED and found < MAX_LISTED_USERS:
                found += 1
                yield record.schedule.name
        cursor, more = page.cursor, bool(page.cursor)


def close_provider(
    tx: Transaction, namespace: str, provider: str, *, until: datetime, by: Actor, now: datetime
) -> Fact:
    """Close a provider until an instant: none of its runs start before; replaces an earlier close."""
    window = ProviderWindow(until=until, reason=by.reason, actor=by.name)
    tx.lock("budgets")
    save_objects(tx, PROVIDER, {provider: window}, namespace=namespace, by=by, now=now)
    # Runs that were deferred to a later instant are deferred to this one.
    tx.release_deferred_runs(namespace, prefix=reason_prefix(WaitReason.PROVIDER, provider), now=now)
    return ProviderClosed(at=now, namespace=namespace, provider=provider, until=until, reason=by.reason)


def open_provider(tx: Transaction, namespace: str, provider: str, *, by: Actor, now: datetime) -> Fact:
    """Open a provider: its runs may start at once."""
    tx.lock("budgets")
    save_objects(tx, PROVIDER, {provider: ProviderWindow()}, namespace=namespace, by=by, now=now)
    tx.release_deferred_runs(namespace, prefix=reason_prefix(WaitReason.PROVIDER, provider), now=now)
    return ProviderOpened(at=now, namespace=namespace, provider=provider)


def _read_stored(tx: Transaction, budget: Budget) -> Budget | None:
    """The stored budget, if there is a readable one."""
    rows = tx.get_objects(BUDGET, namespace=budget.namespace, names=[budget.name])
    try:
        return rows[0].decode(Budget) if rows else None
    except (msgspec.MsgspecError, ValueError):
        return None
