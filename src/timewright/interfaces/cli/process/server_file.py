"""A private file beside the store with the URL of its server; `timewright dashboard` reads it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from timewright.errors import NotFound
from timewright.interfaces.cli.process import process_command
from timewright.interfaces.cli.session import Session, key_for
from timewright.wiring import private_file

MAX_FILE_BYTES = 4096
DEFAULT_PORTS = {"http": 80, "https": 443}


class RunningServer(Struct, frozen=True):
    """The URL and process id of a server."""

    url: str
    pid: int


def write_server_file(store_url: str, server: RunningServer) -> None:
    """Write the file, readable only by its owner."""
    path = private_file(store_url, "server")
    if path is None:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        temporary.unlink()
    with os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump({"url": server.url, "pid": server.pid}, file)
    temporary.replace(path)


def read_server_file(store_url: str) -> RunningServer | None:
    """Return the running server of a store; None if there is no file or the process has ended."""
    path = private_file(store_url, "server")
    found = _read(path) if path is not None else None
    return found if found is not None and _is_alive(found.pid) else None


def remove_server_file(store_url: str) -> None:
    """Remove the file if it was written by this process."""
    path = private_file(store_url, "server")
    found = _read(path) if path is not None else None
    if path is not None and found is not None and found.pid == os.getpid():
        with suppress(OSError):
            path.unlink()


def is_same_server(url: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port.

    `localhost` is not 127.0.0.1: it may also be ::1, where another program can listen on the same port.
    """
    origins = _origin(url), _origin(other)
    return None not in origins and origins[0] == origins[1]


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    try:
        split = urlsplit(url)
        return split.scheme, split.hostname, split.port or DEFAULT_PORTS.get(split.scheme)
    except ValueError:
        return None


def _read(path: Path) -> RunningServer | None:
    try:
        with path.open(encoding="utf-8") as file:
            data = json.loads(file.read(MAX_FILE_BYTES))
        return RunningServer(str(data["url"]), int(data["pid"]))
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


@process_command()
def dashboard(session: Session, /) -> None:
    """Print a one-time login link to the dashboard of a running server."""
    from timewright.interfaces.cli.api_client import ApiClient

    url = session.server or _running_server_url(session)
    client = ApiClient(url, key=key_for(session, url))
    path = client.send("POST", "/session/links").get("link")
    if not isinstance(path, str):
        raise client.unexpected_answer("link is missing")
    link = f"{url.rstrip('/')}{path}"
    session.print_data({"link": link}, [link])


def _running_server_url(session: Session) -> str:
    found = read_server_file(session.store_url)
    if found is None:
        raise NotFound(
            f"no server is running for {session.store_url}",
            field="server",
            rule="start timewright up or serve on this store, or pass --server",
            fix=session.command("up"),
        )
    return found.url
