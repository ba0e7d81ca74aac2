"""Keys: who may come in through a remote door, to do what, in which namespaces, and for how long."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.names import check_name
from timewright.errors import InvalidInput
from timewright.ledger.key_shelf import Key, all_keys, last_uses, put_key
from timewright.ledger.keyring import claim
from timewright.ledger.tokens import new_token
from timewright.operations.access import ROLES, Role, Scope, doorkeeper_of
from timewright.operations.context import Context
from timewright.operations.key_rows import (
    LIFE,
    LONGEST_LIFE,
    LONGEST_OVERLAP,
    KeyRow,
    check_free,
    check_grant,
    check_rotates,
    checked_life,
    find_one,
    id_of,
    key_row,
    opened_by,
    place_of,
    visible,
)
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Request, Write, operations
from timewright.ports import Page, Transaction

Names = Annotated[tuple[Named, ...], Meta(max_length=100)]


class Create(Write, frozen=True, kw_only=True):
    """A key for someone or something: a role or single scopes, where it opens, and how long.

    `within` names namespaces; without any it opens the one it is made in; `*` stands for all of them.
    """

    key: Named
    role: Role | None = None
    scopes: tuple[Scope, ...] = ()
    within: Names = ()
    origin: Literal["human", "agent", "service"] = "human"
    expires_in: timedelta = LIFE


class Which(Request, frozen=True, kw_only=True):
    """Which key, by its name or its id."""

    key: Named


class Revoke(Write, frozen=True, kw_only=True):
    """Which key to close for good, by its name or its id."""

    key: Named


class Rotate(Write, frozen=True, kw_only=True):
    """Which key to replace by a new one of the same kind; the old one opens for `overlap` longer."""

    key: Named
    overlap: timedelta = timedelta(0)
    expires_in: timedelta = LIFE


class List(Listing, frozen=True, kw_only=True):
    """Which keys: those that open this namespace; revoked and expired ones only when asked for."""

    all: bool = False


class KeyOnce(Struct, frozen=True, kw_only=True):
    """A new key with its token, which is shown now and never again."""

    key: KeyRow
    token: str


class OneKey(Struct, frozen=True, kw_only=True):
    """A key."""

    key: KeyRow


class Keys(Struct, frozen=True, kw_only=True):
    """A page of keys, by name."""

    keys: tuple[KeyRow, ...]
    cursor: str = ""


@operations.add(
    "key",
    "create",
    Create,
    scope="admin",
    examples=(
        {"key": "grafana", "role": "viewer"},
        {"key": "night-agent", "scopes": ["read", "hint"], "origin": "agent", "expires_in": "7d"},
    ),
)
def create_key(context: Context, ask: Create) -> KeyOnce:
    """Make a key; its token is shown once, and only a keyed hash of it is kept."""
    now = context.now()
    scopes = _scopes(ask)
    namespaces = opened_by(context, ask.within)
    check_grant(context, scopes, namespaces)
    draft = Key(
        prefix="",
        name=check_name(ask.key, field="key"),
        mark="",
        digest="",
        scopes=scopes,
        role=ask.role or "",
        namespaces=namespaces,
        origin=ask.origin,
        created_at=now,
        created_by=context.by.actor,
        expires_at=now + checked_life(ask.expires_in, "expires_in", longest=LONGEST_LIFE),
    )

    def work(tx: Transaction) -> KeyOnce:
        check_free(all_keys(tx), draft, now=now)
        made = _issued(tx, context, draft, now=now)
        _note(tx, context, "create", draft=made.key, reason=ask.reason, now=now)
        return made

    return context.store.write(work)


@operations.add("key", "list", List, scope="admin", examples=({}, {"all": True}))
def list_keys(context: Context, ask: List) -> Keys:
    """List the keys that open this namespace."""
    now = context.now()

    def work(tx: Transaction) -> Keys:
        uses = last_uses(tx)
        rows = [key_row(key, uses, now=now) for key in visible(context, all_keys(tx))]
        shown = [row for row in rows if ask.all or row.state == "active"]
        shown.sort(key=place_of)

        def find(limit: int, place: str) -> Page:
            after = [row for row in shown if place_of(row) > place]
            return Page(tuple(after[:limit]), place_of(after[limit - 1]) if len(after) > limit else "")

        page, cursor = paged(context, ask, find)
        return Keys(keys=tuple(page), cursor=cursor)

    return context.store.read(work)


@operations.add("key", "get", Which, scope="admin", examples=({"key": "grafana-old"},))
def get_key(context: Context, ask: Which) -> OneKey:
    """Show a key: what it permits, until when, and when it was last used."""
    now = context.now()

    def work(tx: Transaction) -> OneKey:
        return OneKey(key=key_row(find_one(tx, context, ask.key, now=now), last_uses(tx), now=now))

    return context.store.read(work)


@operations.add(
    "key", "revoke", Revoke, scope="admin", examples=({"key": "grafana-old", "reason": "leaked"},)
)
def revoke_key(context: Context, ask: Revoke) -> OneKey:
    """Close a key for good, from this commit on; it stays in the list of all keys."""
    now = context.now()

    def work(tx: Transaction) -> OneKey:
        key = find_one(tx, context, ask.key, now=now)
        if key.revoked_at is None:
            key = _changed(tx, replace(key, revoked_at=now), now=now)
            row = key_row(key, {}, now=now)
            _note(tx, context, "revoke", draft=row, reason=ask.reason, now=now)
        return OneKey(key=key_row(key, last_uses(tx), now=now))

    return context.store.write(work)


@operations.add("key", "rotate", Rotate, scope="admin", examples=({"key": "grafana-old", "overlap": "1h"},))
def rotate_key(context: Context, ask: Rotate) -> KeyOnce:
    """Replace a key by a new one that permits the same; the old one opens until the overlap is over."""
    now = context.now()
    overlap = checked_life(ask.overlap, "overlap", longest=LONGEST_OVERLAP, shortest=timedelta(0))
    life = checked_life(ask.expires_in, "expires_in", longest=LONGEST_LIFE)

    def work(tx: Transaction) -> KeyOnce:
        old = find_one(tx, context, ask.key, now=now)
        check_rotates(old)
        check_grant(context, old.scopes, old.namespaces)
        ends = now + overlap
        if overlap and (old.expires_at is None or ends < old.expires_at):
            _changed(tx, replace(old, expires_at=ends), now=now)
        elif not overlap:
            _changed(tx, replace(old, revoked_at=now), now=now)
        fresh = replace(old, created_at=now, created_by=context.by.actor, expires_at=now + life, revision=1)
        made = _issued(tx, context, fresh, now=now)
        _note(tx, context, "rotate", draft=made.key, reason=ask.reason, now=now, before=id_of(old))
        return made

    return context.store.write(work)


def _issued(tx: Transaction, context: Context, draft: Key, *, now: datetime) -> KeyOnce:
    """Keep a key with a token of its own."""
    keeper = doorkeeper_of(context)
    claim(tx, keeper.keyring)
    prefix, token = new_token(keeper.random)
    ring = keeper.keyring.current
    key = replace(draft, prefix=prefix, mark=ring.mark, digest=ring.digest(token), revoked_at=None)
    put_key(tx, key, replaces=0, now=now)
    return KeyOnce(key=key_row(key, {}, now=now), token=token)


def _changed(tx: Transaction, key: Key, *, now: datetime) -> Key:
    changed = replace(key, revision=key.revision + 1)
    put_key(tx, changed, replaces=key.revision, now=now)
    return changed


def _scopes(ask: Create) -> tuple[str, ...]:
    if (ask.role is None) is (not ask.scopes):
        raise InvalidInput(
            "a key has a role or scopes, one of them",
            field="role",
            value=ask.role,
            rule=f"a role ({', '.join(ROLES)}) or a list of scopes",
            fix="role: viewer",
        )
    return tuple(sorted(ROLES[ask.role] if ask.role is not None else set(ask.scopes)))


def _note(
    tx: Transaction,
    context: Context,
    action: str,
    *,
    draft: KeyRow,
    reason: str,
    now: datetime,
    before: str = "",
) -> None:
    said = {"name": draft.name, "scopes": draft.scopes, "namespaces": draft.namespaces}
    entry = context.because(reason).entry(
        f"key.{action}",
        namespace=context.namespace,
        subject=draft.id,
        now=now,
        before=before,
        after=msgspec.json.encode(said).decode(),
    )
    tx.add_audit([entry])
