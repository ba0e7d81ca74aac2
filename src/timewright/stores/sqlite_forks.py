"""Which files this process has open, so that a fork of it does not open them again."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from timewright.errors import UnsafeStore

_OPEN: Counter[tuple[str, int]] = Counter()


def check_fork(path: str) -> None:
    """Refuse a file that was open in the process of which this one is a fork.

    A fork inherits what SQLite knows of its locks, and not the locks: the parent could take the log away
    while the fork still writes into it.
    """
    real, mine = str(Path(path).resolve()), os.getpid()
    if any(count > 0 and name == real and pid != mine for (name, pid), count in _OPEN.items()):
        raise UnsafeStore(
            f"{path} was open when this process was forked",
            field="store",
            value=path,
            rule="a SQLite file is opened after the fork, or only before it",
            fix="make the Scheduler in the worker, after the fork; or use PostgreSQL",
        )


def take(path: str) -> None:
    """Note that a file is open here."""
    _OPEN[str(Path(path).resolve()), os.getpid()] += 1


def give_back(path: str) -> None:
    """Note that a file is closed here."""
    _OPEN[str(Path(path).resolve()), os.getpid()] -= 1
