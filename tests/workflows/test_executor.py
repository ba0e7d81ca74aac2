"""Workflows run by an external executor: launch with retries, reports, and time limits."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.workflows.workflow_kit import JsonObject, WorkflowHarness, call_step
from timewright import Scheduler, Settings
from timewright.core.moments import SECOND
from timewright.core.run.run import run_idempotency_key
from timewright.core.target import Http, Workflow
from timewright.errors import InvalidInput, Stale
from timewright.ledger.workflow_runs.records import HELD_BY_EXECUTOR
from timewright.ledger.workflow_runs.versions import load_workflow
from timewright.ports import Launch
from timewright.targets.workflow import WorkflowStart, WorkflowTarget
from timewright.testing.bench import TARGET_KINDS
from timewright.testing.targets import ScriptedOutcome, fail, succeed

OUTSIDE = {"url": "https://engine.example/start", "headers": {"X-Team": "a"}}
MINUTELY = {"cron": "* * * * *", "user_id": "ada"}


@pytest.fixture
def outside(harness: WorkflowHarness) -> WorkflowHarness:
    """A harness that launches workflows as in production, with scripted HTTP responses."""

    def find(launch: Launch) -> WorkflowStart:
        target = launch.target
        assert isinstance(target, Workflow)
        spec, pin = harness.store.read(lambda tx: load_workflow(tx, launch.run_id, target))
        return WorkflowStart(spec=spec, user=pin.user, input=pin.input)

    targets: dict[str, Any] = dict.fromkeys(TARGET_KINDS, harness.target)
    targets["workflow"] = WorkflowTarget(find, http=lambda: harness.target)
    harness.bench.loop.launcher._targets = targets
    return harness


def answers(harness: WorkflowHarness, *acts: ScriptedOutcome) -> None:
    """The scripted responses of the executor, one per request."""
    harness.target.script("flow", *acts)


def rows(harness: WorkflowHarness) -> list[JsonObject]:
    found: list[JsonObject] = harness.ask("run list", schedule="flow")["runs"][::-1]
    return found


def asked(harness: WorkflowHarness) -> list[Http]:
    return [launch.target for launch in harness.target.launched if isinstance(launch.target, Http)]


def test_an_executor_receives_the_definition_and_input(outside: WorkflowHarness) -> None:
    outside.put(call_step("a"), executor=OUTSIDE, schedules=[MINUTELY], input={"day": 1})
    outside.advance(minutes=1)
    (request,) = asked(outside)
    (row,) = rows(outside)
    assert (request.url, request.method, request.headers) == (OUTSIDE["url"], "POST", OUTSIDE["headers"])
    told = dict(request.body)
    dag = told.pop("dag")
    assert told == {
        "workflow_id": "flow",
        "version": 1,
        "user_id": "ada",
        "scheduled_for": "2026-03-10T12:01:00Z",
        "idempotency_key": run_idempotency_key(outside.run(row["id"])),
        "run_id": row["id"],
        "fence": 1,
        "input": {"day": 1},
    }
    assert [step["name"] for step in dag["steps"]] == ["a"]
    assert outside.run(row["id"]).holder == HELD_BY_EXECUTOR
    assert outside.children(row["id"]) == []


@pytest.mark.parametrize(
    "written",
    [
        OUTSIDE["url"],
        {"http": f"PUT {OUTSIDE['url']}"},
        {"http": {"url": OUTSIDE["url"], "timeout": "5s"}},
        {"kind": "http", "url": OUTSIDE["url"]},
    ],
    ids=["an address", "a line", "fields", "the long way"],
)
def test_an_executor_is_written_like_any_request(outside: WorkflowHarness, written: Any) -> None:
    outside.put(call_step("a"), executor=written)
    kept = outside.ask("workflow get", workflow="flow")["workflow"]["executor"]
    assert kept["url"] == OUTSIDE["url"]
    with pytest.raises(InvalidInput) as refusal:
        outside.put(call_step("a"), executor={"shell": ["rm"]})
    assert (refusal.value.field or "").startswith("executor")


def test_the_id_that_an_executor_gives_is_kept_shown_and_found(outside: WorkflowHarness) -> None:
    outside.put(call_step("a"), executor=OUTSIDE, schedules=[MINUTELY])
    answers(outside, succeed(result={"status": 200, "body": {"run_id": "dag-1"}}), succeed())
    outside.advance(minutes=1)
    outside.ask("run report", run=rows(outside)[0]["id"], fence=1, outcome="FAILED")
    outside.advance(minutes=1)
    first, second = rows(outside)
    outside.ask("run report", run=second["id"], fence=1, outcome="STARTED", external_id="dag-2")
    for row, name in ((first, "dag-1"), (second, "dag-2")):
        detail = outside.ask("run get", run=row["id"])
        assert detail["external_ids"] == [{"run_id": row["id"], "fence": 1, "external_id": name}]
        assert [run["id"] for run in outside.ask("run list", external_id=name)["runs"]] == [row["id"]]
    assert outside.ask("run list", external_id="dag-1", state="succeeded")["runs"] == []
    with pytest.raises(Stale):
        outside.ask("run report", run=first["id"], fence=9, outcome="STARTED", external_id="late")
    assert outside.ask("run list", external_id="late")["runs"] == []


def test_the_executor_reports_its_start_and_its_end(outside: WorkflowHarness) -> None:
    outside.put(call_step("a"), executor=OUTSIDE, time_limit="10m", schedules=[MINUTELY])
    outside.advance(minutes=1)
    (row,) = rows(outside)
    outside.advance(minutes=8)
    started = outside.ask("run report", run=row["id"], fence=1, outcome="STARTED")["run"]
    assert (started["state"], started["started_at"]) == ("leased", "2026-03-10T12:09:00Z")
    outside.advance(minutes=8)
    assert outside.state(row["id"]) == "leased"
    ended = outside.ask("run report", run=row["id"], fence=1, outcome={"status": "SUCCESS", "result": 7})
    assert ended["run"]["state"] == "succeeded"
    assert outside.result(row["id"]) == 7
    again = outside.ask("run report", run=row["id"], fence=1, outcome={"status": "SUCCESS", "result": 7})
    assert again["run"]["state"] == "succeeded"
    with pytest.raises(Stale):
        outside.ask("run report", run=row["id"], fence=1, outcome="FAILED")


def test_a_reported_failure_is_the_end_and_is_not_launched_again(outside: WorkflowHarness) -> None:
    outside.put(call_step("a"), executor=OUTSIDE, schedules=[{"cron": "1 12 * * *"}])
    outside.advance(minutes=1)
    (row,) = rows(outside)
    failed = {"status": "FAILED", "error": "no such table"}
    assert outside.ask("run report", run=row["id"], fence=1, outcome=failed)["run"]["state"] == "failed"
    outside.advance(minutes=5)
    assert len(asked(outside)) == 1
    assert outside.run(row["id"]).error == "no such table"


def test_without_feedback_a_launch_is_over_after_a_while_and_the_schedule_is_free(
    outside: WorkflowHarness,
) -> None:
    outside.put(call_step("a"), executor=OUTSIDE, time_limit="90s", schedules=[MINUTELY])
    outside.advance(minutes=5, seconds=30)
    states = [row["reason"] or row["state"] for row in rows(outside)]
    assert states == ["succeeded", "overlap", "succeeded", "overlap", "leased"]
    assert outside.result(rows(outside)[0]["id"]) == {"launched": True, "reported": False}


def test_an_executor_that_never_reports_its_end_has_failed(outside: WorkflowHarness) -> None:
    outside.put(call_step("a"), executor=OUTSIDE, time_limit="5m", schedules=[{"cron": "1 12 * * *"}])
    outside.advance(minutes=1)
    (row,) = rows(outside)
    outside.ask("run report", run=row["id"], fence=1, outcome="STARTED")
    outside.advance(minutes=6)
    (row,) = rows(outside)
    assert (row["state"], row["error"]) == ("failed", "the executor reported its start and never its end")


def test_a_launch_is_tried_three_times_a_second_apart_and_then_failed(outside: WorkflowHarness) -> None:
    outside.put(call_step("a"), executor=OUTSIDE, schedules=[{"cron": "1 12 * * *"}])
    answers(outside, fail("HTTP 503 Service Unavailable"))
    outside.advance(minutes=1)
    assert len(asked(outside)) == 1
    outside.advance(seconds=1)
    assert len(asked(outside)) == 2
    outside.advance(seconds=1)
    (row,) = rows(outside)
    assert (len(asked(outside)), row["state"], row["attempts"]) == (3, "failed", 3)
    assert len({request.body["idempotency_key"] for request in asked(outside)}) == 1
    outside.advance(minutes=5)
    assert len(asked(outside)) == 3


@pytest.mark.parametrize("body", [False, {"started": False}])
def test_an_executor_may_reject_a_launch_with_a_success_status(outside: WorkflowHarness, body: Any) -> None:
    outside.put(call_step("a"), executor=OUTSIDE, schedules=[{"cron": "1 12 * * *"}])
    answers(outside, succeed({"status": 200, "body": body}), succeed({"status": 200, "body": True}))
    outside.advance(minutes=1, seconds=5)
    (row,) = rows(outside)
    assert (len(asked(outside)), row["state"], row["fence"]) == (2, "leased", 2)


@pytest.mark.parametrize(("word", "state"), [("SUCCESS", "succeeded"), ("FAILED", "failed")])
def test_an_executor_may_be_done_before_its_launch_is_written(
    outside: WorkflowHarness, word: str, state: str
) -> None:
    outside.put(call_step("a"), executor=OUTSIDE, schedules=[{"cron": "1 12 * * *"}])
    answers(outside, succeed(after=10 * SECOND))
    outside.advance(minutes=1)
    (row,) = rows(outside)
    assert outside.run(row["id"]).holder == "bench"
    outside.ask("run report", run=row["id"], fence=1, outcome="STARTED")
    outside.ask("run report", run=row["id"], fence=1, outcome=word)
    outside.advance(minutes=10)
    assert outside.state(row["id"]) == state
    assert len(asked(outside)) == 1


def test_a_start_that_is_reported_before_the_launch_is_written_counts(outside: WorkflowHarness) -> None:
    outside.put(call_step("a"), executor=OUTSIDE, time_limit="5m", schedules=[{"cron": "1 12 * * *"}])
    answers(outside, succeed(after=10 * SECOND))
    outside.advance(minutes=1)
    (row,) = rows(outside)
    outside.ask("run report", run=row["id"], fence=1, outcome="STARTED")
    outside.advance(minutes=10)
    assert outside.run(row["id"]).error == "the executor reported its start and never its end"


def test_a_cancelled_external_run_ends_after_its_grace(outside: WorkflowHarness) -> None:
    outside.put(call_step("a"), executor=OUTSIDE, schedules=[{"cron": "1 12 * * *"}])
    outside.advance(minutes=1)
    (row,) = rows(outside)
    outside.ask("run cancel", run=row["id"])
    outside.advance(seconds=30)
    assert outside.state(row["id"]) == "cancelled"


class Engine(ThreadingHTTPServer):
    """A local executor that accepts every request and records it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _RecordingHandler)
        self.asked: list[tuple[JsonObject, str]] = []
        self.received = threading.Event()


class _RecordingHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, Engine)
        self.server.asked.append((body, self.headers["Idempotency-Key"]))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.received.set()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    server = Engine()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_real_executor_is_asked_over_http_and_reports_back(engine: Engine, tmp_path: Path) -> None:
    app = Scheduler(tmp_path / "store.db", settings=Settings(local=True))
    ended = threading.Event()
    app.on_completed(lambda fact: ended.set())
    with app:
        url = f"http://127.0.0.1:{engine.server_address[1]}/start"
        app.workflows.put(name="flow", steps=[call_step("a")], executor={"url": url})
        app.workflows.run(workflow="flow", user="ada")
        assert engine.received.wait(60)
        ((body, key),) = engine.asked
        assert (body["workflow_id"], body["version"], body["user_id"]) == ("flow", 1, "ada")
        assert key == f'"{body["idempotency_key"]}"' or key == body["idempotency_key"]
        pause = threading.Event()
        while app.runs.get(run=body["run_id"]).run.holder != HELD_BY_EXECUTOR:
            assert not pause.wait(0.02)
        app.runs.report(run=body["run_id"], fence=body["fence"], outcome="SUCCESS")
        assert ended.wait(60)
        assert app.runs.get(run=body["run_id"]).run.state == "succeeded"
