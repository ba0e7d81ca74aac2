"""Where the files of runs are: a folder, or an object store through fsspec."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

from timewright.errors import InvalidInput, MissingExtra

RUN_ID = re.compile(r"run_[0-9A-Za-z]{1,64}")

_NO_FOLLOW = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class ArtifactFiles:
    """A place for the files of runs. `owner` is the folder of a namespace."""

    location: str

    def create(self, owner: str, run_id: str, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file, whole or not at all, and durably."""
        raise NotImplementedError

    def open(self, owner: str, run_id: str, name: str) -> BinaryIO:
        """Open a file for reading; raises FileNotFoundError."""
        raise NotImplementedError

    def runs(self, *, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
        """The owners and runs with files, in order, after one of them."""
        found: list[tuple[str, str]] = []
        for owner in self.folders():
            if owner >= after[0] and len(found) < limit:
                runs = [(owner, run) for run in self.folders(owner) if RUN_ID.fullmatch(run)]
                found += [one for one in runs if one > after]
        return found[:limit]

    def folders(self, *below: str) -> list[str]:
        """The names of the folders below the place, or below one of its folders, in order."""
        raise NotImplementedError

    def files(self, owner: str, run_id: str) -> list[tuple[str, float]]:
        """The names of a run's files, unfinished ones too, and when each was written."""
        raise NotImplementedError

    def delete(self, owner: str, run_id: str, names: Iterable[str]) -> None:
        """Delete files of a run, and its folder if it is empty then."""
        raise NotImplementedError


class FolderFiles(ArtifactFiles):
    """Files in a folder that only this user can read. Symbolic links are neither followed nor written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.location = str(root)

    def create(self, owner: str, run_id: str, name: str, chunks: Iterable[bytes]) -> None:
        """Write to a temporary file, and rename it when it is on the disk."""
        folder = self._folder(owner, run_id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check_folders(folder)
        part = folder / f".{os.urandom(8).hex()}.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            part.replace(folder / name)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        for changed in (folder, folder.parent, folder.parent.parent):
            _sync_folder(changed)

    def open(self, owner: str, run_id: str, name: str) -> BinaryIO:
        """Open a regular file for reading."""
        folder = self._folder(owner, run_id)
        self._check_folders(folder)
        return open_regular_file(folder / name)

    def folders(self, *below: str) -> list[str]:
        """The names of the folders below the place, or below one of its folders, in order."""
        try:
            with os.scandir(self.root.joinpath(*below)) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return []

    def files(self, owner: str, run_id: str) -> list[tuple[str, float]]:
        """The names of a run's files, unfinished ones too, and when each was written."""
        found = []
        with suppress(OSError), os.scandir(self._folder(owner, run_id)) as entries:
            for entry in entries:
                with suppress(OSError):
                    found.append((entry.name, entry.stat(follow_symlinks=False).st_mtime))
        return found

    def delete(self, owner: str, run_id: str, names: Iterable[str]) -> None:
        """Delete files of a run, and its folder if it is empty then."""
        folder = self._folder(owner, run_id)
        self._check_folders(folder)
        for name in names:
            with suppress(OSError):
                (folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()

    def _folder(self, owner: str, run_id: str) -> Path:
        return self.root / owner / run_id

    def _check_folders(self, folder: Path) -> None:
        if folder.is_symlink() or folder.parent.is_symlink():
            raise InvalidInput(
                f"{folder} is a symbolic link",
                field="artifacts",
                value=str(folder),
                rule="artifacts are in real folders below the configured one",
                fix="delete the link",
            )


class BucketFiles(ArtifactFiles):
    """Objects below a URL that fsspec can open, such as `s3://bucket/artifacts`."""

    def __init__(self, url: str) -> None:
        self.location = url
        try:
            url_to_fs = import_module("fsspec.core").url_to_fs
        except ImportError as missing:
            raise MissingExtra(
                "object stores need fsspec",
                field="artifacts",
                value=url,
                rule="an object store is used through fsspec",
                fix='pip install "timewright[artifacts]", and the driver of your store, such as s3fs',
            ) from missing
        try:
            self._fs, self._root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise InvalidInput(
                f"artifacts {url!r} cannot be opened: {error}",
                field="artifacts",
                value=url,
                rule="a folder, or a URL that fsspec knows",
                fix="install the driver of your store, such as s3fs or gcsfs",
            ) from error

    def create(self, owner: str, run_id: str, name: str, chunks: Iterable[bytes]) -> None:
        """Write an object; it appears when it is closed. A part of one has no reference, and is swept."""
        self._fs.makedirs(self._path(owner, run_id), exist_ok=True)
        with self._fs.open(self._path(owner, run_id, name), "wb") as file:
            for chunk in chunks:
                file.write(chunk)

    def open(self, owner: str, run_id: str, name: str) -> BinaryIO:
        """Open an object for reading."""
        opened: BinaryIO = self._fs.open(self._path(owner, run_id, name), "rb")
        return opened

    def folders(self, *below: str) -> list[str]:
        """The names of what is below the URL, or below one of its folders, in order."""
        path = self._path(*below)
        try:
            return sorted(str(one).rstrip("/").rpartition("/")[2] for one in self._fs.ls(path, detail=False))
        except FileNotFoundError:
            return []

    def files(self, owner: str, run_id: str) -> list[tuple[str, float]]:
        """The names of a run's objects, and when each was written."""
        found = []
        for name in self.folders(owner, run_id):
            with suppress(OSError, NotImplementedError):
                found.append((name, self._fs.modified(self._path(owner, run_id, name)).timestamp()))
        return found

    def delete(self, owner: str, run_id: str, names: Iterable[str]) -> None:
        """Delete objects of a run."""
        for name in names:
            with suppress(FileNotFoundError):
                self._fs.rm_file(self._path(owner, run_id, name))
        with suppress(OSError):
            self._fs.rmdir(self._path(owner, run_id))

    def _path(self, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), *parts))


def open_regular_file(path: Path) -> BinaryIO:
    """Open a regular file for reading; a symbolic link, a pipe or a device is refused."""
    try:
        descriptor = os.open(path, _NO_FOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _not_regular(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return os.fdopen(descriptor, "rb")


def _not_regular(path: Path) -> InvalidInput:
    return InvalidInput(
        f"{path} is not a regular file",
        field="path",
        value=str(path),
        rule="links, pipes and devices are not read as artifacts",
        fix="give the path of the file itself",
    )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
