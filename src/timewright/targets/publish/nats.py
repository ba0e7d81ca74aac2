"""NATS JetStream: a message that a stream has stored, once for each `Nats-Msg-Id`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from timewright.core.refusals import refused
from timewright.targets.publish.address import Address
from timewright.targets.publish.broker import ANSWER_SECONDS, CONNECT_SECONDS
from timewright.targets.publish.message import Message, Options, Receipt


class NatsOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stream that has to take the message, if any will not do."""

    stream: Annotated[str, Meta(max_length=255)] = ""


class NatsBroker:
    """Publishes to subjects that a stream listens to; `name` is the subject."""

    def __init__(self, address: Address, options: NatsOptions) -> None:
        self._address = address
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def publish(self, message: Message) -> Receipt:
        """Publish, and wait until the stream has stored it or knew it."""
        client = await self._connected()
        if len(message.body) > client.max_payload:
            rule = f"the server takes at most {client.max_payload} bytes"
            fix = "send a link instead, or raise max_payload on the server"
            raise refused("target.payload", message.payload, "is too large", rule=rule, fix=fix)
        stored = await client.jetstream(timeout=ANSWER_SECONDS).publish(
            message.name, message.body, stream=message.options.stream or None, headers=headers_of(message)
        )
        detail = {"stream": stored.stream, "sequence": stored.seq}
        return Receipt(id=message.key, duplicate=bool(stored.duplicate), detail=detail)

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.close()

    async def _connected(self) -> Any:
        """The connection, made anew if it was lost."""
        async with self._opening:
            if self._client is None or not self._client.is_connected:
                self._client = await _connect(self._address)
        return self._client


async def _connect(address: Address) -> Any:
    """Connect, or say why not; left alone, the client would try for ever and keep the reason to itself."""
    from nats.aio.client import Client
    from nats.errors import NoServersError

    reasons: list[Exception] = []

    async def hear(error: Exception) -> None:
        reasons.append(error)

    client: Any = Client()
    try:
        await client.connect(
            address.place,
            user=address.user or None,
            password=address.password or None,
            name="timewright",
            connect_timeout=int(CONNECT_SECONDS),
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            error_cb=hear,
        )
    except NoServersError as error:
        raise reasons[-1] if reasons else error from None
    except BaseException:
        await client.close()  # a socket may be open on which nobody has answered
        raise
    return client


def headers_of(message: Message) -> dict[str, str]:
    """The headers of a message; the server drops a second one with the same id."""
    return {**message.headers, "Nats-Msg-Id": message.key, "Content-Type": "application/json"}
