"""API keys: create, list, revoke and rotate; and the key of the local administrator."""

from __future__ import annotations

import platform
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.access.credentials import Key, last_uses, new_token, put_key, read_keys
from timewright.access.keyring import read_private, record_keyring, write_private
from timewright.core.input.input_errors import check_name
from timewright.core.moments import MINUTE, ZERO
from timewright.core.zones import check_zone
from timewright.errors import Conflict, Forbidden, InvalidInput, NotAllowed, Unauthorized
from timewright.operations.access.authentication import authenticate, require_auth_cache
from timewright.operations.access.callers import ALL_SCOPES, ROLES, Role, Scope
from timewright.operations.context import OperationContext, in_transaction
from timewright.operations.lookup import not_found
from timewright.operations.pagination import paginate_rows
from timewright.operations.registry import (
    ListRequest,
    ObjectName,
    OperationRequest,
    WriteRequest,
    answer_from,
    operations,
)
from timewright.operations.request_parsing import check_length
from timewright.ports import Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE

DEFAULT_LIFETIME = timedelta(days=90)
MAX_LIFETIME = timedelta(days=3650)
MAX_OVERLAP = timedelta(days=30)
MAX_KEYS = 10_000
LOCAL_KEY_NAME = "local-admin"

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
    overlap: timedelta = ZERO
    expires_in: timedelta = DEFAULT_LIFETIME


class ListKeys(ListRequest, frozen=True, kw_only=True):
    """List the keys of this namespace; `all` includes revoked and expired ones."""

    all: bool = False


class KeySummary(Struct, frozen=True, kw_only=True):
    """A key without its token; `*` in namespaces means all."""

    id: str
    name: str
    role: str
    scopes: tuple[str, ...]
    namespaces: tuple[str, ...]
    origin: str
    zone: str
    state: Literal["active", "expired", "revoked"]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


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
    namespaces = _key_namespaces(context, request.within)
    _check_grant(context, scopes, namespaces)
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
        expires_at=now + _check_life(request.expires_in),
    )
    _check_name_free(read_keys(tx), draft, now=now)
    made = _issue(tx, context, draft, now=now)
    _audit(tx, context, "key.create", made.key)
    return made


@operations.read("key list", scope="admin", examples=({}, {"all": True}))
def list_keys(context: OperationContext, tx: Transaction, request: ListKeys) -> KeyList:
    """List the keys with access to this namespace."""
    now, uses = context.now(), last_uses(tx)
    rows = [_summarize_key(key, uses, now=now) for key in _visible_keys(context, read_keys(tx))]
    shown = [row for row in rows if request.all or row.state == "active"]
    page, cursor = paginate_rows(context, request, shown, key=lambda row: f"{row.name}\0{row.id}")
    return KeyList(keys=tuple(page), cursor=cursor)


@operations.read("key get", scope="admin", examples=({"key": "grafana-old"},))
def get_key(context: OperationContext, tx: Transaction, request: GetKey) -> KeyDetail:
    """Show a key: its permissions, when it expires and when it was last used."""
    now = context.now()
    key = _find_visible_key(tx, context, request.key, now=now)
    return KeyDetail(key=_summarize_key(key, last_uses(tx), now=now))


@operations.write("key revoke", scope="admin", examples=({"key": "grafana-old", "reason": "leaked"},))
def revoke_key(context: OperationContext, tx: Transaction, request: RevokeKey) -> KeyDetail:
    """Revoke a key at once and for good; it stays in the list of all keys."""
    now = context.now()
    key = _find_visible_key(tx, context, request.key, now=now)
    if key.revoked_at is None:
        key = _update(tx, replace(key, revoked_at=now), now=now)
        _audit(tx, context, "key.revoke", _summarize_key(key, {}, now=now))
    return KeyDetail(key=_summarize_key(key, last_uses(tx), now=now))


@operations.write("key rotate", scope="admin", examples=({"key": "grafana-old", "overlap": "1h"},))
def rotate_key(context: OperationContext, tx: Transaction, request: RotateKey) -> CreatedKey:
    """Replace a key by a new one with the same permissions; the old one is valid until the overlap ends."""
    now = context.now()
    overlap = check_length(request.overlap, "overlap", ZERO, MAX_OVERLAP, fix="overlap: 1h")
    life = _check_life(request.expires_in)
    old = _find_visible_key(tx, context, request.key, now=now)
    if old.local:
        raise NotAllowed(
            "the local key cannot be rotated remotely",
            field="key",
            value=old.name,
            rule="the local key is stored only in a file beside the store",
            fix="delete that file and restart: a new key is created and the old one revoked",
        )
    _check_grant(context, old.scopes, old.namespaces)
    ends = now + overlap
    if overlap and (old.expires_at is None or ends < old.expires_at):
        _update(tx, replace(old, expires_at=ends), now=now)
    elif not overlap:
        _update(tx, replace(old, revoked_at=now), now=now)
    fresh = replace(old, created_at=now, created_by=context.by.name, expires_at=now + life, revision=1)
    made = _issue(tx, context, fresh, now=now)
    _audit(tx, context, "key.rotate", made.key, before=_key_id(old))
    return made


