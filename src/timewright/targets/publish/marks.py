"""Remembers on a Redis which keys were accepted, for queues on it that do not do so themselves."""

from __future__ import annotations

from typing import Any

from timewright.targets.publish.address import Address
from timewright.targets.publish.broker import ANSWER_SECONDS, CONNECT_SECONDS, REMEMBERED_SECONDS


def redis_client(address: Address) -> Any:
    """A blocking Redis client whose calls end within seconds."""
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    # One retry, at once, replaces a connection that died idle; all others are the run's own.
    return Redis.from_url(
        address.text,
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 1),
    )


class Marks:
    """A mark is written after the message was accepted: a crash in between sends twice, and loses nothing."""

    def __init__(self, client: Any, *, word: str) -> None:
        self._client = client
        self._prefix = f"timewright:sent:{word}:"

    def get(self, key: str) -> str | None:
        """Under which id a message with this key was accepted; nothing if none was, "" if it was given up."""
        found = self._client.get(self._prefix + key)
        return None if found is None else str(found.decode())

    def put(self, key: str, work: str) -> None:
        """Remember it, for a day."""
        self._client.set(self._prefix + key, work, ex=REMEMBERED_SECONDS)

    def close(self) -> None:
        """Free its sockets."""
        self._client.close()
