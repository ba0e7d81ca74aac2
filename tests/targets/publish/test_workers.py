"""Results from real Celery and RQ workers: value, failure, time limit, cancellation, restart."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from redis import Redis

from tests.targets.kit import outcome_of, start_launch, wait_until
from tests.targets.publish.servers import ROOT, Server, connected
from tests.targets.publish.tasks import called
from timewright import Publish, Scheduler, Settings
from timewright.core.run.run import Cancelled, Failed, Succeeded, TimedOut
from timewright.engine import in_flight as engine
from timewright.targets.publish import redis as rq_broker
from timewright.targets.publish import target as publishing
from timewright.targets.publish.protocol import BrokerMessage
from timewright.targets.publish.target import PublishTarget

CELERY = ("celery", "-A", "tests.targets.publish.tasks", "worker", "--pool", "prefork", "--concurrency", "2")
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO")
TWICE = {"max_attempts": 2, "backoff": {"kind": "constant", "wait": "0.05s"}}

_numbers = itertools.count()
both_engines = pytest.mark.parametrize("broker", ["celery", "rq"])


class Engine:
    """A running worker, and targets for it."""

    def __init__(self, broker: str, url: str) -> None:
        self.broker = broker
        self.url = url

    def new(self, name: str, *, wait: bool = True, **payload: Any) -> Publish:
        own = {"celery": {"result_backend": self.url}, "rq": {"serializer": "json"}}[self.broker]
        task = name if self.broker == "celery" else f"tests.targets.publish.{name}"
        return Publish(to=self.broker, name=task, url=self.url, payload=payload, options=own, wait=wait)

    def calls(self, who: str) -> int:
        return called(self.url, who)


@pytest.fixture(scope="module")
def celery(redis: tuple[Server, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    log = tmp_path_factory.mktemp("celery") / "celery.log"
    argv = ("env", f"TESTS_REDIS={redis[1]}", sys.executable, "-m", *CELERY, *QUIET)
    with Server(argv, ready=lambda: "ready." in log.read_text(), log=log):
        yield Engine("celery", redis[1])


@pytest.fixture(scope="module")
def rq(redis: tuple[Server, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    log = tmp_path_factory.mktemp("rq") / "rq.log"
    with Server(rq_worker(redis[1], "json"), ready=lambda: "istening on" in log.read_text(), log=log):
        yield Engine("rq", redis[1])


@pytest.fixture
def engine_of(broker: str, request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(broker)
    return found


@pytest.fixture
def who() -> str:
    return f"caller-{next(_numbers)}"


def rq_worker(url: str, serializer: str, *more: str) -> tuple[str, ...]:
    reads = "JSONSerializer" if serializer == "json" else "DefaultSerializer"
    own = ("--url", url, "--serializer", f"rq.serializers.{reads}", *more)
    rq = (sys.executable, "-c", "from rq.cli import main; main()")
    return ("env", f"TESTS_REDIS={url}", *rq, "worker", *own, "default")


@both_engines
def test_the_result_of_the_work_is_the_result_of_the_run(
    engine_of: Engine, target: PublishTarget, who: str
) -> None:
    what = engine_of.new("tasks.add", who=who, a=40, b=2)
    outcome = outcome_of(target, what, key=who, limit=60)
    assert isinstance(outcome, Succeeded), outcome
    assert outcome.result["value"] == 42
    assert outcome.result["duplicate"] is False
    assert engine_of.calls(who) == 1


@both_engines
def test_an_attempt_reuses_the_result_of_finished_work(
    engine_of: Engine, target: PublishTarget, who: str
) -> None:
    what = engine_of.new("tasks.add", who=who, a=1, b=2)
    first, second = (outcome_of(target, what, key=who, limit=60) for _ in range(2))
    assert (first.result["value"], second.result["value"]) == (3, 3)
    assert second.result["duplicate"] is True
    assert engine_of.calls(who) == 1


@both_engines
def test_work_that_failed_is_sent_again_by_the_next_attempt(
    engine_of: Engine, tmp_path: Path, who: str
) -> None:
    what = engine_of.new("tasks.fail_first", who=who)
    app = Scheduler(tmp_path / "store.db", settings=Settings(publish=(engine_of.url.removesuffix("/0"),)))
    with app:
        app.schedules.create(name="tell", manual=True, target=msgspec.to_builtins(what), retry=TWICE)
        run = app.schedules.run(schedule="tell").run.id
        wait_until(lambda: app.runs.get(run=run).run.state in ("succeeded", "failed"))
        first, second = app.runs.get(run=run).attempts
    assert (first.outcome, second.outcome) == ("failed", "succeeded")
    assert "ValueError" in first.error
    assert "not the first time" in first.error
    assert second.result["value"] == "the second time"


@both_engines
def test_the_time_limit_cancels_the_work_and_the_next_attempt_starts_it_again(
    engine_of: Engine, target: PublishTarget, who: str
) -> None:
    what = engine_of.new("tasks.slow", who=who, seconds=2)
    outcome = outcome_of(target, what, key=who, limit=1.0, fence=1)
    assert isinstance(outcome, TimedOut)
    assert "did not finish the work within 1s" in outcome.error
    retried = outcome_of(target, what, key=who, limit=60, fence=2)
    assert isinstance(retried, Succeeded), retried
    assert retried.result["duplicate"] is False
    assert engine_of.calls(f"{who}:end") == 1


@both_engines
def test_cancelling_stops_the_work_where_it_runs(engine_of: Engine, target: PublishTarget, who: str) -> None:
    what = engine_of.new("tasks.slow", who=who, seconds=60)
    work, recorder = start_launch(target, what, key=who, limit=90)
    wait_until(lambda: engine_of.calls(who) == 1)
    work.stop("no longer wanted")
    assert recorder.wait() == Cancelled(reason="no longer wanted")
    after = f"{who}-after"
    # The workers are free again; otherwise these tasks would wait for a minute.
    several = [
        start_launch(target, engine_of.new("tasks.add", who=after, a=n, b=0), key=f"{after}{n}")
        for n in range(4)
    ]
    assert [recorder.wait().result["value"] for _, recorder in several] == [0, 1, 2, 3]
    assert engine_of.calls(f"{who}:end") == 0


@both_engines
def test_remote_work_survives_a_scheduler_stop_and_its_result_is_found_later(
    engine_of: Engine, tmp_path: Path, who: str
) -> None:
    what = engine_of.new("tasks.slow", who=who, seconds=1)
    place, settings = tmp_path / "store.db", Settings(publish=(engine_of.broker,))
    app = Scheduler(place, settings=settings)
    app.start()
    app.schedules.create(name="tell", manual=True, target=msgspec.to_builtins(what))
    run = app.schedules.run(schedule="tell").run.id
    wait_until(lambda: engine_of.calls(who) == 1)
    app.stop(wait=timedelta(0))
    with Scheduler(place, settings=settings) as again:
        wait_until(lambda: again.runs.get(run=run).run.state == "succeeded")
        last = again.runs.get(run=run).attempts[-1]
    assert last.result["value"] == "slept"
    assert last.result["duplicate"] is True
    assert engine_of.calls(who) == 1


def test_waiting_for_celery_closes_all_connections(celery: Engine, target: PublishTarget, who: str) -> None:
    before = connected(celery.url)
    for number in range(5):
        what = celery.new("tasks.add", who=who, a=number, b=0)
        assert outcome_of(target, what, key=f"{who}-{number}").result["value"] == number
    assert before < connected(celery.url) <= before + 4
    target.close(grace=timedelta(0))
    assert connected(celery.url) == before


def test_a_job_whose_rq_worker_was_killed_is_run_again_by_the_next_attempt(
    redis: tuple[Server, str], tmp_path: Path, target: PublishTarget, who: str
) -> None:
    engine, log = Engine("rq", redis[1]), tmp_path / "rq.log"
    options = {"serializer": "json", "queue": who}
    what = msgspec.structs.replace(engine.new("tasks.hang_first", who=who), options=options)
    argv = (*rq_worker(redis[1], "json")[:-1], who)
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, stdout=out, stderr=out, env=worker_environment(), start_new_session=True
        )
    _, recorder = start_launch(target, what, key=who, limit=300)
    wait_until(lambda: engine.calls(who) == 1)
    os.killpg(process.pid, signal.SIGKILL)  # the worker and the child that runs the job
    process.wait()
    forget_heartbeats(redis[1], who)  # as Redis does 90 s later
    died = recorder.wait()
    assert isinstance(died, Failed)
    assert "has died" in died.error
    again_log = tmp_path / "again.log"
    with Server(argv, ready=lambda: "istening on" in again_log.read_text(), log=again_log):
        again = outcome_of(target, what, key=who, limit=60, fence=2)
    assert (again.result["value"], again.result["duplicate"]) == ("the second time", False)


class EndsBetweenTwoReads:
    """Redis with a job that ends after its status was read and before its executions are."""

    status = b"started"

    def hget(self, name: str, field: str) -> bytes:
        return self.status

    def zrange(self, name: str, first: int, last: int) -> list[bytes]:
        self.status = b"finished"
        return []

    def close(self) -> None:
        """Nothing is open."""


def test_a_job_that_ends_while_it_is_looked_at_is_not_taken_for_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rq_broker, "redis_client", lambda address: EndsBetweenTwoReads())
    options = rq_broker.RqOptions()
    broker = rq_broker.RqBroker(cast("Any", None), options)
    message = BrokerMessage(
        key="k",
        name="tasks.add",
        payload=None,
        body=b"",
        headers={},
        schedule_id="s",
        time_limit=60,
        wait=True,
        options=options,
    )
    assert asyncio.run(broker.read_outcome(message, "k")) is None
    assert isinstance(asyncio.run(broker.read_outcome(message, "k")), Succeeded)
    asyncio.run(broker.close())


def forget_heartbeats(url: str, who: str) -> None:
    client: Any = Redis.from_url(url)
    try:
        assert client.delete(*client.keys("rq:execution:*")) == 1
    finally:
        client.close()


def worker_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}


def test_a_default_rq_worker_runs_jobs_sent_without_options(
    redis: tuple[Server, str], target: PublishTarget, who: str, tmp_path: Path
) -> None:
    what = Publish(
        to="rq",
        name="tests.targets.publish.tasks.add",
        url=redis[1],
        payload=[who, 1, 2],
        options={"queue": "plain"},
    )
    assert isinstance(outcome_of(target, what, key=who), Succeeded)
    argv = (*rq_worker(redis[1], "pickle", "--burst")[:-1], "plain")
    with Server(argv, ready=lambda: called(redis[1], who) == 1, log=tmp_path / "rq.log"):
        waiting = msgspec.structs.replace(what, wait=True)
        outcome = wait_until(lambda: finished(outcome_of(target, waiting, key=who)))
    assert "value" not in outcome.result, "a pickle from a broker is never read"


def finished(outcome: Any) -> Any:
    return outcome if isinstance(outcome, Succeeded) else None


def test_the_reasons_after_which_a_run_continues_are_those_of_the_engine() -> None:
    assert {
        engine.StopReason.STOPPING,
        engine.StopReason.LEASE_LOST,
        engine.StopReason.NOT_RENEWED,
    } == publishing.RUN_CONTINUES_REASONS
