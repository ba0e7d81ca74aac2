"""Canary secrets in headers, bodies, URLs and environments reach the target and appear nowhere else."""

from __future__ import annotations

import base64
import io
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from tests.faults.tools.worker_fleet import wait_until
from tests.interfaces.terminal import invoke
from tests.targets.http.scripted_server import ScriptedServer, ServerConnection, respond
from timewright import Scheduler
from timewright.operations import operations
from timewright.operations.views import RunDetail
from timewright.settings import Settings
from timewright.wiring.store_copies import StoreCopier

HEADER = "canary-header-5d41402a"
BODY = 'canary "body" & 7b52009b'
QUERY = "canary query/+%64e5"
ENVIRONMENT = "canary-environment-1\nanother line of the canary é"
CANARIES = (HEADER, BODY, QUERY, *ENVIRONMENT.splitlines())
DONE = ("succeeded", "failed", "parked", "cancelled")
# Prints the secret in full, and again around the place where its output is cut.
TALKS = """
import os, sys
echoed = os.environ["TOKEN"]
print(echoed, flush=True)
print(echoed * 200, end="")
sys.exit(3)
"""


async def echo(talk: ServerConnection) -> None:
    """Echo the whole request, as careless servers do."""
    received = talk.request
    echoed = f"{received.headers}\n{received.path}\n{received.body.decode()}".encode()
    await respond(500, echoed, content_type="text/plain", X_Request_Id=received.headers["authorization"])(
        talk
    )


@pytest.fixture
def written() -> io.StringIO:
    """Captures standard error."""
    return io.StringIO()


@pytest.fixture
def app(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: io.StringIO
) -> Iterator[Scheduler]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "stderr", written)
    app = Scheduler(place, settings=Settings(shell=True, log="json", log_level="debug"))
    yield app
    app.stop(wait=timedelta(0))


def finish(app: Scheduler, name: str) -> RunDetail:
    run_id = app.schedules.run(schedule=name).run.id

    def look() -> RunDetail | None:
        found = app.runs.get(run=run_id)
        return found if found.run.state in DONE else None

    found: RunDetail = wait_until(look, f"{name} to end")
    return found


def declare(app: Scheduler, url: str) -> None:
    for name, value in (("header", HEADER), ("body", BODY), ("query", QUERY), ("environment", ENVIRONMENT)):
        app.secrets.set(secret=name, value=value)
    app.schedules.create(
        name="call",
        manual=True,
        max_attempts=1,
        target={
            "kind": "http",
            "url": f"{url}?a=1&key=secret://query&b=2",
            "method": "POST",
            "headers": {"Authorization": "Bearer secret://header"},
            "body": {"deep": [{"token": "secret://body"}], "plain": "secret://"},
            "sign_with": "secret://header",
        },
    )
    shell = {
        "kind": "shell",
        "command": [sys.executable, "-c", TALKS],
        "env": {"TOKEN": "secret://environment"},
    }
    app.schedules.create(name="command", manual=True, max_attempts=1, target={**shell, "output_kb": 4})
    app.schedules.create(
        name="missing",
        manual=True,
        max_attempts=1,
        target={"kind": "shell", "command": ["true"], "env": {"TOKEN": "secret://nobody"}},
    )


def test_secrets_reach_the_target_and_nothing_else(
    app: Scheduler, place: str, tmp_path: Path, written: io.StringIO
) -> None:
    with ScriptedServer({"/hook": echo}) as peer:
        declare(app, peer.url("/hook"))
        app.start()
        called, ran, missing = (finish(app, name) for name in ("call", "command", "missing"))
        (received,) = peer.requests
    assert received.headers["authorization"] == f"Bearer {HEADER}"
    assert received.path == f"/hook?a=1&key={quote(QUERY, safe='')}&b=2"
    assert b'canary \\"body\\" & 7b52009b' in received.body
    assert b'"plain":"secret://"' in received.body

    answered = called.attempts[0].result
    assert "secret://header" in answered["body"]
    assert "secret://query" in answered["body"]
    assert "secret://body" in answered["body"]
    assert answered["headers"]["x-request-id"] == "Bearer secret://header"
    output = ran.attempts[0].result
    assert output["exit"] == 3
    assert output["output"].startswith("secret://environment\n")
    assert "bytes left out" in output["output"]
    assert missing.attempts[0].error == "secret://nobody is needed but could not be read"

    echoed = everything_said(app, place)
    app.stop(wait=timedelta(0))
    assert "attempt-started" in written.getvalue()
    kept = everything_kept(place, tmp_path)
    for canary in CANARIES:
        for spelled in spellings(canary):
            assert spelled not in echoed
            assert spelled not in written.getvalue()
            assert spelled.encode() not in kept


def spellings(canary: str) -> set[str]:
    """A canary in full, in part, and in common encodings."""
    coded = base64.b64encode(canary.encode()).decode().rstrip("=")[:-2]
    return {canary, canary[:-2], canary[2:], quote(canary, safe=""), coded, canary.replace('"', '\\"')}


def everything_said(app: Scheduler, place: str) -> str:
    """The answers of the Python and command line interfaces to every read operation."""
    runs = [row.id for row in app.runs.list().runs]
    asked: list[tuple[str, dict[str, Any]]] = [
        ("run list", {}),
        ("schedule list", {}),
        ("audit list", {}),
        ("secret list", {}),
        ("health", {}),
    ]
    asked += [(f"run {verb}", {"run": run}) for run in runs for verb in ("get", "explain")]
    names = ("call", "command", "missing")
    asked += [
        (f"schedule {verb}", {"schedule": one}) for one in names for verb in ("get", "explain", "revisions")
    ]
    echoed = [str(app.call(operation, **request)) for operation, request in asked]
    typed = [[*operation.split(), *request.values()] for operation, request in asked[:9]]
    for output in ("table", "json"):
        echoed += [str(invoke(None, *words, "-o", output, "--store", place)) for words in typed]
    assert all(operation in {one.name for one in operations} for operation, _ in asked)
    return "\n".join(echoed)


def everything_kept(place: str, folder: Path) -> bytes:
    """The bytes of the file, its WAL and a backup; on a server, every row of every table."""
    if "://" not in place:
        StoreCopier(user="ada").back_up(place, folder / "backup.db")
        with closing(sqlite3.connect(folder / "backup.db")) as connection:
            dumped = "\n".join(connection.iterdump())
        files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".key"]
        assert {path.name for path in files} >= {"store.db", "backup.db"}
        return dumped.encode() + b"".join(path.read_bytes() for path in files)
    with psycopg.connect(place) as connection:
        named = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        rows = [connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in named]
    return str(rows).encode()
