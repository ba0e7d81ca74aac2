"""Stores accepted keys in Redis, for queues that do not deduplicate themselves."""

from __future__ import annotations

from typing import Any

from timewright.targets.publish.address import BrokerAddress
from timewright.targets.publish.protocol import CONNECT_TIMEOUT_S, RESPONSE_TIMEOUT_S, SENT_KEY_TTL_S


def redis_client(address: BrokerAddress) -> Any:
    """A blocking Redis client with timeouts."""
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    # One immediate retry replaces a connection that was lost while idle; further retries are the run's.
    return Redis.from_url(
        address.url,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=RESPONSE_TIMEOUT_S,
        retry=Retry(NoBackoff(), 1),
    )


class SentKeys:
    """The keys of sent messages. Stored after sending: a crash in between sends twice, but loses nothing."""

    def __init__(self, client: Any, *, broker: str) -> None:
        self._client = client
        self._prefix = f"timewright:sent:{broker}:"

    def get(self, key: str) -> str | None:
        """The id of the accepted message with this key; None if there is none, "" if it was cancelled."""
        found = self._client.get(self._prefix + key)
        return None if found is None else str(found.decode())

    def put(self, key: str, remote_id: str) -> None:
        """Store the id for a day."""
        self._client.set(self._prefix + key, remote_id, ex=SENT_KEY_TTL_S)

    def close(self) -> None:
        """Close the client."""
        self._client.close()
