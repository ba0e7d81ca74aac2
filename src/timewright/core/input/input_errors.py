"""Errors for invalid input, with the path, the value, the rule and a fix; checks of names and backoffs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

from timewright.core.moments import MAX_DURATION, format_duration
from timewright.core.policies.backoff import Exponential
from timewright.errors import InvalidCron, InvalidInput, TimewrightError, UnknownField

MAX_SHOWN_LENGTH = 64
MAX_PATH_LENGTH = 255
MAX_NAME_LENGTH = 255
SECRET_NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._/-]{0,127}"  # noqa: S105 - what a name may be

# Unicode characters that change the display order; refused because a name must look like what it is.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_CONTROL_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_RULE = "text of 1 to {max_length} characters, without control or reordering characters or outer spaces"


def show_value(value: Any) -> str:
    """Return a value for an error message: short and printable."""
    if isinstance(value, str):
        return ascii(value if len(value) <= MAX_SHOWN_LENGTH else value[: MAX_SHOWN_LENGTH - 3] + "...")
    if isinstance(value, Mapping):
        return f"a mapping of {len(value)}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"a list of {len(value)}"
    if isinstance(value, int) and value.bit_length() > MAX_SHOWN_LENGTH:
        return "a very large number"
    if value is None:
        return "null"
    return ascii(value)[:MAX_SHOWN_LENGTH]


def join_path(path: str, name: str) -> str:
    """Return the path of a field: `retry.max_attempts`.

    Long names and paths are cut off, because every value of a payload has its own path.
    """
    if len(path) > MAX_PATH_LENGTH:
        return path
    return f"{path}.{name[:MAX_SHOWN_LENGTH]}" if path else name[:MAX_SHOWN_LENGTH]


def input_error(
    path: str,
    value: Any,
    why: str,
    *,
    rule: str,
    fix: str,
    kind: type[TimewrightError] = InvalidInput,
) -> TimewrightError:
    """Return an error with the field, the value, the rule and the fix."""
    named = path or "input"
    return kind(
        f"{named} {show_value(value)} {why}", field=named, value=show_value(value), rule=rule, fix=fix
    )


# The rule and an example for fields that a schedule needs.
_NEEDED = {
    "steps": ("the steps of the workflow, as a list", "steps: [{name: load, call: etl.load}]"),
    "name": ("a name is needed", "name: nightly-report"),
    "schedule": ("the name of a schedule", "schedule: nightly-report"),
    "workflow": ("the name of a workflow", "workflow: nightly-load"),
    "queue": ("the name of a queue", "queue: mail"),
    "run": ("the id of a run", "run: run_01KKBXWX00EXAMPLE0LEASED00"),
    "trigger": (
        "when it runs: one of every, cron, at, after, rrule and manual",
        "cron: '0 9 * * 1-5', or every: 15m",
    ),
    "target": (
        "what it runs: one of call, http, shell, workflow, handoff, publish and note",
        "http: POST https://example.com/hook, or call: reports.nightly",
    ),
}


def missing_field(path: str, *, rule: str = "", fix: str = "") -> TimewrightError:
    """Return an error for a missing required field."""
    name = path.rpartition(".")[2]
    usual_rule, usual_fix = _NEEDED.get(name, (f"{name} is needed", f"add {name}"))
    return InvalidInput(f"{path} is missing", field=path, rule=rule or usual_rule, fix=fix or usual_fix)


def unknown_field(
    path: str, name: str, known: Iterable[str], *, aliases: Iterable[str] = (), replacement: str = ""
) -> TimewrightError:
    """Return an error for an unknown field of the value at `path`, which is "" for the request itself.

    Its fix is `replacement`, or else the most similar of the known fields and their aliases.
    """
    names = sorted(known)
    near = get_close_matches(name[:MAX_SHOWN_LENGTH], [*names, *aliases], n=1, cutoff=0.6)
    listed = ", ".join(names)
    return UnknownField(
        f"unknown field {show_value(name)}" + (f" in {path}" if path else ""),
        field=join_path(path, name[:MAX_SHOWN_LENGTH]),
        value=show_value(name),
        rule=f"the fields are: {listed}",
        fix=replacement or (f"did you mean {near[0]}?" if near else "leave it out"),
    )


def raise_at_path(path: str, error: TimewrightError) -> NoReturn:
    """Raise an error of a nested value again, with the full path; shared segments appear once."""
    own, words = error.field or "", ""
    if isinstance(error, InvalidCron):
        # Fields that exclude each other have no path: their description follows the path after a colon.
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
        rule=error.rule or "see the message",
        fix=error.fix or "change it, or leave it out",
    ) from None


def check_cap(made: Any, path: str) -> Any:
    """Return the value, or refuse a backoff whose cap, given or default, is shorter than its base."""
    if not isinstance(made, Exponential) or made.base <= made.cap:
        return made
    base, longer = format_duration(made.base), format_duration(min(12 * made.base, MAX_DURATION))
    raise input_error(
        join_path(path, "base"),
        base,
        f"is longer than the cap, {format_duration(made.cap)}",
        rule="delays grow from the base up to the cap, which is 1m unless you give it",
        fix=f"cap: {longer} beside the base, or backoff: {base} for the same delay each time",
    )


def check_name(name: Any, *, field: str = "name", max_length: int = MAX_NAME_LENGTH) -> str:
    """Return the name in Unicode form NFC, so that equal text is one name, or raise InvalidInput."""
    rule = _RULE.format(max_length=max_length)
    if not isinstance(name, str):
        raise input_error(field, name, "is not text", rule=rule, fix="nightly-report")
    why = _problem(name, max_length=max_length)
    if why:
        raise input_error(field, name, why, rule=rule, fix=_suggestion(name))
    composed = unicodedata.normalize("NFC", name)
    if len(composed) > max_length:
        raise input_error(
            field, name, f"is longer than {max_length} characters", rule=rule, fix=_suggestion(name)
        )
    return composed


def check_secret_name(name: str) -> str:
    """Return the name if `secret://` and it can be used in a header, or raise InvalidInput."""
    if not re.fullmatch(SECRET_NAME_PATTERN, name):
        rule = "letters, digits, dots, dashes, underscores and slashes, at most 128, a letter or digit first"
        raise input_error("secret", name, "cannot name a secret", rule=rule, fix="crm-token")
    return name


def _problem(name: str, *, max_length: int) -> str:
    if not name:
        return "is empty"
    if len(name) > max_length:
        return f"is longer than {max_length} characters"
    if name in (".", ".."):
        return "is a relative path, not a name"
    if any(unicodedata.category(c) in _CONTROL_CATEGORIES for c in name):
        return "has a control character or a line break"
    if _REORDERING.intersection(name):
        return "has a character that changes the display order"
    if name != name.strip():
        return "begins or ends with a space"
    return ""


def _suggestion(name: str) -> str:
    """Return the name without its invalid characters, or an example."""
    allowed = (
        c
        for c in name[:MAX_NAME_LENGTH]
        if unicodedata.category(c) not in _CONTROL_CATEGORIES and c not in _REORDERING
    )
    rest = "".join(allowed).strip()
    return rest[:40] if rest.strip(".") else "nightly-report"
