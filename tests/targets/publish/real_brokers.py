"""A common interface to real brokers: their URL, preparing a queue, and reading messages."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from tests.targets.publish.servers import RABBITMQ, Server
from timewright.core.target import Publish

_numbers = itertools.count()
Messages = list[dict[str, Any]]


class RealBroker:
    """A broker with a new queue name for each test, and a way to read the messages in it."""

    broker = ""
    deduplicates = True

    def __init__(self, server: Server | None, url: str) -> None:
        self._server = server
        self.url = url

    @property
    def server(self) -> Server:
        assert self._server is not None, "this broker was not started by the tests"
        return self._server

    def new(self, payload: Any = None, **options: Any) -> Publish:
        name = f"{self.broker}-{next(_numbers)}"
        self.prepare(name)
        return Publish(to=self.broker, url=self.url, payload=payload, **self.named(name, options))

    def prepare(self, name: str) -> None:
        """Create the queue or stream."""

    def named(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """The name and the options of a target with a new queue."""
        return {"name": "tasks.report", "options": {"queue": name, **options}}

    def read_messages(self, target: Publish) -> Messages:
        raise NotImplementedError


class OnRedis(RealBroker):
    def with_client(self, act: Callable[[Any], Any]) -> Any:
        from redis import Redis

        client = Redis.from_url(self.url)
        try:
            return act(client)
        finally:
            client.close()


class Streams(OnRedis):
    broker = "redis"

    def named(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "options": options}

    def read_messages(self, target: Publish) -> Messages:
        entries = self.with_client(lambda client: client.xrange(target.name))
        plain = [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in entries]
        return [{**one, "payload": json.loads(one["payload"])} for one in plain]


class Rq(OnRedis):
    broker = "rq"

    def read_messages(self, target: Publish) -> Messages:
        from rq import Queue

        def read(client: Any) -> Messages:
            jobs = Queue(target.options["queue"], connection=client).jobs
            return [{**one.meta, "key": one.id, "payload": one.kwargs, "task": one.func_name} for one in jobs]

        found: Messages = self.with_client(read)
        return found


class Dramatiq(OnRedis):
    broker = "dramatiq"

    def read_messages(self, target: Publish) -> Messages:
        name = f"dramatiq:{target.options['queue']}"
        waiting = self.with_client(lambda c: [c.hget(f"{name}.msgs", one) for one in c.lrange(name, 0, -1)])
        return [
            {
                **one["options"]["timewright"],
                "key": one["message_id"],
                "payload": one["kwargs"],
                "task": one["actor_name"],
            }
            for one in map(json.loads, waiting)
        ]


class CeleryOnRedis(OnRedis):
    broker = "celery"

    def read_messages(self, target: Publish) -> Messages:
        from base64 import b64decode

        waiting = self.with_client(lambda client: client.lrange(target.options["queue"], 0, -1))
        read = [(one["headers"], json.loads(b64decode(one["body"]))) for one in map(json.loads, waiting)]
        return [{**head, "key": head["id"], "payload": body[1]} for head, body in read]


class Nats(RealBroker):
    broker = "nats"

    def named(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "options": options}

    def prepare(self, name: str) -> None:
        async def make(stream: Any) -> None:
            await stream.add_stream(name=name, subjects=[name])

        self._with_client(make)

    def read_messages(self, target: Publish) -> Messages:
        async def read(stream: Any) -> Messages:
            known = await stream.stream_info(target.name)
            messages = [
                await stream.get_msg(target.name, number)
                for number in range(known.state.first_seq or 1, known.state.last_seq + 1)
            ]
            return [
                {**one.headers, "key": one.headers["Nats-Msg-Id"], "payload": json.loads(one.data)}
                for one in messages
            ]

        found: Messages = self._with_client(read)
        return found

    def _with_client(self, act: Callable[[Any], Any]) -> Any:
        import nats

        async def run() -> Any:
            client = await nats.connect(self.url)
            try:
                return await act(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(run())


class Sqs(RealBroker):
    """Its server keeps data in memory, so the queue must be created after a restart."""

    broker = "sqs"
    signed_in: ClassVar = {"user": "tests", "password": "secret://aws", "region": "eu-central-1"}

    def named(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"name": f"{name}.fifo", "options": {**self.signed_in, **options}}

    def prepare(self, name: str) -> None:
        self._with_client(
            lambda sqs: sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})
        )

    def read_messages(self, target: Publish) -> Messages:
        def read(sqs: Any) -> Messages:
            url = sqs.get_queue_url(QueueName=target.name)["QueueUrl"]
            # With a visibility timeout of 0, messages stay visible after reading.
            asked = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"], "VisibilityTimeout": 0}
            found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **asked)
            return [_read_sqs(one) for one in found.get("Messages", [])]

        found: Messages = self._with_client(read)
        return found

    def _with_client(self, act: Callable[[Any], Any]) -> Any:
        import boto3

        client = boto3.session.Session().client(
            "sqs",
            endpoint_url=self.url,
            region_name="eu-central-1",
            aws_access_key_id="tests",
            aws_secret_access_key="tests",
        )
        try:
            return act(client)
        finally:
            client.close()


def _read_sqs(message: dict[str, Any]) -> dict[str, Any]:
    headers = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
    key = message["Attributes"]["MessageDeduplicationId"]
    return {**headers, "key": key, "payload": msgspec.json.decode(message["Body"])}


class Rabbit(RealBroker):
    """Does not deduplicate: a second message with the same key arrives with the same `message_id`."""

    broker = "rabbitmq"
    deduplicates = False

    def named(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "options": options}

    def prepare(self, name: str) -> None:
        async def make(channel: Any) -> None:
            await channel.declare_queue(name, durable=True)

        self._with_client(make)

    def read_messages(self, target: Publish) -> Messages:
        async def read(channel: Any) -> Messages:
            queue = await channel.get_queue(target.name)
            found = []
            while (message := await queue.get(fail=False)) is not None:
                read = {"key": message.message_id, "payload": json.loads(message.body)}
                found.append({**message.headers, **read})
            return found

        found: Messages = self._with_client(read)
        return found

    def _with_client(self, act: Callable[[Any], Any]) -> Any:
        import aio_pika

        async def run() -> Any:
            connection = await aio_pika.connect(self.url)
            async with connection:
                return await act(await connection.channel())

        return asyncio.run(run())


class Temporal(RealBroker):
    broker = "temporal"

    def named(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"name": "Report", "options": {"task_queue": name, **options}}

    def read_messages(self, target: Publish) -> Messages:
        from temporalio.client import Client

        async def read() -> Messages:
            client = await Client.connect(self.url.partition("://")[2])
            asked = f"TaskQueue = '{target.options['task_queue']}'"
            found = []
            async for one in client.list_workflows(asked):
                history = await client.get_workflow_handle(one.id).fetch_history()
                begun = history.events[0].workflow_execution_started_event_attributes
                payload = json.loads(begun.input.payloads[0].data)
                found.append({**await one.memo(), "key": one.id, "payload": payload})
            return found

        return asyncio.run(read())


class Jobs(RealBroker):
    """The cluster of a context in the user's kubeconfig."""

    broker = "kubernetes"

    def new(self, payload: Any = None, **options: Any) -> Publish:
        own = {"context": self.url, "image": "busybox", "command": ["true"], **options}
        return Publish(to=self.broker, name=f"report-{next(_numbers)}", payload=payload, options=own)

    def read_messages(self, target: Publish) -> Messages:
        from kubernetes_asyncio import client, config

        async def read() -> Messages:
            await config.load_kube_config(context=self.url)
            async with client.ApiClient() as api:
                listed = await client.BatchV1Api(api).list_namespaced_job(
                    "default", label_selector="app.kubernetes.io/managed-by=timewright"
                )
            jobs = [one for one in listed.items if one.metadata.name.startswith(f"{target.name}-")]
            return [_read_job(one) for one in jobs]

        return asyncio.run(read())


