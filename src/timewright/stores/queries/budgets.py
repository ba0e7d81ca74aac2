"""Queries for budgets and providers: definitions, one account per period, one charge per lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Any

import msgspec

from timewright.core.budgets.budgets import (
    EMPTY_CATALOG,
    SCOPE_FIELDS,
    AccountKey,
    Budget,
    BudgetCatalog,
    BudgetUsage,
    Charge,
    ProviderWindow,
    UnreadableBudget,
)
from timewright.core.moments import from_micros, to_micros
from timewright.errors import TimewrightError
from timewright.stores.cache import NO_BUDGETS_TTL_S
from timewright.stores.queries.base import SqlQueries
from timewright.stores.rows import Row, storable_text, struct_row

BUDGET, PROVIDER = "budget", "provider"
# The name in meta of the number that counts changes of budgets.
BUDGETS_VERSION = "budgets"

_read_budget = msgspec.json.Decoder(Budget).decode
_read_window = msgspec.json.Decoder(ProviderWindow).decode
_read_any = msgspec.json.Decoder(dict[str, Any]).decode


class SqlBudgetQueries(SqlQueries):
    """Budgets, accounts and charges, of `ports.objects.ObjectQueries`.

    The value `budgets` of the table meta counts the changes; zero or less means that there are no budgets.
    """

    def read_budgets(self, *, needed: Callable[[], bool] | None = None) -> BudgetCatalog:
        """Return every budget and provider window, from a cache until one changes.

        If there are none and `needed` returns false, this makes no round trip.
        """
        cache = self._executor.cache
        if cache.has_no_budgets() and (cache.is_sole_writer or self._may_skip(needed)):
            return EMPTY_CATALOG
        version = self._budgets_version()
        if version <= 0:
            if not self._executor.has_uncommitted_revisions:
                cache.no_budgets_since = monotonic()
            return EMPTY_CATALOG
        cache.no_budgets_since = -NO_BUDGETS_TTL_S
        cached = cache.budgets
        if cached is not None and cached[0] == version:
            return cached[1]
        found = decode_budgets(self._query("get_budgets", {}))
        if not self._executor.has_uncommitted_revisions:
            cache.budgets = (version, found)
        return found

    def _may_skip(self, needed: Callable[[], bool] | None) -> bool:
        return needed is not None and self._executor.is_remote and not needed()

    def _mark_budgets_changed(self) -> None:
        """Invalidate the caches after a budget or window was written; other writers wait here."""
        self._query("lock_budgets", {})
        # Until the commit this may be rolled back, and the same version then stands for other budgets.
        self._executor.has_uncommitted_revisions = True
        self._executor.cache.no_budgets_since = -NO_BUDGETS_TTL_S
        version = abs(self._budgets_version()) + 1
        version = version if self._query("get_budgets", {}) else -version
        self._query("put_meta", {"name": BUDGETS_VERSION, "value": str(version)})

    def get_accounts(
        self, keys: Iterable[AccountKey], *, lock: bool = False
    ) -> dict[AccountKey, BudgetUsage]:
        """Return the use of accounts; `lock` keeps it unchanged until the transaction ends."""
        if lock:
            return self.lock_accounts(keys)
        wanted = sorted(set(keys))
        return self._accounts("read_accounts", wanted) if wanted else {}

    def lock_accounts(self, keys: Iterable[AccountKey]) -> dict[AccountKey, BudgetUsage]:
        """Lock accounts until the transaction ends and return their use."""
        wanted = sorted(set(keys))
        if not wanted:
            return {}
        self._execute_many("ensure_accounts", [(budget, to_micros(start)) for budget, start in wanted])
        return self._accounts("lock_accounts", wanted)

    def add_charges(self, charges: Sequence[Charge]) -> None:
        """Insert the charges of leases and add them to their accounts."""
        if not charges:
            return
        self._execute_many("insert_charges", [struct_row(charge) for charge in charges])
        self._add_to_accounts((c.budget, to_micros(c.period), c.used, c.held) for c in charges)

    def close_charges(self, known: Mapping[Charge, Charge]) -> None:
        """Write the actual use of open charges and replace the held amount in the accounts."""
        if not known:
            return
        self._execute_many("close_charges", [(c.run_id, c.fence, c.budget, c.used) for c in known.values()])
        self._add_to_accounts(
            (after.budget, to_micros(after.period), after.used - before.used, -before.held)
            for before, after in known.items()
        )

    def recount_budget(self, budget: str, *, since: datetime) -> None:
        """Recompute the account of the period that begins at `since` from its charges."""
        parameters = {"budget": budget, "period": to_micros(since)}
        self._query("subtract_recounted", parameters)
        self._query("add_recounted", parameters)
        self._query("move_charges", parameters)

    def release_deferred_runs(self, namespace: str, *, prefix: str, now: datetime) -> int:
        """Let deferred runs whose reason begins with `prefix` start now; returns how many."""
        parameters = {"namespace": namespace, "prefix": storable_text(prefix), "now": to_micros(now)}
        return len(self._query("release_deferred_runs", parameters))

    def _delete_budget_usage(self, budget: str) -> None:
        self._query("delete_charges_of_budget", {"budget": budget})
        self._query("delete_accounts_of_budget", {"budget": budget})

    def _budgets_version(self) -> int:
        rows = self._query("budgets_version", {})
        return int(rows[0][0]) if rows else 0

    def _accounts(self, statement: str, keys: Sequence[AccountKey]) -> dict[AccountKey, BudgetUsage]:
        parameters = {
            "budgets": sorted({budget for budget, _ in keys}),
            "since": to_micros(min(start for _, start in keys)),
        }
        found = {
            (row[0], from_micros(row[1])): BudgetUsage(row[2], row[3])
            for row in self._query(statement, parameters)
        }
        return {key: found.get(key, BudgetUsage()) for key in keys}

    def _add_to_accounts(self, changes: Iterable[tuple[str, int, int, int]]) -> None:
        """Add to accounts, each once and in sorted order, so that two writers cannot deadlock."""
        sums: dict[tuple[str, int], tuple[int, int]] = {}
        for budget, period, used, held in changes:
            before = sums.get((budget, period), (0, 0))
            sums[budget, period] = (before[0] + used, before[1] + held)
        self._execute_many("add_to_accounts", [(*key, *sums[key]) for key in sorted(sums)])


def decode_budgets(rows: Sequence[Row]) -> BudgetCatalog:
    """Decode budgets and windows. An unreadable one is kept by name and blocks what it covers."""
    budgets: dict[str, list[Budget]] = {}
    unreadable: dict[str, list[UnreadableBudget]] = {}
    windows: dict[tuple[str, str], ProviderWindow] = {}
    for kind, namespace, name, body in rows:
        try:
            if kind == BUDGET:
                budget = _read_budget(body)
                budgets.setdefault(namespace, []).append(budget)
            else:
                windows[namespace, name] = _read_window(body)
        except (msgspec.MsgspecError, ValueError, TimewrightError):
            if kind == BUDGET:
                unreadable.setdefault(namespace, []).append(
                    UnreadableBudget(name=name, scope=_readable_scope(body))
                )
            else:
                windows[namespace, name] = ProviderWindow(unreadable=True)
    return BudgetCatalog(
        budgets={namespace: tuple(found) for namespace, found in budgets.items()},
        windows=windows,
        unreadable={namespace: tuple(found) for namespace, found in unreadable.items()},
    )


def _readable_scope(body: str) -> dict[str, str] | None:
    """The readable part of what a budget covers; None if nothing is readable."""
    try:
        found = _read_any(body)
    except (msgspec.MsgspecError, ValueError):
        return None
    return {name: str(found[name]) for name in SCOPE_FIELDS if found.get(name)}
