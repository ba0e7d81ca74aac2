"""API keys as they are shown, and the checks for finding and granting them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.access.credentials import Key, read_keys
from timewright.core.input.input_errors import check_name
from timewright.core.moments import format_duration
from timewright.errors import Conflict, Forbidden, InvalidInput, NotAllowed
from timewright.operations.context import OperationContext
from timewright.operations.lookup import not_found
from timewright.operations.registry import answer_from
from timewright.ports import Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE

DEFAULT_LIFETIME = timedelta(days=90)
MAX_LIFETIME = timedelta(days=3650)
MAX_OVERLAP = timedelta(days=30)
MAX_KEYS = 10_000


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


def find_visible_key(tx: Transaction, context: OperationContext, wanted: str, *, now: datetime) -> Key:
    """Return a key by its id, or by name: first among active keys, then among all."""
    seen = visible_keys(context, read_keys(tx))
    fits: tuple[Callable[[Key], bool], ...] = (
        lambda key: key_id(key) == wanted,
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
                fix=" or ".join(key_id(key) for key in found[:3]),
            )
        if found:
            return found[0]
    raise not_found("key", wanted, [key.name for key in seen], list_command="key list")


def visible_keys(context: OperationContext, keys: list[Key]) -> list[Key]:
    """Return the keys of this namespace, without those that reach further than the caller."""
    caller = context.caller
    return [
        key
        for key in keys
        if (not key.namespaces or context.namespace in key.namespaces)
        and caller.can_grant((), key.namespaces)
    ]


def check_name_free(keys: list[Key], draft: Key, *, now: datetime) -> None:
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


def check_grant(context: OperationContext, scopes: tuple[str, ...], namespaces: tuple[str, ...]) -> None:
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


def check_can_rotate(key: Key) -> None:
    """Reject rotating the local key: it is stored in a file, and has no quotas."""
    if key.local:
        raise NotAllowed(
            "the local key cannot be rotated remotely",
            field="key",
            value=key.name,
            rule="the local key is stored only in a file beside the store",
            fix="delete that file and restart: a new key is created and the old one revoked",
        )


def key_namespaces(context: OperationContext, requested: tuple[str, ...]) -> tuple[str, ...]:
    """Return the namespaces of a new key: by default the current one; an empty result means all."""
    if GLOBAL_NAMESPACE in requested:
        return ()
    named = [check_name(name, field="within", max_length=64) for name in requested]
    return tuple(sorted(set(named))) or (context.namespace,)


def check_lifetime(
    requested: timedelta, field: str, *, longest: timedelta, shortest: timedelta = timedelta(minutes=1)
) -> timedelta:
    """Return the lifetime if it is within its limits, else raise InvalidInput."""
    if not shortest <= requested <= longest:
        raise InvalidInput(
            f"{field} {format_duration(requested)} is out of range",
            field=field,
            value=format_duration(requested),
            rule=f"{format_duration(shortest)} to {format_duration(longest)}",
            fix=f"{field}: {format_duration(min(DEFAULT_LIFETIME, longest))}",
        )
    return requested


def summarize_key(key: Key, uses: dict[str, datetime], *, now: datetime) -> KeySummary:
    """Return a key without its token."""
    state: Literal["active", "expired", "revoked"] = "active" if key.is_active(now=now) else "expired"
    return answer_from(
        KeySummary,
        key,
        id=key_id(key),
        namespaces=key.namespaces or (GLOBAL_NAMESPACE,),
        state="revoked" if key.revoked_at is not None else state,
        used_at=uses.get(key.prefix),
    )


def key_sort_key(row: KeySummary) -> str:
    """Return the sort key of a row in the list: the name, then the id."""
    return f"{row.name}\0{row.id}"


def key_id(key: Key) -> str:
    """Return the public part of the token."""
    return f"tw_{key.prefix}"
