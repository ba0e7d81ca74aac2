"""Dramatiq on Redis: sends a message to an actor by name, with the key as its id."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from timewright.targets.publish.address import BrokerAddress
from timewright.targets.publish.brokers.sent_keys import SentKeys, redis_client
from timewright.targets.publish.message import BrokerMessage, BrokerOptions, Receipt
from timewright.targets.publish.protocol import BlockingBroker


class DramatiqOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Queue of the actor, and key prefix of the broker in Redis."""

    connection_options: ClassVar[tuple[str, ...]] = ("prefix",)

    queue: Annotated[str, Meta(min_length=1, max_length=255)] = "default"
    prefix: Annotated[str, Meta(min_length=1, max_length=255)] = "dramatiq"
    max_retries: Annotated[int, Meta(ge=0, le=1000)] | None = None


class DramatiqBroker(BlockingBroker):
    """Enqueues messages. A message with an accepted key is not enqueued again."""

    def __init__(self, address: BrokerAddress, options: DramatiqOptions) -> None:
        from dramatiq.brokers import redis

        library: Any = redis  # it has no type hints
        self._client = redis_client(address)
        self._broker = library.RedisBroker(client=self._client, middleware=[], namespace=options.prefix)
        super().__init__(self._client.close)
        self._sent_keys = SentKeys(self._client, broker="dramatiq")

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Enqueue the message, unless one with its key was accepted."""
        return await self.run_in_thread(self._publish, message)

    def _publish(self, message: BrokerMessage) -> Receipt:
        known = bool(self._sent_keys.get(message.key))
        if not known:
            self._broker.enqueue(actor_message(message))
            self._sent_keys.put(message.key, message.key)
        return Receipt(id=message.key, duplicate=known, detail={"queue": message.options.queue})


def actor_message(message: BrokerMessage) -> Any:
    """Build the Dramatiq message."""
    import dramatiq

    options: DramatiqOptions = message.options
    extra: dict[str, Any] = {"timewright": dict(message.headers)}
    if options.max_retries is not None:
        extra["max_retries"] = options.max_retries
    return dramatiq.Message(
        queue_name=options.queue,
        actor_name=message.name,
        args=tuple(message.args),
        kwargs=message.kwargs,
        options=extra,
        message_id=message.key,
    )
