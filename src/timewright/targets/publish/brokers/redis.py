"""Redis streams: adds one entry per key."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from timewright.targets.publish.address import BrokerAddress
from timewright.targets.publish.message import BrokerMessage, BrokerOptions, Receipt
from timewright.targets.publish.protocol import CONNECT_TIMEOUT_S, RESPONSE_TIMEOUT_S, SENT_KEY_TTL_S

# Runs atomically on the server: the key is stored if and only if its entry was added.
_ADD_ONCE = """
local known = redis.call('GET', KEYS[2])
if known then return {known, 1} end
local command = {'XADD', KEYS[1]}
if ARGV[2] ~= '0' then
  command[#command + 1] = 'MAXLEN'; command[#command + 1] = '~'; command[#command + 1] = ARGV[2]
end
command[#command + 1] = '*'
for place = 3, #ARGV do command[#command + 1] = ARGV[place] end
local id = redis.call(unpack(command))
redis.call('SET', KEYS[2], id, 'EX', ARGV[1])
return {id, 0}
"""


class RedisStreamOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Maximum length of the stream (0: unlimited), and how many seconds a key is stored."""

    maxlen: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    remember: Annotated[int, Meta(ge=60, le=2_592_000)] = SENT_KEY_TTL_S


class RedisStreamBroker:
    """Adds entries to streams. `name` is the stream."""

    def __init__(self, address: BrokerAddress, options: RedisStreamOptions) -> None:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        # One immediate retry replaces a connection that was lost while idle; further retries are the run's.
        self._client: Any = Redis.from_url(
            address.url,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=RESPONSE_TIMEOUT_S,
            retry=Retry(NoBackoff(), 1),
        )
        self._add_once: Any = self._client.register_script(_ADD_ONCE)

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Add the entry, unless there is one with its key."""
        options: RedisStreamOptions = message.options
        fields = [part for pair in stream_entry(message).items() for part in pair]
        # In a cluster both keys must be on one node; the hash tag in braces decides which.
        names = [message.name, f"{{{message.name}}}:timewright:{message.key}"]
        made, known = await self._add_once(keys=names, args=[options.remember, options.maxlen, *fields])
        return Receipt(id=made.decode(), duplicate=bool(known), detail={"stream": message.name})

    async def close(self) -> None:
        """Close every connection of the client."""
        await self._client.aclose()


def stream_entry(message: BrokerMessage) -> dict[str, bytes | str]:
    """The fields of an entry: the key, the payload as JSON, and which run it is for."""
    return {"key": message.key, "payload": message.body, **message.headers}
