"""Little room on purpose: a small file system of our own, or a limit on the files of a process."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from timewright.testing.faults.story import CannotRun


class SmallDisk:
    """A file system with little room, in memory; it can be filled to the last byte, and emptied again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no room at all."""
        with self._ballast.open("ab", buffering=0) as ballast:
            for size in (65_536, 4096, 512, 1):
                while _took(ballast.fileno(), size):
                    pass

    def make_room(self) -> None:
        """As whoever deletes something large does."""
        self._ballast.unlink()

    def read_only(self) -> None:
        """Take no write any more; nobody may have a file open for writing."""
        _mount("-o", "remount,ro", str(self.folder))


@contextmanager
def small_disk(folder: Path, *, size: str) -> Iterator[SmallDisk]:
    """Mount one on a folder; who may not mount cannot tell the story."""
    folder.mkdir(exist_ok=True)
    if os.geteuid() != 0:
        raise CannotRun("a small file system is mounted by root alone: sudo, or a container")
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def limit_files(pid: int, most: int | None) -> None:
    """Let no file of a process grow beyond so many bytes, or let them all again."""
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (unlimited if most is None else most, unlimited))


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotRun(f"mount is refused here: {done.stderr.strip()}")


def _took(descriptor: int, size: int) -> bool:
    try:
        return os.write(descriptor, b"\0" * size) == size
    except OSError:
        return False
