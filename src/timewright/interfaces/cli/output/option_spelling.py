"""Spell an error of an operation as its command does: options for fields, commands to type."""

from __future__ import annotations

import re
import shlex
from typing import Any

from timewright.interfaces.cli.fields import OptionField, options_of, subject_of
from timewright.operations import Operation, operations

# Fields whose inner fields are options of their own: `trigger.every` is --every.
_FLATTENED = ("trigger", "target", "retry")
_ALTERNATIVE = re.compile(r"(, or |; or )")
_PAIR = re.compile(r"(\w+): (\S.*)")


class RefusedRequest(Exception):
    """An error of an operation, with the operation, so that it can be printed in the words of its command."""

    def __init__(self, operation: Operation[Any]) -> None:
        super().__init__(operation.name)
        self.operation = operation


def spell_as_options(problem: dict[str, Any], operation: Operation[Any]) -> dict[str, Any]:
    """Return a problem whose field, message and fix name the options of the command."""
    options = {option.key: option for option in options_of(operation)}
    path = str(problem.get("field") or "")
    option = _option_of(path, options)
    subject = subject_of(operation)
    flag = option.flag if option is not None else path
    if subject is not None and path == subject.key:
        flag = path.upper()
    message = str(problem["message"])
    if path and message.startswith(f"{path} "):
        message = flag + message.removeprefix(path)
    spelled = {**problem, "message": message, "field": path if ": " in path else flag}
    if problem.get("fix"):
        parts = _ALTERNATIVE.split(str(problem["fix"]))
        spelled["fix"] = "".join(
            part if _ALTERNATIVE.fullmatch(part) else _spell_fix(part, option, options) for part in parts
        )
    return spelled


def _option_of(path: str, options: dict[str, OptionField]) -> OptionField | None:
    head, *inner = re.split(r"[.\[:]", path)
    names = [*inner, head] if head in _FLATTENED else [head]
    return next((options[name] for name in names if name in options), None)


def _spell_fix(text: str, option: OptionField | None, options: dict[str, OptionField]) -> str:
    """Return one suggestion: `every: 15m` as `--every 15m`, a value with its option, a command in full."""
    if any(text == one.name or text.startswith(f"{one.name} ") for one in operations):
        return f"timewright {text}"
    pair = _PAIR.fullmatch(text)
    if pair and pair[1] in options:
        return _with_value(options[pair[1]], pair[2])
    if option is not None and re.fullmatch(r"[\w./:@+-]+", text) and not text.startswith("-"):
        return _with_value(option, text)
    return text


def _with_value(option: OptionField, value: str) -> str:
    if option.kind in ("flag", "switch", "command"):
        return option.flag
    is_typed = option.kind == "request" or re.fullmatch(r"'[^']*'|[\w./:@+%,=-]+", value)
    return f"{option.flag} {value if is_typed else shlex.quote(value)}"
