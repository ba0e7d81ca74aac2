"""Real brokers for these tests: Redis, NATS, SQS and RabbitMQ, started on first use."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.faults.tools.ports import free_port
from tests.targets.publish.real_brokers import EXTERNAL_BROKERS, ON_REDIS, Nats, Rabbit, RealBroker, Sqs
from tests.targets.publish.servers import (
    Server,
    epmd_server,
    moto_server,
    nats_server,
    rabbitmq_server,
    redis_server,
)
from timewright.targets.loop_thread import LoopThread
from timewright.targets.publish.broker_types import BROKER_TYPES
from timewright.targets.publish.target import PublishTarget


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


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    port, dist_port, epmd_port = free_port(), free_port(), free_port()
    folder = tmp_path_factory.mktemp("rabbitmq")
    server = rabbitmq_server(folder, port, dist_port=dist_port, epmd_port=epmd_port)
    with epmd_server(folder, epmd_port), server:
        yield server, f"amqp://127.0.0.1:{port}/"


@pytest.fixture
def real_broker(broker: str, request: pytest.FixtureRequest) -> RealBroker:
    """The running broker with this name."""
    if broker in EXTERNAL_BROKERS:
        return EXTERNAL_BROKERS[broker]
    found = {one.broker: one for one in (*ON_REDIS, Nats, Sqs, Rabbit)}[broker]
    fixture = broker if broker in ("nats", "sqs", "rabbitmq") else "redis"
    return found(*request.getfixturevalue(fixture))


@pytest.fixture
def target() -> Iterator[PublishTarget]:
    loop = LoopThread("timewright-publish")
    made = PublishTarget(
        loop, allowed=tuple(BROKER_TYPES), secrets=lambda _, name, _destination: f"the {name} secret"
    )
    yield made
    made.close(grace=timedelta(0))
    loop.close(grace=timedelta(0))
