"""RabbitMQ, NATS JetStream and SQS: confirmed messages with the key as their id."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from timewright.core.input.input_errors import input_error
from timewright.targets.publish.protocol import (
    CONNECT_TIMEOUT_S,
    RESPONSE_TIMEOUT_S,
    AsyncBroker,
    BlockingBroker,
    BrokerAddress,
    BrokerMessage,
    BrokerOptions,
    Receipt,
)

# Headers sent as message attributes; SQS allows ten.
_ATTRIBUTES = (
    "timewright-key",
    "timewright-run",
    "timewright-schedule",
    "timewright-planned-at",
    "timewright-attempt",
    "traceparent",
)


class RabbitmqOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exchange ("" is the default one, where the name is a queue) and priority."""

    exchange: Annotated[str, Meta(max_length=255)] = ""
    priority: Annotated[int, Meta(ge=0, le=255)] | None = None
    expires: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None


class RabbitmqBroker(AsyncBroker):
    """Publishes with confirms. `name` is the routing key; a message that no queue accepts fails."""

    name = "rabbitmq"
    extra = "amqp"
    modules = ("aio_pika",)
    schemes = ("amqp", "amqps")
    example_url = "amqp://localhost:5672/"
    options_type = RabbitmqOptions
    remedy = "check that the server runs, that the queue exists, and the credentials"

    _channel: Any = None

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Publish, and wait for the broker's confirmation."""
        exchange = await self._exchange(message.options.exchange)
        made = amqp_message(message)
        await exchange.publish(made, routing_key=message.name, mandatory=True, timeout=RESPONSE_TIMEOUT_S)
        return Receipt(id=message.key, detail={"exchange": message.options.exchange})

    async def connect(self) -> Any:
        """Connect; the channel is opened with the next message."""
        import aio_pika

        self._channel = None
        return await aio_pika.connect(self._address.url, timeout=CONNECT_TIMEOUT_S)

    def is_lost(self, client: Any) -> bool:
        """Whether the server has closed the connection; `client.is_closed` is only about a close of ours."""
        return not client.connected.is_set()

    async def _exchange(self, name: str) -> Any:
        connection = await self.connected()
        if self._channel is None or self._channel.is_closed:
            self._channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        if not name:
            return self._channel.default_exchange
        # No request to the server: publishing to a missing exchange closes the channel.
        return await self._channel.get_exchange(name, ensure=False)


def amqp_message(message: BrokerMessage) -> Any:
    """Build the AMQP message: persistent JSON with the key in `message_id` and in its headers."""
    from aio_pika import DeliveryMode
    from aio_pika import Message as AmqpMessage

    options: RabbitmqOptions = message.options
    return AmqpMessage(
        message.body,
        headers=dict(message.headers),
        content_type="application/json",
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=message.key,
        priority=options.priority,
        expiration=options.expires,
        type=message.name,
        app_id="timewright",
    )


class NatsOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stream that must store the message; empty for any."""

    stream: Annotated[str, Meta(max_length=255)] = ""


class NatsBroker(AsyncBroker):
    """Publishes to subjects of a stream. `name` is the subject."""

    name = "nats"
    extra = "nats"
    modules = ("nats",)
    schemes = ("nats", "tls")
    example_url = "nats://localhost:4222"
    options_type = NatsOptions
    remedy = "check that the server runs with JetStream, and that a stream has the subject"

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Publish, and wait until the stream has stored the message or reports a duplicate."""
        client = await self.connected()
        if len(message.body) > client.max_payload:
            rule = f"the server takes at most {client.max_payload} bytes"
            fix = "send a link instead, or raise max_payload on the server"
            raise input_error("target.payload", message.payload, "is too large", rule=rule, fix=fix)
        stored = await client.jetstream(timeout=RESPONSE_TIMEOUT_S).publish(
            message.name, message.body, stream=message.options.stream or None, headers=build_headers(message)
        )
        detail = {"stream": stored.stream, "sequence": stored.seq}
        return Receipt(id=message.key, duplicate=bool(stored.duplicate), detail=detail)

    async def connect(self) -> Any:
        """Connect once, or raise the reason. By default the client retries forever without reporting it."""
        from nats.aio.client import Client
        from nats.errors import NoServersError

        reasons: list[Exception] = []

        async def on_error(error: Exception) -> None:
            reasons.append(error)

        client: Any = Client()
        try:
            await client.connect(
                self._address.endpoint,
                user=self._address.user or None,
                password=self._address.password or None,
                name="timewright",
                connect_timeout=int(CONNECT_TIMEOUT_S),
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                error_cb=on_error,
            )
        except NoServersError as error:
            raise reasons[-1] if reasons else error from None
        except BaseException:
            await client.close()  # a socket may be open without a response
            raise
        return client

    def is_lost(self, client: Any) -> bool:
        """Whether the connection was lost: the client does not reconnect."""
        return not client.is_connected


