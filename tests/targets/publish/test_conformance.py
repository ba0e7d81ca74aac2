"""What holds for every broker: a message lands once, and nothing that goes wrong loses it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.targets.publish.places import OURS, WORDS, Place
from tests.targets.publish.servers import connected
from tests.targets.stage import begin, outcome_of, until
from timewright import Publish, Scheduler, Settings
from timewright.core.run import Cancelled, Failed, Released, Succeeded, TimedOut
from timewright.targets.loop import LoopThread
from timewright.targets.publish.target import PublishTarget
from timewright.testing.faults.ports import free_port

every_broker = pytest.mark.parametrize("word", WORDS)
# Those that these tests start themselves, and may stop.
our_brokers = pytest.mark.parametrize("word", OURS)
TWICE = {"max_attempts": 2, "backoff": {"kind": "constant", "wait": "0.05s"}, "exhausted": "park"}
OVER = ("succeeded", "failed", "parked")


@every_broker
def test_a_message_lands_once_with_its_payload_its_key_and_its_run(
    place: Place, target: PublishTarget
) -> None:
    what = place.new({"day": "2026-03-09", "letters": "äß€"})
    outcome = outcome_of(target, what, key="a" * 64)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["duplicate"] is False
    (landed,) = place.landed(what)
    assert landed["key"] == "a" * 64
    assert landed["payload"] == {"day": "2026-03-09", "letters": "äß€"}
    assert landed["timewright-run"] == "run_1"
    assert landed["timewright-attempt"] == "2"


@every_broker
def test_the_same_key_twice_is_one_message_or_two_that_say_so(place: Place, target: PublishTarget) -> None:
    what = place.new({"n": 1})
    outcomes = [outcome_of(target, what, key="b" * 64, attempt=number) for number in (1, 2)]
    assert [type(outcome) for outcome in outcomes] == [Succeeded, Succeeded]
    keys = [one["key"] for one in place.landed(what)]
    assert keys == ["b" * 64] * (1 if place.deduplicates else 2)


@every_broker
def test_two_keys_are_two_messages(place: Place, target: PublishTarget) -> None:
    what = place.new({"n": 1})
    for key in ("c" * 64, "d" * 64):
        assert isinstance(outcome_of(target, what, key=key), Succeeded)
    assert {one["key"] for one in place.landed(what)} == {"c" * 64, "d" * 64}


@every_broker
def test_a_broker_that_is_away_is_named_with_its_address_and_what_to_try(
    place: Place, target: PublishTarget
) -> None:
    what = moved(place.new({"n": 1}), free_port())
    outcome = outcome_of(target, what)
    assert isinstance(outcome, Failed)
    assert not outcome.final
    assert f"{place.word} at {what.url}" in outcome.error
    assert "; see that " in outcome.error


@our_brokers
def test_a_run_whose_broker_is_away_backs_off_and_parks_and_is_sent_once_when_it_is_back(
    place: Place, tmp_path: Path
) -> None:
    what = place.new({"n": 1})
    app = Scheduler(tmp_path / "store.db", settings=Settings(publish=(place.word,)))
    app.secrets.set(secret="aws", value="tests")
    with app:
        app.schedules.create(name="tell", manual=True, target=msgspec.to_builtins(what), retry=TWICE)
        place.server.stop()
        try:
            asked = app.schedules.run(schedule="tell")["run"]["id"]
            run = until(lambda: over(app, asked))
        finally:
            place.server.start()
        assert run["state"] == "parked"
        assert [one["outcome"] for one in run["attempts"]] == ["failed", "failed"]
        place.prepare(what.name.removesuffix(".fifo"))
        app.runs.reset(run=run["id"])
        run = until(lambda: over(app, asked, ("succeeded", "failed")))
        assert run["state"] == "succeeded"
    (landed,) = place.landed(what)
    assert landed["timewright-run"] == run["id"]


@our_brokers
def test_a_restart_of_the_broker_loses_nothing_and_costs_no_attempt(
    place: Place, target: PublishTarget
) -> None:
    what = place.new({"n": 1})
    assert isinstance(outcome_of(target, what, key="e" * 64), Succeeded)
    place.server.stop()
    place.server.start()
    place.prepare(what.name.removesuffix(".fifo"))
    assert isinstance(outcome_of(target, what, key="f" * 64), Succeeded)
    kept = {one["key"] for one in place.landed(what)}
    assert kept == ({"f" * 64} if place.word == "sqs" else {"e" * 64, "f" * 64})


@every_broker
def test_a_broker_that_never_answers_ends_at_the_time_limit(place: Place, target: PublishTarget) -> None:
    what = place.new({"n": 1})
    with silence() as port:
        outcome = outcome_of(target, moved(what, port), limit=0.3)
        assert isinstance(outcome, TimedOut)
        assert "had not accepted the message within 0.3s" in outcome.error


@every_broker
def test_a_message_that_is_cancelled_says_why(place: Place, target: PublishTarget) -> None:
    what = place.new({"n": 1})
    with silence() as port:
        work, ear = begin(target, moved(what, port))
        work.stop("no longer wanted")
        assert ear.wait() == Cancelled(reason="no longer wanted")


@every_broker
def test_what_is_under_way_at_the_end_is_given_back(place: Place) -> None:
    what, loop = place.new({"n": 1}), LoopThread("timewright-publish")
    target = PublishTarget(loop, allowed=WORDS, secrets=lambda *_: "x")
    with silence() as port:
        _, ear = begin(target, moved(what, port))
        target.close(grace=timedelta(0))
        assert isinstance(ear.wait(), Released)
    loop.close(grace=timedelta(0))
    assert isinstance(outcome_of(target, what), Released)


@pytest.mark.parametrize(("word", "most"), [("redis", 1), ("rq", 1), ("dramatiq", 1), ("celery", 3)])
def test_messages_to_one_address_share_a_connection_and_leave_none_behind(
    most: int, place: Place, target: PublishTarget
) -> None:
    before = connected(place.url)
    what = place.new({"n": 1})
    for number in range(30):
        assert isinstance(outcome_of(target, what, key=f"shared-{place.word}-{number}"), Succeeded)
    assert before < connected(place.url) <= before + most
    target.close(grace=timedelta(0))
    assert connected(place.url) == before


def moved(target: Publish, port: int) -> Publish:
    """The same target, on another port of this machine."""
    head, _, rest = (target.url or "http://127.0.0.1:0").rpartition(":")
    return msgspec.structs.replace(target, url=f"{head}:{port}{rest.lstrip('0123456789')}")


@contextmanager
def silence() -> Iterator[int]:
    """A port where everyone is let in, and nobody is ever answered; at the end all are sent away."""
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


def over(app: Scheduler, run: str, states: tuple[str, ...] = OVER) -> dict[str, Any]:
    """The run and its attempts when it has come to one of these states; nothing before."""
    found = app.runs.get(run=run)
    return {**found["run"], "attempts": found["attempts"]} if found["run"]["state"] in states else {}
