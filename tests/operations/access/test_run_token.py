"""The token of a run: it may pause, finish or snooze its own schedule and set its state, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.targets.call import functions
from timewright import Context, Scheduler, Settings
from timewright.access.credentials import LIFETIME, new_run_token, read_run_token
from timewright.errors import Conflict, Forbidden, InvalidInput, Unauthorized
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import authenticate, context_for, require_auth_cache
from timewright.operations.access.permissions import RUN_TOKEN_OPERATIONS


class RunningJob:
    """A scheduler with a job that waits, another schedule, and the context of the job's token."""

    def __init__(self, app: Scheduler) -> None:
        self.app = app
        self.token = ""
        self.began, self.release = threading.Event(), threading.Event()
        app.schedule(every="1h", name="job", keep_state=True)(self.work)
        app.schedule(every="1h", name="other", keep_state=True)(print)

    def work(self, ctx: Context) -> None:
        self.token = ctx.token
        self.began.set()
        self.release.wait(60)

    def start(self) -> None:
        self.run_id = self.app.schedules.run("job").run.id
        assert self.began.wait(60)

    @property
    def base(self) -> OperationContext:
        return self.app._context()

    def as_run(self) -> OperationContext:
        return context_for(self.base, authenticate(self.base, self.token))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RunningJob]:
    app = Scheduler(tmp_path / "app.db")
    made = RunningJob(app)
    with app:
        made.start()
        yield made
        made.release.set()


def test_the_token_of_a_run_changes_its_own_schedule(job: RunningJob) -> None:
    run = job.as_run()
    written = operations["schedule set-state"](run, {"schedule": "job", "state": {"page": 2}})
    assert (written["state"], written["version"]) == ({"page": 2}, 1)
    until = (run.now() + timedelta(hours=3)).isoformat()
    paused = operations["schedule pause"](run, {"schedule": "job", "until": until})
    assert paused["progress"]["paused_until"] is not None
    finished = operations["schedule finish"](run, {"schedule": "job", "reason": "all is loaded"})
    assert (finished["progress"]["state"], finished["progress"]["reason"]) == ("finished", "all is loaded")
    entries = job.app.call("audit list", subject=finished["schedule"]["id"]).entries
    assert {(one.actor, one.origin) for one in entries[:2]} == {(f"run {job.run_id}", "run")}
    job.release.set()
    job.app.runs.wait(job.run_id)
    assert job.app.call("verify").holds
    assert job.app.schedules.get("job").progress.state.value == "finished"


def test_the_token_of_a_run_may_do_nothing_else(job: RunningJob) -> None:
    run = job.as_run()
    refused = set()
    for operation in operations:
        example: dict[str, Any] = {**operation.examples[0], "schedule": "job"}
        if operation.name in RUN_TOKEN_OPERATIONS:
            continue
        with pytest.raises(Forbidden):
            operation(run, example)
        with pytest.raises(Forbidden):
            operation.perform_read(run, operation.request_type)
        refused.add(operation.name)
    assert len(refused) == len(list(operations)) - len(RUN_TOKEN_OPERATIONS)


@pytest.mark.parametrize("wanted", ["other", "nobody", None, 7])
def test_the_token_of_a_run_changes_no_other_schedule(job: RunningJob, wanted: Any) -> None:
    run = job.as_run()
    for name, field in RUN_TOKEN_OPERATIONS.items():
        with pytest.raises(Forbidden, match="only its own schedule"):
            operations[name](run, {field: wanted, "state": 1} if wanted is not None else {})


def test_the_token_ends_with_the_run(job: RunningJob) -> None:
    assert job.as_run().caller.own_schedule
    job.release.set()
    job.app.runs.wait(job.run_id)
    with pytest.raises(Unauthorized):
        job.as_run()


def test_a_token_of_another_attempt_time_or_installation_is_refused(job: RunningJob) -> None:
    base, keyring = job.base, require_auth_cache(job.base).keyring
    now = base.now()
    forged = [
        new_run_token(keyring, job.run_id, 2, now=now),
        new_run_token(keyring, job.run_id, 1, now=now - LIFETIME),
        new_run_token(keyring, "run_" + "0" * 26, 1, now=now),
        new_run_token(
            replace(keyring, keys=(replace(keyring.current, pepper=b"x" * 32),)), job.run_id, 1, now=now
        ),
        job.token[:-1] + ("0" if job.token[-1] != "0" else "1"),
        job.token.replace(f"{job.run_id}_1_", f"{job.run_id}_2_"),
        job.token + "0",
        "twr_",
    ]
    for token in forged:
        with pytest.raises(Unauthorized):
            authenticate(base, token)
    assert read_run_token(keyring, job.token) is not None


def test_a_state_is_set_only_where_it_is_kept_and_over_the_version_that_was_read(job: RunningJob) -> None:
    app = job.app
    assert app.call("schedule set-state", schedule="other", state=[1], version=0).version == 1
    with pytest.raises(Conflict, match="has version 1"):
        app.call("schedule set-state", schedule="other", state=[2], version=0)
    with pytest.raises(InvalidInput, match="the state has"):
        app.call("schedule set-state", schedule="other", state="x" * 20_000)
    job.release.set()
    app.runs.wait(job.run_id)


def test_a_function_in_a_worker_process_has_the_token(tmp_path: Path) -> None:
    app = Scheduler(tmp_path / "app.db")
    app.schedule(manual=True, name="job", isolation="process")(functions.token_parts)
    with app:
        assert app.run_now("job", timeout="60s") == ["twr", True, True]


class Receiver(BaseHTTPRequestHandler):
    """Keeps the headers of requests."""

    received: list[dict[str, str]]

    def do_POST(self) -> None:
        self.received.append(dict(self.headers))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


def test_a_command_and_a_request_that_asks_for_it_have_the_token(tmp_path: Path) -> None:
    Receiver.received = []
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        settings = Settings(shell=True, local=True)
        with Scheduler(tmp_path / "app.db", settings=settings) as app:
            command = ["sh", "-c", "echo ${#TIMEWRIGHT_RUN_TOKEN} $TIMEWRIGHT_RUN_TOKEN"]
            app.schedules.create("command", manual=True, shell=command)
            asks = {"url": url, "method": "POST", "headers": {"X-Token": "Bearer secret://run-token"}}
            app.schedules.create("asks", manual=True, http=asks)
            app.schedules.create("plain", manual=True, http={"url": url, "method": "POST"})
            printed = app.run_now("command", timeout="60s")
            for name in ("asks", "plain"):
                app.run_now(name, timeout="60s")
        server.shutdown()
    length, shown = str(printed["output"]).split()
    assert int(length) > 60
    assert shown == "secret://run-token", "its value is not in the output"
    asked, plain = Receiver.received
    assert asked["X-Token"].startswith("Bearer twr_run_")
    assert "twr_" not in str(plain)


def test_no_secret_may_have_the_name_of_the_token(job: RunningJob) -> None:
    with pytest.raises(InvalidInput, match="token of the run itself"):
        job.app.call("secret set", secret="run-token", value="x")
