"""Tracks the files that this process has open, so that a forked child does not use them."""

from __future__ import annotations

import os
from pathlib import Path

from timewright.errors import UnsafeStore

# A forked child inherits the list with its parent's pid. Every access is a single atomic operation: a lock
# might be inherited while held.
_OPEN: list[tuple[str, int]] = []


def check_fork(path: str) -> None:
    """Refuse a file that was open in the parent process when this one was forked.

    A child inherits SQLite's record of its locks, but not the locks: the parent could reset the WAL while the
    child still writes to it.
    """
    real, mine = _entry(path)
    if any(name == real and pid != mine for name, pid in list(_OPEN)):
        raise UnsafeStore(
            f"{path} was open when this process was forked",
            field="store",
            value=path,
            rule="open a SQLite file after the fork, or close it before",
            fix="create the Scheduler in the worker, after the fork; or use PostgreSQL",
        )


def register_open(path: str) -> None:
    """Record that this process opened a file."""
    _OPEN.append(_entry(path))


def register_closed(path: str) -> None:
    """Record that this process closed a file; entries of a parent process stay."""
    if (entry := _entry(path)) in _OPEN:
        _OPEN.remove(entry)


def _entry(path: str) -> tuple[str, int]:
    return str(Path(path).resolve()), os.getpid()
