"""RabbitMQ: publishes a persistent, confirmed message with the key as its `message_id`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from timewright.targets.publish.address import BrokerAddress
from timewright.targets.publish.message import BrokerMessage, BrokerOptions, Receipt
from timewright.targets.publish.protocol import CONNECT_TIMEOUT_S, RESPONSE_TIMEOUT_S


class RabbitmqOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exchange ("" is the default one, where the name is a queue) and priority."""

    exchange: Annotated[str, Meta(max_length=255)] = ""
    priority: Annotated[int, Meta(ge=0, le=255)] | None = None
    expires: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None


class RabbitmqBroker:
    """Publishes with confirms. `name` is the routing key; a message that no queue accepts fails."""

    def __init__(self, address: BrokerAddress, options: RabbitmqOptions) -> None:
        self._address = address
        self._connection: Any = None
        self._channel: Any = None
        self._opening = asyncio.Lock()

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Publish, and wait for the broker's confirmation."""
        channel = await self._opened()
        exchange = await self._exchange(channel, message.options.exchange)
        made = amqp_message(message)
        await exchange.publish(made, routing_key=message.name, mandatory=True, timeout=RESPONSE_TIMEOUT_S)
        return Receipt(id=message.key, detail={"exchange": message.options.exchange})

    async def close(self) -> None:
        """Close the channel and the connection."""
        if self._connection is not None:
            await self._connection.close()

    async def _opened(self) -> Any:
        import aio_pika

        async with self._opening:
            # A connection that the server has closed is not `is_closed`, which is only for a close of ours.
            if self._connection is None or not self._connection.connected.is_set():
                self._channel = None
                self._connection = await aio_pika.connect(self._address.url, timeout=CONNECT_TIMEOUT_S)
            if self._channel is None or self._channel.is_closed:
                self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        return self._channel

    @staticmethod
    async def _exchange(channel: Any, name: str) -> Any:
        if not name:
            return channel.default_exchange
        # No request to the server: publishing to a missing exchange closes the channel.
        return await channel.get_exchange(name, ensure=False)


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
