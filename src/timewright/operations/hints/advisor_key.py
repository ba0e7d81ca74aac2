"""Read a language model's API key from an environment variable or a stored secret."""

from __future__ import annotations

from collections.abc import Mapping

from timewright.access.secret_records import read_secret_value
from timewright.errors import NotFound
from timewright.operations.access.authentication import require_auth_cache
from timewright.operations.context import OperationContext

SECRET_PREFIX = "secret://"  # noqa: S105 - how a reference begins
ENV_PREFIX = "env:"


def read_advisor_key(context: OperationContext, reference: str, *, environment: Mapping[str, str]) -> str:
    """Return the API key that a reference names; an empty reference returns an empty key."""
    if reference.startswith(SECRET_PREFIX):
        name = reference.removeprefix(SECRET_PREFIX)
        keyring = require_auth_cache(context).keyring
        return read_secret_value(context.store, keyring, namespace=context.namespace, name=name)
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
