"""API keys: create, list, revoke and rotate; and the key of the local administrator."""

from __future__ import annotations

import platform
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.access.credentials import Key, last_uses, new_token, put_key, read_keys
from timewright.access.keyring import read_private, record_keyring, write_private
from timewright.core.input.input_errors import check_name
from timewright.core.zones import check_zone
from timewright.errors import InvalidInput, Unauthorized
from timewright.operations.access.authentication import (
    ALL_SCOPES,
    ROLES,
    Role,
    Scope,
    authenticate,
    require_auth_cache,
)
from timewright.operations.access.key_records import (
    DEFAULT_LIFETIME,
    MAX_LIFETIME,
    MAX_OVERLAP,
    KeySummary,
    check_can_rotate,
    check_grant,
    check_lifetime,
    check_name_free,
    find_visible_key,
    key_id,
    key_namespaces,
    key_sort_key,
    summarize_key,
    visible_keys,
)
from timewright.operations.context import OperationContext
from timewright.operations.pagination import paginate_rows
from timewright.operations.registry import ListRequest, ObjectName, OperationRequest, WriteRequest, operations
from timewright.ports import Transaction

ZoneName = Annotated[str, Meta(max_length=64)]
Names = Annotated[tuple[ObjectName, ...], Meta(max_length=100)]


class CreateKey(WriteRequest, frozen=True, kw_only=True):
    """A new API key: a role or single scopes, its namespaces and its lifetime.

    `within` names namespaces; the default is the namespace it is created in; `*` means all. `zone` is the
    zone of schedules that its owner writes without one.
    """

    key: ObjectName
    role: Role | None = None
    scopes: tuple[Scope, ...] = ()
    within: Names = ()
    origin: Literal["human", "agent", "service"] = "human"
    expires_in: timedelta = DEFAULT_LIFETIME
    zone: ZoneName = ""


class GetKey(OperationRequest, frozen=True, kw_only=True):
    """Which key, by name or id."""

    key: ObjectName


class RevokeKey(WriteRequest, frozen=True, kw_only=True):
    """Which key to revoke, by name or id."""

    key: ObjectName


class RotateKey(WriteRequest, frozen=True, kw_only=True):
    """Which key to replace by a new one with the same permissions; the old one stays valid for `overlap`."""

    key: ObjectName
    overlap: timedelta = timedelta(0)
    expires_in: timedelta = DEFAULT_LIFETIME


class ListKeys(ListRequest, frozen=True, kw_only=True):
    """List the keys of this namespace; `all` includes revoked and expired ones."""

    all: bool = False


class CreatedKey(Struct, frozen=True, kw_only=True):
    """A new key with its token, which is shown only once."""

    key: KeySummary
    token: str


class KeyDetail(Struct, frozen=True, kw_only=True):
    """One key."""

    key: KeySummary


class KeyList(Struct, frozen=True, kw_only=True):
    """A page of keys, by name."""

    keys: tuple[KeySummary, ...]
    cursor: str = ""


@operations.write(
    "key create",
    scope="admin",
    examples=(
        {"key": "grafana", "role": "viewer"},
        {"key": "night-agent", "scopes": ["read", "hint"], "origin": "agent", "expires_in": "7d"},
    ),
)
def create_key(context: OperationContext, tx: Transaction, request: CreateKey) -> CreatedKey:
    """Create a key; its token is shown once, and only a keyed hash of it is stored."""
    now = context.now()
    scopes = _scopes(request)
    namespaces = key_namespaces(context, request.within)
    check_grant(context, scopes, namespaces)
    draft = Key(
        prefix="",
        name=check_name(request.key, field="key"),
        secret_key_id="",
        digest="",
        scopes=scopes,
        role=request.role or "",
        namespaces=namespaces,
        origin=request.origin,
        zone=check_zone(request.zone) if request.zone else "",
        created_at=now,
        created_by=context.by.name,
        expires_at=now + check_lifetime(request.expires_in, "expires_in", longest=MAX_LIFETIME),
    )
    check_name_free(read_keys(tx), draft, now=now)
    made = _issue(tx, context, draft, now=now)
    _audit(tx, context, "key.create", made.key)
    return made


@operations.read("key list", scope="admin", examples=({}, {"all": True}))
def list_keys(context: OperationContext, tx: Transaction, request: ListKeys) -> KeyList:
    """List the keys with access to this namespace."""
    now, uses = context.now(), last_uses(tx)
    rows = [summarize_key(key, uses, now=now) for key in visible_keys(context, read_keys(tx))]
    shown = [row for row in rows if request.all or row.state == "active"]
    page, cursor = paginate_rows(context, request, shown, key=key_sort_key)
    return KeyList(keys=tuple(page), cursor=cursor)


@operations.read("key get", scope="admin", examples=({"key": "grafana-old"},))
def get_key(context: OperationContext, tx: Transaction, request: GetKey) -> KeyDetail:
    """Show a key: its permissions, when it expires and when it was last used."""
    now = context.now()
    key = find_visible_key(tx, context, request.key, now=now)
    return KeyDetail(key=summarize_key(key, last_uses(tx), now=now))


