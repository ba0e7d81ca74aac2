"""The key of a model by its reference: a variable of the environment, or a secret of the store."""

from __future__ import annotations

from collections.abc import Mapping

from timewright.errors import NotFound
from timewright.ledger.secret_shelf import reveal
from timewright.operations.access import doorkeeper_of
from timewright.operations.context import Context

SECRET = "secret://"  # noqa: S105 - how a reference begins
VARIABLE = "env:"


def advisor_key(context: Context, reference: str, *, environment: Mapping[str, str]) -> str:
    """The key that a reference names; none for an endpoint that asks for none."""
    if reference.startswith(SECRET):
        name = reference.removeprefix(SECRET)
        keyring = doorkeeper_of(context).keyring
        return reveal(context.store, keyring, namespace=context.namespace, name=name)
    if not reference:
        return ""
    name = reference.removeprefix(VARIABLE)
    if name not in environment:
        raise NotFound(
            f"the environment has no {name}",
            field="advisor.key",
            value=reference,
            rule="env:NAME of a variable that is set, or secret://NAME",
            fix=f"secret set {name.lower()}, and key: secret://{name.lower()}",
        )
    return environment[name]
