"""Every broker we can publish to: its addresses, its options, what it needs, and how much it takes."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from msgspec import Struct

from timewright.errors import MissingExtra
from timewright.targets.publish.address import Address
from timewright.targets.publish.celery import CeleryBroker, CeleryOptions
from timewright.targets.publish.dramatiq import DramatiqBroker, DramatiqOptions
from timewright.targets.publish.kubernetes import KubernetesBroker, KubernetesOptions
from timewright.targets.publish.message import Options
from timewright.targets.publish.nats import NatsBroker, NatsOptions
from timewright.targets.publish.rabbitmq import RabbitBroker, RabbitOptions
from timewright.targets.publish.redis import StreamBroker, StreamOptions
from timewright.targets.publish.rq import RqBroker, RqOptions
from timewright.targets.publish.sqs import SqsBroker, SqsOptions
from timewright.targets.publish.temporal import TemporalBroker, TemporalOptions

MEBIBYTE = 1_048_576
_REDIS = ("redis", "rediss")
_REDIS_FIX = "redis://localhost:6379/0"


class Kind(Struct, frozen=True, kw_only=True):
    """One broker as a schedule names it."""

    word: str
    extra: str
    needs: tuple[str, ...]
    schemes: tuple[str, ...]
    fix: str
    make: Callable[[Address, Any], Any]
    options: type[Options]
    most_bytes: int = MEBIBYTE
    answers: bool = False
    has_default: bool = False
    remedy: str = "see that the server runs, and that the address and the sign-in are right"

    def check_installed(self) -> None:
        """Refuse what could not be sent from here, with the line that changes it."""
        for module in self.needs:
            if find_spec(module) is None:
                raise MissingExtra(
                    f"publishing to {self.word} is not installed: there is no {module}",
                    field="target.to",
                    value=self.word,
                    rule=f"publish to {self.word} needs {' and '.join(self.needs)}",
                    fix=f'pip install "timewright[{self.extra}]"',
                )


_ALL = (
    Kind(
        word="celery",
        extra="celery",
        needs=("celery", "redis"),
        schemes=(*_REDIS, "amqp", "amqps"),
        fix=_REDIS_FIX,
        make=CeleryBroker,
        options=CeleryOptions,
        answers=True,
    ),
    Kind(
        word="rq",
        extra="rq",
        needs=("rq", "redis"),
        schemes=_REDIS,
        fix=_REDIS_FIX,
        make=RqBroker,
        options=RqOptions,
        answers=True,
    ),
    Kind(
        word="dramatiq",
        extra="dramatiq",
        needs=("dramatiq", "redis"),
        schemes=_REDIS,
        fix=_REDIS_FIX,
        make=DramatiqBroker,
        options=DramatiqOptions,
    ),
    Kind(
        word="redis",
        extra="redis",
        needs=("redis",),
        schemes=_REDIS,
        fix=_REDIS_FIX,
        make=StreamBroker,
        options=StreamOptions,
    ),
    Kind(
        word="nats",
        extra="nats",
        needs=("nats",),
        schemes=("nats", "tls"),
        fix="nats://localhost:4222",
        make=NatsBroker,
        options=NatsOptions,
        remedy="see that the server runs with JetStream, and that a stream listens to the subject",
    ),
    Kind(
        word="rabbitmq",
        extra="amqp",
        needs=("aio_pika",),
        schemes=("amqp", "amqps"),
        fix="amqp://localhost:5672/",
        make=RabbitBroker,
        options=RabbitOptions,
        remedy="see that the server runs, that the queue is there, and that the sign-in is right",
    ),
    Kind(
        word="sqs",
        extra="sqs",
        needs=("boto3",),
        schemes=("https", "http"),
        fix="leave it out, or https://sqs.eu-central-1.amazonaws.com",
        make=SqsBroker,
        options=SqsOptions,
        most_bytes=262_144,
        has_default=True,
        remedy="see that the queue exists, and that region and credentials are right",
    ),
    Kind(
        word="temporal",
        extra="temporal",
        needs=("temporalio",),
        schemes=("temporal",),
        fix="temporal://localhost:7233",
        make=TemporalBroker,
        options=TemporalOptions,
    ),
    Kind(
        word="kubernetes",
        extra="kubernetes",
        needs=("kubernetes_asyncio",),
        schemes=("https", "http"),
        fix="leave it out, or https://kubernetes.example.com:6443",
        make=KubernetesBroker,
        options=KubernetesOptions,
        most_bytes=100_000,
        has_default=True,
        remedy="see that the API server answers, and that the account may create jobs",
    ),
)
KINDS = {kind.word: kind for kind in _ALL}
