"""What one process remembers about who came in: the keyring, last uses, one-time links, how often."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import ZERO
from timewright.ledger.keyring import Keyring
from timewright.ledger.namespaces import Namespace
from timewright.operations.callers import Caller
from timewright.operations.limiter import Limiter
from timewright.operations.short_memory import ShortMemory
from timewright.operations.signed_tokens import ServiceTokens

USES_EVERY = timedelta(minutes=1)
LINK_LIVES = timedelta(minutes=5)
MOST_LINKS = 100


class Known(Struct, frozen=True, kw_only=True):
    """Whom a token let in a moment ago, what its namespace allows, and the store's time at that moment."""

    caller: Caller
    terms: Namespace | None
    expires_at: datetime | None
    now: datetime
    at: float


class Doorkeeper:
    """Holds what the doors share in one process; safe from any thread."""

    def __init__(
        self,
        keyring: Callable[[], Keyring],
        *,
        services: Callable[[], ServiceTokens | None] = lambda: None,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.limiter = Limiter()
        self.random = random
        self.known: ShortMemory[Known] = ShortMemory()
        self._load = keyring
        self._load_services = services
        self._keyring: Keyring | None = None
        self._services: tuple[ServiceTokens | None] | None = None
        self._guard = threading.Lock()
        self._written: dict[str, datetime] = {}
        self._used: dict[str, datetime] = {}
        self._links: dict[str, tuple[Caller, datetime]] = {}

    @property
    def keyring(self) -> Keyring:
        """The keys of this installation, read when first needed."""
        known = self._keyring
        if known is not None:
            return known
        with self._guard:
            if self._keyring is None:
                self._keyring = self._load()
            return self._keyring

    @property
    def services(self) -> ServiceTokens | None:
        """What services' tokens are judged by, read when first needed and then fixed; nothing if none is."""
        with self._guard:
            if self._services is None:
                self._services = (self._load_services(),)
            return self._services[0]

    def ready(self) -> None:
        """Read all that is needed to let anyone in; a door that is about to open refuses to, if it cannot."""
        _ = self.keyring, self.services

    def used(self, prefix: str, *, now: datetime) -> None:
        """Note that a key was used; written down later, at most once a minute for each key."""
        written = self._written.get(prefix)
        if written is not None and ZERO <= now - written < USES_EVERY:
            return
        with self._guard:
            self._used[prefix] = now

    @property
    def has_uses(self) -> bool:
        """Whether there are uses that nobody has written down yet."""
        return bool(self._used)

    def recall(self, token: str, *, at: float) -> Known | None:
        """Whom a token let in a moment ago; kept under its digest, because nobody keeps tokens."""
        known = self.known.recall(self.keyring.current.digest(token), at=at)
        if known is None:
            return None
        now = known.now + timedelta(seconds=at - known.at)
        if known.expires_at is not None and now >= known.expires_at:
            return None
        self.used(known.caller.key, now=now)
        return replace(known, now=now)

    def remember(self, token: str, known: Known, *, since: int) -> None:
        """Let the same token in again for a short while, unless a key has changed since."""
        self.known.remember(self.keyring.current.digest(token), known, at=known.at, since=since)

    def take_uses(self, *, now: datetime) -> Mapping[str, datetime]:
        """The uses that nobody has written down yet; whoever takes them writes them."""
        with self._guard:
            uses, self._used = self._used, {}
            self._written |= dict.fromkeys(uses, now)
            return uses

    def new_link(self, caller: Caller, *, now: datetime) -> str:
        """A token that lets a browser in as this caller, once and soon."""
        token = secrets.token_urlsafe(32)
        with self._guard:
            self._drop_old(now)
            if len(self._links) >= MOST_LINKS:
                del self._links[next(iter(self._links))]
            self._links[token] = (caller, now + LINK_LIVES)
        return token

    def redeem(self, token: str, *, now: datetime) -> Caller | None:
        """Whom a link lets in; nobody when it was used, is over, or never was."""
        with self._guard:
            self._drop_old(now)
            found = self._links.pop(token, None)
        return found[0] if found is not None else None

    def _drop_old(self, now: datetime) -> None:
        for token in [token for token, (_, until) in self._links.items() if until <= now]:
            del self._links[token]
