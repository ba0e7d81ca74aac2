"""Amazon SQS: sends a message; on a FIFO queue the key is its `MessageDeduplicationId`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from timewright.targets.publish.address import BrokerAddress
from timewright.targets.publish.message import BrokerMessage, BrokerOptions, Receipt
from timewright.targets.publish.protocol import CONNECT_TIMEOUT_S, RESPONSE_TIMEOUT_S, BlockingBroker

# Headers sent as message attributes; SQS allows ten.
_ATTRIBUTES = (
    "timewright-key",
    "timewright-run",
    "timewright-schedule",
    "timewright-planned-at",
    "timewright-attempt",
    "traceparent",
)


class SqsOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Region, account and FIFO group (default: the schedule) of the queue. User is an access key id."""

    connection_options: ClassVar[tuple[str, ...]] = ("region",)

    account: Annotated[str, Meta(max_length=12, pattern="^[0-9]*$")] = ""
    region: Annotated[str, Meta(max_length=64)] = ""
    group: Annotated[str, Meta(max_length=128)] = ""
    delay: Annotated[int, Meta(ge=0, le=900)] = 0


class SqsBroker(BlockingBroker):
    """Sends messages. `name` is the name of the queue."""

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

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Send the message, and wait until the queue has accepted it."""
        return await self.run_in_thread(self._publish, message)

    def _publish(self, message: BrokerMessage) -> Receipt:
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
