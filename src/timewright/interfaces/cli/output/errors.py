"""Prints errors in the words of the command: message, option, rule and fix; a traceback only with --debug."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import click

from timewright.errors import StoreUnavailable, TimewrightError
from timewright.interfaces.cli.fields import OptionField, options_of, subject_of
from timewright.interfaces.cli.output.table import escape_control
from timewright.interfaces.program import with_program
from timewright.interfaces.python.spelling import FLATTENED, PAIR, WITH_FIELD, spell_alternatives
from timewright.operations import Operation, operations

_OF_KINDS = re.compile(r" (?:is missing|has two kinds|names (?:no|[0-9]+) trigger)")
_UNDERSCORED = re.compile(r"(?<![\w'-])[a-z]+(?:_[a-z]+)+\b(?!['.])")

EXIT_REFUSED, EXIT_USAGE, EXIT_DIFFERENCES, EXIT_INTERRUPTED = 1, 2, 3, 130


class UnknownCommand(click.UsageError):
    """An unknown command, with suggestions."""

    def __init__(self, message: str, *, ctx: click.Context, tries: str) -> None:
        super().__init__(message, ctx=ctx)
        self.suggestions = tries


class RefusedRequest(Exception):
    """An error of an operation, with the operation, so that it can be printed in the words of its command."""

    def __init__(self, operation: Operation[Any]) -> None:
        super().__init__(operation.name)
        self.operation = operation


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of an error: 1 for a refused or failed command, 2 for wrong usage."""
    if isinstance(error, BrokenPipeError):
        return 0
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return EXIT_INTERRUPTED
    return EXIT_USAGE if isinstance(error, click.UsageError) else EXIT_REFUSED


def print_error(error: BaseException, arguments: Sequence[str]) -> None:
    """Print an error to standard error; a closed output or Ctrl-C prints nothing."""
    if isinstance(error, BrokenPipeError):
        _discard_output()
        return
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return
    if "--debug" in arguments:
        traceback.print_exception(error)
    cause = error.__cause__ if isinstance(error, RefusedRequest) and error.__cause__ else error
    problem = _problem(cause, arguments)
    if _wants_json(arguments):
        text = json.dumps(problem, indent=2, default=str)
    elif isinstance(error, RefusedRequest):
        text = _format_problem(_spell_as_options(problem, error.operation))
    else:
        text = _format_problem(problem)
    click.echo(text, err=True)


def _problem(error: BaseException, arguments: Sequence[str]) -> dict[str, Any]:
    """Return an error as data: code, message, field, rule and fix."""
    if isinstance(error, StoreUnavailable) and "cannot be reached" in error.message:
        return {**error.problem(), "fix": "check the address (--store) and that the server runs"}
    if isinstance(error, TimewrightError):
        return error.problem()
    if isinstance(error, click.ClickException):
        fix = error.suggestions if isinstance(error, UnknownCommand) else _help_for(error, arguments)
        message = " ".join(error.format_message().split()).rstrip(".")
        return {"code": "usage", "message": message[:1].lower() + message[1:], "fix": fix}
    if isinstance(error, OSError):
        named = f": {error.filename}" if error.filename else ""
        fix = "check the output, the disk and the permissions"
        return {
            "code": "system",
            "message": f"system error: {error.strerror or error}{named}",
            "fix": fix,
        }
    report = _write_report(error)
    return {
        "code": "internal",
        "message": f"internal error: {type(error).__name__}: {error}",
        "rule": f"the details are in {report}" if report else "",
        "fix": "run the command with --debug and report the problem",
    }


def _format_problem(problem: dict[str, Any]) -> str:
    first, *more = str(problem["message"]).strip().split("\n")
    lines = [f"error: {escape_control(first)}", *(f"  {escape_control(line)}" for line in more)]
    field = str(problem.get("field") or "")
    is_named = f"{first} ".startswith(f"{field} ")
    shown = {**problem, "field": "" if is_named else field.partition(": ")[2] or field}
    for label, key in (("field", "field"), ("rule", "rule"), ("try", "fix")):
        if shown.get(key):
            lines.append(f"  {label:<7} {escape_control(with_program(str(shown[key])))}")
    return "\n".join(lines)


# What was meant by a command with one word or option too many.
_MEANT = (
    (("pause", "NAME"), "timewright schedule pause NAME"),
    (("resume", "NAME"), "timewright schedule resume NAME"),
    (("export", "NAME"), "timewright export > NAME"),
    (("schedule", "pause", "--all"), "timewright pause"),
    (("schedule", "resume", "--all"), "timewright resume"),
)


