"""Analyses: kept whole, bounded, listed newest first, and never of another namespace."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.conformance.together import all_at_once
from tests.operations.house import House
from timewright.core.moments import DAY
from timewright.errors import InvalidInput, NotFound, OverQuota, TimewrightError
from timewright.operations import operations
from timewright.operations.access import Caller, acting


def submit(house: House, number: int = 0, **fields: object) -> dict[str, object]:
    asked = {"schedule": "orders-poll", "advisor": "ada", "reasoning": f"look {number}", **fields}
    return house.ask("analysis submit", asked)


def test_what_was_submitted_is_shown_whole(house: House) -> None:
    made = submit(
        house,
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
    assert house.ask("analysis get", analysis=made["id"]) == made
    assert made["look_again_at"] == "2026-03-10T13:00:00Z"
    newest = house.ask("analysis list")["analyses"][0]
    assert (newest["id"], newest["tools"]) == (made["id"], ["propose_interval"])


def test_without_a_wish_the_next_look_is_as_often_as_it_runs_within_bounds(house: House) -> None:
    assert submit(house)["look_again_at"] == "2026-03-10T12:05:00Z"
    house.ask("schedule create", name="weekly", every="7d", call="x", adaptive=True)
    assert submit(house, schedule="weekly")["look_again_at"] == "2026-03-11T12:00:00Z"
    for odd in ("1s", "4m", "25h"):
        with pytest.raises(InvalidInput) as refusal:
            submit(house, look_again_in=odd)
        assert refusal.value.field == "look_again_in"


def test_of_each_schedule_the_last_twenty_are_kept_and_nothing_older_than_history(house: House) -> None:
    first = submit(house, 0)
    for number in range(1, 25):
        submit(house, number)
    rows = house.ask("analysis list", schedule="orders-poll", limit=1000)["analyses"]
    assert [row["reasoning"] for row in rows] == [f"look {number}" for number in range(24, 4, -1)]
    assert house.ask("analysis list", limit=1000)["analyses"] == rows
    with pytest.raises(NotFound):
        house.ask("analysis get", analysis=first["id"])
    house.sleep(days=31)
    submit(house, 99)
    assert [row["reasoning"] for row in house.ask("analysis list", limit=1000)["analyses"]] == ["look 99"]


@pytest.mark.parametrize("schedule", ["", "orders-poll"])
def test_a_list_is_paged_newest_first(house: House, schedule: str) -> None:
    for number in range(7):
        submit(house, number)
    seen: list[str] = []
    cursor = ""
    while True:
        page = house.ask("analysis list", schedule=schedule, limit=3, cursor=cursor)
        seen += [row["reasoning"] for row in page["analyses"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert seen == [*(f"look {number}" for number in range(6, -1, -1)), "no response to read yet"]


def test_a_month_is_added_up_and_begins_at_midnight_utc(house: House) -> None:
    for _ in range(3):
        submit(house, tokens=100, cost=0.1)
    spent = house.ask("analysis list")["spent"]
    assert (spent["month"], spent["tokens"], spent["analyses"]) == ("2026-03", 300, 4)
    assert house.ask("analysis due")["tokens_left"] == 999_700
    house.sleep(days=21, hours=12)
    assert house.ask("analysis list")["spent"]["month"] == "2026-04"
    assert house.ask("analysis due")["tokens_left"] == 1_000_000


def test_an_analysis_that_is_too_large_is_refused_and_nothing_is_kept(house: House) -> None:
    before = house.ask("analysis list")
    big = [{"tool": "x", "result": "y" * 10_000}] * 7
    for fields in ({"tools": big}, {"reasoning": "x" * 4001}, {"tools": [{"tool": "x"}] * 33}, {"cost": -1}):
        with pytest.raises(TimewrightError) as refusal:
            submit(house, **fields)
        assert (refusal.value.field or "").partition("[")[0] in fields
    assert house.ask("analysis list") == before


def test_what_a_text_gives_away_is_hidden(house: House) -> None:
    made = submit(house, reasoning="it said password=hunter2", warnings=["token=abc"])
    assert made["reasoning"] == "it said password=…"
    assert made["warnings"] == ["token=…"]


def test_analyses_of_another_namespace_are_as_unknown_as_those_that_never_were(house: House) -> None:
    made = submit(house)
    other = house.elsewhere()
    assert other.ask("analysis list")["analyses"] == []
    with pytest.raises(NotFound):
        other.ask("analysis get", analysis=made["id"])


def agent(house: House) -> House:
    """The same house, asked by an agent that may read and wish."""
    limited = house.elsewhere("default")
    caller = Caller(actor="bot", origin="agent", scopes=frozenset({"read", "hint"}))
    limited.context = acting(limited.context, caller, "default")
    return limited


def test_an_agents_wish_stays_between_the_bounds_of_its_namespace(house: House) -> None:
    terms = {"agent_shortest_interval": "1m", "agent_longest_hint": "2h"}
    house.ask("namespace create", {"name": "default", **terms})
    for interval in ("30s", "3h"):
        with pytest.raises(OverQuota) as refusal:
            agent(house).ask("hint interval", schedule="orders-poll", interval=interval)
        assert refusal.value.field == "hint.interval"
        assert refusal.value.rule == "1m to 2h in namespace default"
    agent(house).ask("hint interval", schedule="orders-poll", interval="1m")
    house.ask("hint interval", schedule="orders-poll", interval="30s")


def test_both_stores_page_and_forget_objects_alike(house: House, postgres_street: House) -> None:
    """The verbs behind the list, where names rise with time."""
    for one in (house, postgres_street):
        own = one.elsewhere("verbs")
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


def test_what_several_planners_spend_at_once_is_added_up(house: House, postgres_street: House) -> None:
    for one in (house, postgres_street):
        own = one.elsewhere("several")
        for number in range(4):
            own.ask("schedule create", name=f"poll-{number}", every="5m", call=f"x{number}", adaptive=True)
        asked = {"advisor": "ada", "reasoning": "seen", "tokens": 10}
        wishes = [{"schedule": f"poll-{n}", **asked} for n in range(4)]
        all_at_once([partial(own.ask, "analysis submit", wish) for wish in wishes for _ in range(3)])
        assert own.ask("analysis list")["spent"]["tokens"] == 120


def forgotten(house: House, **which: Any) -> int:
    """How many analyses go when those before an instant are pruned."""
    namespace = house.context.namespace
    return house.store.write(lambda tx: tx.prune_objects("analysis", namespace=namespace, **which))


def test_submitting_needs_the_scope_to_wish(house: House) -> None:
    reader = Caller(actor="bot", origin="agent", scopes=frozenset({"read"}))
    with pytest.raises(TimewrightError):
        operations["analysis submit"](
            acting(house.context, reader, "default"),
            {"schedule": "orders-poll", "advisor": "x", "reasoning": "y"},
        )
