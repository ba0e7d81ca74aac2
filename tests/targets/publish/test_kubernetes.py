"""Kubernetes Jobs with `wait`, through the client library, on an API server written for these tests.

It knows what the broker uses: create, read and delete of Jobs; a deleted Job is gone only some reads later.
No real cluster was tried.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.targets.kit import outcome_of, start_launch, wait_until
from timewright import Publish, Scheduler, Settings
from timewright.core.run.run import Cancelled, Failed, Succeeded
from timewright.targets.publish.target import PublishTarget

READS_UNTIL_GONE = 2


class Cluster:
    """The Jobs of a cluster; `outcome` decides how each one ends when it is created."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.reads = 0
        self.outcome: Callable[[], str] = lambda: ""
        self.url = ""
        self.creation_answered = threading.Event()
        self.creation_answered.set()

    def create(self, job: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = job["metadata"]["name"]
        if name in self.jobs:
            return 409, failure(409, "AlreadyExists")
        job["metadata"]["uid"] = f"uid-{len(self.created)}"
        self.jobs[name] = job
        self.created.append(name)
        self.finish(name, self.outcome())
        return 201, job

    def finish(self, name: str, outcome: str) -> None:
        """End a Job: `Complete`, `Failed`, or not at all."""
        reason = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
        more = reason if outcome == "Failed" else {}
        conditions = [{"type": outcome, "status": "True", **more}] if outcome else []
        self.jobs[name]["status"] = {"conditions": conditions, "active": int(not outcome)}

    def read(self, name: str) -> tuple[int, dict[str, Any]]:
        self.reads += 1
        job = self.jobs.get(name)
        if job is not None and "deletionTimestamp" in job["metadata"]:
            job["left"] = job.get("left", READS_UNTIL_GONE) - 1
            if not job["left"]:
                del self.jobs[name]
        return (200, job) if job is not None else (404, failure(404, "NotFound"))

    def delete(self, name: str, options: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if name not in self.jobs:
            return 404, failure(404, "NotFound")
        assert options["propagationPolicy"] == "Foreground", "its pods must end too"
        self.jobs[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.deleted.append(name)
        return 200, {"kind": "Status", "status": "Success"}


def failure(code: int, reason: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            path, name = self.path.partition("?")[0], self.path.partition("?")[0].rpartition("/")[2]
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            assert path.startswith("/apis/batch/v1/namespaces/default/jobs"), path
            given = json.loads(body) if body else {}
            status, answer = {
                "POST": lambda: found.create(given),
                "GET": lambda: found.read(name),
                "DELETE": lambda: found.delete(name, given),
            }[self.command]()
            if self.command == "POST":
                found.creation_answered.wait(30)
            sent = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_POST = do_GET = do_DELETE = answer  # noqa: N815 - names of the library

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


def job(cluster: Cluster, *, wait: bool = True) -> Publish:
    return Publish(to="kubernetes", name="report", url=cluster.url, options={"image": "report:1"}, wait=wait)


def test_a_job_that_completes_is_a_succeeded_run(cluster: Cluster, target: PublishTarget) -> None:
    _, recorder = start_launch(target, job(cluster), key="k1", limit=60)
    wait_until(lambda: len(cluster.jobs) == 1)
    cluster.finish(cluster.created[0], "Complete")
    outcome = recorder.wait()
    assert isinstance(outcome, Succeeded)
    assert outcome.result["id"] == cluster.created[0]


def test_a_job_that_exits_1_is_a_failed_run_and_is_retried_by_policy(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.outcome = iter(["Failed", "Complete"]).__next__
    settings = Settings(publish=(cluster.url,))
    retry = {"max_attempts": 2, "backoff": {"kind": "constant", "wait": "0.05s"}}
    with Scheduler(tmp_path / "store.db", settings=settings) as app:
        app.schedules.create("report", manual=True, target=msgspec.to_builtins(job(cluster)), retry=retry)
        run = app.schedules.run("report").run.id
        wait_until(lambda: app.runs.get(run).run.state in ("succeeded", "failed", "parked"))
        first, second = app.runs.get(run).attempts
    assert (first.outcome, second.outcome) == ("failed", "succeeded")
    assert "BackoffLimitExceeded" in first.error
    assert len(cluster.created) == 2
    assert len(set(cluster.created)) == 1, "the same run has the same Job"


def test_cancelling_a_run_deletes_its_job(cluster: Cluster, target: PublishTarget) -> None:
    work, recorder = start_launch(target, job(cluster), key="k2", limit=60)
    wait_until(lambda: cluster.reads > 0)  # the answer to its creation has arrived
    work.stop("no longer wanted")
    assert recorder.wait() == Cancelled(reason="no longer wanted")
    assert cluster.deleted == cluster.created
    assert cluster.jobs == {}


def test_a_job_whose_creation_is_answered_after_the_cancel_is_deleted(
    cluster: Cluster, target: PublishTarget
) -> None:
    cluster.creation_answered.clear()
    work, recorder = start_launch(target, job(cluster), key="k6", limit=60)
    wait_until(lambda: len(cluster.jobs) == 1)
    work.stop("no longer wanted")
    cluster.creation_answered.set()
    assert recorder.wait() == Cancelled(reason="no longer wanted")
    assert cluster.deleted == cluster.created
    assert cluster.jobs == {}


def test_a_job_that_someone_deleted_is_a_failed_run(cluster: Cluster, target: PublishTarget) -> None:
    _, recorder = start_launch(target, job(cluster), key="k3", limit=60)
    wait_until(lambda: len(cluster.jobs) == 1)
    cluster.jobs.clear()
    outcome = recorder.wait()
    assert isinstance(outcome, Failed)
    assert "does not exist any more" in outcome.error


def test_a_second_attempt_joins_a_job_that_still_runs(cluster: Cluster, target: PublishTarget) -> None:
    cluster.outcome = lambda: "Complete"
    first, second = (outcome_of(target, job(cluster), key="k4", limit=60, fence=n) for n in (1, 2))
    assert (first.result["duplicate"], second.result["duplicate"]) == (False, True)
    assert len(cluster.created) == 1


def test_without_wait_the_run_ends_when_the_job_is_created(cluster: Cluster, target: PublishTarget) -> None:
    cluster.outcome = lambda: "Failed"
    assert isinstance(outcome_of(target, job(cluster, wait=False), key="k5", limit=60), Succeeded)
