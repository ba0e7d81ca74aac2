"""Token buckets, and a thread-safe rate limiter with one bucket per key."""

from __future__ import annotations

import threading
from collections import OrderedDict
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.errors import OverQuota

MAX_BUCKETS = 10_000


class RateLimit(Struct, frozen=True, kw_only=True):
    """A rate per minute, and at most `burst` at once; without a burst, the rate itself."""

    per_minute: int
    burst: int = 0

    @property
    def capacity(self) -> float:
        """The size of a full bucket."""
        return float(self.burst or max(self.per_minute, 1))


class TokenBucket(Struct, frozen=True):
    """What is left in a bucket, and when that was computed."""

    left: float
    at: datetime

    def refill(self, rate: RateLimit, *, now: datetime) -> TokenBucket:
        """Return the bucket at a later time; a clock that went back adds nothing."""
        elapsed = max((now - self.at).total_seconds(), 0.0)
        return TokenBucket(min(rate.capacity, self.left + elapsed * rate.per_minute / 60), max(now, self.at))

    def time_until(self, cost: float, rate: RateLimit) -> timedelta | None:
        """Return how long until `cost` is available; None if it never will be."""
        if cost > rate.capacity or (rate.per_minute == 0 and cost > self.left):
            return None
        return timedelta(seconds=max(cost - self.left, 0.0) * 60 / max(rate.per_minute, 1))


class RateLimiter:
    """Token buckets by key; the least recently used are dropped first."""

    def __init__(self, *, max_buckets: int = MAX_BUCKETS) -> None:
        self._max_buckets = max_buckets
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str, cost: float, now: datetime, *, rate: RateLimit, what: str = "requests") -> None:
        """Take `cost` from a key's bucket, or raise OverQuota with the time to wait."""
        with self._lock:
            bucket = self._buckets.get(key, TokenBucket(rate.capacity, now)).refill(rate, now=now)
            enough = bucket.left >= cost
            self._buckets[key] = TokenBucket(bucket.left - cost, bucket.at) if enough else bucket
            self._buckets.move_to_end(key)
            if len(self._buckets) > self._max_buckets:
                self._buckets.popitem(last=False)
        if not enough:
            raise _too_often(rate, bucket.time_until(cost, rate), what=what)

    def __len__(self) -> int:
        return len(self._buckets)


def _too_often(rate: RateLimit, wait: timedelta | None, *, what: str) -> OverQuota:
    seconds = wait.total_seconds() if wait is not None else None
    return OverQuota(
        f"too many {what}",
        field=what,
        value=rate.per_minute,
        rule=f"at most {rate.per_minute} a minute, {rate.capacity:g} at once",
        fix=f"try again in {seconds:.1f} s" if seconds is not None else "send fewer at once",
        retry_after=seconds,
    )
