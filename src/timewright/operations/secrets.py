"""Secrets: set and never shown; a target names one, and its value is looked up when a run is launched."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta, Struct

from timewright.core.names import check_secret_name
from timewright.core.schedule import ScheduleState
from timewright.errors import Conflict, Forbidden, NotAllowed
from timewright.ledger.keyring import claim
from timewright.ledger.sealing import seal
from timewright.ledger.secret_shelf import SECRET, Secret, find_secrets, place_of, put_secret, reseal
from timewright.operations.access import doorkeeper_of
from timewright.operations.context import Context
from timewright.operations.find import no_such
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Write, operations
from timewright.ports import Page, ScheduleFilter, Transaction

LONGEST_VALUE = 65_536
MOST_SECRETS = 10_000
MOST_USERS = 5


class Set(Write, frozen=True, kw_only=True):
    """Which secret, and its value; at the command line leave the value out, and it is asked for or read."""

    hides: ClassVar[tuple[str, ...]] = ("value",)

    secret: Named
    value: Annotated[str, Meta(min_length=1, max_length=LONGEST_VALUE)]

    def __repr__(self) -> str:
        return f"Set(secret={self.secret!r})"


class Delete(Write, frozen=True, kw_only=True):
    """Which secret to remove; one that a schedule names stays."""

    secret: Named


class Rotate(Write, frozen=True, kw_only=True):
    """Whose secrets to lock again under the secret key in use: this namespace's, or all of them."""

    everywhere: bool = False


class List(Listing, frozen=True, kw_only=True):
    """Which secrets: all of the namespace."""


class SecretRow(Struct, frozen=True, kw_only=True):
    """A secret without its value; targets name it by its reference."""

    secret: str
    reference: str
    created_at: datetime
    set_at: datetime
    set_by: str
    revision: int


class OneSecret(Struct, frozen=True, kw_only=True):
    """A secret without its value, and the schedules that name it, the first few."""

    secret: SecretRow
    used_by: tuple[str, ...]


class Secrets(Struct, frozen=True, kw_only=True):
    """A page of secrets, by name."""

    secrets: tuple[SecretRow, ...]
    cursor: str = ""


class Rotated(Struct, frozen=True, kw_only=True):
    """How many secrets were locked again, and how many were under the key in use already."""

    rotated: int
    left: int


@operations.add(
    "secret", "set", Set, scope="secret", examples=({"secret": "crm-token", "value": "not a real token"},)
)
def set_secret(context: Context, ask: Set) -> OneSecret:
    """Keep a value under a name, locked; it is never shown again, and the next launch uses it."""
    now, name = context.now(), check_secret_name(ask.secret)
    keyring = doorkeeper_of(context).keyring
    sealed = seal(keyring.current, ask.value, place=place_of(context.namespace, name))

    def work(tx: Transaction) -> OneSecret:
        claim(tx, keyring)
        old = find_secrets(tx, context.namespace, [name])
        if not old:
            _check_room(tx, context)
        last = old[0].revision if old else 0
        secret = Secret(
            namespace=context.namespace,
            name=name,
            sealed=sealed,
            created_at=old[0].created_at if old else now,
            set_at=now,
            set_by=context.by.actor,
            revision=last + 1,
        )
        put_secret(tx, secret, replaces=last, now=now)
        _note(tx, context, "set", name, reason=ask.reason, after=f"revision {secret.revision}")
        return OneSecret(secret=_row(secret), used_by=tuple(_users(tx, context.namespace, name)))

    return context.store.write(work)


@operations.add("secret", "list", List, scope="secret", examples=({},))
def list_secrets(context: Context, ask: List) -> Secrets:
    """List the names of the secrets, and when each was set; never a value."""

    def work(tx: Transaction) -> Secrets:
        rows = [_row(secret) for secret in find_secrets(tx, context.namespace)]

        def find(limit: int, place: str) -> Page:
            after = [row for row in rows if row.secret > place]
            return Page(tuple(after[:limit]), after[limit - 1].secret if len(after) > limit else "")

        page, cursor = paged(context, ask, find)
        return Secrets(secrets=tuple(page), cursor=cursor)

    return context.store.read(work)


