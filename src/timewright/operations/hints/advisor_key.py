"""Read a language model's API key from an environment variable or a stored secret."""

from __future__ import annotations

from collections.abc import Mapping

from timewright.access.secret_records import read_secret_value
from timewright.core.target import SECRET_PREFIX, SecretDestination
from timewright.errors import NotFound
from timewright.operations.access.authentication import require_auth_cache
from timewright.operations.context import OperationContext

ENV_PREFIX = "env:"


def read_advisor_key(
    context: OperationContext, reference: str, *, host: str, environment: Mapping[str, str]
) -> str:
    """Return the API key that a reference names, for the model's host; an empty reference is an empty key."""
    if reference.startswith(SECRET_PREFIX):
        name = reference.removeprefix(SECRET_PREFIX)
        keyring = require_auth_cache(context).keyring
        destination = SecretDestination("host", host)
        return read_secret_value(
            context.store, keyring, namespace=context.namespace, name=name, destination=destination
        )
    if not reference:
        return ""
    name = reference.removeprefix(ENV_PREFIX)
    if name not in environment:
        raise NotFound(
            f"environment variable {name} is not set",
            field="advisor.key",
            value=reference,
            rule="env:NAME of a variable that is set, or secret://NAME",
            fix=f"secret set {name.lower()}, then key: secret://{name.lower()}",
        )
    return environment[name]
