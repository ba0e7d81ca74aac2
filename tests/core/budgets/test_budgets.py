"""Budgets: periods, amounts of money, and which runs may start."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timewright.core.budgets.budgets import (
    ApplicableBudgets,
    Budget,
    BudgetUsage,
    ProviderWindow,
    Unit,
    check_period,
    period_at,
)
from timewright.core.budgets.costs import (
    Cost,
    add_costs,
    format_money,
    parse_money,
    parse_tokens,
    to_millionths,
)
from timewright.core.budgets.spending import plan_spending
from timewright.core.input.decode import decode
from timewright.core.moments import DAY, HOUR
from timewright.core.run.leasing import WaitReason
from timewright.core.run.run import Run, RunState
from timewright.errors import TimewrightError

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
# Places whose clocks change at midnight, by half an hour, over midnight, by a whole day, and never.
ZONES = [
    "America/Havana",
    "America/Moncton",
    "America/Sao_Paulo",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Pacific/Apia",
    "UTC",
]
moments = st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1)).map(lambda m: m.replace(tzinfo=UTC))


def run(n: int = 0) -> Run:
    return Run(id=f"run_{n}", planned_at=NOON, fire_at=NOON, state=RunState.READY, created_at=NOON)


def tokens(limit: int, name: str = "tokens") -> Budget:
    return Budget(name=name, namespace="default", unit=Unit.TOKENS, limit=limit)


@pytest.mark.parametrize(
    ("period", "zone", "at", "start", "end"),
    [
        ("day", "UTC", "2026-03-10T12:00", "2026-03-10T00:00", "2026-03-11T00:00"),
        ("week", "UTC", "2026-03-10T12:00", "2026-03-09T00:00", "2026-03-16T00:00"),
        ("month", "UTC", "2026-12-31T23:59", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("hour", "Asia/Kathmandu", "2026-03-10T12:00", "2026-03-10T11:15", "2026-03-10T12:15"),
        # The days on which Berlin's clocks change have 23 and 25 hours.
        ("day", "Europe/Berlin", "2026-03-29T12:00", "2026-03-28T23:00", "2026-03-29T22:00"),
        ("day", "Europe/Berlin", "2026-10-25T12:00", "2026-10-24T22:00", "2026-10-25T23:00"),
        # In Beirut the day begins at one, when the clocks jump over midnight.
        ("day", "Asia/Beirut", "2026-03-29T01:00", "2026-03-28T22:00", "2026-03-29T21:00"),
        # Samoa had no 30 December 2011.
        ("day", "Pacific/Apia", "2011-12-30T09:59", "2011-12-29T10:00", "2011-12-30T10:00"),
        ("day", "Pacific/Apia", "2011-12-30T10:00", "2011-12-30T10:00", "2011-12-31T10:00"),
        ("15m", "Europe/Berlin", "2026-03-10T12:14", "2026-03-10T12:00", "2026-03-10T12:15"),
        ("7d", "UTC", "1970-01-08T00:00", "1970-01-08T00:00", "1970-01-15T00:00"),
    ],
)
def test_a_period_is_what_the_calendar_says(period: str, zone: str, at: str, start: str, end: str) -> None:
    found = period_at(period, zone, datetime.fromisoformat(f"{at}Z"))
    assert (found.start, found.end) == (
        datetime.fromisoformat(f"{start}Z"),
        datetime.fromisoformat(f"{end}Z"),
    )


@given(moment=moments, zone=st.sampled_from(ZONES), period=st.sampled_from(["day", "week", "month", "15m"]))
def test_periods_follow_each_other_without_a_gap(moment: datetime, zone: str, period: str) -> None:
    found = period_at(period, zone, moment)
    assert found.start <= moment < found.end
    assert period_at(period, zone, found.end).start == found.end
    assert period_at(period, zone, found.start) == found


@given(moment=moments, zone=st.sampled_from(ZONES))
def test_an_hour_holds_its_instant_and_ends_within_an_hour(moment: datetime, zone: str) -> None:
    found = period_at("hour", zone, moment)
    assert found.start <= moment < found.end == found.start + HOUR


@pytest.mark.parametrize("text", ["", "year", "59s", "2000d", "0", "-1h", "day day"])
def test_an_invalid_period_is_refused_with_the_valid_ones(text: str) -> None:
    with pytest.raises(TimewrightError) as refusal:
        check_period(text)
    assert refusal.value.rule
    assert refusal.value.field == "period"


def test_periods_have_one_canonical_form() -> None:
    assert [check_period(text) for text in ("DAY", " week", "PT15M", "90m")] == [
        "day",
        "week",
        "15m",
        "1h30m",
    ]


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("12.5", 12_500_000), ("0.000001", 1), ("999999999", 999_999_999_000_000)]
)
def test_money_is_counted_without_loss(text: str, count: int) -> None:
    assert to_millionths(text) == count
    assert to_millionths(format_money(count)) == count


@given(st.integers(0, 10**15 - 1))
def test_a_formatted_amount_is_parsed_as_the_same_amount(count: int) -> None:
    assert to_millionths(format_money(count)) == count
    assert len(format_money(count).partition(".")[2]) >= 2


def test_an_amount_may_be_written_as_a_number() -> None:
    assert decode({"money": 0.05, "tokens": 3}, Cost) == Cost(money="0.05", tokens=3)
    assert decode({"money": 7}, Cost) == Cost(money="7")
    for odd in (-1, "1e3", "1,5", True, float("nan"), 1e-9, "0.0000001"):
        with pytest.raises(TimewrightError) as refusal:
            decode({"money": odd}, Cost)
        assert refusal.value.field == "money"
    with pytest.raises(TimewrightError):
        decode({"currency": "EUR"}, Cost)


def test_costs_of_one_attempt_add_up() -> None:
    assert add_costs(None, Cost(tokens=1)) == Cost(tokens=1)
    both = add_costs(Cost(tokens=1, money="0.10"), Cost(money="0.2", currency="EUR"))
    assert both == Cost(tokens=1, money="0.30", currency="EUR")
    assert (parse_tokens("12"), parse_tokens(-1), parse_tokens(1.5), parse_tokens(None)) == (
        12,
        None,
        None,
        None,
    )
    assert (parse_money(" 1.5 "), parse_money("x"), parse_money([])) == ("1.50", None, None)


def test_money_in_another_currency_is_not_counted() -> None:
    euros = Budget(name="e", namespace="default", unit=Unit.MONEY, limit=10, currency="EUR")
    assert euros.amount_of(Cost(money="1", currency="USD")) is None
    assert euros.amount_of(Cost(money="1")) == euros.amount_of(Cost(money="1", currency="EUR")) == 1_000_000


def test_a_run_waits_for_the_latest_of_its_deferrals() -> None:
    window = ProviderWindow(until=NOON + 2 * DAY, reason="quota")
    short = Budget(name="short", namespace="default", unit=Unit.REQUESTS, limit=0, period="15m")
    load = ApplicableBudgets(budgets=(short, tokens(0)), provider="openai", window=window)
    (one,) = plan_spending([run()], applicable={"run_0": load}, accounts={}, now=NOON).deferred
    assert (one.wait_reason, one.name, one.until) == (WaitReason.PROVIDER, "openai", NOON + 2 * DAY)
    (two,) = plan_spending([run()], applicable={"run_0": load}, accounts={}, now=NOON + 3 * DAY).deferred
    assert (two.wait_reason, two.name) == (WaitReason.BUDGET, "tokens")


def test_an_attempt_that_never_fits_says_so() -> None:
    load = ApplicableBudgets(budgets=(tokens(10),), estimate=Cost(tokens=11))
    (one,) = plan_spending([run()], applicable={"run_0": load}, accounts={}, now=NOON).deferred
    assert "expected to take 11 tokens, of 10 tokens" in one.reason


@settings(max_examples=60)
@given(
    limit=st.integers(0, 300),
    estimates=st.lists(st.integers(0, 60), max_size=25),
    actual=st.lists(st.integers(0, 60), min_size=25, max_size=25),
    at_once=st.integers(1, 6),
)
def test_charges_exceed_the_limit_only_by_costs_beyond_the_estimates_of_leased_runs(
    limit: int, estimates: list[int], actual: list[int], at_once: int
) -> None:
    """Lease and settle runs in batches; each may cost something other than its estimate."""
    one, account, beyond = tokens(limit), BudgetUsage(), 0
    waiting = [(run(n), estimate, actual[n]) for n, estimate in enumerate(estimates)]
    place = (one.account_name, one.period_at(NOON).start)
    while waiting:
        wave, waiting = waiting[:at_once], waiting[at_once:]
        loads = {
            r.id: ApplicableBudgets(budgets=(one,), estimate=Cost(tokens=estimate)) for r, estimate, _ in wave
        }
        found = plan_spending([r for r, *_ in wave], applicable=loads, accounts={place: account}, now=NOON)
        held = sum(charge.held for charge in found.charges)
        assert account.used + held <= limit or not found.granted
        started = {r.id for r in found.granted}
        costs = [(estimate, cost) for r, estimate, cost in wave if r.id in started]
        beyond += sum(max(cost - estimate, 0) for estimate, cost in costs)
        account = BudgetUsage(account.used + sum(cost for _, cost in costs))
        assert account.used <= limit + beyond
