"""Budgets and providers as they are asked for: set, shown, used, refused; and the words for who waits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.house import House
from timewright.errors import NotAllowed, NotFound, TimewrightError


@pytest.fixture
def house() -> House:
    return House()


def make(house: House, name: str = "job", **fields: Any) -> None:
    house.ask("schedule create", name=name, manual=True, note="hello", overlap="allow", **fields)


def run(house: House, name: str = "job") -> str:
    """Ask for a run; the bench leases what may start."""
    found = house.ask("schedule run", schedule=name)["run"]["id"]
    house.bench.tick()
    return str(found)


def test_a_budget_is_set_and_shown_with_what_is_left(house: House) -> None:
    house.ask("budget set", budget="day", unit="requests", limit=3, zone="Europe/Berlin")
    make(house, budgets=["day"])
    run(house)
    shown = house.ask("budget get", budget="day")
    assert shown["named_by"] == ["job"]
    assert (shown["used"], shown["held"], shown["left"], shown["limit"]) == ("1", "0", "2", "3")
    assert (shown["since"], shown["until"]) == ("2026-03-09T23:00:00Z", "2026-03-10T23:00:00Z")
    assert shown["revision"] == 1
    again = house.ask("budget set", budget="day", unit="requests", limit="5", zone="Europe/Berlin")
    assert (again["revision"], again["left"]) == (2, "4")
    assert [row["budget"] for row in house.ask("budget list")["budgets"]] == ["day"]


def test_money_is_decimal_text_outside(house: House) -> None:
    row = house.ask("budget set", budget="cash", unit="money", limit=12.5, currency="EUR", period="month")
    assert (row["limit"], row["left"], row["currency"]) == ("12.50", "12.50", "EUR")
    house.ask("schedule create", name="ask", manual=True, handoff=True, queue="model", budgets=["cash"])
    house.ask("schedule run", schedule="ask")
    (lease,) = house.ask("queue lease", queue="model")["leases"]
    cost = {"tokens": 1200, "money": "0.0215", "currency": "EUR"}
    house.ask("queue complete", run=lease["run"], fence=1, cost=cost)
    usage = house.ask("budget usage", budget="cash")
    assert usage["periods"] == [{"since": "2026-03-01T00:00:00Z", "used": "0.0215", "held": "0.00"}]
    (attempt,) = house.ask("run get", run=lease["run"])["attempts"]
    assert attempt["cost"] == cost
    (charged,) = house.ask("run get", run=lease["run"])["charges"]
    assert charged == {"budget": "cash", "fence": 1, "used": "0.0215 EUR", "held": ""}


def test_a_report_from_outside_may_tell_the_cost(house: House) -> None:
    house.ask("budget set", budget="day", unit="tokens", limit=100, queue="model")
    house.ask("queue add", queue="model", payload=1)
    (lease,) = house.ask("queue lease", queue="model")["leases"]
    outcome = {"kind": "failed", "error": "no", "cost": {"tokens": 70}}
    house.ask("run report", run=lease["run"], fence=1, outcome=outcome)
    assert house.ask("budget get", budget="day")["used"] == "70"


def test_whoever_waits_for_a_budget_says_so_wherever_it_is_asked(house: House) -> None:
    house.ask("budget set", budget="day", unit="requests", limit=1)
    house.ask("queue policy set", queue="model", max_concurrent=5)
    draft = {"name": "ask", "manual": True, "handoff": True, "queue": "model", "budgets": ["day"]}
    house.ask("schedule create", draft, overlap="allow")
    waits = [house.ask("schedule run", schedule="ask")["run"]["id"] for _ in range(2)][1]
    assert len(house.ask("queue lease", queue="model", limit=5)["leases"]) == 1
    row = house.ask("run get", run=waits)["run"]
    assert (row["state"], row["fire_at"], row["attempts"]) == ("ready", "2026-03-11T00:00:00Z", 0)
    assert row["reason"].startswith("budget: day: 1 requests used or held of 1 requests")
    (waiting,) = [one for one in house.ask("queue plan", queue="model")["waiting"] if one["run_id"] == waits]
    assert (waiting["reason"], waiting["gate"], waiting["until"]) == ("budget", "day", "2026-03-11T00:00:00Z")
    told = house.ask("run explain", run=waits)
    assert "it waits until 2026-03-11T00:00:00Z for budget day" in " ".join(told["because"])
    assert told["remedies"][0]["operation"] == "budget get"
    assert house.ask("budget get", budget="day")["waiting"] == 1


def test_what_is_to_come_says_that_a_budget_leaves_nothing_for_it(house: House) -> None:
    house.ask("budget set", budget="day", unit="requests", limit=1)
    house.ask("schedule create", name="job", every="1h", note="hello", budgets=["day"])
    house.bench.advance(hours=1)
    before = " ".join(house.ask("schedule explain", schedule="job", last=True)["because"])
    coming = " ".join(house.ask("schedule explain", schedule="job")["because"])
    assert "budget day" not in before
    assert "budget day leaves nothing until 2026-03-11T00:00:00Z: 1 requests used or held" in coming
    tomorrow = house.ask("schedule explain", schedule="job", at="2026-03-11T01:00:00Z")
    assert "budget day" not in " ".join(tomorrow["because"])


def test_a_provider_is_closed_shown_and_opened(house: House) -> None:
    make(house, provider="openai")
    row = house.ask("provider close", provider="openai", until="2026-03-10T18:00:00Z", reason="quota")
    assert (row["closed_until"], row["why"], row["closed_by"]) == ("2026-03-10T18:00:00Z", "quota", "ada")
    waits = run(house)
    (shown,) = house.ask("provider list")["providers"]
    assert shown["waiting"] == 1
    told = house.ask("run explain", run=waits)
    assert "for provider openai: closed until 2026-03-10T18:00:00Z: quota" in " ".join(told["because"])
    coming = house.ask("schedule explain", schedule="job")
    assert "provider openai is closed until 2026-03-10T18:00:00Z" in " ".join(coming["because"])
    assert told["remedies"][0]["command"] == "timewright provider open openai"
    opened = house.ask("provider open", provider="openai")
    assert (opened["closed_until"], opened["waiting"], opened["revision"]) == (None, 0, 2)
    house.bench.tick()
    assert house.ask("run get", run=waits)["run"]["state"] == "succeeded"


@pytest.mark.parametrize(
    ("field", "payload"),
    [
        ("limit", {"unit": "requests", "limit": "1.5"}),
        ("limit", {"unit": "requests", "limit": -1}),
        ("limit", {"unit": "money", "limit": "9999999999"}),
        ("currency", {"unit": "tokens", "limit": 1, "currency": "EUR"}),
        ("period", {"unit": "tokens", "limit": 1, "period": "fortnight"}),
        ("zone", {"unit": "tokens", "limit": 1, "zone": "Berlin"}),
        ("unit", {"unit": "smiles", "limit": 1}),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(house: House, field: str, payload: dict[str, Any]) -> None:
    with pytest.raises(TimewrightError) as refusal:
        house.ask("budget set", payload, budget="odd")
    assert refusal.value.field == field
    assert refusal.value.fix
    assert house.ask("budget list")["budgets"] == []


def test_names_that_are_not_there_or_in_use_are_refused(house: House) -> None:
    house.ask("budget set", budget="inference", unit="tokens", limit=10)
    with pytest.raises(NotFound) as refusal:
        make(house, budgets=["infrence"])
    assert refusal.value.field == "budgets"
    make(house, budgets=["inference"])
    with pytest.raises(NotAllowed) as stays:
        house.ask("budget delete", budget="inference")
    assert "job" in stays.value.message
    with pytest.raises(NotFound) as near:
        house.ask("budget get", budget="infrence")
    assert "inference" in (near.value.fix or "")
    with pytest.raises(NotFound):
        house.ask("provider open", provider="nobody")
    with pytest.raises(TimewrightError) as past:
        house.ask("provider close", provider="openai", until="2026-03-10T12:00:00Z")
    assert past.value.field == "until"
    house.ask("schedule update", schedule="job", budgets=[])
    assert house.ask("budget delete", budget="inference") == {"budget": "inference"}


def test_a_budget_of_one_namespace_is_nobody_elses(house: House) -> None:
    house.ask("budget set", budget="day", unit="requests", limit=1)
    house.ask("provider close", provider="openai", until="2026-03-10T18:00:00Z")
    other = house.elsewhere()
    assert other.ask("budget list")["budgets"] == []
    assert other.ask("provider list")["providers"] == []
    with pytest.raises(NotFound):
        other.ask("budget usage", budget="day")
