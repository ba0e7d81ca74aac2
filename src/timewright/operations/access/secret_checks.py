"""Checks of targets that need secrets: no plain-text secrets, and only references the caller may use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from timewright.access.secret_records import find_secrets
from timewright.core.input.input_errors import SECRET_NAME_PATTERN
from timewright.core.target import (
    RUN_TOKEN,
    SECRET_PREFIX,
    AnyTarget,
    Http,
    Publish,
    Shell,
    secret_destination,
)
from timewright.errors import Forbidden, InvalidInput
from timewright.operations.access.callers import AGENT_ORIGIN, Caller, require_scope
from timewright.operations.context import OperationContext

_HEADERS = frozenset(
    {
        "authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "dd-api-key",
        "x-goog-api-key", "ocp-apim-subscription-key", "x-functions-key", "x-auth-key", "x-auth-token",
        "x-access-token", "private-token", "job-token", "x-gitlab-token", "x-vault-token", "x-consul-token",
        "x-amz-security-token", "x-shopify-access-token", "circle-token",
    }
)  # fmt: skip
_VARIABLES = re.compile(r"(?i)(?:^|_)(?:PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_KEY|PRIVATE_KEY)$")
_REFERENCE = re.compile(rf"{SECRET_PREFIX}({SECRET_NAME_PATTERN})")


def reject_plain_secrets(caller: Caller, target: AnyTarget, *, path: str = "target") -> None:
    """Reject a header or variable that has a secret's name and no `secret://` reference as its value.

    A caller with direct access to the store is not checked.
    """
    if caller.local:
        return
    for field, value in _secret_fields(target, path):
        if value and SECRET_PREFIX not in value:
            raise InvalidInput(
                f"{field} holds a secret in plain text",
                field=field,
                rule="a target refers to secrets and never contains them",
                fix="secret set crm-token, then write secret://crm-token here",
            )


def _secret_fields(target: AnyTarget, path: str) -> Iterator[tuple[str, str]]:
    """Yield every header and variable whose name suggests a secret."""
    if isinstance(target, Http):
        yield from ((f"{path}.headers.{k}", v) for k, v in target.headers.items() if k.lower() in _HEADERS)
    if isinstance(target, Shell):
        yield from ((f"{path}.env.{k}", v) for k, v in target.env.items() if _VARIABLES.search(k))


def check_secret_use(
    context: OperationContext, target: AnyTarget, *, before: Iterable[AnyTarget] = ()
) -> None:
    """Reject references to secrets that the caller may not use, or that may not go where the target goes.

    A target that was stored before is not checked: editing another field is not a use of its secrets.
    """
    names = secret_names(target)
    if not names or target in before:
        return
    caller = context.caller
    if not caller.local:
        require_scope(caller, "secret-use", operation=f"a target with {SECRET_PREFIX}{names[0]}")
    known = {
        one.name: one for one in context.store.read(lambda tx: find_secrets(tx, context.namespace, names))
    }
    for name in names:
        secret = known.get(name)
        if secret is None or secret.is_unbound:
            if context.by.origin == AGENT_ORIGIN:
                raise _unbound(name)
        elif isinstance(target, Http | Shell | Publish):
            secret.check_destination(secret_destination(target))
        if secret is not None and secret.users and not caller.local and caller.actor not in secret.users:
            raise Forbidden(
                f"{caller.actor} may not use {SECRET_PREFIX}{name}",
                field="target",
                value=f"{SECRET_PREFIX}{name}",
                rule=f"only {', '.join(secret.users)} may use this secret",
                fix=f"secret bind {name} with this user too",
            )


def secret_warnings(context: OperationContext, target: AnyTarget) -> Iterator[str]:
    """Warn about missing secrets, and about those that a caller could send to any host or command."""
    names = secret_names(target)
    if not names:
        return
    known = context.store.read(lambda tx: find_secrets(tx, context.namespace, names))
    for name in sorted(set(names) - {secret.name for secret in known}):
        yield f"there is no secret {name}, and runs fail without it: timewright secret set {name}"
    for secret in known:
        if secret.is_unbound:
            destination = (
                secret_destination(target)
                if isinstance(target, Http | Shell | Publish)
                else "host example.com"
            )
            yield (
                f"{SECRET_PREFIX}{secret.name} may go to any host or command; "
                f"bind it: timewright secret bind {secret.name} --{destination}"
            )


def secret_names(*users: Struct | None) -> list[str]:
    """Return the secrets that targets or senders refer to; the token of the run itself is none."""
    return sorted(set(_REFERENCE.findall(msgspec.json.encode(users).decode())) - {RUN_TOKEN})


def _unbound(name: str) -> Forbidden:
    return Forbidden(
        f"{SECRET_PREFIX}{name} is not bound to a destination",
        field="target",
        value=f"{SECRET_PREFIX}{name}",
        rule="agents may use only secrets that name the hosts or commands they may go to",
        fix=f"a person runs: timewright secret bind {name} --host api.example.com",
    )
