"""Where the server of a store answers: a small private file beside the store, for those on this machine."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from timewright.assembly import private_place

LARGEST = 4096


class Whereabouts(Struct, frozen=True):
    """The address of a server, and its process."""

    url: str
    pid: int


def write_whereabouts(place: str, found: Whereabouts) -> None:
    """Write where a server answers, so that only its owner can read it."""
    path = private_place(place, "server")
    if path is None:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        fresh.unlink()
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump({"url": found.url, "pid": found.pid}, file)
    fresh.replace(path)


def read_whereabouts(place: str) -> Whereabouts | None:
    """Where the server of a store answers; nothing when none does, or when its process is gone."""
    path = private_place(place, "server")
    found = _read(path) if path is not None else None
    return found if found is not None and _is_alive(found.pid) else None


def remove_whereabouts(place: str) -> None:
    """Take our own file away again, and nobody else's."""
    path = private_place(place, "server")
    found = _read(path) if path is not None else None
    if path is not None and found is not None and found.pid == os.getpid():
        with suppress(OSError):
            path.unlink()


def _read(path: Path) -> Whereabouts | None:
    try:
        with path.open(encoding="utf-8") as file:
            said = json.loads(file.read(LARGEST))
        return Whereabouts(str(said["url"]), int(said["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
