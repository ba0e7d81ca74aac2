"""The flow of a workflow: steps that clean up, limits of a fan-out, and the deadline of the whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.workflows.workflow_kit import StepWorker, WorkflowHarness, call_step
from timewright.core.moments import MINUTE
from timewright.core.run.run import TERMINAL_STATES
from timewright.stores.postgres.executor import PostgresExecutor
from timewright.stores.sqlite.executor import SqliteExecutor
from timewright.testing.targets import fail, hang, succeed


def test_a_step_for_failures_runs_only_after_one(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), call_step("b", "a"), call_step("repair", "a", "b", run_if="failed"))
    run = harness.start()
    assert harness.steps(run) == {"a": "succeeded", "b": "succeeded", "repair": "skipped"}
    assert harness.state(run) == "succeeded"
    harness.script(b=fail("broken"))
    run = harness.start()
    assert harness.steps(run) == {"a": "succeeded", "b": "failed", "repair": "succeeded"}
    assert harness.state(run) == "failed"


def test_steps_that_clean_up_run_after_a_cancel_and_the_others_do_not(harness: WorkflowHarness) -> None:
    harness.put(
        call_step("a"),
        call_step("b", "a"),
        call_step("c", "b"),
        call_step("repair", "b", run_if="failed"),
        call_step("tidy", "a", "c", run_if="always"),
    )
    harness.script(a=hang(), tidy=succeed(after=20 * MINUTE))
    run = harness.start()
    harness.ask("run cancel", run=run, reason="wrong day")
    harness.advance(minutes=10)
    assert harness.steps(run) == {
        "a": "cancelled",
        "b": "skipped",
        "c": "skipped",
        "repair": "skipped",
        "tidy": "leased",
    }
    assert harness.state(run) == "leased"
    harness.advance(minutes=15)
    assert harness.launches() == {"a": 1, "tidy": 1}
    assert harness.state(run) == "cancelled"
    assert harness.run(run).reason == "wrong day"


def test_at_most_max_running_items_of_a_fan_out_run_at_once(harness: WorkflowHarness) -> None:
    each = {"$from": "input.items", "max_running": 2}
    harness.put(call_step("load", each=each), call_step("done", "load"), input={"items": [1, 2, 3, 4, 5]})
    harness.script(load=succeed(after=MINUTE))
    run = harness.start()
    most = 0
    for _ in range(12):
        most = max(most, sum(one.state == "leased" for one in harness.children(run)))
        harness.advance(seconds=30)
    assert most == 2
    assert harness.launches() == {"load": 5, "done": 1}
    assert harness.state(run) == "succeeded"


def test_the_deadline_counts_from_the_planned_time(harness: WorkflowHarness) -> None:
    harness.put(call_step("a"), deadline="1h", time_limit="2h")
    harness.script(a=hang())
    run = harness.start()
    harness.advance(minutes=59)
    assert harness.state(run) == "leased"
    harness.advance(minutes=2)
    assert harness.state(run) == "failed"
    assert "the deadline of the workflow was reached" in harness.run(run).error


def test_an_item_of_a_large_fan_out_costs_as_many_rows_as_one_of_a_small_one(
    harness: WorkflowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 0

    def count(executor: type, method: str) -> None:
        real = getattr(executor, method)

        def counted(self: Any, name: str, given: Any) -> Any:
            nonlocal rows
            found = real(self, name, given)
            rows += len(found) + (len(given) if method == "execute_many" else 0)
            return found

        monkeypatch.setattr(executor, method, counted)

    for executor in (SqliteExecutor, PostgresExecutor):
        count(executor, "query")
        count(executor, "execute_many")
    each = {"$from": "input.items", "limit": 1000}
    harness.put(
        call_step("one", each=each), call_step("join", "one", input={"all": {"$from": "steps.one.result"}})
    )
    per_item = []
    for size in (50, 200):
        before = rows
        worker = StepWorker(harness.store, Counter(), name=f"w{size}")
        run = harness.ask("workflow run", workflow="flow", input={"items": list(range(size))})["run"]["id"]
        while harness.run(run).state not in TERMINAL_STATES:
            worker.run_pass(harness.now)
        per_item.append((rows - before) / size)
    assert per_item[1] <= per_item[0]
