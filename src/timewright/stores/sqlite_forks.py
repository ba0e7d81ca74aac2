"""Which files this process has open, so that a fork of it does not open them again."""

from __future__ import annotations

import os
from pathlib import Path

from timewright.errors import UnsafeStore

# A fork has its parent's list, under its parent's number. Each of these is one step, so no lock is needed,
# which a fork might inherit taken.
_OPEN: list[tuple[str, int]] = []


def check_fork(path: str) -> None:
    """Refuse a file that was open in the process of which this one is a fork.

    A fork inherits what SQLite knows of its locks, and not the locks: the parent could take the log away
    while the fork still writes into it.
    """
    real, mine = _known(path)
    if any(name == real and pid != mine for name, pid in list(_OPEN)):
        raise UnsafeStore(
            f"{path} was open when this process was forked",
            field="store",
            value=path,
            rule="a SQLite file is opened after the fork, or only before it",
            fix="make the Scheduler in the worker, after the fork; or use PostgreSQL",
        )


def take(path: str) -> None:
    """Note that a file is open here."""
    _OPEN.append(_known(path))


def give_back(path: str) -> None:
    """Note that a file is closed here; in a fork, what its parent opened stays its parent's."""
    if (known := _known(path)) in _OPEN:
        _OPEN.remove(known)


def _known(path: str) -> tuple[str, int]:
    return str(Path(path).resolve()), os.getpid()
