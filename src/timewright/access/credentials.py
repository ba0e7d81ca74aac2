"""What a caller proves itself with, as it is stored: API keys, browser sessions, and tokens of runs."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from timewright.access.keyring import Keyring
from timewright.core.run.run import Run, RunState
from timewright.ports import StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE
from timewright.ports.rows import ObjectPrune

KEY = "key"
KEY_USE = "key_use"

TOKEN_SCHEME = "tw"  # noqa: S105 - no secret
PREFIX_LENGTH = 12
MAX_TOKEN_CHARS = 200

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


class Key(Struct, frozen=True, kw_only=True):
    """The stored part of an API key: its owner, its permissions, and the digest of its token.

    For a local key, `token_file` says on which machine and in which file its token is.
    """

    prefix: str
    name: str
    secret_key_id: str
    digest: str
    scopes: tuple[str, ...]
    role: str = ""
    namespaces: tuple[str, ...] = ()
    origin: str = "human"
    zone: str = ""
    local: bool = False
    token_file: str = ""
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revision: int = 1

    def is_active(self, *, now: datetime) -> bool:
        """Whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def find_key(tx: Transaction, prefix: str) -> Key | None:
    """Find a key by the public part of its token."""
    rows = tx.get_objects(KEY, namespace=GLOBAL_NAMESPACE, names=[prefix])
    return rows[0].decode(Key) if rows else None


def read_keys(tx: Transaction) -> list[Key]:
    """All keys, by prefix."""
    return [row.decode(Key) for row in tx.get_objects(KEY, namespace=GLOBAL_NAMESPACE)]


def put_key(tx: Transaction, key: Key, *, replaces: int, now: datetime) -> None:
    """Write a key; raises Conflict if the revision is stale."""
    row = StoredObject.of(KEY, key.prefix, key, namespace=GLOBAL_NAMESPACE, revision=key.revision, at=now)
    tx.put_objects([row], replaces={key.prefix: replaces})


def last_uses(tx: Transaction) -> dict[str, datetime]:
    """When each key was last used, as far as it was recorded."""
    return {row.name: row.at for row in tx.get_objects(KEY_USE, namespace=GLOBAL_NAMESPACE)}


def record_uses(tx: Transaction, uses: Mapping[str, datetime], *, kind: str = KEY_USE) -> None:
    """Record when keys, or objects of another kind, were last used."""
    tx.put_objects(
        [StoredObject.of(kind, name, {}, namespace=GLOBAL_NAMESPACE, at=at) for name, at in uses.items()]
    )


def new_token(random: Callable[[int], bytes]) -> tuple[str, str]:
    """A new random prefix, and the token that contains it."""
    prefix = "".join(_LETTERS[byte % 32] for byte in random(PREFIX_LENGTH))
    return prefix, f"{TOKEN_SCHEME}_{prefix}_{base64.urlsafe_b64encode(random(32)).decode().rstrip('=')}"


def token_prefix(token: str) -> str:
    """The prefix of a token, by which its key is found; empty if it is not a token."""
    if len(token) > MAX_TOKEN_CHARS or not token.isascii():
        return ""
    start, _, rest = token.partition("_")
    prefix, _, secret = rest.partition("_")
    well_formed = start == TOKEN_SCHEME and bool(secret) and len(prefix) == PREFIX_LENGTH
    return prefix if well_formed and set(prefix) <= set(_LETTERS) else ""


SESSION = "session"
SESSION_USE = "session_use"

# A session ends when it was not used for this long, and at the latest after its maximum.
MAX_IDLE = timedelta(hours=12)
MAX_LIFETIME = timedelta(days=30)


class Identity(Struct, frozen=True, kw_only=True):
    """A person whom an OpenID Connect provider has named: scopes and namespaces come from the groups."""

    actor: str
    scopes: tuple[str, ...]
    namespaces: tuple[str, ...] = ()