def _help_for(error: click.ClickException, arguments: Sequence[str]) -> str:
    if isinstance(error, click.NoSuchOption) and "--shell" in arguments and "--" not in arguments:
        return "write the command last, behind --: --shell -- sh -c 'date | tee today'"
    ctx = getattr(error, "ctx", None)
    for words, meant in _MEANT:
        *head, last = arguments or [""]
        if tuple(head) == words[:-1] and (last == words[-1] or (words[-1] == "NAME" and last[:1] != "-")):
            return meant.replace("NAME", shlex.quote(last))
    return f"{ctx.command_path if ctx is not None else 'timewright'} --help"


def _wants_json(words: Sequence[str]) -> bool:
    """Whether JSON output was requested, also if the arguments are invalid."""
    pairs = pairwise([*words, ""])
    return any(word in _JSON_FLAGS or (word, after) in _JSONPAIRS for word, after in pairs)


_JSON_FLAGS = {"-ojson", "--output=json", "--json"}
_JSONPAIRS = {("-o", "json"), ("--output", "json")}


def _write_report(error: BaseException) -> str:
    """Write a report file; it does not contain the arguments, which may be secret."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="timewright-error-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
        ) as file:
            file.write(f"Python {sys.version}\n")
            traceback.print_exception(error, file=file)
            return file.name
    except OSError:
        return ""


def _discard_output() -> None:
    """Redirect the output to /dev/null, so that Python does not fail when it flushes at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nothing, stream.fileno())
        except (AttributeError, OSError, ValueError):
            continue


def _spell_as_options(problem: dict[str, Any], operation: Operation[Any]) -> dict[str, Any]:
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
    if path in ("trigger", "target") and _OF_KINDS.search(message):
        # Each kind has its own option.
        spelled["message"] = _name_kinds(message.replace(flag, f"the {path}", 1), options)
        spelled["rule"] = _name_kinds(str(problem.get("rule") or ""), options)
        spelled["field"] = ""
    elif problem.get("rule"):
        spelled["rule"] = _UNDERSCORED.sub(lambda found: _flag_of(found[0], options), str(problem["rule"]))
        spelled["message"] = _UNDERSCORED.sub(lambda found: _flag_of(found[0], options), message)
    if problem.get("fix"):
        fix = str(problem["fix"])
        spelled["fix"] = spell_alternatives(fix, lambda one: _spell_fix(one, option, options))
        if subject is not None:
            # The subject is an argument, not an option.
            spelled["fix"] = spelled["fix"].removeprefix(f"{subject.key}: ")
    return spelled


# Fields inside a trigger or a target whose option has another name.
_OPTION_OF_FIELD = {"url": "http", "once": "at"}


def _option_of(path: str, options: dict[str, OptionField]) -> OptionField | None:
    head, *inner = re.split(r"[.\[:]", path)
    inner = [_OPTION_OF_FIELD.get(name, name) for name in inner]
    names = [*inner, head] if head in FLATTENED else [head]
    return next((options[name] for name in names if name in options), None)


def _spell_fix(text: str, option: OptionField | None, options: dict[str, OptionField]) -> str:
    """Return one suggestion: `every: 15m` as `--every 15m`, a value with its option, a command in full."""
    if any(text == one.name or text.startswith(f"{one.name} ") for one in operations):
        return f"timewright {WITH_FIELD.sub(_as_option, text)}"
    pair = PAIR.fullmatch(text)
    if pair and pair[1] in options:
        return _with_value(options[pair[1]], pair[2])
    is_request = option is not None and option.kind == "request" and re.fullmatch(r"[A-Z]+ \S+", text)
    if option is not None and (is_request or re.fullmatch(r"[\w./:@+-]+", text)) and not text.startswith("-"):
        return _with_value(option, text)
    if text.startswith("leave out "):
        return _name_kinds(text, options)
    return _UNDERSCORED.sub(lambda found: _flag_of(found[0], options), text)


def _as_option(found: re.Match[str]) -> str:
    flag = f" --{found[1].replace('_', '-')}"
    return flag if found[2] == "true" else f"{flag} {found[2]}"


def _name_kinds(text: str, options: dict[str, OptionField]) -> str:
    """Return a text with the options of triggers and targets in place of their names."""
    head, colon, names = text.rpartition(": ")
    if not colon:
        head, _, names = "", "", text
    kinds = re.compile(
        r"(?<![\w-])(?:every|cron|at|after|rrule|manual|call|http|shell|workflow|handoff|note)\b"
    )
    return f"{head}{colon}{kinds.sub(lambda found: _flag_of(found[0], options), names)}"


def _flag_of(name: str, options: dict[str, OptionField]) -> str:
    return options[name].flag if name in options else name


def _with_value(option: OptionField, value: str) -> str:
    if option.kind == "command" and value.startswith("["):
        return f"{option.flag} -- {shlex.join(json.loads(value))}"
    if option.kind in ("flag", "switch", "command"):
        return option.flag
    is_typed = option.kind == "request" or re.fullmatch(r"'[^']*'|[\w./:@+%,=-]+", value)
    return f"{option.flag} {value if is_typed else shlex.quote(value)}"