def build_headers(message: BrokerMessage) -> dict[str, str]:
    """The headers of a message. The server drops a second message with the same `Nats-Msg-Id`."""
    return {**message.headers, "Nats-Msg-Id": message.key, "Content-Type": "application/json"}


class SqsOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Region, account and FIFO group (default: the schedule) of the queue. User is an access key id."""

    connection_options: ClassVar[tuple[str, ...]] = ("region",)

    account: Annotated[str, Meta(max_length=12, pattern="^[0-9]*$")] = ""
    region: Annotated[str, Meta(max_length=64)] = ""
    group: Annotated[str, Meta(max_length=128)] = ""
    delay: Annotated[int, Meta(ge=0, le=900)] = 0


class SqsBroker(BlockingBroker):
    """Sends messages. `name` is the name of the queue."""

    name = "sqs"
    extra = "sqs"
    modules = ("boto3",)
    schemes = ("https", "http")
    example_url = "leave it out, or https://sqs.eu-central-1.amazonaws.com"
    options_type = SqsOptions
    max_bytes = 262_144
    has_default_address = True
    remedy = "check that the queue exists, the region and the credentials"

    def __init__(self, address: BrokerAddress, options: SqsOptions) -> None:
        import boto3
        from botocore.config import Config

        self._urls: dict[tuple[str, str], str] = {}
        self._client: Any = boto3.session.Session().client(
            "sqs",
            endpoint_url=address.endpoint + address.path if address.host else None,
            region_name=options.region or None,
            aws_access_key_id=address.user or None,
            aws_secret_access_key=address.password or None,
            config=Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=RESPONSE_TIMEOUT_S,
                retries={"total_max_attempts": 1},
            ),
        )
        super().__init__(self._client.close)

    def send(self, message: BrokerMessage) -> Receipt:
        """Send the message, and wait until the queue has accepted it."""
        answer = self._client.send_message(QueueUrl=self._queue_url(message), **send_parameters(message))
        detail = {"queue": message.name, "sequence": answer.get("SequenceNumber")}
        return Receipt(id=answer["MessageId"], detail={k: v for k, v in detail.items() if v is not None})

    def _queue_url(self, message: BrokerMessage) -> str:
        """The URL of the queue, from the service. A URL from a schedule could send our signature anywhere."""
        owner = message.options.account
        queue = (message.name, owner)
        if queue not in self._urls:
            query = {"QueueName": message.name} | ({"QueueOwnerAWSAccountId": owner} if owner else {})
            self._urls[queue] = self._client.get_queue_url(**query)["QueueUrl"]
        return self._urls[queue]


def send_parameters(message: BrokerMessage) -> dict[str, Any]:
    """The parameters of `send_message`: body, attributes, and on a FIFO queue the key and the group."""
    options: SqsOptions = message.options
    attributes = {name: message.headers[name] for name in _ATTRIBUTES if name in message.headers}
    parameters: dict[str, Any] = {
        "MessageBody": message.body.decode(),
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
        },
    }
    if message.name.endswith(".fifo"):
        group = options.group or message.schedule_id or "timewright"
        return {**parameters, "MessageDeduplicationId": message.key, "MessageGroupId": group}
    return {**parameters, "DelaySeconds": options.delay} if options.delay else parameters
