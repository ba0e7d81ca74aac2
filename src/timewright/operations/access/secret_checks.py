"""Reject plain-text secrets in targets, because targets are stored, listed and copied as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from timewright.core.target import AnyTarget, Http, Shell
from timewright.errors import InvalidInput
from timewright.operations.access.callers import Caller

_HEADERS = frozenset(
    {
        "authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "dd-api-key",
        "x-goog-api-key", "ocp-apim-subscription-key", "x-functions-key", "x-auth-key", "x-auth-token",
        "x-access-token", "private-token", "job-token", "x-gitlab-token", "x-vault-token", "x-consul-token",
        "x-amz-security-token", "x-shopify-access-token", "circle-token",
    }
)  # fmt: skip
_VARIABLES = re.compile(r"(?i)(?:^|_)(?:PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_KEY|PRIVATE_KEY)$")
_REFERENCE = "secret://"


def reject_plain_secrets(caller: Caller, target: AnyTarget, *, path: str = "target") -> None:
    """Reject a header or variable that has a secret's name and no `secret://` reference as its value.

    A caller with direct access to the store is not checked.
    """
    if caller.local:
        return
    for field, value in _secret_fields(target, path):
        if value and _REFERENCE not in value:
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
