"""Limits on what a command may use: set by a small program that then becomes the command."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

Amount = Annotated[int, Meta(ge=1)]

# Between fork and exec a program with threads may run nothing of its own, so another program does it: it
# limits itself and becomes the command. It imports nothing that the command's folder could have put there.
_SOURCE = """
import json, os, resource, sys
told = json.loads(sys.argv[1])
if told["privileges"] or told["parent"]:
    import ctypes
    libc = ctypes.CDLL(None)
    if told["privileges"] and libc.prctl(38, 1, 0, 0, 0):
        sys.exit("cannot give up new privileges")
    if told["parent"]:
        libc.prctl(1, 9, 0, 0, 0)
        if os.getppid() != told["parent"]:
            sys.exit("its owner is gone")
for name, amount in told["limits"].items():
    soft, hard = resource.getrlimit(getattr(resource, name))
    amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    resource.setrlimit(getattr(resource, name), (amount, amount))
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"cannot start {sys.argv[2]!r}: {error.strerror}", file=sys.stderr)
    sys.exit(127)
"""


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each command may use; what is not said is not limited.

    `processes` counts all that the same user has, wherever they came from; it binds no administrator.
    `new_privileges: false` takes setuid programs their power. `outlives_us: false` kills a command whose
    owner was killed itself and could not do it any more.
    """

    processes: Amount | None = None
    memory_mb: Amount | None = None
    open_files: Amount | None = None
    cpu_seconds: Amount | None = None
    file_mb: Amount | None = None
    new_privileges: bool = True
    outlives_us: bool = True

    def wrap(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The command behind the program that limits it; itself when there is nothing to limit."""
        if self == Limits():
            return argv
        megabyte = 1024 * 1024
        limits = {
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_AS": self.memory_mb and self.memory_mb * megabyte,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_CPU": self.cpu_seconds,
            "RLIMIT_FSIZE": self.file_mb and self.file_mb * megabyte,
        }
        told = {
            "limits": {name: amount for name, amount in limits.items() if amount is not None},
            "privileges": not self.new_privileges,
            "parent": 0 if self.outlives_us else os.getpid(),
        }
        return (sys.executable, "-I", "-S", "-c", _SOURCE, msgspec.json.encode(told).decode(), *argv)
