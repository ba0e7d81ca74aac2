"""Limits the concurrent requests of one caller, so that no caller uses all threads."""

from __future__ import annotations

from timewright.errors import OverQuota
from timewright.operations.access.authentication import Caller

MAX_REQUESTS_PER_KEY = 16


class ConcurrencyLimit:
    """Counts the requests in progress per caller. Only the event loop uses it, so it needs no lock."""

    def __init__(self, max_requests: int = MAX_REQUESTS_PER_KEY) -> None:
        self._max_requests = max_requests
        self._in_progress: dict[str, int] = {}

    def acquire(self, caller: Caller) -> str:
        """Count one more request and return the key to release; raises `OverQuota` at the limit."""
        key = caller.key or caller.actor
        if self._in_progress.get(key, 0) >= self._max_requests:
            raise OverQuota(
                "too many concurrent requests",
                field="requests",
                value=self._max_requests,
                rule=f"at most {self._max_requests} concurrent requests per key",
                fix="wait for a response before sending the next request",
            )
        self._in_progress[key] = self._in_progress.get(key, 0) + 1
        return key

    def release(self, key: str) -> None:
        """Count one request less."""
        left = self._in_progress[key] - 1
        if left:
            self._in_progress[key] = left
        else:
            del self._in_progress[key]
