"""What went wrong, in words: what happened, where, the rule, what to try; a traceback only when asked."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import click

from timewright.doors.cli.table import clean
from timewright.errors import TimewrightError

REFUSED, USAGE, DIFFERENT, INTERRUPTED = 1, 2, 3, 130


class Mistyped(click.UsageError):
    """A word that is no command, with those that are like it."""

    def __init__(self, message: str, *, ctx: click.Context, tries: str) -> None:
        super().__init__(message, ctx=ctx)
        self.tries = tries


def exit_code_of(error: BaseException) -> int:
    """0 is well, 1 refused or failed, 2 not understood."""
    if isinstance(error, BrokenPipeError):
        return 0
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    return USAGE if isinstance(error, click.UsageError) else REFUSED


def told(error: BaseException, words: Sequence[str]) -> None:
    """Say what went wrong on the standard error; who closed our output or interrupted us knows."""
    if isinstance(error, BrokenPipeError):
        _let_go_of_output()
        return
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return
    if "--debug" in words:
        traceback.print_exception(error)
    problem = _problem(error)
    text = json.dumps(problem, indent=2, default=str) if _wants_json(words) else _sentences(problem)
    click.echo(text, err=True)


def _problem(error: BaseException) -> dict[str, Any]:
    """The fault as data: a code, a sentence, and what is known beside."""
    if isinstance(error, TimewrightError):
        return error.problem()
    if isinstance(error, click.ClickException):
        fix = error.tries if isinstance(error, Mistyped) else _help_for(error)
        message = error.format_message().rstrip(".")
        return {"code": "usage", "message": message[:1].lower() + message[1:], "fix": fix}
    if isinstance(error, OSError):
        named = f": {error.filename}" if error.filename else ""
        fix = "look at the output, the disk and the permissions"
        return {
            "code": "system",
            "message": f"the system refused: {error.strerror or error}{named}",
            "fix": fix,
        }
    report = _report(error)
    return {
        "code": "internal",
        "message": f"something is wrong inside timewright: {type(error).__name__}: {error}",
        "rule": f"what happened is written in {report}" if report else "",
        "fix": "the same command with --debug, and tell us",
    }


def _sentences(problem: dict[str, Any]) -> str:
    first, *more = str(problem["message"]).strip().split("\n")
    lines = [f"error: {clean(first)}", *(f"  {clean(line)}" for line in more)]
    where = str(problem.get("field") or "")
    said = {**problem, "field": where.partition(": ")[2] or where}
    for label, key in (("field", "field"), ("rule", "rule"), ("try", "fix")):
        if said.get(key):
            lines.append(f"  {label:<7} {clean(said[key])}")
    return "\n".join(lines)


def _help_for(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    return f"{ctx.command_path if ctx is not None else 'timewright'} --help"


def _wants_json(words: Sequence[str]) -> bool:
    """Whether JSON was asked for, also when the rest of the line was not understood."""
    pairs = pairwise([*words, ""])
    return any(word in _ASK or (word, after) in _ASKS for word, after in pairs)


_ASK = {"-ojson", "--output=json", "--json"}
_ASKS = {("-o", "json"), ("--output", "json")}


def _report(error: BaseException) -> str:
    """Write down what happened, for whoever mends it; without the arguments, which may hold secrets."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="timewright-fault-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
        ) as file:
            file.write(f"Python {sys.version}\n")
            traceback.print_exception(error, file=file)
            return file.name
    except OSError:
        return ""


def _let_go_of_output() -> None:
    """Point the output at nothing, so that nobody complains about it again at the very end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nothing, stream.fileno())
        except (AttributeError, OSError, ValueError):
            continue
