"""Keys as they are shown, found by whoever may see them, and granted by whoever has what they permit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.moments import spell_duration
from timewright.core.names import check_name
from timewright.errors import Conflict, Forbidden, InvalidInput, NotAllowed
from timewright.ledger.key_shelf import EVERYWHERE, Key, all_keys
from timewright.operations.context import Context
from timewright.operations.find import no_such
from timewright.ports import Transaction

LIFE = timedelta(days=90)
LONGEST_LIFE = timedelta(days=3650)
LONGEST_OVERLAP = timedelta(days=30)
MOST_KEYS = 10_000


class KeyRow(Struct, frozen=True, kw_only=True):
    """A key without anything that opens a door; `*` in namespaces stands for all."""

    id: str
    name: str
    role: str
    scopes: tuple[str, ...]
    namespaces: tuple[str, ...]
    origin: str
    state: Literal["active", "expired", "revoked"]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


def find_one(tx: Transaction, context: Context, wanted: str, *, now: datetime) -> Key:
    """A key by its id, or by its name among those in force, and then among all."""
    seen = visible(context, all_keys(tx))
    fits: tuple[Callable[[Key], bool], ...] = (
        lambda key: id_of(key) == wanted,
        lambda key: key.name == wanted and key.opens(now=now),
        lambda key: key.name == wanted,
    )
    for fit in fits:
        found = [key for key in seen if fit(key)]
        if len(found) > 1:
            raise Conflict(
                f"{len(found)} keys are called {wanted!r}",
                field="key",
                value=wanted,
                rule="a name that several keys have does not tell which is meant",
                fix=" or ".join(id_of(key) for key in found[:3]),
            )
        if found:
            return found[0]
    raise no_such("key", wanted, [key.name for key in seen], lister="key list")


def visible(context: Context, keys: list[Key]) -> list[Key]:
    """The keys that open this namespace, without those that open more than the caller may see."""
    caller = context.caller
    return [
        key
        for key in keys
        if (not key.namespaces or context.namespace in key.namespaces)
        and caller.may_grant((), key.namespaces)
    ]


def check_free(keys: list[Key], draft: Key, *, now: datetime) -> None:
    """Refuse a name that a key in force has where this one shall open: the audit log tells them by it."""
    if len(keys) >= MOST_KEYS:
        raise Conflict(
            f"there are {MOST_KEYS} keys",
            field="key",
            rule=f"at most {MOST_KEYS}, revoked ones included",
            fix="key rotate instead of new names",
        )
    for key in keys:
        meets = not key.namespaces or not draft.namespaces or set(key.namespaces) & set(draft.namespaces)
        if key.name == draft.name and meets and key.opens(now=now):
            raise Conflict(
                f"the name {draft.name!r} is taken",
                field="key",
                value=draft.name,
                rule="keys that open the same namespace have names of their own",
                fix="another name, or key rotate",
            )


def check_grant(context: Context, scopes: tuple[str, ...], namespaces: tuple[str, ...]) -> None:
    """Refuse to hand on what the caller has not."""
    if context.caller.may_grant(scopes, namespaces):
        return
    mine = context.caller
    where = ", ".join(mine.namespaces) or "all namespaces"
    raise Forbidden(
        "this key would open more than yours",
        field="scopes" if not set(scopes) <= mine.scopes else "within",
        value=", ".join(scopes),
        rule=f"you may hand on {', '.join(sorted(mine.scopes))} in {where}",
        fix="fewer scopes, or namespaces that are yours",
    )


def check_rotates(key: Key) -> None:
    """Refuse to make another of the local key: it stands in a file, and is not counted."""
    if key.local:
        raise NotAllowed(
            "the local key is not rotated from afar",
            field="key",
            value=key.name,
            rule="the local key stands in a file beside the store, and nowhere else",
            fix="delete that file and start again: a new one is made, and the old one revoked",
        )


def opened_by(context: Context, asked: tuple[str, ...]) -> tuple[str, ...]:
    """The namespaces a key shall open; none named means the one it is made in, and none kept means all."""
    if EVERYWHERE in asked:
        return ()
    named = [check_name(name, field="within", longest=64) for name in asked]
    return tuple(sorted(set(named))) or (context.namespace,)


def checked_life(
    asked: timedelta, field: str, *, longest: timedelta, shortest: timedelta = timedelta(minutes=1)
) -> timedelta:
    """A length of life within its limits."""
    if not shortest <= asked <= longest:
        raise InvalidInput(
            f"{field} {spell_duration(asked)} is out of range",
            field=field,
            value=spell_duration(asked),
            rule=f"{spell_duration(shortest)} to {spell_duration(longest)}",
            fix=f"{field}: {spell_duration(min(LIFE, longest))}",
        )
    return asked


def key_row(key: Key, uses: dict[str, datetime], *, now: datetime) -> KeyRow:
    """A key as it is shown."""
    state: Literal["active", "expired", "revoked"] = "active" if key.opens(now=now) else "expired"
    return KeyRow(
        id=id_of(key),
        name=key.name,
        role=key.role,
        scopes=key.scopes,
        namespaces=key.namespaces or (EVERYWHERE,),
        origin=key.origin,
        state="revoked" if key.revoked_at is not None else state,
        created_at=key.created_at,
        created_by=key.created_by,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        used_at=uses.get(key.prefix),
    )


def place_of(row: KeyRow) -> str:
    """Where a key stands in the list: by name, and of the same name by id."""
    return f"{row.name}\0{row.id}"


def id_of(key: Key) -> str:
    """The part of a token that may be shown."""
    return f"tw_{key.prefix}"
