"""What may be spent: budgets by period, windows in which a provider is closed, and who waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from timewright.core.costs import MOST_TOKENS, NO_COST, Cost, Currency, millionths, spell_money
from timewright.core.moments import MINUTE, spell_instant
from timewright.core.periods import Period, check_period, period_at
from timewright.core.schedule import Schedule
from timewright.core.target import AnyTarget, Call, Http, Workflow
from timewright.core.zones import check_zone

COVERS = ("principal", "host", "function", "queue", "provider")
# What is counted of money is a thousand times finer than of tokens.
MOST_COUNTED = MOST_TOKENS * 1000

Text = Annotated[str, Meta(max_length=255)]
Place = tuple[str, datetime]


class Unit(StrEnum):
    """What a budget counts."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    MONEY = "money"


class Budget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """So much a period, for the schedules that name it and for all that it covers.

    `limit` is a whole number; of money it counts millionths. Where it covers several things, all of them
    must fit: with a principal and a host, it is that principal's use of that host.
    """

    name: str
    namespace: str
    unit: Unit
    limit: Annotated[int, Meta(ge=0, le=MOST_COUNTED)]
    currency: Currency = ""
    period: str = "day"
    zone: str = "UTC"
    principal: Text = ""
    host: Text = ""
    function: Text = ""
    queue: Text = ""
    provider: Text = ""

    def __post_init__(self) -> None:
        check_period(self.period)
        check_zone(self.zone)

    @property
    def key(self) -> str:
        """The name of its account."""
        return f"{self.namespace}/{self.name}"

    @property
    def covers(self) -> dict[str, str]:
        """What it covers beside those that name it."""
        found = {name: str(getattr(self, name)) for name in COVERS}
        return {name: value for name, value in found.items() if value}

    def at(self, now: datetime) -> Period:
        """The period in which an instant lies."""
        return period_at(self.period, self.zone, now)

    def spell(self, count: int) -> str:
        """So much of it, in words: `12 requests`, `0.50 EUR`."""
        if self.unit is Unit.MONEY:
            return f"{spell_money(count)} {self.currency}".rstrip()
        return f"{count} {self.unit.value}"

    def amount(self, cost: Cost) -> int | None:
        """How much of its unit a cost is; nothing if that was not said, or in another currency."""
        if self.unit is Unit.TOKENS:
            return cost.tokens
        if self.unit is Unit.REQUESTS or cost.money is None:
            return None
        return millionths(cost.money) if cost.currency in ("", self.currency) else None


class Window(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Until when a provider is closed, why, and who said so."""

    until: datetime | None = None
    reason: str = ""
    actor: str = ""
    unreadable: bool = False

    def closed_until(self, *, now: datetime) -> datetime | None:
        """Until when nothing of that provider may start, if so; one that cannot be read is closed."""
        if self.unreadable:
            return now + MINUTE
        return self.until if self.until is not None and self.until > now else None


class Account(Struct, frozen=True):
    """How much of a budget was used in one period, and how much those under way are expected to use."""

    used: int = 0
    held: int = 0


class Charge(Struct, frozen=True, kw_only=True, gc=False):
    """What one lease takes from one budget: held while it is under way, used when it is known."""

    run_id: str
    fence: int
    budget: str
    period: datetime
    at: datetime
    used: int = 0
    held: int = 0
    open: bool = False


class Load(Struct, frozen=True, kw_only=True):
    """What a run stands under: budgets with what it is expected to take, and a provider's window.

    `broken` names a budget that cannot be read: what it would allow is not known, so nothing is.
    """

    budgets: tuple[Budget, ...] = ()
    provider: str = ""
    window: Window | None = None
    estimate: Cost = NO_COST
    broken: str = ""

    def places(self, now: datetime) -> list[Place]:
        """The accounts that it draws on."""
        return [(budget.key, budget.at(now).start) for budget in self.budgets]


class Broken(Struct, frozen=True, kw_only=True):
    """A budget that cannot be read: its name and as much of what it covers as can; nothing is everything."""

    name: str
    covers: dict[str, str] | None = None


class Book(Struct, frozen=True, kw_only=True):
    """Every budget and window of a store, by namespace."""

    budgets: dict[str, tuple[Budget, ...]] = {}
    windows: dict[tuple[str, str], Window] = {}
    broken: dict[str, tuple[Broken, ...]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nobody has to ask it anything."""
        return not (self.budgets or self.windows or self.broken)

    def load_of(
        self, schedule: Schedule | None, target: AnyTarget, *, namespace: str, principal: str, queue: str
    ) -> Load | None:
        """What a run stands under, if anything; a workflow's own run only starts its steps, which do."""
        if isinstance(target, Workflow):
            return None
        provider = schedule.provider or "" if schedule is not None else ""
        named = schedule.budgets if schedule is not None else ()
        facts = {
            "principal": principal,
            "host": host_of(target),
            "function": target.name if isinstance(target, Call) else "",
            "queue": queue,
            "provider": provider,
        }
        budgets = [b for b in self.budgets.get(namespace, ()) if b.name in named or _fits(b.covers, facts)]
        window = self.windows.get((namespace, provider)) if provider else None
        lost = (
            b
            for b in self.broken.get(namespace, ())
            if b.covers is None or _fits(b.covers, facts) or b.name in named
        )
        broken = next((one.name for one in lost), "")
        if not (budgets or window or broken):
            return None
        estimate = schedule.estimate if schedule is not None else NO_COST
        return Load(
            budgets=tuple(budgets), provider=provider, window=window, estimate=estimate, broken=broken
        )

    def of_schedule(self, schedule: Schedule) -> Load | None:
        """What the runs of a schedule stand under."""
        return self.load_of(
            schedule,
            schedule.target,
            namespace=schedule.namespace,
            principal=schedule.created_by,
            queue=schedule.queue or "",
        )


EMPTY = Book()


def host_of(target: AnyTarget) -> str:
    """The host that a target calls, if it calls one."""
    if not isinstance(target, Http):
        return ""
    try:
        return urlsplit(target.url).hostname or ""
    except ValueError:
        return ""


def told_window(window: Window) -> str:
    """Until when a provider is closed, and why, as the end of a sentence."""
    if window.until is None:
        return "its window cannot be read"
    said = f": {window.reason}" if window.reason else ""
    return f"closed until {spell_instant(window.until)}{said}"


def _fits(covers: Mapping[str, str], facts: Mapping[str, str]) -> bool:
    return bool(covers) and all(facts[name] == value for name, value in covers.items())
