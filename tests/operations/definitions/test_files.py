"""Plan, apply, diff and export of definition files: what changes, what follows, what is left alone."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.harness import OperationsHarness
from timewright.errors import Conflict, Forbidden, InvalidInput, TimewrightError
from timewright.operations import operations
from timewright.operations.access.authentication import context_for
from timewright.operations.access.callers import ROLES, Caller
from timewright.operations.definitions import apply as definitions
from timewright.operations.definitions import plan as planning
from timewright.operations.definitions.programs import Program, save_declarations

FILE = """
zone: Europe/Berlin
calendars:
  - {name: holidays, zone: Europe/Berlin, yearly: ["12-25"]}
limits:
  - {name: bank, max_running: 2}
queues:
  - {name: mail, max_running: 5, max_attempts: 7}
workflows:
  - {name: load, steps: [{name: fetch, target: {kind: note, text: x}}], schedules: [{cron: "0 6 * * *"}]}
schedules:
  - {name: settle, cron: "30 3 * * *", note: hello, calendar: except holidays, limits: [bank]}
  - {name: ping, every: 1h, note: x, catch_up: all}
"""


def plan(
    harness: OperationsHarness, text: str = FILE, *, name: str = "ops.yaml", **fields: Any
) -> dict[str, Any]:
    return harness.bench.call("plan", files={name: text}, **fields)


def apply(
    harness: OperationsHarness, text: str = FILE, *, name: str = "ops.yaml", **fields: Any
) -> dict[str, Any]:
    return harness.bench.call("apply", files={name: text}, **fields)


def changes(answer: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(one["kind"], one["name"]): one["change"] for one in answer["changes"]}


def state(harness: OperationsHarness, name: str) -> str:
    return str(harness.bench.call("schedule get", schedule=name)["progress"]["state"])


@pytest.fixture
def harness() -> OperationsHarness:
    return OperationsHarness()


def test_a_plan_writes_nothing_and_apply_does_what_was_planned(harness: OperationsHarness) -> None:
    planned = plan(harness)
    assert changes(planned) == {
        ("calendar", "holidays"): "created",
        ("limit", "bank"): "created",
        ("queue", "mail"): "created",
        ("workflow", "load"): "created",
        ("schedule", "settle"): "created",
        ("schedule", "ping"): "created",
    }
    assert harness.bench.call("schedule list")["schedules"] == []
    assert harness.bench.call("limit list")["limits"] == []
    assert changes(apply(harness, plan=planned["plan"])) == changes(planned)
    assert not plan(harness)["changed"]
    assert harness.bench.call("queue policy show", queue="mail")["policy"]["max_attempts"] == 7
    assert (
        harness.bench.call("schedule get", schedule="settle")["schedule"]["trigger"]["zone"]
        == "Europe/Berlin"
    )


def test_applying_twice_writes_nothing_the_second_time(harness: OperationsHarness) -> None:
    apply(harness)
    before = [row["revision"] for row in harness.bench.call("schedule list")["schedules"]]
    assert apply(harness)["counts"] == {"unchanged": 6}
    assert [row["revision"] for row in harness.bench.call("schedule list")["schedules"]] == before


def test_the_plan_shows_fields_and_next_times_before_and_after(harness: OperationsHarness) -> None:
    apply(harness)
    (change,) = plan(harness, FILE.replace("30 3 * * *", "30 4 * * *"))["changes"]
    assert change["fields"] == [{"field": "cron", "before": "30 3 * * *", "after": "30 4 * * *"}]
    assert change["next_before"][0] == "2026-03-11T02:30:00Z"
    assert change["next_after"][0] == "2026-03-11T03:30:00Z"


def test_the_plan_shows_what_catch_up_would_run_now(harness: OperationsHarness) -> None:
    apply(harness)
    harness.bench.clock.advance("3h")
    (change,) = plan(harness, FILE.replace("note: x, catch_up: all", "note: y, catch_up: all"))["changes"]
    assert change["name"] == "ping"
    assert change["runs_now"] == [f"2026-03-10T{hour}:00:00Z" for hour in (13, 14, 15)]
    assert harness.bench.runs("ping") == []


def test_the_plan_shows_which_limits_change(harness: OperationsHarness) -> None:
    apply(harness)
    (change,) = plan(harness, FILE.replace("max_running: 2", "max_running: 9"))["changes"]
    assert (change["kind"], change["name"]) == ("limit", "bank")
    assert change["fields"] == [{"field": "max_running", "before": 2, "after": 9}]


def test_the_plan_warns_of_commands_that_are_off_and_of_limits_that_are_not_set(
    harness: OperationsHarness,
) -> None:
    limits = "limits: [{name: bank, max_running: 2}]\n"
    schedules = (
        "schedules: [{name: a, every: 1h, shell: [ls], limits: [bank]}, {name: b, every: 1h, shell: [ls]}]"
    )
    (off,) = apply(harness, limits + schedules)["warnings"]
    assert "running commands is off" in off
    (unset,) = (one for one in plan(harness, schedules, prune=True)["warnings"] if one != off)
    assert "limit 'bank' is not set" in unset


def test_apply_refuses_a_plan_if_the_store_changed_since(harness: OperationsHarness) -> None:
    apply(harness)
    text = FILE.replace("30 3 * * *", "30 4 * * *")
    planned = plan(harness, text)
    harness.bench.call("schedule update", schedule="settle", grace="5m")
    with pytest.raises(Conflict, match="changed since the plan"):
        apply(harness, text, plan=planned["plan"])
    apply(harness, text, plan=plan(harness, text)["plan"])


def test_one_wrong_definition_leaves_the_store_unchanged(harness: OperationsHarness) -> None:
    with pytest.raises(TimewrightError) as caught:
        apply(harness, FILE + "  - {name: bad, cron: '99 * * * *', note: x}\n")
    assert caught.value.message.startswith("ops.yaml line 14, schedules[2] (bad): ")
    assert harness.bench.call("limit list")["limits"] == []
    assert harness.bench.call("schedule list")["schedules"] == []


@pytest.mark.parametrize(
    "text", ["{", "garbage", "schedules: [1]", "kind: dog\nname: x", "queues: [{name: q, max_running: -1}]"]
)
def test_garbage_gets_one_error_and_nothing_is_written(harness: OperationsHarness, text: str) -> None:
    with pytest.raises(TimewrightError) as caught:
        apply(harness, text)
    assert caught.value.rule
    assert "ops.yaml" in caught.value.message
    assert harness.bench.call("audit list")["entries"] == []


def test_only_prune_removes_and_only_what_the_file_made(harness: OperationsHarness) -> None:
    apply(harness)
    harness.bench.call("schedule create", name="by-hand", every="1h", note="x")
    harness.bench.call("limit set", limit="other", max_running=3)
    apply(harness, "- {name: elsewhere, every: 1h, note: x}", name="other.yaml")
    smaller = "- {name: ping, every: 1h, note: x, catch_up: all}"
    assert apply(harness, smaller)["counts"] == {"unchanged": 1}
    assert changes(apply(harness, smaller, prune=True)) == {
        ("schedule", "settle"): "archived",
        ("workflow", "load"): "removed",
        ("queue", "mail"): "removed",
        ("limit", "bank"): "removed",
        ("calendar", "holidays"): "removed",
    }
    assert [state(harness, name) for name in ("ping", "by-hand", "elsewhere")] == ["active"] * 3
    assert [row["limit"] for row in harness.bench.call("limit list")["limits"]] == ["other"]


def test_pauses_of_operators_survive_an_apply(harness: OperationsHarness) -> None:
    apply(harness)
    harness.bench.call("schedule pause", schedule="settle", reason="holiday")
    apply(harness, FILE.replace("30 3 * * *", "30 4 * * *"))
    assert state(harness, "settle") == "paused"


def test_a_definition_moves_from_one_file_to_another_in_one_apply(harness: OperationsHarness) -> None:
    one, two = "- {name: a, every: 1h, note: x}", "- {name: b, every: 1h, note: x}"
    harness.bench.call("apply", files={"one.yaml": one, "two.yaml": two})
    with pytest.raises(Conflict, match="schedule a belongs to file:one"):
        apply(harness, f"{two}\n{one}", name="two.yaml")
    both = {"one.yaml": "schedules: []\nowner: one", "two.yaml": f"{two}\n{one}"}
    assert changes(harness.bench.call("apply", files=both, prune=True)) == {("schedule", "a"): "adopted"}
    assert state(harness, "a") == "active"


def test_a_schedule_of_a_program_is_refused_unless_it_is_taken_over(harness: OperationsHarness) -> None:
    request = {"name": "a", "every": "1h", "note": "x"}
    save_declarations(harness.context, Program(name="pay"), {"a": request}, instance="i")
    text = "- {name: a, every: 1h, note: x}"
    with pytest.raises(Conflict, match="belongs to app:pay") as refusal:
        apply(harness, text)
    assert (
        refusal.value.fix
        == "remove it from app:pay or from file:ops, or plan and apply with --take-over app:pay"
    )
    apply(harness, text, take_over=["app:pay"])
    assert harness.bench.call("schedule get", schedule="a")["schedule"]["owner"] == "file:ops"


def test_the_last_definition_of_a_file_can_be_pruned(harness: OperationsHarness) -> None:
    apply(harness, "schedules: [{name: a, every: 1h, note: x}]")
    assert changes(apply(harness, "schedules: []", prune=True)) == {("schedule", "a"): "archived"}


def test_the_same_name_in_two_files_is_refused(harness: OperationsHarness) -> None:
    text = "- {name: a, every: 1h, note: x}"
    with pytest.raises(InvalidInput, match=r"is also in one\.yaml line 1"):
        harness.bench.call("plan", files={"one.yaml": text, "two.yaml": text})


def test_diff_shows_what_someone_changed_by_hand_and_apply_restores_it(harness: OperationsHarness) -> None:
    apply(harness)
    assert not harness.bench.call("diff")["changed"]
    harness.bench.call("schedule update", schedule="settle", cron="0 5 * * *", reason="urgent")
    harness.bench.call("limit set", limit="bank", max_running=9)
    harness.bench.call("schedule archive", schedule="ping")
    found = harness.bench.call("diff", files={"ops.yaml": FILE})
    drift = {(one["kind"], one["name"]): one for one in found["definitions"]}
    assert {key: one["drift"] for key, one in drift.items()} == {
        ("limit", "bank"): "edited",
        ("schedule", "settle"): "edited",
        ("schedule", "ping"): "archived",
    }
    assert drift["schedule", "settle"]["fields"] == [
        {"field": "cron", "before": "30 3 * * *", "after": "0 5 * * *"}
    ]
    assert drift["schedule", "settle"]["reason"] == "urgent"
    assert drift["limit", "bank"]["fields"] == [{"field": "max_running", "before": 2, "after": 9}]
    applied = apply(harness)
    assert changes(applied) == {
        ("limit", "bank"): "updated",
        ("schedule", "settle"): "updated",
        ("schedule", "ping"): "stays_archived",
    }
    assert changes(apply(harness, recreate=["ping"])) == {("schedule", "ping"): "created"}
    assert not harness.bench.call("diff")["changed"]


def test_an_export_applied_again_changes_nothing_and_exports_the_same(harness: OperationsHarness) -> None:
    apply(harness)
    harness.bench.call("schedule create", name="by-hand", cron="0 9 * * *", note="x", preset="desktop")
    text = harness.bench.call("export")["text"]
    answer = apply(harness, text, name="ops.yaml")
    assert set(answer["counts"]) <= {"unchanged", "adopted"}
    assert harness.bench.call("export")["text"] == text
    other = OperationsHarness()
    apply(other, text, name="ops.yaml")
    assert other.bench.call("export")["text"] == text


def test_an_export_leaves_out_what_programs_and_workflows_declare(harness: OperationsHarness) -> None:
    apply(harness)
    request = {"name": "declared", "every": "1h", "note": "x"}
    save_declarations(harness.context, Program(name="pay"), {"declared": request}, instance="i")
    exported = harness.bench.call("export")
    assert (exported["definitions"], exported["left_out"]) == (6, 2)
    own = harness.bench.call("export", owner="app:pay")
    assert "declared" in own["text"]
    assert own["definitions"] == 1


def test_export_of_a_file_names_its_owner(harness: OperationsHarness) -> None:
    apply(harness, "- {name: a, every: 1h, note: x}")
    assert harness.bench.call("export", owner="file:ops")["text"].startswith("owner: ops\n")


def many(count: int) -> str:
    return "schedules:\n" + "".join(f"  - {{name: s{i}, every: 1h, note: hi}}\n" for i in range(count))


def test_a_plan_takes_linear_steps(harness: OperationsHarness) -> None:
    """One request of 500 kB held the write lock of the store, and so the engine, for minutes."""

    def comparisons(count: int) -> int:
        calls = [0]

        def on_event(_frame: Any, event: str, argument: Any) -> None:
            calls[0] += event == "call" or (event == "c_call" and argument is isinstance)

        sys.setprofile(on_event)
        try:
            plan(harness, many(count))
        finally:
            sys.setprofile(None)
        return calls[0]

    comparisons(5)  # caches
    assert comparisons(400) <= 12 * comparisons(40)


def test_the_fields_of_a_plan_are_listed_when_the_store_is_not_locked(
    harness: OperationsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, seen = harness.bench.store, list[bool]()

    def fields_of(schedule: Any) -> dict[str, Any]:
        seen.append(store.write(lambda tx: True))  # another writer would wait for the end of the plan
        return definitions.fields_of(schedule)

    monkeypatch.setattr(planning, "fields_of", fields_of)
    (change,) = plan(harness, many(1))["changes"]

    assert seen
    assert {one["field"] for one in change["fields"]} >= {"every", "note"}


def test_a_caller_who_may_only_read_plans_at_most_1000_definitions(harness: OperationsHarness) -> None:
    viewer = context_for(harness.context, Caller(actor="viewer", scopes=ROLES["viewer"]))
    with pytest.raises(Forbidden, match="1001 definitions"):
        operations["plan"](viewer, {"files": {"ops.yaml": many(planning.MAX_READER_DEFINITIONS + 1)}})
    assert operations["plan"](viewer, {"files": {"ops.yaml": many(10)}})["changed"]


def test_an_exported_schedule_has_only_the_defaults_that_are_those_of_the_installation(
    harness: OperationsHarness,
) -> None:
    harness.bench.call("schedule create", name="poll", every="15m", note="x")
    usual = harness.bench.call("export", schedules=["poll"])["text"]
    assert "spread_over" not in usual
    settings = replace(harness.context.settings, look_ahead=timedelta(minutes=5))
    other = operations["export"](replace(harness.context, settings=settings), {"schedules": ["poll"]})["text"]
    assert "spread_over: 1m" in other