@operations.write("key revoke", scope="admin", examples=({"key": "grafana-old", "reason": "leaked"},))
def revoke_key(context: OperationContext, tx: Transaction, request: RevokeKey) -> KeyDetail:
    """Revoke a key at once and for good; it stays in the list of all keys."""
    now = context.now()
    key = find_visible_key(tx, context, request.key, now=now)
    if key.revoked_at is None:
        key = _update(tx, replace(key, revoked_at=now), now=now)
        row = summarize_key(key, {}, now=now)
        _audit(tx, context, "key.revoke", row)
    return KeyDetail(key=summarize_key(key, last_uses(tx), now=now))


@operations.write("key rotate", scope="admin", examples=({"key": "grafana-old", "overlap": "1h"},))
def rotate_key(context: OperationContext, tx: Transaction, request: RotateKey) -> CreatedKey:
    """Replace a key by a new one with the same permissions; the old one is valid until the overlap ends."""
    now = context.now()
    overlap = check_lifetime(request.overlap, "overlap", longest=MAX_OVERLAP, shortest=timedelta(0))
    life = check_lifetime(request.expires_in, "expires_in", longest=MAX_LIFETIME)
    old = find_visible_key(tx, context, request.key, now=now)
    check_can_rotate(old)
    check_grant(context, old.scopes, old.namespaces)
    ends = now + overlap
    if overlap and (old.expires_at is None or ends < old.expires_at):
        _update(tx, replace(old, expires_at=ends), now=now)
    elif not overlap:
        _update(tx, replace(old, revoked_at=now), now=now)
    fresh = replace(old, created_at=now, created_by=context.by.name, expires_at=now + life, revision=1)
    made = _issue(tx, context, fresh, now=now)
    _audit(tx, context, "key.rotate", made.key, before=key_id(old))
    return made


def _issue(tx: Transaction, context: OperationContext, draft: Key, *, now: datetime) -> CreatedKey:
    """Store a new key with a new token."""
    auth = require_auth_cache(context)
    record_keyring(tx, auth.keyring)
    prefix, token = new_token(auth.random_bytes)
    ring = auth.keyring.current
    key = replace(draft, prefix=prefix, secret_key_id=ring.id, digest=ring.digest(token), revoked_at=None)
    put_key(tx, key, replaces=0, now=now)
    return CreatedKey(key=summarize_key(key, {}, now=now), token=token)


def _update(tx: Transaction, key: Key, *, now: datetime) -> Key:
    changed = replace(key, revision=key.revision + 1)
    put_key(tx, changed, replaces=key.revision, now=now)
    return changed


def _scopes(request: CreateKey) -> tuple[str, ...]:
    if request.role is None and not request.scopes:
        raise InvalidInput(
            "the key has no role and no scopes",
            field="role",
            rule=f"a role ({', '.join(ROLES)}), scopes, or both",
            fix="role: viewer",
        )
    role = ROLES[request.role] if request.role is not None else frozenset[Scope]()
    return tuple(sorted({*role, *request.scopes}))


def _audit(
    tx: Transaction,
    context: OperationContext,
    action: str,
    key: KeySummary,
    *,
    before: str = "",
) -> None:
    after = msgspec.json.encode({"name": key.name, "scopes": key.scopes, "namespaces": key.namespaces})
    context.audit(tx, action, key.id, before=before, after=after.decode())


LOCAL_KEY_NAME = "local-admin"


def ensure_local_key(context: OperationContext, path: Path) -> str:
    """Return the token in the file, or create a new key if that token is missing or invalid."""
    token = read_private(path)
    if token and _is_valid(context, token):
        return token
    token = _create(context, where=f"{platform.node()}:{path.resolve()}"[:1000], now=context.now())
    write_private(path, token, replace=True)
    return token


def read_local_key(path: Path) -> str | None:
    """Return the token in the file, for a command line on this machine; None if there is no file."""
    return read_private(path)


def _is_valid(context: OperationContext, token: str) -> bool:
    try:
        return authenticate(context, token).local
    except Unauthorized:
        return False


def _create(context: OperationContext, *, where: str, now: datetime) -> str:
    """Create an admin key without expiry; revoke the one whose file was lost."""
    auth = require_auth_cache(context)
    keyring = auth.keyring
    prefix, token = new_token(auth.random_bytes)
    key = Key(
        prefix=prefix,
        name=LOCAL_KEY_NAME,
        secret_key_id=keyring.current.id,
        digest=keyring.current.digest(token),
        scopes=tuple(sorted(ALL_SCOPES)),
        role="admin",
        local=True,
        token_file=where,
        created_at=now,
        created_by=context.by.name,
    )

    def work(tx: Transaction) -> None:
        record_keyring(tx, keyring)
        for old in read_keys(tx):
            # Another machine on the same database has its own file and key.
            if old.local and old.token_file == where and old.revoked_at is None:
                lost = replace(old, revoked_at=now, revision=old.revision + 1)
                put_key(tx, lost, replaces=old.revision, now=now)
        put_key(tx, key, replaces=0, now=now)
        reason = "first start, or the key file was lost"
        context.with_reason(reason).audit(tx, "key.create", key_id(key))

    context.store.write(work)
    return token
