"""Budgets and their periods, provider windows, and which of them apply to a run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from timewright.core.budgets.costs import MAX_TOKENS, NO_COST, Cost, Currency, format_money, to_millionths
from timewright.core.calendars.calendar import day_start
from timewright.core.moments import (
    DAY,
    EPOCH,
    HOUR,
    MINUTE,
    format_duration,
    format_instant,
    parse_duration,
)
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Call, Deliver, Http, RunTarget, Workflow
from timewright.core.zones import check_zone, load_zone
from timewright.errors import InvalidDuration, TimewrightError

SCOPE_FIELDS = ("owner", "host", "function", "queue", "provider")
# Money is counted in millionths of a unit, so its numbers are larger than those of tokens.
MAX_COUNTED = MAX_TOKENS * 1000

Text = Annotated[str, Meta(max_length=255)]
AccountKey = tuple[str, datetime]

CALENDAR_PERIODS = ("hour", "day", "week", "month")
MAX_PERIOD = 366 * DAY


class Unit(StrEnum):
    """The unit that a budget counts."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    MONEY = "money"


class Budget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A spending limit per period, for the schedules that name it and for all runs in its scope.

    `limit` is an integer; money is counted in millionths. If several scope fields are set, a run must match
    all of them: with an owner and a host, the budget limits that owner's use of that host.
    """

    name: str
    namespace: str
    unit: Unit
    limit: Annotated[int, Meta(ge=0, le=MAX_COUNTED)]
    currency: Currency = ""
    period: str = "day"
    zone: str = "UTC"
    owner: Text = ""
    host: Text = ""
    function: Text = ""
    queue: Text = ""
    provider: Text = ""

    def __post_init__(self) -> None:
        check_period(self.period)
        check_zone(self.zone)

    @property
    def account_name(self) -> str:
        """The key under which its usage is stored."""
        return f"{self.namespace}/{self.name}"

    @property
    def scope(self) -> dict[str, str]:
        """The scope fields that are set."""
        found = {name: str(getattr(self, name)) for name in SCOPE_FIELDS}
        return {name: value for name, value in found.items() if value}

    def period_at(self, now: datetime) -> Period:
        """Return the period that contains an instant."""
        return period_at(self.period, self.zone, now)

    def format_amount(self, count: int) -> str:
        """Format an amount: `12 requests`, `0.50 EUR`."""
        if self.unit is Unit.MONEY:
            return f"{format_money(count)} {self.currency}".rstrip()
        return f"{count} {self.unit.value}"

    def amount_of(self, cost: Cost) -> int | None:
        """Return a cost in the budget's unit; None if it was not reported, or in another currency."""
        if self.unit is Unit.TOKENS:
            return cost.tokens
        if self.unit is Unit.REQUESTS or cost.money is None:
            return None
        return to_millionths(cost.money) if cost.currency in ("", self.currency) else None


