"""What a shell target may ask for: refused when it is written down, long before anything would run."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from timewright.core.refusals import refused, shown
from timewright.core.target import Shell

MOST_ARGUMENTS = 1000
LONGEST_ARGUMENT = 131_071  # what the kernel takes for one, less its ending zero
LARGEST_COMMAND = 1_000_000  # arguments and environment together; the kernel's own limit is near 2 MB

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
# Names that make the dynamic linker, a shell or an interpreter run something else than what was asked for.
_REFUSED_STARTS = (
    "LD_",
    "DYLD_",
    "BASH_FUNC_",
    "PYTHON",
    "TIMEWRIGHT_",
    "GIT_",
    "GLIBC_",
    "MALLOC_",
    "PERL5",
)
_REFUSED_NAMES = frozenset(
    {
        "PATH", "HOME", "SHELL", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND",
        "CDPATH", "GLOBIGNORE", "PERLLIB", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH", "CLASSPATH",
        "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "GCONV_PATH", "NLSPATH", "LOCPATH",
        "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_HOST_CONF", "TMPDIR", "TZDIR", "TERMINFO",
        "TERMCAP", "EDITOR", "VISUAL", "PAGER", "BROWSER", "LESSOPEN", "LESSCLOSE", "SSH_ASKPASS",
        "SUDO_ASKPASS", "OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES", "SSLKEYLOGFILE",
    }
)  # fmt: skip


def check_shell(target: Shell, *, field: str = "target") -> None:
    """Refuse a command that could not run, or that would smuggle something past the one who allowed it."""
    _check_command(target.command, field=f"{field}.command")
    for name, value in target.env.items():
        _check_name(name, field=f"{field}.env")
        _check_text(value, field=f"{field}.env.{name}", longest=LONGEST_ARGUMENT - len(name) - 1)
    if target.cwd is not None:
        _check_cwd(target.cwd, field=f"{field}.cwd")
    size = sum(map(_cost, _texts(target)))
    if size > LARGEST_COMMAND:
        raise refused(
            f"{field}.command",
            f"{size} bytes",
            "is too large with its environment",
            rule=f"at most {LARGEST_COMMAND} bytes",
            fix="put long input in a file and pass its name",
        )


def is_allowed(command: Sequence[str], allowed: bool | Sequence[str]) -> bool:
    """Whether the one who runs us allows this program: by its name, its full path, or the folder it is in.

    An entry that ends in a slash allows what lies directly in that folder.
    """
    if isinstance(allowed, bool):
        return allowed
    program = command[0]
    if program.endswith("/") or ".." in PurePosixPath(program).parts:
        return False
    folder = program.rpartition("/")[0] + "/"
    return program in allowed or (program.startswith("/") and folder in allowed)


def _check_command(command: Sequence[str], *, field: str) -> None:
    if not command or not command[0]:
        raise refused(
            field,
            list(command),
            "names no program",
            rule="the program, then its arguments",
            fix='command: ["/usr/bin/backup", "--all"]',
        )
    if len(command) > MOST_ARGUMENTS:
        raise refused(
            field,
            list(command),
            "has too many arguments",
            rule=f"at most {MOST_ARGUMENTS}",
            fix="put them in a file and pass its name",
        )
    for number, argument in enumerate(command):
        _check_text(argument, field=f"{field}[{number}]", longest=LONGEST_ARGUMENT)


def _check_text(text: object, *, field: str, longest: int) -> None:
    rule = f"text of at most {longest} bytes, without a zero byte"
    if not isinstance(text, str):
        raise refused(field, text, "is not text", rule=rule, fix=f'"{text}"'[:64])
    if "\0" in text:
        raise refused(field, text, "has a zero byte", rule=rule, fix="leave it out")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise refused(field, text, "has half a character", rule=rule, fix="write it in UTF-8") from None
    if size > longest:
        raise refused(field, text, f"has {size} bytes", rule=rule, fix="put it in a file and pass its name")


def _check_name(name: object, *, field: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise refused(
            field,
            name,
            "is not a name for an environment",
            rule="letters, digits and _, not beginning with a digit",
            fix="REPORT_DATE",
        )
    if name in _REFUSED_NAMES or name.startswith(_REFUSED_STARTS):
        raise refused(
            f"{field}.{name}",
            name,
            "decides what is run, or is ours",
            rule="a schedule sets values for its program, not where programs come from",
            fix="set it inside the program, or in the environment Timewright is started with",
        )


def _check_cwd(cwd: str, *, field: str) -> None:
    _check_text(cwd, field=field, longest=4096)
    if not cwd.startswith("/") or ".." in PurePosixPath(cwd).parts:
        raise refused(
            field,
            cwd,
            "is not a plain, full path",
            rule="it begins with / and has no ..",
            fix="cwd: /srv/reports",
        )


def _texts(target: Shell) -> Iterator[str]:
    yield from target.command
    for name, value in target.env.items():
        yield f"{name}={value}"


def _cost(text: str) -> int:
    return len(text.encode()) + 9  # its ending zero, and the pointer to it


def find_folder(cwd: str | None, *, root: str | None) -> tuple[str | None, str]:
    """The folder to run in, as it really is now, and why it cannot be used ("" if it can)."""
    if cwd is None and root is None:
        return None, ""
    real = os.path.realpath(cwd or root or "")
    if not os.path.isdir(real):  # noqa: PTH112 - text in, text out
        return None, f"the folder {shown(cwd or root)} does not exist"
    if root is not None and os.path.commonpath([real, os.path.realpath(root)]) != os.path.realpath(root):
        return None, f"the folder {shown(cwd)} is outside {root}"
    return real, ""


def why_not_started(program: str, error: Exception, *, folder: str | None) -> str:
    """Why the system did not start a program, and what to do about it."""
    number = getattr(error, "errno", None)
    path = Path(folder or "", program)
    if number == errno.ENOENT and "/" not in program:
        return "there is no such program in PATH; give its full path"
    if number == errno.ENOENT and path.exists():
        return "its first line names an interpreter that does not exist"
    if number == errno.EACCES and path.is_dir():
        return "it is a folder"
    if number == errno.EACCES:
        return "it may not be executed; chmod +x gives the permission"
    if number == errno.E2BIG:
        return "it is too large with its environment; put long input in a file and pass its name"
    if number == errno.ENOEXEC:
        return "it is no program, nor a script whose first line names its interpreter, as #!/bin/sh does"
    return str(getattr(error, "strerror", None) or error)
