"""Small files that only their owner may read: a secret key, the token of the local administrator."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from timewright.errors import UnsafeStore

MAX_BYTES = 65_536


def read_private(path: Path, *, allow_read: bool = False) -> str | None:
    """The text of a file, or None if it does not exist; raises if others may read or write it.

    With `allow_read`, others may read it.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _file_error(path, f"cannot be read: {error.strerror}", fix="check its permissions") from None
    with file:
        _check_private(path, os.fstat(file.fileno()), others_read=allow_read)
        raw = file.read(MAX_BYTES + 1)
    try:
        if len(raw) <= MAX_BYTES:
            return raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        pass
    raise _file_error(
        path, "is not a short text", fix=f"use another file, or remove {path} to create a new one"
    )


def write_private(path: Path, text: str, *, replace: bool = False) -> bool:
    """Write a file that only its owner may read; return False if it already exists."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as file:  # noqa: PTH123 - a handle, not a path
            file.write(f"{text}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
            return True
        # A link is atomic, and never replaces a file that another process just wrote.
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise _file_error(path, f"cannot be written: {error.strerror}", fix="use another folder") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return True


def _check_private(path: Path, status: os.stat_result, *, others_read: bool) -> None:
    if os.name != "posix":
        return
    if status.st_uid not in (os.getuid(), 0):
        raise _file_error(path, "belongs to another user", fix=f"chown {path}")
    if others_read and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _file_error(path, "may be read or written by others", fix=f"chmod 600 {path}")


def _file_error(path: Path, what: str, *, fix: str) -> UnsafeStore:
    return UnsafeStore(
        f"{path} {what}",
        field="secret_key",
        value=str(path),
        rule="only the owner may read the file",
        fix=fix,
    )