class ProviderWindow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Until when a provider is closed, why, and who closed it."""

    until: datetime | None = None
    reason: str = ""
    actor: str = ""
    unreadable: bool = False

    def closed_until(self, *, now: datetime) -> datetime | None:
        """Return until when the provider is closed, or None. An unreadable window counts as closed."""
        if self.unreadable:
            return now + MINUTE
        return self.until if self.until is not None and self.until > now else None


class BudgetUsage(Struct, frozen=True):
    """The amount of a budget used in one period, and the amount reserved for leased runs."""

    used: int = 0
    held: int = 0


class Charge(Struct, frozen=True, kw_only=True, gc=False):
    """The charge of one lease to one budget: `held` while it is leased, `used` once the cost is known."""

    run_id: str
    fence: int
    budget: str
    period: datetime
    at: datetime
    used: int = 0
    held: int = 0
    open: bool = False


class ApplicableBudgets(Struct, frozen=True, kw_only=True):
    """The budgets that apply to a run, its estimated cost, and the window of its provider.

    `unreadable` names a budget that cannot be decoded: its limit is unknown, so the run may not start.
    """

    budgets: tuple[Budget, ...] = ()
    provider: str = ""
    window: ProviderWindow | None = None
    estimate: Cost = NO_COST
    unreadable: str = ""

    def account_keys(self, now: datetime) -> list[AccountKey]:
        """Return the keys of the usage rows it is charged to."""
        return [(budget.account_name, budget.period_at(now).start) for budget in self.budgets]


class UnreadableBudget(Struct, frozen=True, kw_only=True):
    """A budget that cannot be decoded: its name and its scope; an unknown scope (None) matches every run."""

    name: str
    scope: dict[str, str] | None = None


class BudgetCatalog(Struct, frozen=True, kw_only=True):
    """All budgets and provider windows of a store, by namespace."""

    budgets: dict[str, tuple[Budget, ...]] = {}
    windows: dict[tuple[str, str], ProviderWindow] = {}
    unreadable: dict[str, tuple[UnreadableBudget, ...]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is no budget and no window at all."""
        return not (self.budgets or self.windows or self.unreadable)

    def applicable_budgets(
        self, schedule: Schedule | None, target: RunTarget, *, namespace: str, principal: str, queue: str
    ) -> ApplicableBudgets | None:
        """Return the budgets that apply to a run, if any; a workflow's own run has none, its steps do."""
        if isinstance(target, Workflow | Deliver):
            return None
        provider = schedule.provider or "" if schedule is not None else ""
        named = schedule.budgets if schedule is not None else ()
        attributes = {
            "owner": principal,
            "host": host_of(target),
            "function": target.name if isinstance(target, Call) else "",
            "queue": queue,
            "provider": provider,
        }
        budgets = [
            b for b in self.budgets.get(namespace, ()) if b.name in named or _matches(b.scope, attributes)
        ]
        window = self.windows.get((namespace, provider)) if provider else None
        matching = (
            b
            for b in self.unreadable.get(namespace, ())
            if b.scope is None or _matches(b.scope, attributes) or b.name in named
        )
        unreadable = next((one.name for one in matching), "")
        if not (budgets or window or unreadable):
            return None
        estimate = schedule.estimate if schedule is not None else NO_COST
        return ApplicableBudgets(
            budgets=tuple(budgets), provider=provider, window=window, estimate=estimate, unreadable=unreadable
        )

    def budgets_of_schedule(self, schedule: Schedule) -> ApplicableBudgets | None:
        """Return the budgets that apply to the runs of a schedule, if any."""
        return self.applicable_budgets(
            schedule,
            schedule.target,
            namespace=schedule.namespace,
            principal=schedule.created_by,
            queue=schedule.queue or "",
        )


EMPTY_CATALOG = BudgetCatalog()


def host_of(target: RunTarget) -> str:
    """Return the host that an HTTP target calls, else an empty string."""
    if not isinstance(target, Http):
        return ""
    try:
        return urlsplit(target.url).hostname or ""
    except ValueError:
        return ""


def describe_window(window: ProviderWindow) -> str:
    """Return until when a provider is closed, and why, as the end of a sentence."""
    if window.until is None:
        return "its window cannot be read"
    reason = f": {window.reason}" if window.reason else ""
    return f"closed until {format_instant(window.until)}{reason}"


def _matches(scope: Mapping[str, str], attributes: Mapping[str, str]) -> bool:
    return bool(scope) and all(attributes[name] == value for name, value in scope.items())


class Period(Struct, frozen=True):
    """From `start` (inclusive) to `end` (exclusive)."""

    start: datetime
    end: datetime


def check_period(text: str) -> str:
    """Return a period in canonical form, or raise InvalidDuration."""
    word = text.strip().lower()
    if word in CALENDAR_PERIODS:
        return word
    try:
        length = parse_duration(text, field="period")
    except TimewrightError:
        raise _period_error(text, "is not a period") from None
    if not MINUTE <= length <= MAX_PERIOD:
        raise _period_error(text, "is too short or too long")
    return format_duration(length)


@lru_cache(maxsize=256)
def period_at(text: str, zone: str, now: datetime) -> Period:
    """Return the period that contains an instant."""
    if text not in CALENDAR_PERIODS:
        length = parse_duration(text, field="period")
        start = EPOCH + (now - EPOCH) // length * length
        return Period(start, start + length)
    local = now.astimezone(load_zone(zone))
    if text == "hour":
        # Counted by the local clock: where it jumps by half an hour, so do the periods.
        start = now - timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        return Period(start, start + HOUR)
    first, following = _period_days(text, local.date())
    start, end = day_start(first, zone), day_start(following, zone)
    if end <= now:
        # Clocks went back over midnight: the repeated hour belongs to the new day.
        start, end = end, day_start(_period_days(text, following)[1], zone)
    return Period(start, end)


def _period_days(text: str, day: date) -> tuple[date, date]:
    """Return the first day of a period, and the first day of the next one."""
    if text == "day":
        return day, day + DAY
    if text == "week":
        first = day - day.weekday() * DAY
        return first, first + 7 * DAY
    first = day.replace(day=1)
    return first, (first + 31 * DAY).replace(day=1)


def _period_error(text: str, why: str) -> InvalidDuration:
    return InvalidDuration(
        f"period {text[:40]!r} {why}",
        field="period",
        value=text[:40],
        rule=f"hour, day, week or month, or a length from 1m to {format_duration(MAX_PERIOD)}",
        fix="period: day, or period: 15m",
    )