def _issue(tx: Transaction, context: OperationContext, draft: Key, *, now: datetime) -> CreatedKey:
    """Store a new key with a new token."""
    auth = require_auth_cache(context)
    record_keyring(tx, auth.keyring)
    prefix, token = new_token(auth.random_bytes)
    ring = auth.keyring.current
    key = replace(draft, prefix=prefix, secret_key_id=ring.id, digest=ring.digest(token), revoked_at=None)
    put_key(tx, key, replaces=0, now=now)
    return CreatedKey(key=_summarize_key(key, {}, now=now), token=token)


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
    tx: Transaction, context: OperationContext, action: str, key: KeySummary, *, before: str = ""
) -> None:
    after = msgspec.json.encode({"name": key.name, "scopes": key.scopes, "namespaces": key.namespaces})
    context.audit(tx, action, key.id, before=before, after=after.decode())


def _find_visible_key(tx: Transaction, context: OperationContext, wanted: str, *, now: datetime) -> Key:
    """Return a key by its id, or by name: first among active keys, then among all."""
    seen = _visible_keys(context, read_keys(tx))
    fits: tuple[Callable[[Key], bool], ...] = (
        lambda key: _key_id(key) == wanted,
        lambda key: key.name == wanted and key.is_active(now=now),
        lambda key: key.name == wanted,
    )
    for fit in fits:
        found = [key for key in seen if fit(key)]
        if len(found) > 1:
            raise Conflict(
                f"{len(found)} keys have the name {wanted!r}",
                field="key",
                value=wanted,
                rule="if several keys have the same name, use the id",
                fix=" or ".join(_key_id(key) for key in found[:3]),
            )
        if found:
            return found[0]
    raise not_found("key", wanted, [key.name for key in seen], list_command="key list")


def _visible_keys(context: OperationContext, keys: list[Key]) -> list[Key]:
    """Return the keys of this namespace, without those that reach further than the caller."""
    caller = context.caller
    return [
        key
        for key in keys
        if (not key.namespaces or context.namespace in key.namespaces)
        and caller.can_grant((), key.namespaces)
    ]


def _check_name_free(keys: list[Key], draft: Key, *, now: datetime) -> None:
    """Reject a name that an active key of the namespace has: the audit log shows keys by name."""
    if len(keys) >= MAX_KEYS:
        raise Conflict(
            f"there are already {MAX_KEYS} keys",
            field="key",
            rule=f"at most {MAX_KEYS}, revoked ones included",
            fix="rotate keys instead of creating new ones",
        )
    for key in keys:
        overlaps = not key.namespaces or not draft.namespaces or set(key.namespaces) & set(draft.namespaces)
        if key.name == draft.name and overlaps and key.is_active(now=now):
            raise Conflict(
                f"an active key already has the name {draft.name!r}",
                field="key",
                value=draft.name,
                rule="the names of active keys of a namespace are unique",
                fix="another name, or key rotate",
            )


def _check_grant(context: OperationContext, scopes: tuple[str, ...], namespaces: tuple[str, ...]) -> None:
    """Raise Forbidden if a new key would have scopes or namespaces that the caller lacks."""
    if context.caller.can_grant(scopes, namespaces):
        return
    mine = context.caller
    where = ", ".join(mine.namespaces) or "all namespaces"
    raise Forbidden(
        "the new key would have more access than yours",
        field="scopes" if not set(scopes) <= mine.scopes else "within",
        value=", ".join(scopes),
        rule=f"you may grant {', '.join(sorted(mine.scopes))} in {where}",
        fix="fewer scopes, or only your namespaces",
    )


def _check_life(requested: timedelta) -> timedelta:
    return check_length(requested, "expires_in", MINUTE, MAX_LIFETIME, fix="expires_in: 90d")


def _key_namespaces(context: OperationContext, requested: tuple[str, ...]) -> tuple[str, ...]:
    """Return the namespaces of a new key: by default the current one; an empty result means all."""
    if GLOBAL_NAMESPACE in requested:
        return ()
    named = [check_name(name, field="within", max_length=64) for name in requested]
    return tuple(sorted(set(named))) or (context.namespace,)


def _summarize_key(key: Key, uses: dict[str, datetime], *, now: datetime) -> KeySummary:
    """Return a key without its token."""
    state: Literal["active", "expired", "revoked"] = "active" if key.is_active(now=now) else "expired"
    return answer_from(
        KeySummary,
        key,
        id=_key_id(key),
        namespaces=key.namespaces or (GLOBAL_NAMESPACE,),
        state="revoked" if key.revoked_at is not None else state,
        used_at=uses.get(key.prefix),
    )


def _key_id(key: Key) -> str:
    """Return the public part of the token."""
    return f"tw_{key.prefix}"


def ensure_local_key(context: OperationContext, path: Path) -> str:
    """Return the token in the file, or create a new key if that token is missing or invalid."""
    token = read_private(path)
    if token and _is_valid(context, token):
        return token
    where = f"{platform.node()}:{path.resolve()}"[:1000]
    token = in_transaction(
        context, lambda nested: nested.store.write(lambda tx: _create_local_key(nested, tx, where=where))
    )
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


def _create_local_key(context: OperationContext, tx: Transaction, *, where: str) -> str:
    """Create an admin key without expiry; revoke the one whose file was lost."""
    now = context.now()
    for old in read_keys(tx):
        # Another machine on the same database has its own file and key.
        if old.local and old.token_file == where and old.revoked_at is None:
            _update(tx, replace(old, revoked_at=now), now=now)
    draft = Key(
        prefix="",
        name=LOCAL_KEY_NAME,
        secret_key_id="",
        digest="",
        scopes=tuple(sorted(ALL_SCOPES)),
        role="admin",
        local=True,
        token_file=where,
        created_at=now,
        created_by=context.by.name,
    )
    made = _issue(tx, context, draft, now=now)
    context.with_reason("first start, or the key file was lost").audit(tx, "key.create", made.key.id)
    return made.token