@operations.add("secret", "delete", Delete, scope="secret", examples=({"secret": "old-token"},))
def delete_secret(context: Context, ask: Delete) -> OneSecret:
    """Remove a secret that no schedule names."""

    def work(tx: Transaction) -> OneSecret:
        found = find_secrets(tx, context.namespace, [ask.secret])
        if not found:
            known = [secret.name for secret in find_secrets(tx, context.namespace)]
            raise no_such("secret", ask.secret, known, lister="secret list")
        users = tuple(_users(tx, context.namespace, ask.secret))
        if users:
            raise NotAllowed(
                f"secret {ask.secret} is used by {', '.join(users)}",
                field="secret",
                value=ask.secret,
                rule="a secret that a schedule names stays",
                fix=f"schedule update {users[0]} with another secret first",
            )
        tx.delete_object(SECRET, namespace=context.namespace, name=ask.secret)
        _note(tx, context, "delete", ask.secret, reason=ask.reason)
        return OneSecret(secret=_row(found[0]), used_by=())

    return context.store.write(work)


@operations.add("secret", "rotate", Rotate, scope="secret", examples=({},))
def rotate_secrets(context: Context, ask: Rotate) -> Rotated:
    """Lock every secret again under the secret key in use, after a new one was put first in its file."""
    if ask.everywhere and context.caller.namespaces:
        raise Forbidden(
            "only a key that opens all namespaces may rotate everywhere",
            field="everywhere",
            value=True,
            rule=f"yours opens {', '.join(context.caller.namespaces)}",
            fix="leave it out for your namespace",
        )
    now, keyring = context.now(), doorkeeper_of(context).keyring

    def work(tx: Transaction) -> Rotated:
        claim(tx, keyring)
        known = find_secrets(tx, None if ask.everywhere else context.namespace)
        old = [secret for secret in known if secret.sealed.mark != keyring.current.mark]
        for secret in old:
            put_secret(tx, reseal(keyring, secret), replaces=secret.revision, now=now)
        _note(tx, context, "rotate", "*", reason=ask.reason, after=f"{len(old)} of {len(known)}")
        return Rotated(rotated=len(old), left=len(known) - len(old))

    return context.store.write(work)


def _row(secret: Secret) -> SecretRow:
    return SecretRow(
        secret=secret.name,
        reference=f"secret://{secret.name}",
        created_at=secret.created_at,
        set_at=secret.set_at,
        set_by=secret.set_by,
        revision=secret.revision,
    )


def _check_room(tx: Transaction, context: Context) -> None:
    if len(find_secrets(tx, context.namespace)) >= MOST_SECRETS:
        raise Conflict(
            f"namespace {context.namespace} has {MOST_SECRETS} secrets",
            field="secret",
            rule=f"at most {MOST_SECRETS}",
            fix="secret delete what is not needed",
        )


def _users(tx: Transaction, namespace: str, name: str) -> Iterator[str]:
    """The living schedules whose target names a secret, the first few."""
    cursor, more, left = "", True, MOST_USERS
    reference = f"secret://{name}"
    while more and left:
        page = tx.find_schedules(ScheduleFilter(namespace=namespace, limit=1000, cursor=cursor))
        for due in page.rows:
            named = reference in msgspec.json.encode(due.schedule.target).decode()
            if left and named and due.standing.state is not ScheduleState.ARCHIVED:
                left -= 1
                yield due.schedule.name
        cursor, more = page.cursor, bool(page.cursor)


def _note(tx: Transaction, context: Context, action: str, name: str, *, reason: str, after: str = "") -> None:
    entry = context.because(reason).entry(
        f"secret.{action}", namespace=context.namespace, subject=name, now=context.now(), after=after
    )
    tx.add_audit([entry])
