"""Rewrites cron fields of other schedulers for our grammar."""

from __future__ import annotations

import re
from collections.abc import Sequence

from timewright.core.recurrence.cron import Cron
from timewright.errors import TimewrightError

_SINGLE_WITH_STEP = re.compile(r"(\d+)/(\d+)")
# The last value of minute, hour, day, month and weekday.
_LAST = (59, 23, 31, 12, 6)
# The end of the message about an expression that is valid for cron and has no instant.
NEVER_FIRES = "never fires"
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def normalize_fields(fields: Sequence[str], *, and_days: bool) -> tuple[str, list[str]]:
    """Return five cron fields as an expression of ours, and notes on what was rewritten.

    `and_days`: both day fields must match where both are restricted; ours match if either does.
    """
    notes: list[str] = []
    found = []
    for text, last in zip(fields, _LAST, strict=True):
        plain = text.replace("?", "*") if text == "?" else text
        ranged = ",".join(_with_end(part, last) for part in plain.split(","))
        if ranged != plain:
            notes.append(f"{text} means {ranged}")
        hashed = _hash_ranges(ranged)
        if hashed != ranged:
            notes.append(f"{text} is random; {hashed} is a fixed choice in the same range")
        found.append(hashed)
    if and_days and found[2] != "*" and found[4] != "*":
        found[4] = f"+{found[4]}"
        notes.append("both day fields must match, which a leading + in the weekday says")
    return " ".join(found), notes


def weekday_names(numbers: Sequence[int], *, monday: int) -> str:
    """Return weekday numbers as names; `monday` is the number of Monday."""
    days = sorted({(number - monday) % 7 for number in numbers})
    names = [_WEEKDAYS[(day + 1) % 7].upper() for day in days]
    is_range = len(days) > 2 and days[-1] - days[0] == len(days) - 1 and days[-1] < 6
    return f"{names[0]}-{names[-1]}" if is_range else ",".join(names)


def cron_problem(expression: str, *, zone: str = "UTC") -> str:
    """Return why an expression or zone is invalid; "" if it is valid."""
    try:
        Cron(expression, zone=zone, key="import")
    except TimewrightError as error:
        return error.message
    return ""


def _with_end(part: str, last: int) -> str:
    """Write `5/10` as `5-59/10`."""
    match = _SINGLE_WITH_STEP.fullmatch(part)
    return f"{match[1]}-{last}/{match[2]}" if match else part


def _hash_ranges(text: str) -> str:
    """Write the random range `a~b` of cronie as `H(a-b)`; a bare `~` as `H`."""
    return ",".join(
        ("H" if part == "~" else f"H({part.replace('~', '-')})") if "~" in part else part
        for part in text.split(",")
    )
