"""Refuses secrets that are written out in a schedule: its text is kept, listed and copied as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from timewright.core.schedule import Schedule
from timewright.core.target import Http, Shell
from timewright.errors import InvalidInput
from timewright.operations.callers import Caller

_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token"}
)
_VARIABLES = re.compile(r"(?i)(?:^|_)(?:PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_KEY|PRIVATE_KEY)$")
_REFERENCE = "secret://"


def check_named(caller: Caller, schedule: Schedule) -> None:
    """Refuse a header or variable that by its name is a secret, and by its value is not a reference to one.

    Whoever has the store itself may write there what they like.
    """
    if caller.local:
        return
    for field, value in _suspects(schedule):
        if value and _REFERENCE not in value:
            raise InvalidInput(
                f"{field} holds a secret in plain text",
                field=field,
                rule="a secret is named and never written into a schedule",
                fix="secret set crm-token, and here: secret://crm-token",
            )


def _suspects(schedule: Schedule) -> Iterator[tuple[str, str]]:
    """Every header and variable that by its name is a secret."""
    target = schedule.target
    if isinstance(target, Http):
        yield from ((f"target.headers.{k}", v) for k, v in target.headers.items() if k.lower() in _HEADERS)
    if isinstance(target, Shell):
        yield from ((f"target.env.{k}", v) for k, v in target.env.items() if _VARIABLES.search(k))
