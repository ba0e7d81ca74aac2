"""Secrets: values that are set and never shown; targets refer to them, and a launch looks them up."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.access.keyring import record_keyring
from timewright.access.secret_records import (
    SECRET,
    Secret,
    encrypt,
    encryption_context,
    find_secrets,
    put_secret,
    reencrypt_secret,
)
from timewright.core.input.input_errors import check_secret_name
from timewright.core.schedule.schedule import ScheduleState
from timewright.core.target import RUN_TOKEN
from timewright.errors import Conflict, Forbidden, InvalidInput, NotAllowed
from timewright.ledger.snapshot import all_schedules
from timewright.operations.access.authentication import require_auth_cache
from timewright.operations.access.secret_checks import secret_names
from timewright.operations.context import OperationContext
from timewright.operations.lookup import not_found
from timewright.operations.pagination import paginate_rows
from timewright.operations.registry import ListRequest, ObjectName, WriteRequest, answer_from, operations
from timewright.ports import Transaction

MAX_VALUE_CHARS = 65_536
MAX_SECRETS = 10_000
MAX_USERS_SHOWN = 5

_BINDING = ("hosts", "commands", "users")
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?|[0-9a-fA-F:.]{2,45}")


Destinations = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...], Meta(max_length=100)]


class SetSecret(WriteRequest, frozen=True, kw_only=True):
    """A secret and its value; on the command line, leave the value out to be prompted for it.

    `hosts`, `commands` and `users` are those of `secret bind`; left out, they stay as they are.
    """

    redacted_fields: ClassVar[tuple[str, ...]] = ("value",)

    secret: ObjectName
    value: Annotated[str, Meta(min_length=1, max_length=MAX_VALUE_CHARS)]
    hosts: Destinations | None = None
    commands: Destinations | None = None
    users: Destinations | None = None

    def __repr__(self) -> str:
        return f"SetSecret(secret={self.secret!r})"


class BindSecret(WriteRequest, frozen=True, kw_only=True):
    """Where a secret may go, and which callers may refer to it.

    `hosts` are host names; `*.example.com` means all hosts below it. `commands` are programs as the target
    writes them. `users` are names of API keys; without them, every key with the scope secret-use may use it.
    """

    secret: ObjectName
    hosts: Destinations = ()
    commands: Destinations = ()
    users: Destinations = ()


class DeleteSecret(WriteRequest, frozen=True, kw_only=True):
    """Which secret to remove; one that a schedule uses cannot be removed."""

    secret: ObjectName


class RotateSecrets(WriteRequest, frozen=True, kw_only=True):
    """Re-encrypt the secrets of this namespace, or of all, with the current secret key."""

    everywhere: bool = False


class ListSecrets(ListRequest, frozen=True, kw_only=True):
    """List the secrets of the namespace."""


class SecretSummary(Struct, frozen=True, kw_only=True):
    """A secret without its value; targets use its `reference`."""

    secret: str
    reference: str
    created_at: datetime
    set_at: datetime
    set_by: str
    revision: int
    hosts: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class SecretDetail(Struct, frozen=True, kw_only=True):
    """A secret without its value, and the first few schedules that use it."""

    secret: SecretSummary
    used_by: tuple[str, ...]


class SecretList(Struct, frozen=True, kw_only=True):
    """A page of secrets, by name."""

    secrets: tuple[SecretSummary, ...]
    cursor: str = ""


class RotatedSecrets(Struct, frozen=True, kw_only=True):
    """How many secrets were re-encrypted, and how many already used the current key."""

    rotated: int
    left: int


@operations.write(
    "secret set", scope="secret", examples=({"secret": "crm-token", "value": "not a real token"},)
)
def set_secret(context: OperationContext, tx: Transaction, request: SetSecret) -> SecretDetail:
    """Store a value under a name, encrypted; it is never shown, and the next launch uses it."""
    now, name = context.now(), check_secret_name(request.secret)
    if name == RUN_TOKEN:
        raise InvalidInput(
            f"{RUN_TOKEN} is the token of the run itself",
            field="secret",
            value=name,
            rule="this name is reserved",
            fix="another name",
        )
    given = {field: getattr(request, field) for field in _BINDING}
    binding = _check_binding({field: names for field, names in given.items() if names is not None})
    keyring = require_auth_cache(context).keyring
    sealed = encrypt(keyring.current, request.value, context=encryption_context(context.namespace, name))
    record_keyring(tx, keyring)
    old = find_secrets(tx, context.namespace, [name])
    if not old:
        _check_count(tx, context)
    last = old[0].revision if old else 0
    secret = Secret(
        namespace=context.namespace,
        name=name,
        encrypted=sealed,
        created_at=old[0].created_at if old else now,
        set_at=now,
        set_by=context.by.name,
        revision=last + 1,
        **({field: getattr(old[0], field) for field in _BINDING} if old else {}) | binding,
    )
    put_secret(tx, secret, replaces=last, now=now)
    after = f"revision {secret.revision}"
    context.audit(tx, "secret.set", name, after=after)
    return SecretDetail(secret=_to_summary(secret), used_by=_users(tx, context.namespace, name))


@operations.write(
    "secret bind",
    scope="secret",
    examples=({"secret": "old-token", "hosts": ["api.crm.example"], "users": ["ci"]},),
)
def bind_secret(context: OperationContext, tx: Transaction, request: BindSecret) -> SecretDetail:
    """Say where a secret may go and who may use it; the value stays, and the new binding replaces the old."""
    now = context.now()
    binding = _check_binding({field: getattr(request, field) for field in _BINDING})
    old = _find_secret(tx, context, request.secret)
    secret = replace(old, revision=old.revision + 1, **binding)
    put_secret(tx, secret, replaces=old.revision, now=now)
    after = "; ".join(f"{field} {', '.join(names)}" for field, names in binding.items() if names)
    context.audit(tx, "secret.bind", secret.name, after=after or "unbound")
    return SecretDetail(secret=_to_summary(secret), used_by=_users(tx, context.namespace, secret.name))


@operations.read("secret list", scope="secret", examples=({},))
def list_secrets(context: OperationContext, tx: Transaction, request: ListSecrets) -> SecretList:
    """List the names of the secrets and when each was set; values are never shown."""
    rows = [_to_summary(secret) for secret in find_secrets(tx, context.namespace)]
    page, cursor = paginate_rows(context, request, rows, key=attrgetter("secret"))
    return SecretList(secrets=tuple(page), cursor=cursor)


@operations.write("secret delete", scope="secret", examples=({"secret": "old-token"},))
def delete_secret(context: OperationContext, tx: Transaction, request: DeleteSecret) -> SecretDetail:
    """Remove a secret that no schedule uses."""
    found = _find_secret(tx, context, request.secret)
    users = _users(tx, context.namespace, request.secret)
    if users:
        raise NotAllowed(
            f"secret {request.secret} is used by {', '.join(users)}",
            field="secret",
            value=request.secret,
            rule="a secret that a schedule uses cannot be removed",
            fix=f"update schedule {users[0]} to another secret first",
        )
    tx.delete_object(SECRET, namespace=context.namespace, name=request.secret)
    context.audit(tx, "secret.delete", request.secret)
    return SecretDetail(secret=_to_summary(found), used_by=())


@operations.write("secret rotate", scope="secret", examples=({},))
def rotate_secrets(context: OperationContext, tx: Transaction, request: RotateSecrets) -> RotatedSecrets:
    """Re-encrypt every secret with the current secret key, after a new key was put first in its file."""
    if request.everywhere and context.caller.namespaces:
        raise Forbidden(
            "rotating in all namespaces needs a key with access to all of them",
            field="everywhere",
            value=True,
            rule=f"your key has access to {', '.join(context.caller.namespaces)}",
            fix="leave it out to rotate your namespace",
        )
    now, keyring = context.now(), require_auth_cache(context).keyring
    record_keyring(tx, keyring)
    known = find_secrets(tx, None if request.everywhere else context.namespace)
    old = [secret for secret in known if secret.encrypted.key_id != keyring.current.id]
    for secret in old:
        put_secret(tx, reencrypt_secret(keyring, secret), replaces=secret.revision, now=now)
    after = f"{len(old)} of {len(known)}"
    context.audit(tx, "secret.rotate", "*", after=after)
    return RotatedSecrets(rotated=len(old), left=len(known) - len(old))


def _to_summary(secret: Secret) -> SecretSummary:
    return answer_from(SecretSummary, secret, secret=secret.name, reference=f"secret://{secret.name}")


def _find_secret(tx: Transaction, context: OperationContext, name: str) -> Secret:
    found = find_secrets(tx, context.namespace, [name])
    if not found:
        known = [secret.name for secret in find_secrets(tx, context.namespace)]
        raise not_found("secret", name, known, list_command="secret list")
    return found[0]


def _check_binding(binding: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the binding with host names in lower case; raises for a URL or a port."""
    for host in binding.get("hosts", ()):
        if _HOST.fullmatch(host) is None:
            raise InvalidInput(
                f"{host!r} is not a host name",
                field="hosts",
                value=host,
                rule="a host name without scheme, port and path, or *.example.com",
                fix="api.example.com",
            )
    return {
        field: tuple(name.lower() if field == "hosts" else name for name in names)
        for field, names in binding.items()
    }


def _check_count(tx: Transaction, context: OperationContext) -> None:
    if len(find_secrets(tx, context.namespace)) >= MAX_SECRETS:
        raise Conflict(
            f"namespace {context.namespace} has {MAX_SECRETS} secrets",
            field="secret",
            rule=f"at most {MAX_SECRETS}",
            fix="delete secrets that are not needed",
        )


def _users(tx: Transaction, namespace: str, name: str) -> tuple[str, ...]:
    """Return the first few schedules, archived ones excluded, whose target or check uses a secret."""
    users = (
        record.schedule.name
        for record in all_schedules(tx, namespace)
        if record.progress.state is not ScheduleState.ARCHIVED
        and name in secret_names(record.schedule.target, record.schedule.check)
    )
    return tuple(islice(users, MAX_USERS_SHOWN))
