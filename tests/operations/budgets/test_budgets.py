"""Budgets and providers: set, show, use, reject; and explanations of waiting runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.harness import OperationsHarness
from timewright.errors import NotAllowed, NotFound, TimewrightError


@pytest.fixture
def harness() -> OperationsHarness:
    return OperationsHarness()


def make(harness: OperationsHarness, name: str = "job", **fields: Any) -> None:
    harness.ask("schedule create", name=name, manual=True, note="hello", overlap="allow", **fields)


def run(harness: OperationsHarness, name: str = "job") -> str:
    """Start a run manually and let the bench lease it."""
    found = harness.ask("schedule run", schedule=name)["run"]["id"]
    harness.bench.tick()
    return str(found)


def test_a_budget_is_set_and_shown_with_what_is_left(harness: OperationsHarness) -> None:
    harness.ask("budget set", budget="day", unit="requests", limit=3, zone="Europe/Berlin")
    make(harness, budgets=["day"])
    run(harness)
    shown = harness.ask("budget get", budget="day")
    assert shown["named_by"] == ["job"]
    assert (shown["used"], shown["held"], shown["left"], shown["limit"]) == ("1", "0", "2", "3")
    assert (shown["since"], shown["until"]) == ("2026-03-09T23:00:00Z", "2026-03-10T23:00:00Z")
    assert shown["revision"] == 1
    again = harness.ask("budget set", budget="day", unit="requests", limit="5", zone="Europe/Berlin")
    assert (again["revision"], again["left"]) == (2, "4")
    assert [row["budget"] for row in harness.ask("budget list")["budgets"]] == ["day"]


def test_money_is_decimal_text_outside(harness: OperationsHarness) -> None:
    row = harness.ask("budget set", budget="cash", unit="money", limit=12.5, currency="EUR", period="month")
    assert (row["limit"], row["left"], row["currency"]) == ("12.50", "12.50", "EUR")
    harness.ask("schedule create", name="ask", manual=True, handoff=True, queue="model", budgets=["cash"])
    harness.ask("schedule run", schedule="ask")
    (lease,) = harness.ask("queue lease", queue="model")["leases"]
    cost = {"tokens": 1200, "money": "0.0215", "currency": "EUR"}
    harness.ask("queue complete", run=lease["run"], fence=1, cost=cost)
    usage = harness.ask("budget usage", budget="cash")
    assert usage["periods"] == [{"since": "2026-03-01T00:00:00Z", "used": "0.0215", "held": "0.00"}]
    (attempt,) = harness.ask("run get", run=lease["run"])["attempts"]
    assert attempt["cost"] == cost
    (charged,) = harness.ask("run get", run=lease["run"])["charges"]
    assert charged == {"budget": "cash", "fence": 1, "used": "0.0215 EUR", "held": ""}


def test_an_external_report_may_contain_the_cost(harness: OperationsHarness) -> None:
    harness.ask("budget set", budget="day", unit="tokens", limit=100, queue="model")
    harness.ask("queue add", queue="model", payload=1)
    (lease,) = harness.ask("queue lease", queue="model")["leases"]
    outcome = {"kind": "failed", "error": "no", "cost": {"tokens": 70}}
    harness.ask("run report", run=lease["run"], fence=1, outcome=outcome)
    assert harness.ask("budget get", budget="day")["used"] == "70"


def test_a_run_that_waits_for_a_budget_is_explained_everywhere(harness: OperationsHarness) -> None:
    harness.ask("budget set", budget="day", unit="requests", limit=1)
    harness.ask("queue policy set", queue="model", max_running=5)
    draft = {"name": "ask", "manual": True, "handoff": True, "queue": "model", "budgets": ["day"]}
    harness.ask("schedule create", draft, overlap="allow")
    waits = [harness.ask("schedule run", schedule="ask")["run"]["id"] for _ in range(2)][1]
    assert len(harness.ask("queue lease", queue="model", limit=5)["leases"]) == 1
    row = harness.ask("run get", run=waits)["run"]
    assert (row["state"], row["fire_at"], row["attempts"]) == ("ready", "2026-03-11T00:00:00Z", 0)
    assert row["reason"].startswith("budget: day: 1 requests used or held of 1 requests")
    (waiting,) = [
        one for one in harness.ask("queue plan", queue="model")["waiting"] if one["run_id"] == waits
    ]
    assert (waiting["reason"], waiting["blocked_by"], waiting["until"]) == (
        "budget",
        "day",
        "2026-03-11T00:00:00Z",
    )
    answer = harness.ask("run explain", run=waits)
    assert "it waits until 2026-03-11T00:00:00Z for budget day" in " ".join(answer["because"])
    assert answer["remedies"][0]["operation"] == "budget get"
    assert harness.ask("budget get", budget="day")["waiting"] == 1


def test_a_future_occurrence_is_explained_by_its_used_up_budget(harness: OperationsHarness) -> None:
    harness.ask("budget set", budget="day", unit="requests", limit=1)
    harness.ask("schedule create", name="job", every="1h", note="hello", budgets=["day"])
    harness.bench.advance(hours=1)
    before = " ".join(harness.ask("schedule explain", schedule="job", last=True)["because"])
    coming = " ".join(harness.ask("schedule explain", schedule="job")["because"])
    assert "budget day" not in before
    assert "budget day is used up until 2026-03-11T00:00:00Z: 1 requests used or held" in coming
    tomorrow = harness.ask("schedule explain", schedule="job", at="2026-03-11T01:00:00Z")
    assert "budget day" not in " ".join(tomorrow["because"])


def test_a_provider_is_closed_shown_and_opened(harness: OperationsHarness) -> None:
    make(harness, provider="openai")
    row = harness.ask("provider close", provider="openai", until="2026-03-10T18:00:00Z", reason="quota")
    assert (row["closed_until"], row["why"], row["closed_by"]) == ("2026-03-10T18:00:00Z", "quota", "ada")
    waits = run(harness)
    (shown,) = harness.ask("provider list")["providers"]
    assert shown["waiting"] == 1
    answer = harness.ask("run explain", run=waits)
    assert "for provider openai: closed until 2026-03-10T18:00:00Z: quota" in " ".join(answer["because"])
    harness.ask("schedule create", name="hourly", every="1h", note="hello", provider="openai")
    coming = harness.ask("schedule explain", schedule="hourly")
    assert "provider openai is closed until 2026-03-10T18:00:00Z" in " ".join(coming["because"])
    assert answer["remedies"][0]["command"] == "timewright provider open openai"
    opened = harness.ask("provider open", provider="openai")
    assert (opened["closed_until"], opened["waiting"], opened["revision"]) == (None, 0, 2)
    harness.bench.tick()
    assert harness.ask("run get", run=waits)["run"]["state"] == "succeeded"


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
def test_an_invalid_budget_is_rejected_with_its_field(
    harness: OperationsHarness, field: str, payload: dict[str, Any]
) -> None:
    with pytest.raises(TimewrightError) as error:
        harness.ask("budget set", payload, budget="odd")
    assert error.value.field == field
    assert error.value.fix
    assert harness.ask("budget list")["budgets"] == []


def test_unknown_names_and_names_in_use_are_rejected(harness: OperationsHarness) -> None:
    harness.ask("budget set", budget="inference", unit="tokens", limit=10)
    with pytest.raises(NotFound) as error:
        make(harness, budgets=["infrence"])
    assert error.value.field == "budgets"
    make(harness, budgets=["inference"])
    with pytest.raises(NotAllowed) as stays:
        harness.ask("budget delete", budget="inference")
    assert "job" in stays.value.message
    with pytest.raises(NotFound) as near:
        harness.ask("budget get", budget="infrence")
    assert "inference" in (near.value.fix or "")
    with pytest.raises(NotFound):
        harness.ask("provider open", provider="nobody")
    with pytest.raises(TimewrightError) as past:
        harness.ask("provider close", provider="openai", until="2026-03-10T12:00:00Z")
    assert past.value.field == "until"
    harness.ask("schedule update", schedule="job", budgets=[])
    assert harness.ask("budget delete", budget="inference") == {"budget": "inference"}


def test_a_budget_belongs_to_one_namespace(harness: OperationsHarness) -> None:
    harness.ask("budget set", budget="day", unit="requests", limit=1)
    harness.ask("provider close", provider="openai", until="2026-03-10T18:00:00Z")
    other = harness.in_namespace()
    assert other.ask("budget list")["budgets"] == []
    assert other.ask("provider list")["providers"] == []
    with pytest.raises(NotFound):
        other.ask("budget usage", budget="day")
