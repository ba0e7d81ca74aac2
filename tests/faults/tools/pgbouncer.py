"""PgBouncer in transaction mode in front of a database: each transaction may use another session."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from tests.faults.scenario import CannotRun
from tests.faults.tools.ports import free_port
from tests.faults.tools.worker_fleet import TIMEOUT_S, wait_until

SEARCH_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
POOL_SIZE = 3


def find_pgbouncer() -> str:
    """The path of the program; without it the scenario cannot run."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *SEARCH_FOLDERS])
    found = shutil.which("pgbouncer", path=path)
    if found is None:
        raise CannotRun("PgBouncer is not installed (Debian, Ubuntu: apt install pgbouncer)")
    return found


@contextmanager
def pgbouncer_url(url: str) -> Iterator[str]:
    """Yield the URL of the same database behind PgBouncer, with fewer sessions than connections."""
    program, parts = find_pgbouncer(), conninfo_to_dict(url)
    folder = Path(tempfile.mkdtemp(prefix="tw-pooler-"))
    port, user = free_port(), str(parts.get("user") or "postgres")
    try:
        process = _start(program, folder, _settings(parts, port), user=user)
        try:
            wait_until(lambda: process.poll() is not None or _answers(port), "PgBouncer to answer")
            if process.poll() is not None:
                raise CannotRun(f"PgBouncer ended at once: {(folder / 'log').read_text()[-300:]}")
            name = quote(str(parts["dbname"]), safe="")
            yield f"postgresql:///{name}?host=127.0.0.1&port={port}&user={user}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_S)
    finally:
        shutil.rmtree(folder)


def _start(program: str, folder: Path, settings: str, *, user: str) -> subprocess.Popen[bytes]:
    (folder / "users").write_text(f'"{user}" ""\n')
    (folder / "pgbouncer.ini").write_text(settings.format(folder=folder))
    nobody = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # PgBouncer refuses root
    if nobody is not None:
        for path in (folder, *folder.iterdir()):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [program, str(folder / "pgbouncer.ini")],
            stdout=log,
            stderr=log,
            cwd="/",
            user=nobody and nobody.pw_uid,
            group=nobody and nobody.pw_gid,
        )


def _settings(parts: Mapping[str, object], port: int) -> str:
    where = f"host={parts.get('host') or '127.0.0.1'} port={parts.get('port') or 5432}"
    return f"""[databases]
* = {where}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {{folder}}/users
pool_mode = transaction
default_pool_size = {POOL_SIZE}
server_round_robin = 1
ignore_startup_parameters = extra_float_digits, options
"""


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
