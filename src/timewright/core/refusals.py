"""How input is refused: with the path to the field, what was found there, the rule, and a way out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

from timewright.errors import InvalidCron, InvalidInput, TimewrightError, UnknownField

LONGEST_SHOWN = 64
MOST_LISTED = 40


def shown(value: Any) -> str:
    """A value as a message may show it: short, and printable."""
    if isinstance(value, str):
        return ascii(value if len(value) <= LONGEST_SHOWN else value[: LONGEST_SHOWN - 3] + "...")
    if isinstance(value, Mapping):
        return f"a mapping of {len(value)}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"a list of {len(value)}"
    if isinstance(value, int) and value.bit_length() > LONGEST_SHOWN:
        return "a very large number"
    if value is None:
        return "null"
    return ascii(value)[:LONGEST_SHOWN]


def join(path: str, name: str) -> str:
    """The path of a part: `retry.max_attempts`."""
    return f"{path}.{name}" if path else name


def refused(
    path: str,
    value: Any,
    why: str,
    *,
    rule: str,
    fix: str,
    kind: type[TimewrightError] = InvalidInput,
) -> TimewrightError:
    """An error that names the field, the value, the rule and the fix."""
    named = path or "input"
    return kind(f"{named} {shown(value)} {why}", field=named, value=shown(value), rule=rule, fix=fix)


def missing(path: str, *, rule: str, fix: str) -> TimewrightError:
    """An error for a field that is needed and is not there."""
    return InvalidInput(f"{path} is missing", field=path, rule=rule, fix=fix)


def unknown(
    path: str, name: str, known: Iterable[str], *, also: Iterable[str] = (), meant: str = ""
) -> TimewrightError:
    """An error for a field nobody knows, with what was meant or else the nearest one that is."""
    names = sorted(known)
    near = get_close_matches(name[:LONGEST_SHOWN], [*names, *also], n=1, cutoff=0.6)
    listed = ", ".join(names[:MOST_LISTED])
    return UnknownField(
        f"unknown field {shown(name)}" + (f" in {path}" if path else ""),
        field=join(path, name[:LONGEST_SHOWN]),
        value=shown(name),
        rule=f"the fields are: {listed}",
        fix=meant or (f"did you mean {near[0]}?" if near else "leave it out"),
    )


def refuse_from(path: str, error: TimewrightError) -> NoReturn:
    """Raise an error of a part again, seen from the whole; what both paths say is said once."""
    own, words = error.field or "", ""
    if isinstance(error, InvalidCron):
        # Fields that exclude each other have no path: they are told in words behind that of the whole.
        words = f": {own}" if " " in own else ""
        own = f"cron.{own}" if own.isalpha() else "cron"
    head, _, rest = own.partition(".")
    if path and head == path.rpartition(".")[2].partition("[")[0]:
        own = rest
    elif path and head == path.partition(".")[0].partition("[")[0]:
        raise error
    field = (f"{path}.{own}" if path and own else path or own or "input") + words
    raise type(error)(
        error.message,
        field=field,
        value=error.value,
        rule=error.rule or "what the message says",
        fix=error.fix or "change it, or leave it out",
    ) from None
