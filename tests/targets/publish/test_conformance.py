"""Promises of every broker: a message arrives once, and no failure loses it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.faults.tools.ports import free_port
from tests.targets.kit import outcome_of, start_launch, wait_until
from tests.targets.publish.real_brokers import BROKER_NAMES, STARTED_BROKERS, RealBroker
from tests.targets.publish.servers import connected
from timewright import Publish, Scheduler, Settings
from timewright.core.run.run import Cancelled, Failed, Released, Succeeded, TimedOut
from timewright.operations.views import RunDetail
from timewright.targets.loop_thread import LoopThread
from timewright.targets.publish.target import PublishTarget

every_broker = pytest.mark.parametrize("broker", BROKER_NAMES)
# Brokers that these tests start and stop themselves.
our_brokers = pytest.mark.parametrize("broker", STARTED_BROKERS)
TWICE = {"max_attempts": 2, "backoff": {"kind": "constant", "wait": "0.05s"}, "exhausted": "park"}
OVER = ("succeeded", "failed", "parked")


@every_broker
def test_a_message_arrives_once_with_payload_key_and_run(
    real_broker: RealBroker, target: PublishTarget
) -> None:
    what = real_broker.new({"day": "2026-03-09", "letters": "äß€"})
    outcome = outcome_of(target, what, key="a" * 64)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["duplicate"] is False
    (message,) = real_broker.read_messages(what)
    assert message["key"] == "a" * 64
    assert message["payload"] == {"day": "2026-03-09", "letters": "äß€"}
    assert message["timewright-run"].startswith("run_")
    assert message["timewright-attempt"] == "2"


@every_broker
def test_the_same_key_twice_is_one_message_or_two_with_the_same_id(
    real_broker: RealBroker, target: PublishTarget
) -> None:
    what = real_broker.new({"n": 1})
    outcomes = [outcome_of(target, what, key="b" * 64, attempt=number) for number in (1, 2)]
    assert [type(outcome) for outcome in outcomes] == [Succeeded, Succeeded]
    keys = [one["key"] for one in real_broker.read_messages(what)]
    assert keys == ["b" * 64] * (1 if real_broker.deduplicates else 2)


@every_broker
def test_two_keys_are_two_messages(real_broker: RealBroker, target: PublishTarget) -> None:
    what = real_broker.new({"n": 1})
    for key in ("c" * 64, "d" * 64):
        assert isinstance(outcome_of(target, what, key=key), Succeeded)
    assert {one["key"] for one in real_broker.read_messages(what)} == {"c" * 64, "d" * 64}


@every_broker
def test_an_unreachable_broker_fails_with_its_address_and_a_fix(
    real_broker: RealBroker, target: PublishTarget
) -> None:
    what = moved(real_broker.new({"n": 1}), free_port())
    outcome = outcome_of(target, what)
    assert isinstance(outcome, Failed)
    assert not outcome.final
    assert f"{real_broker.broker} at {what.url}" in outcome.error
    assert "; check that " in outcome.error


@our_brokers
def test_a_run_with_an_unreachable_broker_backs_off_parks_and_is_sent_once_later(
    real_broker: RealBroker, tmp_path: Path
) -> None:
    what = real_broker.new({"n": 1})
    app = Scheduler(tmp_path / "store.db", settings=Settings(publish=(real_broker.broker,)))
    app.secrets.set(secret="aws", value="tests")
    with app:
        app.schedules.create(name="tell", manual=True, target=msgspec.to_builtins(what), retry=TWICE)
        real_broker.server.stop()
        try:
            asked = app.schedules.run(schedule="tell").run.id
            ended = wait_until(lambda: over(app, asked))
        finally:
            real_broker.server.start()
        assert ended is not None
        assert ended.run.state == "parked"
        assert [one.outcome for one in ended.attempts] == ["failed", "failed"]
        real_broker.prepare(what.name.removesuffix(".fifo"))
        app.runs.reset(run=asked)
        assert wait_until(lambda: over(app, asked, ("succeeded", "failed")))
        assert app.runs.get(run=asked).run.state == "succeeded"
    (message,) = real_broker.read_messages(what)
    assert message["timewright-run"] == asked


@our_brokers
def test_a_broker_restart_loses_no_message_and_costs_no_attempt(
    real_broker: RealBroker, target: PublishTarget
) -> None:
    what = real_broker.new({"n": 1})
    assert isinstance(outcome_of(target, what, key="e" * 64), Succeeded)
    real_broker.server.stop()
    real_broker.server.start()
    real_broker.prepare(what.name.removesuffix(".fifo"))
    assert isinstance(outcome_of(target, what, key="f" * 64), Succeeded)
    kept = {one["key"] for one in real_broker.read_messages(what)}
    assert kept == ({"f" * 64} if real_broker.broker == "sqs" else {"e" * 64, "f" * 64})


@every_broker
def test_a_broker_that_never_responds_times_out(real_broker: RealBroker, target: PublishTarget) -> None:
    what = real_broker.new({"n": 1})
    with silence() as port:
        outcome = outcome_of(target, moved(what, port), limit=0.3)
        assert isinstance(outcome, TimedOut)
        assert "did not accept the message within 0.3s" in outcome.error


@every_broker
def test_a_cancelled_message_has_the_reason(real_broker: RealBroker, target: PublishTarget) -> None:
    what = real_broker.new({"n": 1})
    with silence() as port:
        work, recorder = start_launch(target, moved(what, port))
        work.stop("no longer wanted")
        assert recorder.wait() == Cancelled(reason="no longer wanted")


@every_broker
def test_running_messages_are_released_on_close(real_broker: RealBroker) -> None:
    what, loop = real_broker.new({"n": 1}), LoopThread("timewright-publish")
    target = PublishTarget(loop, allowed=BROKER_NAMES, secrets=lambda *_: "x")
    with silence() as port:
        _, recorder = start_launch(target, moved(what, port))
        target.close(grace=timedelta(0))
        assert isinstance(recorder.wait(), Released)
    loop.close(grace=timedelta(0))
    assert isinstance(outcome_of(target, what), Released)


@pytest.mark.parametrize(("broker", "most"), [("redis", 1), ("rq", 1), ("dramatiq", 1), ("celery", 3)])
def test_messages_to_one_address_share_a_connection_that_is_closed_at_the_end(
    most: int, real_broker: RealBroker, target: PublishTarget
) -> None:
    before = connected(real_broker.url)
    what = real_broker.new({"n": 1})
    for number in range(30):
        assert isinstance(outcome_of(target, what, key=f"shared-{real_broker.broker}-{number}"), Succeeded)
    assert before < connected(real_broker.url) <= before + most
    target.close(grace=timedelta(0))
    assert connected(real_broker.url) == before


def moved(target: Publish, port: int) -> Publish:
    """The same target with another port."""
    head, _, rest = (target.url or "http://127.0.0.1:0").rpartition(":")
    return msgspec.structs.replace(target, url=f"{head}:{port}{rest.lstrip('0123456789')}")


@contextmanager
def silence() -> Iterator[int]:
    """A server that accepts connections and never responds; closes them at the end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        inside: list[socket.socket] = []
        ended = threading.Event()

        def welcome() -> None:
            while not ended.is_set():
                try:
                    inside.append(server.accept()[0])
                except OSError:
                    return

        host = threading.Thread(target=welcome)
        host.start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            with socket.create_connection(server.getsockname()):
                host.join()
            for one in inside:
                one.close()


def over(app: Scheduler, run: str, states: tuple[str, ...] = OVER) -> RunDetail | None:
    """The run and its attempts once it is in one of these states; None before."""
    found = app.runs.get(run=run)
    return found if found.run.state in states else None
