"""Redis streams: an entry for each message, and one entry for each key."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from timewright.targets.publish.address import Address
from timewright.targets.publish.broker import ANSWER_SECONDS, CONNECT_SECONDS, REMEMBERED_SECONDS
from timewright.targets.publish.message import Message, Options, Receipt

# The server runs it as one step: the key is remembered if and only if its entry is there.
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


class StreamOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a stream may grow (0: without end), and how many seconds a key is remembered."""

    maxlen: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    remember: Annotated[int, Meta(ge=60, le=2_592_000)] = REMEMBERED_SECONDS


class StreamBroker:
    """Adds entries to streams; `name` is the stream."""

    def __init__(self, address: Address, options: StreamOptions) -> None:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        # One retry, at once, replaces a connection that died idle; all others are the run's own.
        self._client: Any = Redis.from_url(
            address.text,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 1),
        )
        self._add_once: Any = self._client.register_script(_ADD_ONCE)

    async def publish(self, message: Message) -> Receipt:
        """Add the entry, unless its key has one."""
        options: StreamOptions = message.options
        fields = [part for pair in entry(message).items() for part in pair]
        # In a cluster both names must live on one node; what is in braces decides which.
        names = [message.name, f"{{{message.name}}}:timewright:{message.key}"]
        made, known = await self._add_once(keys=names, args=[options.remember, options.maxlen, *fields])
        return Receipt(id=made.decode(), duplicate=bool(known), detail={"stream": message.name})

    async def close(self) -> None:
        """Close every connection of the client."""
        await self._client.aclose()


def entry(message: Message) -> dict[str, bytes | str]:
    """The fields of an entry: the key, the payload as JSON, and which run it is for."""
    return {"key": message.key, "payload": message.body, **message.headers}
