"""The authentication state of one process: keyring, cached callers, last uses, login links, rate limits."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from timewright.access.keyring import Keyring
from timewright.core.moments import ZERO
from timewright.errors import OverQuota
from timewright.ledger.records.namespaces import Namespace
from timewright.operations.access.callers import Caller
from timewright.operations.access.service_tokens import ServiceTokenVerifier

# So a change of a key or namespace in another process is seen after at most two seconds.
DEFAULT_TTL_S = 2.0
MAX_ENTRIES = 10_000
SAVE_USES_INTERVAL = timedelta(minutes=1)
LOGIN_LINK_TTL = timedelta(minutes=5)
MAX_LOGIN_LINKS = 100

MAX_BUCKETS = 10_000


class CachedCaller(Struct, frozen=True, kw_only=True):
    """An authenticated caller at a time of the store; of a key also its expiry and its namespace's quotas."""

    caller: Caller
    now: datetime
    at: float = 0.0
    expires_at: datetime | None = None
    quotas: Namespace | None = None


class AuthCache:
    """The authentication state that all interfaces of one process share; thread-safe."""

    def __init__(
        self,
        keyring: Callable[[], Keyring],
        *,
        services: Callable[[], ServiceTokenVerifier | None] = lambda: None,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.limiter = RateLimiter()
        self.random_bytes = random
        self.generation = 0
        """Rises with every change of a key or namespace in this process."""
        self._callers: dict[str, CachedCaller] = {}
        self._load = keyring
        self._load_services = services
        self._keyring: Keyring | None = None
        self._services: tuple[ServiceTokenVerifier | None] | None = None
        self._lock = threading.Lock()
        self._written: dict[str, datetime] = {}
        self._used: dict[str, datetime] = {}
        self._links: dict[str, tuple[Caller, datetime]] = {}

    @property
    def keyring(self) -> Keyring:
        """The secret keys of this installation, loaded on first use."""
        known = self._keyring
        if known is not None:
            return known
        with self._lock:
            if self._keyring is None:
                self._keyring = self._load()
            return self._keyring

    @property
    def service_tokens(self) -> ServiceTokenVerifier | None:
        """The verifier of service tokens, loaded on first use; None if none is configured."""
        with self._lock:
            if self._services is None:
                self._services = (self._load_services(),)
            return self._services[0]

    def load_keys(self) -> None:
        """Load the keys now, so that an interface fails at start if they cannot be read."""
        _ = self.keyring, self.service_tokens

    def record_use(self, prefix: str, *, now: datetime) -> None:
        """Note that a key was used; saved later, at most once a minute per key."""
        written = self._written.get(prefix)
        if written is not None and ZERO <= now - written < SAVE_USES_INTERVAL:
            return
        with self._lock:
            self._used[prefix] = now

    @property
    def has_unsaved_uses(self) -> bool:
        """Whether there are last-used times that are not saved yet."""
        return bool(self._used)

    def get_caller(self, token: str, *, at: float) -> CachedCaller | None:
        """Return the cached caller of a token; the cache key is the token's digest, never the token."""
        known = self._callers.get(self.keyring.current.digest(token))
        if known is None or not 0 <= at - known.at < DEFAULT_TTL_S:
            return None
        now = known.now + timedelta(seconds=at - known.at)
        if known.expires_at is not None and now >= known.expires_at:
            return None
        self.record_use(known.caller.key, now=now)
        return replace(known, now=now)

    def put_caller(self, token: str, known: CachedCaller, *, at: float, generation: int) -> None:
        """Cache the caller of a token for two seconds, unless a key has changed since `generation`.

        `generation` was read before the caller was, so what was read before a change is not cached after it.
        """
        name = self.keyring.current.digest(token)
        with self._lock:
            if generation != self.generation:
                return
            if len(self._callers) >= MAX_ENTRIES:
                self._callers.clear()
            self._callers[name] = replace(known, at=at)

    def forget_callers(self) -> None:
        """Drop all cached callers, because a key or a namespace changed."""
        with self._lock:
            self.generation += 1
            self._callers = {}

    def take_unsaved_uses(self, *, now: datetime) -> Mapping[str, datetime]:
        """Return the unsaved last-used times and mark them as saved; the caller saves them."""
        with self._lock:
            uses, self._used = self._used, {}
            self._written |= dict.fromkeys(uses, now)
            return uses

    def create_login_link(self, caller: Caller, *, now: datetime) -> str:
        """Return a one-time token that logs a browser in as this caller within five minutes."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._drop_expired_links(now)
            if len(self._links) >= MAX_LOGIN_LINKS:
                del self._links[next(iter(self._links))]
            self._links[token] = (caller, now + LOGIN_LINK_TTL)
        return token

    def redeem_login_link(self, token: str, *, now: datetime) -> Caller | None:
        """Return the caller of a login link; None if it was used, has expired or is unknown."""
        with self._lock:
            self._drop_expired_links(now)
            found = self._links.pop(token, None)
        return found[0] if found is not None else None

    def _drop_expired_links(self, now: datetime) -> None:
        for token in [token for token, (_, until) in self._links.items() if until <= now]:
            del self._links[token]


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

    def time_until_next(self, rate: RateLimit) -> timedelta | None:
        """Return how long until there is one again; None if there never will be."""
        return timedelta(seconds=(1 - self.left) * 60 / rate.per_minute) if rate.per_minute else None


class RateLimiter:
    """Token buckets by key; the least recently used are dropped first."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str, now: datetime, *, rate: RateLimit, what: str = "requests") -> None:
        """Take one from a key's bucket, or raise OverQuota with the time to wait."""
        with self._lock:
            bucket = self._buckets.get(key, TokenBucket(rate.capacity, now)).refill(rate, now=now)
            enough = bucket.left >= 1
            self._buckets[key] = TokenBucket(bucket.left - 1, bucket.at) if enough else bucket
            self._buckets.move_to_end(key)
            if len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        if not enough:
            raise _too_often(rate, bucket.time_until_next(rate), what=what)

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
