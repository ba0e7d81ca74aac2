"""The real brokers of these tests: a Redis, a NATS and an SQS, each started when it is first needed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.targets.publish.places import GIVEN, ON_REDIS, Nats, Place, Sqs
from tests.targets.publish.servers import Server, moto_server, nats_server, redis_server
from timewright.targets.loop import LoopThread
from timewright.targets.publish.kinds import KINDS
from timewright.targets.publish.target import PublishTarget
from timewright.testing.faults.ports import free_port


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    port = free_port()
    with redis_server(tmp_path_factory.mktemp("redis"), port) as server:
        yield server, f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    port = free_port()
    with nats_server(tmp_path_factory.mktemp("nats"), port) as server:
        yield server, f"nats://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    port = free_port()
    with moto_server(tmp_path_factory.mktemp("sqs"), port) as server:
        yield server, f"http://127.0.0.1:{port}"


@pytest.fixture
def place(word: str, request: pytest.FixtureRequest) -> Place:
    """The broker of that word, running."""
    if word in GIVEN:
        return GIVEN[word]
    found = {one.word: one for one in (*ON_REDIS, Nats, Sqs)}[word]
    fixture = word if word in ("nats", "sqs") else "redis"
    return found(*request.getfixturevalue(fixture))


@pytest.fixture
def target() -> Iterator[PublishTarget]:
    loop = LoopThread("timewright-publish")
    made = PublishTarget(loop, allowed=tuple(KINDS), secrets=lambda _, name: f"the {name} secret")
    yield made
    made.close(grace=timedelta(0))
    loop.close(grace=timedelta(0))
