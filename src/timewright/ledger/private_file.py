"""Small files that only we may read: a secret key, the key of the local administrator."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from timewright.errors import UnsafeStore

LARGEST = 65_536


def read_private(path: Path, *, others_read: bool = False) -> str | None:
    """The text of a file, or nothing if it is not there; one that others may read or write is refused.

    What is no secret others may read.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}", fix="look at its permissions") from None
    with file:
        _check_private(path, os.fstat(file.fileno()), others_read=others_read)
        raw = file.read(LARGEST + 1)
    try:
        if len(raw) <= LARGEST:
            return raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        pass
    raise _unusable(path, "is not a short text", fix=f"another file, or move {path} away for a new one")


def write_private(path: Path, text: str, *, replace: bool = False) -> bool:
    """Write a file that only we may read; says whether it did, for one that is there already is left."""
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
        # A link is all or nothing, and never takes the place of what another process just wrote.
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise _unusable(path, f"cannot be written: {error.strerror}", fix="another folder") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return True


def _check_private(path: Path, found: os.stat_result, *, others_read: bool) -> None:
    if os.name != "posix":
        return
    if found.st_uid not in (os.getuid(), 0):
        raise _unusable(path, "belongs to somebody else", fix=f"chown {path}")
    if others_read and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _unusable(path, "may be read or written by others", fix=f"chmod 600 {path}")


def _unusable(path: Path, what: str, *, fix: str) -> UnsafeStore:
    return UnsafeStore(
        f"{path} {what}",
        field="secret_key",
        value=str(path),
        rule="a file that only its owner may read",
        fix=fix,
    )
