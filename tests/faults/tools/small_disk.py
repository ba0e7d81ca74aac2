"""A small file system in memory, and a limit on the file sizes of a process."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.scenario import CannotRun


class SmallDisk:
    """A small file system that can be filled to the last byte and freed again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Fill the file system."""
        with self._ballast.open("ab", buffering=0) as ballast:
            for size in (65_536, 4096, 512, 1):
                while _write_filler(ballast.fileno(), size):
                    pass

    def free_space(self) -> None:
        """Delete the filler file."""
        self._ballast.unlink()

    def read_only(self) -> None:
        """Remount read-only; no process may have a file open for writing."""
        _mount("-o", "remount,ro", str(self.folder))


@contextmanager
def small_disk(folder: Path, *, size: str) -> Iterator[SmallDisk]:
    """Mount a small file system on a folder; needs root."""
    folder.mkdir(exist_ok=True)
    if os.geteuid() != 0:
        raise CannotRun("mounting needs root: use sudo, or a container")
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def limit_file_size(pid: int, max_bytes: int | None) -> None:
    """Limit the size of every file that a process writes; None removes the limit."""
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (unlimited if max_bytes is None else max_bytes, unlimited))


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotRun(f"mount failed: {done.stderr.strip()}")


def _write_filler(descriptor: int, size: int) -> bool:
    try:
        return os.write(descriptor, b"\0" * size) == size
    except OSError:
        return False
