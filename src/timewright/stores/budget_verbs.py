"""What a store does with budgets and providers: one book, an account a period, a charge a lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Any

import msgspec

from timewright.core.budgets import COVERS, EMPTY, Account, Book, Broken, Budget, Charge, Place, Window
from timewright.core.moments import from_micros, micros
from timewright.errors import TimewrightError
from timewright.stores.revisions import NO_BOOK_SECONDS
from timewright.stores.rows import Row, clean
from timewright.stores.verbs import Verbs, page_limit

BUDGET, PROVIDER = "budget", "provider"
MARK = "budgets"

_read_budget = msgspec.json.Decoder(Budget).decode
_read_window = msgspec.json.Decoder(Window).decode
_read_any = msgspec.json.Decoder(dict[str, Any]).decode


class SqlBudgetVerbs(Verbs):
    """The verbs of `ports.budgets.BudgetVerbs`.

    A mark counts the changes of the book: where it stands at nothing, or below, there is nothing to read.
    """

    def book(self, *, needed: Callable[[], bool] | None = None) -> Book:
        """Every budget and window; read once, and again when one was changed.

        Whoever does not need it is not made to travel for it while there is nothing in it.
        """
        revisions = self._speaker.revisions
        if revisions.has_no_book() and (revisions.alone or self._is_spared(needed)):
            return EMPTY
        mark = self._mark()
        if mark <= 0:
            if not self._speaker.drafting:
                revisions.no_book_since = monotonic()
            return EMPTY
        revisions.no_book_since = -NO_BOOK_SECONDS
        kept = revisions.book
        if kept is not None and kept[0] == mark:
            return kept[1]
        found = read_book(self._ask("get_book", {}))
        if not self._speaker.drafting:
            revisions.book = (mark, found)
        return found

    def _is_spared(self, needed: Callable[[], bool] | None) -> bool:
        return needed is not None and self._speaker.is_far and not needed()

    def change_book(self) -> None:
        """Say that a budget or a window was written or removed; those who would do the same wait here."""
        self.hold_book()
        # Until it is committed it may be undone, and the same mark stand for another book.
        self._speaker.drafting = True
        self._speaker.revisions.no_book_since = -NO_BOOK_SECONDS
        mark = abs(self._mark()) + 1
        mark = mark if self._ask("get_book", {}) else -mark
        self._ask("put_meta", {"name": MARK, "value": str(mark)})

    def hold_book(self) -> None:
        """Keep others from changing the book until the transaction ends."""
        self._ask("hold_mark", {})

    def hold_accounts(self, places: Iterable[Place]) -> dict[Place, Account]:
        """Hold accounts until the transaction ends, and read how much is spent."""
        wanted = sorted(set(places))
        if not wanted:
            return {}
        self._tell("ensure_accounts", [(budget, micros(start)) for budget, start in wanted])
        return self._accounts("hold_accounts", wanted)

    def read_accounts(self, places: Iterable[Place]) -> dict[Place, Account]:
        """How much is spent, for a plan; nothing is held and nothing is written."""
        wanted = sorted(set(places))
        return self._accounts("read_accounts", wanted) if wanted else {}

    def accounts_of(self, budget: str, *, limit: int) -> list[tuple[datetime, Account]]:
        """How much was spent in each period that anything was spent in, the newest first."""
        rows = self._ask("accounts_of", {"budget": budget, "limit": page_limit(limit)})
        return [(from_micros(row[0]), Account(row[1], row[2])) for row in rows]

    def add_charges(self, charges: Sequence[Charge]) -> None:
        """Write what leases take, and count it in its accounts."""
        if not charges:
            return
        self._tell("insert_charges", [_charge_row(charge) for charge in charges])
        self._count((c.budget, micros(c.period), c.used, c.held) for c in charges)

    def open_charges(self, run_ids: Iterable[str]) -> list[Charge]:
        """What leases have taken and is not known yet."""
        return [_read_charge(row) for row in self._ask("open_charges", {"ids": list(run_ids)})]

    def close_charges(self, known: Mapping[Charge, Charge]) -> None:
        """Write what open charges came to, and count it instead of what was held."""
        if not known:
            return
        self._tell("close_charges", [(c.run_id, c.fence, c.budget, c.used) for c in known.values()])
        self._count(
            (after.budget, micros(after.period), after.used - before.used, -before.held)
            for before, after in known.items()
        )

    def charges_of(self, run_ids: Iterable[str]) -> list[Charge]:
        """What every lease of runs took."""
        return [_read_charge(row) for row in self._ask("charges_of", {"ids": list(run_ids)})]

    def recount(self, budget: str, *, since: datetime) -> None:
        """Count what was taken from a budget since an instant, as the account of the period it begins."""
        parameters = {"budget": budget, "period": micros(since)}
        self._ask("uncount", parameters)
        self._ask("recount", parameters)
        self._ask("move_charges", parameters)

    def forget_budget(self, budget: str) -> None:
        """Remove what was counted of a budget."""
        self._ask("forget_charges", {"budget": budget})
        self._ask("forget_accounts", {"budget": budget})

    def count_deferred(self, namespace: str, *, prefix: str) -> int:
        """How many runs wait whose reason begins so."""
        ((count,),) = self._ask("count_deferred", {"namespace": namespace, "prefix": clean(prefix)})
        return int(count)

    def undefer(self, namespace: str, *, prefix: str, now: datetime) -> int:
        """Let those start at once whose reason to wait begins so; says how many."""
        parameters = {"namespace": namespace, "prefix": clean(prefix), "now": micros(now)}
        return len(self._ask("undefer", parameters))

    def _mark(self) -> int:
        rows = self._ask("budgets_mark", {})
        return int(rows[0][0]) if rows else 0

    def _accounts(self, statement: str, places: Sequence[Place]) -> dict[Place, Account]:
        asked = {
            "budgets": sorted({budget for budget, _ in places}),
            "since": micros(min(start for _, start in places)),
        }
        found = {
            (row[0], from_micros(row[1])): Account(row[2], row[3]) for row in self._ask(statement, asked)
        }
        return {place: found.get(place, Account()) for place in places}

    def _count(self, changes: Iterable[tuple[str, int, int, int]]) -> None:
        """Add to accounts, each once and in one order: whoever writes several never waits for another."""
        sums: dict[tuple[str, int], tuple[int, int]] = {}
        for budget, period, used, held in changes:
            before = sums.get((budget, period), (0, 0))
            sums[budget, period] = (before[0] + used, before[1] + held)
        self._tell("add_to_accounts", [(*place, *sums[place]) for place in sorted(sums)])


def read_book(rows: Sequence[Row]) -> Book:
    """The book from its rows; what cannot be read is kept as a name that lets nothing through."""
    budgets: dict[str, list[Budget]] = {}
    broken: dict[str, list[Broken]] = {}
    windows: dict[tuple[str, str], Window] = {}
    for kind, namespace, name, body in rows:
        try:
            if kind == BUDGET:
                budget = _read_budget(body)
                budgets.setdefault(namespace, []).append(budget)
            else:
                windows[namespace, name] = _read_window(body)
        except (msgspec.MsgspecError, ValueError, TimewrightError):
            if kind == BUDGET:
                broken.setdefault(namespace, []).append(Broken(name=name, covers=_covers(body)))
            else:
                windows[namespace, name] = Window(unreadable=True)
    return Book(
        budgets={namespace: tuple(found) for namespace, found in budgets.items()},
        windows=windows,
        broken={namespace: tuple(found) for namespace, found in broken.items()},
    )


def _covers(body: str) -> dict[str, str] | None:
    """As much of what a budget covers as can be read; nothing if none of it can."""
    try:
        found = _read_any(body)
    except (msgspec.MsgspecError, ValueError):
        return None
    return {name: str(found[name]) for name in COVERS if found.get(name)}


def _charge_row(charge: Charge) -> tuple[Any, ...]:
    return (
        charge.run_id,
        charge.fence,
        charge.budget,
        micros(charge.period),
        micros(charge.at),
        charge.used,
        charge.held,
        int(charge.open),
    )


def _read_charge(row: Row) -> Charge:
    return Charge(
        run_id=row[0],
        fence=row[1],
        budget=row[2],
        period=from_micros(row[3]),
        at=from_micros(row[4]),
        used=row[5],
        held=row[6],
        open=row[7] == 1,
    )
