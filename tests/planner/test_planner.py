"""The planner: whom it looks at, what it may do, and what is written down."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from tests.operations.house import House
from timewright.errors import Forbidden
from timewright.operations import operations
from timewright.operations.access import acting
from timewright.planner.advisors import Heuristic
from timewright.planner.desk import MOST_STEPS, Desk
from timewright.planner.prompts import SYSTEM
from timewright.planner.tools import TOOLS, tool_schema, tool_summary
from timewright.planner.watch import PLANNER, Planner
from timewright.ports import Advised, Use
from timewright.testing.targets import fail, succeed

Advise = Callable[[Mapping[str, Any], Use], Advised]


class Scripted:
    """An advisor that does what a function does."""

    name = "scripted"

    def __init__(self, advise: Advise) -> None:
        self._advise = advise

    def advise(self, brief: Mapping[str, Any], use: Use, *, tokens_left: int) -> Advised:
        return self._advise(brief, use)


def orders(house: House, *depths: float, **fields: Any) -> None:
    """A queue that is asked every half hour, after as many answers as there are depths."""
    asked = {"name": "orders", "every": "30m", "call": "orders.depth", "adaptive": True, **fields}
    house.ask("schedule create", asked)
    acts = [succeed({"queue_depth": depth, "critical_threshold": 500}) for depth in depths]
    house.bench.target.script("orders", *(acts or [succeed()]))
    house.advance(minutes=30 * len(depths) + 1)


def planner(house: House, advisor: Any = None, **terms: Any) -> Planner:
    return Planner(house.context, advisor or Heuristic(), clock=house.bench.clock, **terms)


def looked(house: House, advise: Advise) -> dict[str, Any]:
    (made,) = planner(house, Scripted(advise)).look()
    return made


def test_what_is_calm_again_goes_back_to_its_own_pace(both_houses: House) -> None:
    house = both_houses
    orders(house, 520, 60, 50, 40)
    house.ask("hint interval", schedule="orders", interval="5m", reason="someone worried")
    (made,) = planner(house).look()
    assert made["proposals"] == ["no wishes: queue_depth is 40 and falls"]
    hinted = house.ask("hint list", schedule="orders")
    assert (hinted["hints"]["interval"], hinted["source"]) == (None, "baseline-interval")


def test_a_hint_moves_the_next_time_its_run_says_why_and_the_baseline_comes_back(both_houses: House) -> None:
    """Hint written, next time moved, run with source and trail, expired, baseline: the whole stack."""
    house = both_houses
    orders(house, 100, 200, 300, 400)
    before = house.ask("schedule get", schedule="orders")["standing"]
    assert (before["next_at"], before["source"]) == ("2026-03-10T14:30:00Z", "baseline-interval")
    (made,) = planner(house).look()
    assert made["proposals"] == ["every 450 s for 60 min: queue_depth is 400 and rises by 3.333 a minute"]
    moved = house.ask("schedule get", schedule="orders")["standing"]
    assert (moved["next_at"], moved["source"]) == ("2026-03-10T14:08:30Z", "ai-interval")
    assert house.ask("audit list", action="schedule.hint")["entries"][0]["origin"] == "agent"
    house.bench.target.script("orders", succeed({"queue_depth": 1, "critical_threshold": 500}))
    house.advance(minutes=8)
    newest = house.ask("run list", schedule="orders", limit=1)["runs"][0]
    assert (newest["planned_at"], newest["source"]) == ("2026-03-10T14:08:30Z", "ai-interval")
    trail = house.ask("run get", run=newest["id"])["trail"]
    assert (trail[0]["source"], trail[0]["at"]) == (
        "baseline-interval",
        "2026-03-10T14:30:00Z",
    )
    house.advance(minutes=62)
    rows = house.ask("run list", schedule="orders", since="2026-03-10T14:50:00Z")["runs"]
    assert [(run["planned_at"], run["source"]) for run in rows] == [
        ("2026-03-10T15:01:00Z", "ai-interval"),
        ("2026-03-10T14:53:30Z", "ai-interval"),
    ]
    after = house.ask("schedule get", schedule="orders")["standing"]
    assert (after["next_at"], after["source"]) == ("2026-03-10T15:30:00Z", "baseline-interval")
    assert after["hints"]["interval"] is None
    house.advance(minutes=20)
    newest = house.ask("run list", schedule="orders", limit=1)["runs"][0]
    assert (newest["planned_at"], newest["source"]) == ("2026-03-10T15:30:00Z", "baseline-interval")


def test_whoever_was_never_looked_at_whose_time_has_come_or_who_fails_more_deserves_a_look(
    house: House,
) -> None:
    orders(house)
    house.ask("schedule create", name="plain", every="5m", call="x")
    wanted = house.ask("analysis due")["schedules"]
    assert wanted == [], "nothing has been answered yet"
    house.advance(minutes=30)
    assert [(one["schedule"], one["why"]) for one in house.ask("analysis due")["schedules"]] == [
        ("orders", "never looked at")
    ]
    planner(house).look()
    assert house.ask("analysis due")["schedules"] == []
    assert planner(house).look() == []
    house.advance(minutes=30)
    assert house.ask("analysis due")["schedules"][0]["why"] == "its time has come"
    house.bench.target.script("orders", fail("no"))
    house.ask("analysis submit", schedule="orders", advisor="ada", reasoning="seen", look_again_in="24h")
    assert house.ask("analysis due")["schedules"] == []
    house.advance(minutes=30)
    assert house.ask("analysis due")["schedules"][0]["why"] == "failures rose"


def test_paused_archived_and_unadaptive_schedules_are_left_alone(house: House) -> None:
    orders(house, 1)
    house.ask("schedule pause", schedule="orders")
    assert planner(house).look() == []
    house.ask("schedule resume", schedule="orders")
    house.ask("schedule archive", schedule="orders")
    assert planner(house).look() == []


def test_every_namespace_is_looked_at_as_itself(house: House) -> None:
    house.ask("namespace create", name="team-b")
    other = house.elsewhere("team-b")
    other.ask("schedule create", name="theirs", every="5m", call="x", adaptive=True)
    orders(house, 1)
    made = planner(house).look()
    assert sorted(one["schedule"] for one in made) == ["orders", "theirs"]
    assert [one["schedule"] for one in other.ask("analysis list")["analyses"]] == ["theirs"]


def test_an_advisor_is_told_the_health_the_wishes_the_siblings_and_the_last_look(house: House) -> None:
    orders(house, 1, group="shop", description="watch the queue", clamp={"min": "2m", "max": "1h"})
    house.ask("schedule create", name="loader", every="10m", call="load", group="shop")
    seen: list[Mapping[str, Any]] = []

    def advise(brief: Mapping[str, Any], use: Use) -> Advised:
        seen.append(brief)
        use("submit_analysis", {"reasoning": "fine", "next_analysis_in_minutes": 5})
        return Advised()

    looked(house, advise)
    house.advance(minutes=30)
    looked(house, advise)
    first, second = seen
    assert first["schedule"]["description"] == "watch the queue"
    assert (first["schedule"]["shortest"], first["schedule"]["longest"]) == ("2m", "1h")
    assert set(first["health"]["windows"]) == {"1h", "4h", "24h"}
    assert first["siblings"] == ["loader"]
    assert first["last_analysis"] is None
    assert second["last_analysis"]["reasoning"] == "fine"


def test_the_planner_may_read_and_wish_and_nothing_else(house: House) -> None:
    orders(house, 1)
    limited = acting(house.context, PLANNER, "default")
    for operation, request in (
        ("schedule archive", {"schedule": "orders"}),
        ("schedule update", {"schedule": "orders", "every": "1s"}),
        ("schedule run", {"schedule": "orders"}),
        ("namespace set", {"name": "default", "advisor_tokens_per_month": 10**9}),
    ):
        with pytest.raises(Forbidden):
            operations[operation](limited, request)


def test_there_are_exactly_the_promised_tools_and_their_schemas_are_closed() -> None:
    assert list(TOOLS) == [
        "propose_interval",
        "propose_next_time",
        "pause_until",
        "clear_hints",
        "get_latest_response",
        "get_response_history",
        "get_sibling_latest_responses",
        "submit_analysis",
    ]
    for name in TOOLS:
        assert tool_schema(name)["additionalProperties"] is False


def desk(house: House) -> Desk:
    return Desk(acting(house.context, PLANNER, "default"), schedule="orders", group=None)


def test_the_default_lives_of_wishes_are_an_hour_and_half_an_hour(house: House) -> None:
    orders(house, 1)
    at = desk(house)
    at.use("propose_interval", {"interval_seconds": 60})
    at.use("propose_next_time", {"at": "2026-03-10T12:40:00Z"})
    hints = house.ask("hint list", schedule="orders")["hints"]
    assert hints["interval"]["expires_at"] == "2026-03-10T13:31:00Z"
    assert hints["one_shot"]["expires_at"] == "2026-03-10T13:01:00Z"
    at.use("pause_until", {"until": None})
    assert house.ask("hint list", schedule="orders")["hints"] == {
        "interval": None,
        "one_shot": None,
        "pause": None,
    }


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("propose_interval", {"interval_seconds": 0}),
        ("propose_interval", {"interval_seconds": 1}),
        ("propose_interval", {"interval_seconds": -60}),
        ("propose_interval", {"interval_seconds": 1e18}),
        ("propose_interval", {"interval_seconds": float("nan")}),
        ("propose_interval", {"interval_seconds": "5m"}),
        ("propose_interval", {"interval_seconds": 60, "ttl_minutes": 0}),
        ("propose_interval", {"interval_seconds": 60, "ttl_minutes": -1}),
        ("propose_interval", {"interval_seconds": 60, "ttl_minutes": 1441}),
        ("propose_interval", {"interval_seconds": 60, "ttl_minutes": None}),
        ("propose_interval", {"interval_seconds": 60, "schedule": "other"}),
        ("propose_interval", {"interval_seconds": 60, "url": "https://evil.example"}),
        ("propose_interval", {"interval_seconds": 60, "reason": "x" * 10**6}),
        ("propose_interval", {}),
        ("propose_next_time", {"at": "2025-03-10T12:00:00Z"}),
        ("propose_next_time", {"at": "2026-03-10T12:00:00"}),
        ("propose_next_time", {"at": "soon"}),
        ("pause_until", {"until": "9999-12-31T00:00:00Z"}),
        ("pause_until", {"until": "2026-03-10T11:00:00Z"}),
        ("get_response_history", {"limit": 11}),
        ("get_response_history", {"limit": 0}),
        ("schedule_update", {"every": "1s"}),
        ("schedule archive", {}),
        ("", {}),
        ("submit_analysis", {"reasoning": ""}),
        ("submit_analysis", {"reasoning": "fine", "next_analysis_in_minutes": 1}),
    ],
)
def test_what_a_tool_may_not_do_is_refused_noted_and_changes_nothing(
    house: House, tool: str, arguments: dict[str, Any]
) -> None:
    orders(house, 1)
    before = house.ask("hint list", schedule="orders")
    at = desk(house)
    answer = at.use(tool, arguments)
    assert answer["refused"]
    assert at.calls[0]["refused"] == answer["refused"]
    assert at.proposals == []
    assert house.ask("hint list", schedule="orders") == before


def test_an_hour_has_twelve_changes_also_for_an_advisor(house: House) -> None:
    orders(house, 1)
    wishes = [{"interval_seconds": 60 + number} for number in range(14)]
    answers = [desk(house).use("propose_interval", wish) for wish in wishes]
    assert ["refused" in one for one in answers] == [False] * 12 + [True] * 2


def test_after_fifteen_steps_only_the_end_is_left(house: House) -> None:
    orders(house, 1)
    at = desk(house)
    for _ in range(MOST_STEPS):
        assert at.use("get_latest_response", {})["found"]
    assert at.use("get_latest_response", {})["refused"] == "15 tools were used: now submit_analysis"
    assert at.use("submit_analysis", {"reasoning": "enough"}) == {"status": "analysis_complete"}
    assert "over" in at.use("clear_hints", {})["refused"]
    for _ in range(1000):
        at.use("clear_hints", {})
    assert len(at.calls) == 2 * MOST_STEPS


def test_responses_are_given_newest_first_two_unless_asked_and_bodies_are_cut(house: House) -> None:
    orders(house, 1, 2, 3)
    at = desk(house)
    found = at.use("get_response_history", {})
    assert [one["body"]["queue_depth"] for one in found["responses"]] == [3, 2]
    assert found["has_more"]
    later = at.use("get_response_history", {"limit": 2, "offset": 2})
    assert [one["body"]["queue_depth"] for one in later["responses"]] == [1]
    house.bench.target.script("orders", succeed("é\u202e" * 5000))
    house.advance(minutes=30)
    latest = at.use("get_latest_response", {})
    assert latest["body"] == f"{'é' * 1000}… (4000 more characters)"


def test_siblings_are_those_of_the_group_and_nobody_elses(house: House) -> None:
    orders(house, 1, group="shop")
    for name, group in (("loader", "shop"), ("stranger", "other")):
        house.ask("schedule create", name=name, every="10m", call="load", group=group)
    house.bench.target.script("loader", succeed({"ready_for_processing": True, "batch_id": "b1"}))
    house.advance(minutes=10)
    at = Desk(acting(house.context, PLANNER, "default"), schedule="orders", group="shop")
    found = at.use("get_sibling_latest_responses", {})
    assert [(one["schedule"], one["body"]["batch_id"]) for one in found["siblings"]] == [("loader", "b1")]
    made = planner(house).look()[0]
    assert made["reasoning"] == "Run once now: loader is ready with batch b1."


def test_an_advisor_that_breaks_or_ends_without_a_word_is_on_the_record(house: House) -> None:
    orders(house, 1)

    def breaks(brief: Mapping[str, Any], use: Use) -> Advised:
        use("get_latest_response", {})
        raise RuntimeError("no more")

    made = looked(house, breaks)
    assert made["warnings"] == [
        "the advisor failed: RuntimeError: no more",
        "the advisor ended without submit_analysis",
    ]
    assert (made["reasoning"], made["confidence"]) == ("it ended without a word", "low")
    assert [call["tool"] for call in made["tools"]] == ["get_latest_response"]


def test_what_another_planner_saw_meanwhile_is_not_paid_for_again(house: House) -> None:
    orders(house, 1)
    house.ask("schedule create", name="parcels", every="5m", call="y", adaptive=True)
    house.advance(minutes=6)

    def advise(brief: Mapping[str, Any], use: Use) -> Advised:
        house.ask("analysis submit", schedule="parcels", advisor="another", reasoning="seen")
        use("submit_analysis", {"reasoning": "fine"})
        return Advised(tokens=5)

    made = planner(house, Scripted(advise), spends=True).look()
    assert [one["schedule"] for one in made] == ["orders"]


def test_a_record_that_is_too_large_for_its_namespace_is_kept_without_its_tools(house: House) -> None:
    house.ask("namespace create", name="default", body_bytes=1000)
    orders(house, 100, 200, 300)
    (made,) = planner(house).look()
    assert made["tools"] == []
    assert made["warnings"] == ["the tools did not fit into the record"]
    assert made["reasoning"].startswith("Run every")


def test_one_that_cannot_be_looked_at_keeps_nobody_from_the_others(house: House) -> None:
    house.ask("namespace create", name="small", body_bytes=100)
    house.elsewhere("small").ask("schedule create", name="theirs", every="5m", call="x", adaptive=True)
    orders(house, 1)
    troubles: list[str] = []
    made = planner(house, trouble=troubles.append).look()
    assert [one["schedule"] for one in made] == ["orders"]
    assert len(troubles) == 1
    assert troubles[0].startswith("the planner could not look at theirs: the request has")


def test_what_an_advisor_is_offered_changes_only_on_purpose() -> None:
    offered = [(name, tool_summary(name), tool_schema(name)) for name in TOOLS]
    text = json.dumps([SYSTEM, offered], sort_keys=True)
    assert (
        hashlib.sha256(text.encode()).hexdigest()
        == "c90c6d045ae8e0bffbac1177ac414c7d8a43c2f521d362324fb578d0287983bb"
    )


def test_what_costs_stops_with_the_month_and_goes_on_with_the_next(house: House) -> None:
    house.ask("namespace create", name="default", advisor_tokens_per_month=100)
    orders(house, 1)

    def advise(brief: Mapping[str, Any], use: Use) -> Advised:
        use("submit_analysis", {"reasoning": "fine", "next_analysis_in_minutes": 5})
        return Advised(model="m-1", tokens=60, cost=0.25)

    costly = planner(house, Scripted(advise), spends=True)
    assert len(costly.look()) == 1
    house.advance(minutes=10)
    assert len(costly.look()) == 1
    house.advance(minutes=10)
    assert house.ask("analysis due")["tokens_left"] == 0
    assert costly.look() == []
    spent = house.ask("analysis list")["spent"]
    assert spent == {"month": "2026-03", "analyses": 2, "tokens": 120, "cost": 0.5}
    house.sleep(days=22)
    assert len(costly.look()) == 1


def test_a_planner_on_a_thread_looks_at_once_and_stops_when_asked(house: House) -> None:
    orders(house, 1)
    beside = planner(house, every=timedelta(hours=1))
    told: list[int] = []

    def advise(brief: Mapping[str, Any], use: Use) -> Advised:
        use("submit_analysis", {"reasoning": "fine"})
        told.append(1)
        return Advised()

    beside = planner(house, Scripted(advise), every=timedelta(hours=1))
    beside.start()
    beside.stop()
    assert len(told) <= 1
    assert len(house.ask("analysis list")["analyses"]) == len(told)
