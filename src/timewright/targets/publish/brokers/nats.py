"""NATS JetStream: publishes a message that a stream stores once per `Nats-Msg-Id`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from timewright.core.input.input_errors import input_error
from timewright.targets.publish.address import BrokerAddress
from timewright.targets.publish.message import BrokerMessage, BrokerOptions, Receipt
from timewright.targets.publish.protocol import CONNECT_TIMEOUT_S, RESPONSE_TIMEOUT_S


class NatsOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stream that must store the message; empty for any."""

    stream: Annotated[str, Meta(max_length=255)] = ""


class NatsBroker:
    """Publishes to subjects of a stream. `name` is the subject."""

    def __init__(self, address: BrokerAddress, options: NatsOptions) -> None:
        self._address = address
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Publish, and wait until the stream has stored the message or reports a duplicate."""
        client = await self._connected()
        if len(message.body) > client.max_payload:
            rule = f"the server takes at most {client.max_payload} bytes"
            fix = "send a link instead, or raise max_payload on the server"
            raise input_error("target.payload", message.payload, "is too large", rule=rule, fix=fix)
        stored = await client.jetstream(timeout=RESPONSE_TIMEOUT_S).publish(
            message.name, message.body, stream=message.options.stream or None, headers=build_headers(message)
        )
        detail = {"stream": stored.stream, "sequence": stored.seq}
        return Receipt(id=message.key, duplicate=bool(stored.duplicate), detail=detail)

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.close()

    async def _connected(self) -> Any:
        """The connection; reconnects if it was lost."""
        async with self._opening:
            if self._client is None or not self._client.is_connected:
                self._client = await _connect(self._address)
        return self._client


async def _connect(address: BrokerAddress) -> Any:
    """Connect once, or raise the reason. By default the client retries forever without reporting it."""
    from nats.aio.client import Client
    from nats.errors import NoServersError

    reasons: list[Exception] = []

    async def on_error(error: Exception) -> None:
        reasons.append(error)

    client: Any = Client()
    try:
        await client.connect(
            address.endpoint,
            user=address.user or None,
            password=address.password or None,
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


def build_headers(message: BrokerMessage) -> dict[str, str]:
    """The headers of a message. The server drops a second message with the same `Nats-Msg-Id`."""
    return {**message.headers, "Nats-Msg-Id": message.key, "Content-Type": "application/json"}
