"""The planner: which schedules it analyses, what it may do, and what it records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from tests.operations.harness import OperationsHarness
from timewright.errors import Forbidden
from timewright.operations import operations
from timewright.operations.access.authentication import context_for
from timewright.planner.heuristic_advisor import HeuristicAdvisor
from timewright.planner.llm_advisor import SYSTEM_PROMPT
from timewright.planner.planner_loop import MONTH_IS_SPENT, PLANNER_CALLER, Planner
from timewright.planner.tool_session import MAX_TOOL_CALLS, TOOLS, ToolSession, tool_description, tool_schema
from timewright.ports import AdvisorReport, CallTool
from timewright.testing.targets import fail, succeed

Advise = Callable[[Mapping[str, Any], CallTool], AdvisorReport]


class Scripted:
    """An advisor that calls a function."""

    name = "scripted"

    def __init__(self, advise: Advise) -> None:
        self._advise = advise

    def advise(self, brief: Mapping[str, Any], use: CallTool, *, tokens_left: int) -> AdvisorReport:
        return self._advise(brief, use)


def orders(harness: OperationsHarness, *depths: float, **fields: Any) -> None:
    """A schedule that polls a queue every half hour, after as many responses as there are depths."""
    asked = {"name": "orders", "every": "30m", "call": "orders.depth", "adaptive": True, **fields}
    harness.ask("schedule create", asked)
    acts = [succeed({"queue_depth": depth, "critical_threshold": 500}) for depth in depths]
    harness.bench.target.script("orders", *(acts or [succeed()]))
    harness.advance(minutes=30 * len(depths) + 1)


def planner(harness: OperationsHarness, advisor: Any = None, **terms: Any) -> Planner:
    return Planner(harness.context, advisor or HeuristicAdvisor(), clock=harness.bench.clock, **terms)


def looked(harness: OperationsHarness, advise: Advise) -> dict[str, Any]:
    (made,) = planner(harness, Scripted(advise)).run_once()
    return made


def test_a_healthy_schedule_returns_to_its_own_interval(harness_on_each_store: OperationsHarness) -> None:
    harness = harness_on_each_store
    orders(harness, 520, 60, 50, 40)
    harness.ask("hint interval", schedule="orders", interval="5m", reason="someone worried")
    (made,) = planner(harness).run_once()
    assert made["proposals"] == ["no hints: queue_depth is 40 and falls"]
    hinted = harness.ask("hint list", schedule="orders")
    assert (hinted["hints"]["interval"], hinted["source"]) == (None, "baseline-interval")


def test_a_hint_moves_the_next_run_and_then_the_baseline_returns(
    harness_on_each_store: OperationsHarness,
) -> None:
    """The whole path of a hint: stored, next run moved, run with its source, expired, baseline again."""
    harness = harness_on_each_store
    orders(harness, 100, 200, 300, 400)
    before = harness.ask("schedule get", schedule="orders")["progress"]
    assert (before["next_at"], before["source"]) == ("2026-03-10T14:30:00Z", "baseline-interval")
    (made,) = planner(harness).run_once()
    assert made["proposals"] == [
        "every 450 s for 60 min: queue_depth is 400 and rises by 3.333 a minute",
        "once at 2026-03-10T14:07:30+00:00: keep its own instants",
    ]
    moved = harness.ask("schedule get", schedule="orders")["progress"]
    assert (moved["next_at"], moved["source"]) == ("2026-03-10T14:07:30Z", "ai-oneshot")
    assert harness.ask("audit list", action="schedule.hint")["entries"][0]["origin"] == "agent"
    harness.bench.target.script("orders", succeed({"queue_depth": 1, "critical_threshold": 500}))
    harness.advance(minutes=8)
    newest = harness.ask("run list", schedule="orders", limit=1)["runs"][0]
    assert (newest["planned_at"], newest["source"]) == ("2026-03-10T14:07:30Z", "ai-oneshot")
    trail = harness.ask("run get", run=newest["id"])["trail"]
    assert (trail[0]["source"], trail[0]["at"]) == (
        "baseline-interval",
        "2026-03-10T14:30:00Z",
    )
    harness.advance(minutes=62)
    rows = harness.ask("run list", schedule="orders", since="2026-03-10T14:50:00Z")["runs"]
    assert [(run["planned_at"], run["source"]) for run in rows] == [
        ("2026-03-10T15:07:30Z", "ai-interval"),
        ("2026-03-10T15:00:00Z", "ai-interval"),
        ("2026-03-10T14:52:30Z", "ai-interval"),
    ]
    after = harness.ask("schedule get", schedule="orders")["progress"]
    assert (after["next_at"], after["source"]) == ("2026-03-10T15:30:00Z", "baseline-interval")
    assert after["hints"]["interval"] is None
    harness.advance(minutes=20)
    newest = harness.ask("run list", schedule="orders", limit=1)["runs"][0]
    assert (newest["planned_at"], newest["source"]) == ("2026-03-10T15:30:00Z", "baseline-interval")


def test_new_due_and_failing_schedules_are_analysed(
    harness: OperationsHarness,
) -> None:
    orders(harness)
    harness.ask("schedule create", name="plain", every="5m", call="x")
    wanted = harness.ask("analysis due")["schedules"]
    assert wanted == [], "nothing has been answered yet"
    harness.advance(minutes=30)
    assert [(one["schedule"], one["why"]) for one in harness.ask("analysis due")["schedules"]] == [
        ("orders", "never analysed")
    ]
    planner(harness).run_once()
    assert harness.ask("analysis due")["schedules"] == []
    assert planner(harness).run_once() == []
    harness.advance(minutes=30)
    assert harness.ask("analysis due")["schedules"][0]["why"] == "look_again_at reached"
    harness.bench.target.script("orders", fail("no"))
    harness.ask("analysis submit", schedule="orders", advisor="ada", reasoning="seen", look_again_in="24h")
    assert harness.ask("analysis due")["schedules"] == []
    harness.advance(minutes=30)
    assert harness.ask("analysis due")["schedules"][0]["why"] == "failures rose"


def test_paused_archived_and_unadaptive_schedules_are_left_alone(harness: OperationsHarness) -> None:
    orders(harness, 1)
    harness.ask("schedule pause", schedule="orders")
    assert planner(harness).run_once() == []
    harness.ask("schedule resume", schedule="orders")
    harness.ask("schedule archive", schedule="orders")
    assert planner(harness).run_once() == []


def test_every_namespace_is_analysed_with_its_own_context(harness: OperationsHarness) -> None:
    harness.ask("namespace create", name="team-b")
    other = harness.in_namespace("team-b")
    other.ask("schedule create", name="theirs", every="5m", call="x", adaptive=True)
    orders(harness, 1)
    made = planner(harness).run_once()
    assert sorted(one["schedule"] for one in made) == ["orders", "theirs"]
    assert [one["schedule"] for one in other.ask("analysis list")["analyses"]] == ["theirs"]


def test_the_brief_has_health_hints_siblings_and_the_last_analysis(
    harness: OperationsHarness,
) -> None:
    orders(harness, 1, group="shop", description="watch the queue", clamp={"min": "2m", "max": "1h"})
    harness.ask("schedule create", name="loader", every="10m", call="load", group="shop")
    seen: list[Mapping[str, Any]] = []

    def advise(brief: Mapping[str, Any], use: CallTool) -> AdvisorReport:
        seen.append(brief)
        use("submit_analysis", {"reasoning": "fine", "next_analysis_in_minutes": 5})
        return AdvisorReport()

    looked(harness, advise)
    harness.advance(minutes=30)
    looked(harness, advise)
    first, second = seen
    assert first["schedule"]["description"] == "watch the queue"
    assert (first["schedule"]["min_interval"], first["schedule"]["max_interval"]) == ("2m", "1h")
    assert set(first["health"]["windows"]) == {"1h", "4h", "24h"}
    assert first["siblings"] == ["loader"]
    assert first["last_analysis"] is None
    assert second["last_analysis"]["reasoning"] == "fine"


def test_the_planner_may_only_read_and_hint(harness: OperationsHarness) -> None:
    orders(harness, 1)
    limited = context_for(harness.context, PLANNER_CALLER, "default")
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


def tool_session(harness: OperationsHarness) -> ToolSession:
    return ToolSession(context_for(harness.context, PLANNER_CALLER, "default"), schedule="orders", group=None)


def test_hints_last_an_hour_or_half_an_hour_by_default(harness: OperationsHarness) -> None:
    orders(harness, 1)
    at = tool_session(harness)
    at.call_tool("propose_interval", {"interval_seconds": 60})
    at.call_tool("propose_next_time", {"at": "2026-03-10T12:40:00Z"})
    hints = harness.ask("hint list", schedule="orders")["hints"]
    assert hints["interval"]["expires_at"] == "2026-03-10T13:31:00Z"
    assert hints["one_shot"]["expires_at"] == "2026-03-10T13:01:00Z"
    at.call_tool("pause_until", {"until": None})
    assert harness.ask("hint list", schedule="orders")["hints"] == {
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
def test_a_refused_tool_call_is_recorded_and_changes_nothing(
    harness: OperationsHarness, tool: str, arguments: dict[str, Any]
) -> None:
    orders(harness, 1)
    before = harness.ask("hint list", schedule="orders")
    at = tool_session(harness)
    answer = at.call_tool(tool, arguments)
    assert answer["refused"]
    assert at.calls[0]["refused"] == answer["refused"]
    assert at.proposals == []
    assert harness.ask("hint list", schedule="orders") == before


def test_an_hour_has_twelve_changes_also_for_an_advisor(harness: OperationsHarness) -> None:
    orders(harness, 1)
    wishes = [{"interval_seconds": 60 + number} for number in range(14)]
    answers = [tool_session(harness).call_tool("propose_interval", wish) for wish in wishes]
    assert ["refused" in one for one in answers] == [False] * 12 + [True] * 2


def test_after_fifteen_steps_only_the_end_is_left(harness: OperationsHarness) -> None:
    orders(harness, 1)
    at = tool_session(harness)
    for _ in range(MAX_TOOL_CALLS):
        assert at.call_tool("get_latest_response", {})["found"]
    assert (
        at.call_tool("get_latest_response", {})["refused"] == "15 calls were made: call submit_analysis now"
    )
    assert at.call_tool("submit_analysis", {"reasoning": "enough"}) == {"status": "analysis_complete"}
    assert "ended" in at.call_tool("clear_hints", {})["refused"]
    for _ in range(1000):
        at.call_tool("clear_hints", {})
    assert len(at.calls) == 2 * MAX_TOOL_CALLS


def test_responses_are_given_newest_first_two_unless_asked_and_bodies_are_cut(
    harness: OperationsHarness,
) -> None:
    orders(harness, 1, 2, 3)
    at = tool_session(harness)
    found = at.call_tool("get_response_history", {})
    assert [one["body"]["queue_depth"] for one in found["responses"]] == [3, 2]
    assert found["has_more"]
    later = at.call_tool("get_response_history", {"limit": 2, "offset": 2})
    assert [one["body"]["queue_depth"] for one in later["responses"]] == [1]
    harness.bench.target.script("orders", succeed("é\u202e" * 5000))
    harness.advance(minutes=30)
    latest = at.call_tool("get_latest_response", {})
    assert latest["body"] == f"{'é' * 1000}… (4000 more characters)"


def test_siblings_are_only_those_of_the_group(harness: OperationsHarness) -> None:
    orders(harness, 1, group="shop")
    for name, group in (("loader", "shop"), ("stranger", "other")):
        harness.ask("schedule create", name=name, every="10m", call="load", group=group)
    harness.bench.target.script("loader", succeed({"ready_for_processing": True, "batch_id": "b1"}))
    harness.advance(minutes=10)
    at = ToolSession(context_for(harness.context, PLANNER_CALLER, "default"), schedule="orders", group="shop")
    found = at.call_tool("get_sibling_latest_responses", {})
    assert [(one["schedule"], one["body"]["batch_id"]) for one in found["siblings"]] == [("loader", "b1")]
    # An analysis names its schedule by the id.
    own_id = harness.ask("schedule get", schedule="orders")["schedule"]["id"]
    by_id = ToolSession(
        context_for(harness.context, PLANNER_CALLER, "default"), schedule=own_id, group="shop"
    )
    assert by_id.call_tool("get_sibling_latest_responses", {}) == found
    made = planner(harness).run_once()[0]
    assert made["reasoning"] == "Run once now: loader is ready with batch b1."


def test_a_failing_or_silent_advisor_is_recorded(harness: OperationsHarness) -> None:
    orders(harness, 1)

    def breaks(brief: Mapping[str, Any], use: CallTool) -> AdvisorReport:
        use("get_latest_response", {})
        raise RuntimeError("no more")

    made = looked(harness, breaks)
    assert made["warnings"] == [
        "the advisor failed: RuntimeError: no more",
        "the advisor ended without submit_analysis",
    ]
    assert (made["reasoning"], made["confidence"]) == ("the advisor gave no reasoning", "low")
    assert [call["tool"] for call in made["tools"]] == ["get_latest_response"]


def test_a_schedule_analysed_by_another_planner_costs_no_tokens(harness: OperationsHarness) -> None:
    orders(harness, 1)
    harness.ask("schedule create", name="parcels", every="5m", call="y", adaptive=True)
    harness.advance(minutes=6)

    def advise(brief: Mapping[str, Any], use: CallTool) -> AdvisorReport:
        harness.ask("analysis submit", schedule="parcels", advisor="another", reasoning="seen")
        use("submit_analysis", {"reasoning": "fine"})
        return AdvisorReport(tokens=5)

    made = planner(harness, Scripted(advise), uses_tokens=True).run_once()
    assert [one["schedule"] for one in made] == ["orders"]


def test_a_record_that_is_too_large_for_its_namespace_is_kept_without_its_tools(
    harness: OperationsHarness,
) -> None:
    harness.ask("namespace create", name="default", body_bytes=1000)
    orders(harness, 100, 200, 300)
    (made,) = planner(harness).run_once()
    assert made["tools"] == []
    assert made["warnings"] == ["the tool calls did not fit into the record"]
    assert made["reasoning"].startswith("Run every")


def test_one_failing_analysis_does_not_stop_the_others(harness: OperationsHarness) -> None:
    harness.ask("namespace create", name="small", body_bytes=100)
    harness.in_namespace("small").ask("schedule create", name="theirs", every="5m", call="x", adaptive=True)
    orders(harness, 1)
    errors: list[str] = []
    made = planner(harness, on_error=errors.append).run_once()
    assert [one["schedule"] for one in made] == ["orders"]
    assert len(errors) == 1
    assert errors[0].startswith("planner could not analyse theirs: the request is too large:")


def test_the_advisor_interface_is_unchanged() -> None:
    offered = [(name, tool_description(name), tool_schema(name)) for name in TOOLS]
    text = json.dumps([SYSTEM_PROMPT, offered], sort_keys=True)
    assert (
        hashlib.sha256(text.encode()).hexdigest()
        == "24e31156f57b60054d68e064c1fc54b1cda283793eed60ab805b86762fc81d80"
    )


def test_the_rules_advise_when_the_month_is_spent_and_the_model_in_the_next(
    harness: OperationsHarness,
) -> None:
    harness.ask("namespace create", name="default", advisor_tokens_per_month=100)
    orders(harness, 1)

    def advise(brief: Mapping[str, Any], use: CallTool) -> AdvisorReport:
        use("submit_analysis", {"reasoning": "fine", "next_analysis_in_minutes": 5})
        return AdvisorReport(model="m-1", tokens=60, cost=0.25)

    costly = planner(harness, Scripted(advise), uses_tokens=True)
    assert len(costly.run_once()) == 1
    harness.advance(minutes=10)
    assert len(costly.run_once()) == 1
    harness.advance(minutes=10)
    assert harness.ask("analysis due")["tokens_left"] == 0
    (by_rules,) = costly.run_once()
    assert (by_rules["advisor"], by_rules["tokens"]) == ("heuristic", 0)
    assert by_rules["warnings"] == [MONTH_IS_SPENT]
    spent = harness.ask("analysis list")["spent"]
    assert spent == {"month": "2026-03", "analyses": 3, "tokens": 120, "cost": 0.5}
    harness.sleep(days=22)
    (again,) = costly.run_once()
    assert again["warnings"] == []


def test_a_planner_on_a_thread_looks_at_once_and_stops_when_asked(harness: OperationsHarness) -> None:
    orders(harness, 1)
    beside = planner(harness, interval=timedelta(hours=1))
    told: list[int] = []

    def advise(brief: Mapping[str, Any], use: CallTool) -> AdvisorReport:
        use("submit_analysis", {"reasoning": "fine"})
        told.append(1)
        return AdvisorReport()

    beside = planner(harness, Scripted(advise), interval=timedelta(hours=1))
    beside.start()
    beside.stop()
    assert len(told) <= 1
    assert len(harness.ask("analysis list")["analyses"]) == len(told)
