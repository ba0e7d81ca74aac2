"""Every real broker behind one face: where it is, how to make room for a message, and what has landed."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from tests.targets.publish.servers import Server
from timewright.core.target import Publish

_numbers = itertools.count()
Landed = list[dict[str, Any]]


class Place:
    """A broker, a fresh name on it for each test, and its own way to read what arrived there."""

    word = ""
    deduplicates = True

    def __init__(self, server: Server | None, url: str) -> None:
        self._server = server
        self.url = url

    @property
    def server(self) -> Server:
        assert self._server is not None, "this broker is not ours to stop"
        return self._server

    def new(self, payload: Any = None, **options: Any) -> Publish:
        name = f"{self.word}-{next(_numbers)}"
        self.prepare(name)
        return Publish(to=self.word, url=self.url, payload=payload, **self.named(name, options))

    def prepare(self, name: str) -> None:
        """Make what a message needs to be there."""

    def named(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """A fresh queue for a task; those that address streams or queues directly say so."""
        return {"name": "work.report", "options": {"queue": name, **options}}

    def landed(self, target: Publish) -> Landed:
        raise NotImplementedError


class OnRedis(Place):
    def ask(self, act: Callable[[Any], Any]) -> Any:
        from redis import Redis

        client = Redis.from_url(self.url)
        try:
            return act(client)
        finally:
            client.close()


class Streams(OnRedis):
    word = "redis"

    def named(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "options": options}

    def landed(self, target: Publish) -> Landed:
        entries = self.ask(lambda client: client.xrange(target.name))
        plain = [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in entries]
        return [{**one, "payload": json.loads(one["payload"])} for one in plain]


class Rq(OnRedis):
    word = "rq"

    def landed(self, target: Publish) -> Landed:
        from rq import Queue

        def look(client: Any) -> Landed:
            jobs = Queue(target.options["queue"], connection=client).jobs
            return [{**one.meta, "key": one.id, "payload": one.kwargs, "task": one.func_name} for one in jobs]

        found: Landed = self.ask(look)
        return found


class Dramatiq(OnRedis):
    word = "dramatiq"

    def landed(self, target: Publish) -> Landed:
        name = f"dramatiq:{target.options['queue']}"
        waiting = self.ask(lambda c: [c.hget(f"{name}.msgs", one) for one in c.lrange(name, 0, -1)])
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
    word = "celery"

    def landed(self, target: Publish) -> Landed:
        from base64 import b64decode

        waiting = self.ask(lambda client: client.lrange(target.options["queue"], 0, -1))
        read = [(one["headers"], json.loads(b64decode(one["body"]))) for one in map(json.loads, waiting)]
        return [{**head, "key": head["id"], "payload": body[1]} for head, body in read]


class Nats(Place):
    word = "nats"

    def named(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "options": options}

    def prepare(self, name: str) -> None:
        async def make(stream: Any) -> None:
            await stream.add_stream(name=name, subjects=[name])

        self._ask(make)

    def landed(self, target: Publish) -> Landed:
        async def look(stream: Any) -> Landed:
            known = await stream.stream_info(target.name)
            messages = [
                await stream.get_msg(target.name, number)
                for number in range(known.state.first_seq or 1, known.state.last_seq + 1)
            ]
            return [
                {**one.headers, "key": one.headers["Nats-Msg-Id"], "payload": json.loads(one.data)}
                for one in messages
            ]

        found: Landed = self._ask(look)
        return found

    def _ask(self, act: Callable[[Any], Any]) -> Any:
        import nats

        async def asking() -> Any:
            client = await nats.connect(self.url)
            try:
                return await act(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(asking())


class Sqs(Place):
    """Its server forgets everything when it ends, and so the queue is made again."""

    word = "sqs"
    signed_in: ClassVar = {"user": "tests", "password": "secret://aws", "region": "eu-central-1"}

    def named(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"name": f"{name}.fifo", "options": {**self.signed_in, **options}}

    def prepare(self, name: str) -> None:
        self._ask(lambda sqs: sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"}))

    def landed(self, target: Publish) -> Landed:
        def look(sqs: Any) -> Landed:
            url = sqs.get_queue_url(QueueName=target.name)["QueueUrl"]
            # What is read is hidden only so long as it is asked to be: not at all.
            asked = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"], "VisibilityTimeout": 0}
            found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **asked)
            return [_read_sqs(one) for one in found.get("Messages", [])]

        found: Landed = self._ask(look)
        return found

    def _ask(self, act: Callable[[Any], Any]) -> Any:
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
    told = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
    key = message["Attributes"]["MessageDeduplicationId"]
    return {**told, "key": key, "payload": msgspec.json.decode(message["Body"])}


class Rabbit(Place):
    """Knows no key: a second message with the same one lands too, and says so in its `message_id`."""

    word = "rabbitmq"
    deduplicates = False

    def named(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "options": options}

    def prepare(self, name: str) -> None:
        async def make(channel: Any) -> None:
            await channel.declare_queue(name, durable=True)

        self._ask(make)

    def landed(self, target: Publish) -> Landed:
        async def look(channel: Any) -> Landed:
            queue = await channel.get_queue(target.name)
            found = []
            while (message := await queue.get(fail=False)) is not None:
                read = {"key": message.message_id, "payload": json.loads(message.body)}
                found.append({**message.headers, **read})
            return found

        found: Landed = self._ask(look)
        return found

    def _ask(self, act: Callable[[Any], Any]) -> Any:
        import aio_pika

        async def asking() -> Any:
            connection = await aio_pika.connect(self.url)
            async with connection:
                return await act(await connection.channel())

        return asyncio.run(asking())


class Temporal(Place):
    word = "temporal"

    def named(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"name": "Report", "options": {"task_queue": name, **options}}

    def landed(self, target: Publish) -> Landed:
        from temporalio.client import Client

        async def look() -> Landed:
            client = await Client.connect(self.url.partition("://")[2])
            asked = f"TaskQueue = '{target.options['task_queue']}'"
            found = []
            async for one in client.list_workflows(asked):
                history = await client.get_workflow_handle(one.id).fetch_history()
                begun = history.events[0].workflow_execution_started_event_attributes
                payload = json.loads(begun.input.payloads[0].data)
                found.append({**await one.memo(), "key": one.id, "payload": payload})
            return found

        return asyncio.run(look())


class Jobs(Place):
    """The cluster of a context of the user's own kubeconfig file."""

    word = "kubernetes"

    def new(self, payload: Any = None, **options: Any) -> Publish:
        own = {"context": self.url, "image": "busybox", "command": ["true"], **options}
        return Publish(to=self.word, name=f"report-{next(_numbers)}", payload=payload, options=own)

    def landed(self, target: Publish) -> Landed:
        from kubernetes_asyncio import client, config

        async def look() -> Landed:
            await config.load_kube_config(context=self.url)
            async with client.ApiClient() as api:
                listed = await client.BatchV1Api(api).list_namespaced_job(
                    "default", label_selector="app.kubernetes.io/managed-by=timewright"
                )
            jobs = [one for one in listed.items if one.metadata.name.startswith(f"{target.name}-")]
            return [_read_job(one) for one in jobs]

        return asyncio.run(look())


def _read_job(job: Any) -> dict[str, Any]:
    told = {f"timewright-{k.partition('/')[2]}": v for k, v in job.metadata.annotations.items()}
    env = {one.name: one.value for one in job.spec.template.spec.containers[0].env}
    return {**told, "key": told["timewright-key"], "payload": json.loads(env["TIMEWRIGHT_PAYLOAD"])}


ON_REDIS = (Streams, Rq, Dramatiq, CeleryOnRedis)
OURS = (*(one.word for one in ON_REDIS), Nats.word, Sqs.word)
# Brokers that no package brings along are tried where a variable says they are.
OTHERS = {
    "TIMEWRIGHT_TEST_AMQP": Rabbit,
    "TIMEWRIGHT_TEST_TEMPORAL": Temporal,
    "TIMEWRIGHT_TEST_KUBERNETES": Jobs,
}
GIVEN = {found.word: found(None, os.environ[name]) for name, found in OTHERS.items() if os.environ.get(name)}
WORDS = (*OURS, *GIVEN)
