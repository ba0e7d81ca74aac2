"""Analyses: stored completely, bounded, listed newest first, and separate per namespace."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.conformance.support.concurrency import all_at_once
from tests.operations.harness import OperationsHarness
from timewright.core.moments import DAY
from timewright.errors import InvalidInput, NotFound, OverQuota, TimewrightError
from timewright.operations import operations
from timewright.operations.access.authentication import Caller, context_for
from timewright.ports.rows import ObjectPrune


def submit(harness: OperationsHarness, number: int = 0, **fields: object) -> dict[str, object]:
    asked = {"schedule": "orders-poll", "advisor": "ada", "reasoning": f"look {number}", **fields}
    return harness.ask("analysis submit", asked)


def test_a_submitted_analysis_is_shown_completely(harness: OperationsHarness) -> None:
    made = submit(
        harness,
        tools=[{"tool": "propose_interval", "arguments": {"interval_seconds": 60}, "refused": "too often"}],
        proposals=["every 60 s"],
        confidence="high",
        tokens=120,
        cost=0.5,
        took="2s",
        warnings=["slow"],
        model="m-1",
        look_again_in="1h",
    )
    assert harness.ask("analysis get", analysis=made["id"]) == made
    assert made["look_again_at"] == "2026-03-10T13:00:00Z"
    newest = harness.ask("analysis list")["analyses"][0]
    assert (newest["id"], newest["tools"]) == (made["id"], ["propose_interval"])


def test_the_default_next_analysis_follows_the_interval_within_bounds(harness: OperationsHarness) -> None:
    assert submit(harness)["look_again_at"] == "2026-03-10T12:05:00Z"
    harness.ask("schedule create", name="weekly", every="7d", call="x", adaptive=True)
    assert submit(harness, schedule="weekly")["look_again_at"] == "2026-03-11T12:00:00Z"
    for odd in ("1s", "4m", "25h"):
        with pytest.raises(InvalidInput) as error:
            submit(harness, look_again_in=odd)
        assert error.value.field == "look_again_in"


def test_the_last_twenty_analyses_of_a_schedule_are_kept_within_the_history(
    harness: OperationsHarness,
) -> None:
    first = submit(harness, 0)
    for number in range(1, 25):
        submit(harness, number)
    rows = harness.ask("analysis list", schedule="orders-poll", limit=1000)["analyses"]
    assert [row["reasoning"] for row in rows] == [f"look {number}" for number in range(24, 4, -1)]
    assert harness.ask("analysis list", limit=1000)["analyses"] == rows
    with pytest.raises(NotFound):
        harness.ask("analysis get", analysis=first["id"])
    harness.sleep(days=31)
    submit(harness, 99)
    assert [row["reasoning"] for row in harness.ask("analysis list", limit=1000)["analyses"]] == ["look 99"]


@pytest.mark.parametrize("schedule", ["", "orders-poll"])
def test_a_list_is_paged_newest_first(harness: OperationsHarness, schedule: str) -> None:
    for number in range(7):
        submit(harness, number)
    seen: list[str] = []
    cursor = ""
    while True:
        page = harness.ask("analysis list", schedule=schedule, limit=3, cursor=cursor)
        seen += [row["reasoning"] for row in page["analyses"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert seen == [*(f"look {number}" for number in range(6, -1, -1)), "no response to read yet"]


def test_monthly_cost_starts_at_midnight_utc(harness: OperationsHarness) -> None:
    for _ in range(3):
        submit(harness, tokens=100, cost=0.1)
    spent = harness.ask("analysis list")["spent"]
    assert (spent["month"], spent["tokens"], spent["analyses"]) == ("2026-03", 300, 4)
    assert harness.ask("analysis due")["tokens_left"] == 999_700
    harness.sleep(days=21, hours=12)
    assert harness.ask("analysis list")["spent"]["month"] == "2026-04"
    assert harness.ask("analysis due")["tokens_left"] == 1_000_000


def test_an_analysis_that_is_too_large_is_rejected_and_not_stored(harness: OperationsHarness) -> None:
    before = harness.ask("analysis list")
    big = [{"tool": "x", "result": "y" * 10_000}] * 7
    for fields in ({"tools": big}, {"reasoning": "x" * 4001}, {"tools": [{"tool": "x"}] * 33}, {"cost": -1}):
        with pytest.raises(TimewrightError) as error:
            submit(harness, **fields)
        assert (error.value.field or "").partition("[")[0] in fields
    assert harness.ask("analysis list") == before


def test_secrets_in_texts_are_redacted(harness: OperationsHarness) -> None:
    made = submit(harness, reasoning="it said password=hunter2", warnings=["token=abc"])
    assert made["reasoning"] == "it said password=…"
    assert made["warnings"] == ["token=…"]


def test_analyses_of_another_namespace_are_not_found(
    harness: OperationsHarness,
) -> None:
    made = submit(harness)
    other = harness.in_namespace()
    assert other.ask("analysis list")["analyses"] == []
    with pytest.raises(NotFound):
        other.ask("analysis get", analysis=made["id"])


def agent(harness: OperationsHarness) -> OperationsHarness:
    """Return a harness whose caller is an agent with the scopes read and hint."""
    limited = harness.in_namespace("default")
    caller = Caller(actor="bot", origin="agent", scopes=frozenset({"read", "hint"}))
    limited.context = context_for(limited.context, caller, "default")
    return limited


def test_an_agents_hint_stays_within_the_bounds_of_its_namespace(harness: OperationsHarness) -> None:
    terms = {"agent_shortest_interval": "1m", "agent_longest_hint": "2h"}
    harness.ask("namespace create", {"name": "default", **terms})
    for interval in ("30s", "3h"):
        with pytest.raises(OverQuota) as error:
            agent(harness).ask("hint interval", schedule="orders-poll", interval=interval)
        assert error.value.field == "hint.interval"
        assert error.value.rule == "1m to 2h in namespace default"
    agent(harness).ask("hint interval", schedule="orders-poll", interval="1m")
    harness.ask("hint interval", schedule="orders-poll", interval="30s")


def test_both_stores_page_and_delete_objects_the_same_way(
    harness: OperationsHarness, empty_postgres_harness: OperationsHarness
) -> None:
    """The store queries behind the list, with names that increase over time."""
    for one in (harness, empty_postgres_harness):
        own = one.in_namespace("verbs")
        own.ask("schedule create", name="poll", every="5m", call="x", adaptive=True)
        for number in range(5):
            own.ask("analysis submit", schedule="poll", advisor="ada", reasoning=f"look {number}", tokens=1)
        page = own.ask("analysis list", limit=2)
        assert [row["reasoning"] for row in page["analyses"]] == ["look 4", "look 3"]
        rest = own.ask("analysis list", limit=3, cursor=page["cursor"])
        assert [row["reasoning"] for row in rest["analyses"]] == ["look 2", "look 1", "look 0"]
        assert (rest["cursor"], rest["spent"]["tokens"]) == ("", 5)
        assert forgotten(own, older_than=own.now) == 0
        assert forgotten(own, older_than=own.now + DAY, limit=4) == 4
        assert [row["reasoning"] for row in own.ask("analysis list")["analyses"]] == ["look 4"]


def test_costs_of_concurrent_planners_are_summed_up(
    harness: OperationsHarness, empty_postgres_harness: OperationsHarness
) -> None:
    for one in (harness, empty_postgres_harness):
        own = one.in_namespace("several")
        for number in range(4):
            own.ask("schedule create", name=f"poll-{number}", every="5m", call=f"x{number}", adaptive=True)
        asked = {"advisor": "ada", "reasoning": "seen", "tokens": 10}
        wishes = [{"schedule": f"poll-{n}", **asked} for n in range(4)]
        all_at_once([partial(own.ask, "analysis submit", wish) for wish in wishes for _ in range(3)])
        assert own.ask("analysis list")["spent"]["tokens"] == 120


def forgotten(harness: OperationsHarness, **which: Any) -> int:
    """Return how many analyses are deleted by pruning before an instant."""
    namespace = harness.context.namespace
    request = ObjectPrune(kind="analysis", namespace=namespace, **which)
    return harness.store.write(lambda tx: tx.prune(request))


def test_submitting_an_analysis_needs_the_hint_scope(harness: OperationsHarness) -> None:
    reader = Caller(actor="bot", origin="agent", scopes=frozenset({"read"}))
    with pytest.raises(TimewrightError):
        operations["analysis submit"](
            context_for(harness.context, reader, "default"),
            {"schedule": "orders-poll", "advisor": "x", "reasoning": "y"},
        )
