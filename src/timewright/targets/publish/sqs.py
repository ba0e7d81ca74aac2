"""Amazon SQS: a message under the key as its `MessageDeduplicationId`, where the queue is FIFO."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from timewright.targets.publish.address import Address
from timewright.targets.publish.broker import ANSWER_SECONDS, CONNECT_SECONDS, Blocking
from timewright.targets.publish.message import Message, Options, Receipt

# What a message may carry beside its body; the queue takes ten.
_ATTRIBUTES = (
    "timewright-key",
    "timewright-run",
    "timewright-schedule",
    "timewright-planned-at",
    "timewright-attempt",
    "traceparent",
)


class SqsOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Region and account of the queue, and if it is FIFO the group (else the schedule); user is a key id."""

    joined: ClassVar[tuple[str, ...]] = ("region",)

    account: Annotated[str, Meta(max_length=12, pattern="^[0-9]*$")] = ""
    region: Annotated[str, Meta(max_length=64)] = ""
    group: Annotated[str, Meta(max_length=128)] = ""
    delay: Annotated[int, Meta(ge=0, le=900)] = 0


class SqsBroker(Blocking):
    """Sends messages; `name` is the name of the queue."""

    def __init__(self, address: Address, options: SqsOptions) -> None:
        import boto3
        from botocore.config import Config

        self._urls: dict[tuple[str, str], str] = {}
        self._client: Any = boto3.session.Session().client(
            "sqs",
            endpoint_url=address.place + address.path if address.host else None,
            region_name=options.region or None,
            aws_access_key_id=address.user or None,
            aws_secret_access_key=address.password or None,
            config=Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=ANSWER_SECONDS,
                retries={"total_max_attempts": 1},
            ),
        )
        super().__init__(self._client.close)

    async def publish(self, message: Message) -> Receipt:
        """Send the message, and wait until the queue has it."""
        return await self.aside(self._publish, message)

    def _publish(self, message: Message) -> Receipt:
        answer = self._client.send_message(QueueUrl=self._queue_url(message), **sending(message))
        detail = {"queue": message.name, "sequence": answer.get("SequenceNumber")}
        return Receipt(id=answer["MessageId"], detail={k: v for k, v in detail.items() if v is not None})

    def _queue_url(self, message: Message) -> str:
        """The queue's URL, from the service itself: one from a schedule could lead our signature anywhere."""
        owner = message.options.account
        queue = (message.name, owner)
        if queue not in self._urls:
            asked = {"QueueName": message.name} | ({"QueueOwnerAWSAccountId": owner} if owner else {})
            self._urls[queue] = self._client.get_queue_url(**asked)["QueueUrl"]
        return self._urls[queue]


def sending(message: Message) -> dict[str, Any]:
    """What the queue is told: the body, who it is for, and on a FIFO queue the key and the group."""
    options: SqsOptions = message.options
    carried = {name: message.headers[name] for name in _ATTRIBUTES if name in message.headers}
    told: dict[str, Any] = {
        "MessageBody": message.body.decode(),
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in carried.items()
        },
    }
    if message.name.endswith(".fifo"):
        group = options.group or message.schedule_id or "timewright"
        return {**told, "MessageDeduplicationId": message.key, "MessageGroupId": group}
    return {**told, "DelaySeconds": options.delay} if options.delay else told