class BrowserSession(Struct, frozen=True, kw_only=True):
    """A session of a key, or of a person with an identity; `key` tells whose sessions belong together."""

    id: str
    key: str
    created_at: datetime
    client: str = ""
    identity: Identity | None = None
    ended: bool = False
    last_used_at: datetime | None = None

    @property
    def expires_at(self) -> datetime:
        """When the session ends if it is not used again."""
        return min((self.last_used_at or self.created_at) + MAX_IDLE, self.created_at + MAX_LIFETIME)

    def is_active(self, *, now: datetime) -> bool:
        """Whether the session was neither ended nor has expired."""
        return not self.ended and now < self.expires_at


def put_session(tx: Transaction, session: BrowserSession, *, now: datetime) -> None:
    """Write a session, and forget the oldest that have expired."""
    stored = replace(session, last_used_at=None)
    row = StoredObject.of(SESSION, session.id, stored, namespace=GLOBAL_NAMESPACE, at=session.created_at)
    tx.put_objects([row])
    tx.prune(ObjectPrune(kind=SESSION, namespace=GLOBAL_NAMESPACE, older_than=now - MAX_LIFETIME))
    tx.prune(ObjectPrune(kind=SESSION_USE, namespace=GLOBAL_NAMESPACE, older_than=now - MAX_LIFETIME))


def read_sessions(tx: Transaction, ids: list[str] | None = None) -> list[BrowserSession]:
    """Some or all sessions with their last use, by id."""
    rows = tx.get_objects(SESSION, namespace=GLOBAL_NAMESPACE, names=ids)
    uses = {row.name: row.at for row in tx.get_objects(SESSION_USE, namespace=GLOBAL_NAMESPACE, names=ids)}
    found = (row.decode(BrowserSession) for row in rows)
    return [replace(session, last_used_at=uses.get(session.id)) for session in found]


LIFETIME = timedelta(minutes=60)
RUN_TOKEN_PREFIX = "twr_"  # noqa: S105 - no secret
_SIGNATURE_CHARS = 32
_LINK = re.compile(r"twa_(run_[0-9A-Z]{26})_([0-9a-f]{64})")
_TOKEN = re.compile(r"twr_(run_[0-9A-Z]{26})_(\d{1,18})_(\d{1,12})_([0-9a-f]{32})")


class RunTokenClaims(Struct, frozen=True):
    """What a token with a valid signature says."""

    run_id: str
    fence: int
    expires_at: datetime

    def is_valid(self, run: Run | None, *, now: datetime) -> bool:
        """Whether the attempt that has this token is still running."""
        is_current = run is not None and run.state is RunState.LEASED and run.fence == self.fence
        return is_current and now < self.expires_at


def new_run_token(keyring: Keyring, run_id: str, fence: int, *, now: datetime) -> str:
    """Return the token of an attempt."""
    body = f"{RUN_TOKEN_PREFIX}{run_id}_{fence}_{int((now + LIFETIME).timestamp())}"
    return f"{body}_{keyring.current.digest(body)[:_SIGNATURE_CHARS]}"


def read_run_token(keyring: Keyring, token: str) -> RunTokenClaims | None:
    """Return what a token says; None if it is not one of ours."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        return None
    body = token.rpartition("_")[0]
    is_signed = [hmac.compare_digest(key.digest(body)[:_SIGNATURE_CHARS], found[4]) for key in keyring.keys]
    if not any(is_signed):
        return None
    expires_at = datetime.fromtimestamp(int(found[3]), UTC)
    return RunTokenClaims(run_id=found[1], fence=int(found[2]), expires_at=expires_at)


def new_answer_slug(keyring: Keyring, run_id: str) -> str:
    """Return the last part of the link with which a person without a key answers a run that waits."""
    return f"twa_{run_id}_{keyring.current.digest(f'twa_{run_id}')[:64]}"


def read_answer_slug(keyring: Keyring, slug: str) -> str | None:
    """Return the run that a link leads to; None if it is not one of ours."""
    found = _LINK.fullmatch(slug)
    if found is None:
        return None
    digests = [key.digest(f"twa_{found[1]}")[:64] for key in keyring.keys]
    return found[1] if any(hmac.compare_digest(one, found[2]) for one in digests) else None
