"""The supported brokers: URL schemes, options, required packages and message size limits."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from msgspec import Struct

from timewright.errors import MissingExtra
from timewright.targets.publish.address import BrokerAddress
from timewright.targets.publish.brokers.celery import CeleryBroker, CeleryOptions
from timewright.targets.publish.brokers.dramatiq import DramatiqBroker, DramatiqOptions
from timewright.targets.publish.brokers.kubernetes import KubernetesBroker, KubernetesOptions
from timewright.targets.publish.brokers.nats import NatsBroker, NatsOptions
from timewright.targets.publish.brokers.rabbitmq import RabbitmqBroker, RabbitmqOptions
from timewright.targets.publish.brokers.redis import RedisStreamBroker, RedisStreamOptions
from timewright.targets.publish.brokers.rq import RqBroker, RqOptions
from timewright.targets.publish.brokers.sqs import SqsBroker, SqsOptions
from timewright.targets.publish.brokers.temporal import TemporalBroker, TemporalOptions
from timewright.targets.publish.message import BrokerOptions

MEBIBYTE = 1_048_576
_REDIS = ("redis", "rediss")
_REDIS_FIX = "redis://localhost:6379/0"


class BrokerType(Struct, frozen=True, kw_only=True):
    """One kind of broker."""

    name: str
    extra: str
    modules: tuple[str, ...]
    schemes: tuple[str, ...]
    example_url: str
    create: Callable[[BrokerAddress, Any], Any]
    options_type: type[BrokerOptions]
    max_bytes: int = MEBIBYTE
    has_results: bool = False
    has_default_address: bool = False
    remedy: str = "check that the server runs, the address and the credentials"

    def check_installed(self) -> None:
        """Raise MissingExtra if a required package is not installed."""
        for module in self.modules:
            if find_spec(module) is None:
                raise MissingExtra(
                    f"publishing to {self.name} needs the package {module}, which is not installed",
                    field="target.to",
                    value=self.name,
                    rule=f"publish to {self.name} needs {' and '.join(self.modules)}",
                    fix=f'pip install "timewright[{self.extra}]"',
                )


_ALL = (
    BrokerType(
        name="celery",
        extra="celery",
        modules=("celery", "redis"),
        schemes=(*_REDIS, "amqp", "amqps"),
        example_url=_REDIS_FIX,
        create=CeleryBroker,
        options_type=CeleryOptions,
        has_results=True,
    ),
    BrokerType(
        name="rq",
        extra="rq",
        modules=("rq", "redis"),
        schemes=_REDIS,
        example_url=_REDIS_FIX,
        create=RqBroker,
        options_type=RqOptions,
        has_results=True,
    ),
    BrokerType(
        name="dramatiq",
        extra="dramatiq",
        modules=("dramatiq", "redis"),
        schemes=_REDIS,
        example_url=_REDIS_FIX,
        create=DramatiqBroker,
        options_type=DramatiqOptions,
    ),
    BrokerType(
        name="redis",
        extra="redis",
        modules=("redis",),
        schemes=_REDIS,
        example_url=_REDIS_FIX,
        create=RedisStreamBroker,
        options_type=RedisStreamOptions,
    ),
    BrokerType(
        name="nats",
        extra="nats",
        modules=("nats",),
        schemes=("nats", "tls"),
        example_url="nats://localhost:4222",
        create=NatsBroker,
        options_type=NatsOptions,
        remedy="check that the server runs with JetStream, and that a stream has the subject",
    ),
    BrokerType(
        name="rabbitmq",
        extra="amqp",
        modules=("aio_pika",),
        schemes=("amqp", "amqps"),
        example_url="amqp://localhost:5672/",
        create=RabbitmqBroker,
        options_type=RabbitmqOptions,
        remedy="check that the server runs, that the queue exists, and the credentials",
    ),
    BrokerType(
        name="sqs",
        extra="sqs",
        modules=("boto3",),
        schemes=("https", "http"),
        example_url="leave it out, or https://sqs.eu-central-1.amazonaws.com",
        create=SqsBroker,
        options_type=SqsOptions,
        max_bytes=262_144,
        has_default_address=True,
        remedy="check that the queue exists, the region and the credentials",
    ),
    BrokerType(
        name="temporal",
        extra="temporal",
        modules=("temporalio",),
        schemes=("temporal",),
        example_url="temporal://localhost:7233",
        create=TemporalBroker,
        options_type=TemporalOptions,
        has_results=True,
    ),
    BrokerType(
        name="kubernetes",
        extra="kubernetes",
        modules=("kubernetes_asyncio",),
        schemes=("https", "http"),
        example_url="leave it out, or https://kubernetes.example.com:6443",
        create=KubernetesBroker,
        options_type=KubernetesOptions,
        has_results=True,
        max_bytes=100_000,
        has_default_address=True,
        remedy="check that the API server is reachable, and that the account may create jobs",
    ),
)
BROKER_TYPES = {kind.name: kind for kind in _ALL}
