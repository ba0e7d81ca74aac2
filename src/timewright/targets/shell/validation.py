"""Validates shell targets when their schedule is written, before anything runs."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from timewright.core.input.input_errors import input_error, show_value
from timewright.core.run.needs import may_run_program
from timewright.core.target import Shell, may_set_variable

MAX_ARGUMENTS = 1000
MAX_ARGUMENT_BYTES = 131_071  # the kernel's limit for one argument, without its terminating zero
MAX_COMMAND_BYTES = 1_000_000  # arguments and environment together; the kernel's own limit is near 2 MB

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


def check_shell(target: Shell, *, field: str = "target") -> None:
    """Refuse a command that could not run, or whose environment could make it run other code."""
    _check_command(target.command, field=f"{field}.command")
    for name, value in target.env.items():
        _check_name(name, field=f"{field}.env")
        _check_text(value, field=f"{field}.env.{name}", max_bytes=MAX_ARGUMENT_BYTES - len(name) - 1)
    if target.cwd is not None:
        _check_cwd(target.cwd, field=f"{field}.cwd")
    size = sum(map(_size_of, _texts(target)))
    if size > MAX_COMMAND_BYTES:
        raise input_error(
            f"{field}.command",
            f"{size} bytes",
            "is too large with its environment",
            rule=f"at most {MAX_COMMAND_BYTES} bytes",
            fix="put long input in a file and pass its name",
        )


def is_allowed(command: Sequence[str], allowed: bool | Sequence[str]) -> bool:
    """Whether the administrator allows this program: by name, full path, or folder."""
    return may_run_program(command[0], allowed if isinstance(allowed, bool) else tuple(allowed))


def _check_command(command: Sequence[str], *, field: str) -> None:
    if not command or not command[0]:
        raise input_error(
            field,
            list(command),
            "names no program",
            rule="the program, then its arguments",
            fix='command: ["/usr/bin/backup", "--all"]',
        )
    if len(command) > MAX_ARGUMENTS:
        raise input_error(
            field,
            list(command),
            "has too many arguments",
            rule=f"at most {MAX_ARGUMENTS}",
            fix="put them in a file and pass its name",
        )
    for number, argument in enumerate(command):
        _check_text(argument, field=f"{field}[{number}]", max_bytes=MAX_ARGUMENT_BYTES)


def _check_text(text: object, *, field: str, max_bytes: int) -> None:
    rule = f"text of at most {max_bytes} bytes, without a zero byte"
    if not isinstance(text, str):
        raise input_error(field, text, "is not text", rule=rule, fix=f'"{text}"'[:64])
    if "\0" in text:
        raise input_error(field, text, "has a zero byte", rule=rule, fix="leave it out")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise input_error(field, text, "is not valid Unicode", rule=rule, fix="write it in UTF-8") from None
    if size > max_bytes:
        raise input_error(
            field, text, f"has {size} bytes", rule=rule, fix="put it in a file and pass its name"
        )


def _check_name(name: object, *, field: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise input_error(
            field,
            name,
            "is not a valid variable name",
            rule="letters, digits and _; the first is not a digit",
            fix="REPORT_DATE",
        )
    if not may_set_variable(name):
        raise input_error(
            f"{field}.{name}",
            name,
            "may not be set: it changes which code runs, or is reserved",
            rule="a schedule may set variables of its program, not of the loader or the interpreter",
            fix="set it inside the program, or in the environment Timewright is started with",
        )


def _check_cwd(cwd: str, *, field: str) -> None:
    _check_text(cwd, field=field, max_bytes=4096)
    if not cwd.startswith("/") or ".." in PurePosixPath(cwd).parts:
        raise input_error(
            field,
            cwd,
            "is not an absolute path without ..",
            rule="starts with / and has no .. in it",
            fix="cwd: /srv/reports",
        )


def _texts(target: Shell) -> Iterator[str]:
    yield from target.command
    for name, value in target.env.items():
        yield f"{name}={value}"


def _size_of(text: str) -> int:
    return len(text.encode()) + 9  # its terminating zero and an 8-byte pointer


def resolve_cwd(cwd: str | None, *, root: str | None) -> tuple[str | None, str]:
    """The real path of the folder to run in, and why it cannot be used ("" if it can)."""
    if cwd is None and root is None:
        return None, ""
    real = os.path.realpath(cwd or root or "")
    if not os.path.isdir(real):  # noqa: PTH112 - text in, text out
        return None, f"the folder {show_value(cwd or root)} does not exist"
    if root is not None and os.path.commonpath([real, os.path.realpath(root)]) != os.path.realpath(root):
        return None, f"the folder {show_value(cwd)} is outside {root}"
    return real, ""


def describe_start_error(program: str, error: Exception, *, folder: str | None) -> str:
    """Explain why a program could not be started, and what to do."""
    number = getattr(error, "errno", None)
    path = Path(folder or "", program)
    if number == errno.ENOENT and "/" not in program:
        return "no such program in PATH; use its full path"
    if number == errno.ENOENT and path.exists():
        return "the interpreter in its first line does not exist"
    if number == errno.EACCES and path.is_dir():
        return "it is a directory"
    if number == errno.EACCES:
        return "it is not executable; use chmod +x"
    if number == errno.E2BIG:
        return "it is too large with its environment; put long input in a file and pass its name"
    if number == errno.ENOEXEC:
        return "it is neither a program nor a script with an interpreter line such as #!/bin/sh"
    return str(getattr(error, "strerror", None) or error)
