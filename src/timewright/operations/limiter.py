"""How often: a token bucket as a value, and a holder of many that is safe from any thread."""

from __future__ import annotations

import threading
from collections import OrderedDict
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.errors import OverQuota

MOST_BUCKETS = 10_000


class Rate(Struct, frozen=True, kw_only=True):
    """So many in a minute, and no more than `burst` at once."""

    per_minute: int
    burst: int = 0

    @property
    def most(self) -> float:
        """What a full bucket holds."""
        return float(self.burst or max(self.per_minute, 1))


class Bucket(Struct, frozen=True):
    """What is left, and since when that is true."""

    left: float
    at: datetime

    def refilled(self, rate: Rate, *, now: datetime) -> Bucket:
        """The bucket later; a clock that went back refills nothing."""
        gone = max((now - self.at).total_seconds(), 0.0)
        return Bucket(min(rate.most, self.left + gone * rate.per_minute / 60), max(now, self.at))

    def wait_for(self, cost: float, rate: Rate) -> timedelta | None:
        """How long until that much is left; nothing when it never will be."""
        if cost > rate.most or (rate.per_minute == 0 and cost > self.left):
            return None
        return timedelta(seconds=max(cost - self.left, 0.0) * 60 / max(rate.per_minute, 1))


class Limiter:
    """Buckets by key; those that nobody has used for longest are forgotten first, full again."""

    def __init__(self, *, most: int = MOST_BUCKETS) -> None:
        self._most = most
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._guard = threading.Lock()

    def take(self, key: str, cost: float, now: datetime, *, rate: Rate, what: str = "requests") -> None:
        """Take that much of a key's allowance, or refuse and say when there will be enough."""
        with self._guard:
            bucket = self._buckets.get(key, Bucket(rate.most, now)).refilled(rate, now=now)
            enough = bucket.left >= cost
            self._buckets[key] = Bucket(bucket.left - cost, bucket.at) if enough else bucket
            self._buckets.move_to_end(key)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        if not enough:
            raise _too_often(rate, bucket.wait_for(cost, rate), what=what)

    def __len__(self) -> int:
        return len(self._buckets)


def _too_often(rate: Rate, wait: timedelta | None, *, what: str) -> OverQuota:
    seconds = wait.total_seconds() if wait is not None else None
    return OverQuota(
        f"too many {what}",
        field=what,
        value=rate.per_minute,
        rule=f"at most {rate.per_minute} a minute, {rate.most:g} at once",
        fix=f"again in {seconds:.1f} s" if seconds is not None else "fewer at once",
        retry_after=seconds,
    )
