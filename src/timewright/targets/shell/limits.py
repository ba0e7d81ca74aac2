"""Resource limits of commands, set by a small program that then executes the command."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

PositiveInt = Annotated[int, Meta(ge=1)]

# A process with threads must not run Python between fork and exec, so a second program sets the limits and
# then executes the command. It runs with -I -S, so that it imports nothing from the command's folder.
_SOURCE = """
import json, os, resource, sys
options = json.loads(sys.argv[1])
if options["privileges"] or options["parent"]:
    import ctypes
    libc = ctypes.CDLL(None)
    if options["privileges"] and libc.prctl(38, 1, 0, 0, 0):
        sys.exit("cannot set no_new_privs")
    if options["parent"]:
        libc.prctl(1, 9, 0, 0, 0)
        if os.getppid() != options["parent"]:
            sys.exit("the scheduler process has ended")
for name, amount in options["limits"].items():
    soft, hard = resource.getrlimit(getattr(resource, name))
    amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    resource.setrlimit(getattr(resource, name), (amount, amount))
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"cannot start {sys.argv[2]!r}: {error.strerror}", file=sys.stderr)
    sys.exit(127)
"""


class CommandLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of each command; None means no limit.

    `processes` counts all processes of the same user, and does not apply to root. `new_privileges: false`
    disables setuid programs. `outlives_parent: false` kills a command when the scheduler process dies.
    """

    processes: PositiveInt | None = None
    memory_mb: PositiveInt | None = None
    open_files: PositiveInt | None = None
    cpu_seconds: PositiveInt | None = None
    file_mb: PositiveInt | None = None
    new_privileges: bool = True
    outlives_parent: bool = True

    def wrap(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Prefix the command with the program that sets the limits; unchanged if there are none."""
        if self == CommandLimits():
            return argv
        megabyte = 1024 * 1024
        limits = {
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_AS": self.memory_mb and self.memory_mb * megabyte,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_CPU": self.cpu_seconds,
            "RLIMIT_FSIZE": self.file_mb and self.file_mb * megabyte,
        }
        options = {
            "limits": {name: amount for name, amount in limits.items() if amount is not None},
            "privileges": not self.new_privileges,
            "parent": 0 if self.outlives_parent else os.getpid(),
        }
        return (sys.executable, "-I", "-S", "-c", _SOURCE, msgspec.json.encode(options).decode(), *argv)