def _read_job(job: Any) -> dict[str, Any]:
    headers = {f"timewright-{k.partition('/')[2]}": v for k, v in job.metadata.annotations.items()}
    env = {one.name: one.value for one in job.spec.template.spec.containers[0].env}
    return {**headers, "key": headers["timewright-key"], "payload": json.loads(env["TIMEWRIGHT_PAYLOAD"])}


ON_REDIS = (Streams, Rq, Dramatiq, CeleryOnRedis)
STARTED_BROKERS = (
    *(one.broker for one in ON_REDIS),
    Nats.broker,
    Sqs.broker,
    *([Rabbit.broker] if RABBITMQ.exists() else []),
)
# Brokers that cannot be installed as packages are tested where a variable gives their URL.
OTHERS = {
    "TIMEWRIGHT_TEST_AMQP": Rabbit,
    "TIMEWRIGHT_TEST_TEMPORAL": Temporal,
    "TIMEWRIGHT_TEST_KUBERNETES": Jobs,
}
EXTERNAL_BROKERS = {
    found.broker: found(None, os.environ[name])
    for name, found in OTHERS.items()
    if os.environ.get(name) and found.broker not in STARTED_BROKERS
}
BROKER_NAMES = (*STARTED_BROKERS, *EXTERNAL_BROKERS)
