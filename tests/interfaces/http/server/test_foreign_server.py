"""The command line as the client of a server that is not ours: which key it gets, and what it may answer."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness, sample_harness
from timewright.errors import InvalidInput, StoreUnavailable
from timewright.interfaces.cli.api_client import ApiClient, check_answer
from timewright.interfaces.cli.process.server_file import RunningServer, write_server_file
from timewright.operations import operations

ADMIN = "tw_admin_secret"
EMPTY_LIST: dict[str, Any] = {"schedules": [], "cursor": None, "unreadable": [], "total": None}


class ForeignServer:
    """A server that answers every request with the same bytes, and records the keys it was sent."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"{}"
        self.keys: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.keys.append(self.headers["authorization"])
                self.rfile.read(int(self.headers["content-length"] or 0))
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(outer.body)

            do_POST = do_GET  # noqa: N815 - the library's name

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                """Print nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[ForeignServer]:
    server = ForeignServer()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store and its administrator's key."""
    monkeypatch.chdir(tmp_path)
    for name in ("TIMEWRIGHT_KEY", "TIMEWRIGHT_SERVER", "TIMEWRIGHT_STORE"):
        monkeypatch.delenv(name, raising=False)
    invoke(None, "schedule", "create", "hello", "--every", "1h", "--note", "x")
    file = tmp_path / "timewright.db.admin"
    file.write_text(ADMIN, encoding="utf-8")
    file.chmod(0o600)
    return tmp_path


@pytest.mark.parametrize("words", [("schedule", "list"), ("dashboard",), ("schedule", "pause", "hello")])
def test_the_administrators_key_is_not_sent_to_another_server(
    server: ForeignServer, words: tuple[str, ...]
) -> None:
    said = invoke(None, "--server", server.url, *words)
    assert (said.code, server.keys) == (1, [])
    assert "no API key for the server" in said.err
    assert "TIMEWRIGHT_KEY" in said.err


def test_the_administrators_key_is_sent_to_the_running_server_of_its_store(server: ForeignServer) -> None:
    write_server_file("timewright.db", RunningServer(server.url, os.getpid()))
    server.body = json.dumps(EMPTY_LIST).encode()
    for url in (server.url, f"{server.url}/", f"HTTP://127.0.0.1:{server.port}"):
        assert invoke(None, "--server", url, "schedule", "list", "-q").code == 0, url
    assert server.keys == [f"Bearer {ADMIN}"] * 3


@pytest.mark.parametrize(
    "running",
    [
        "http://127.0.0.1:1",
        "http://localhost:{port}",
        "https://127.0.0.1:{port}",
        "http://192.0.2.1:{port}",
        "http://[::1:{port}",
    ],
)
def test_the_port_the_scheme_and_the_host_must_be_those_of_the_server(
    server: ForeignServer, running: str
) -> None:
    write_server_file("timewright.db", RunningServer(running.format(port=server.port), os.getpid()))
    assert invoke(None, "--server", server.url, "schedule", "list").code == 1
    assert server.keys == []


def test_the_key_of_a_server_that_has_ended_is_not_sent(server: ForeignServer) -> None:
    ended = 2**22 - 1  # above any process id here
    write_server_file("timewright.db", RunningServer(server.url, ended))
    assert invoke(None, "--server", server.url, "schedule", "list").code == 1
    assert server.keys == []


def test_a_key_from_the_environment_is_sent_to_any_server(server: ForeignServer) -> None:
    server.body = json.dumps(EMPTY_LIST).encode()
    said = invoke(None, "--server", server.url, "schedule", "list", "-q", TIMEWRIGHT_KEY="tw_mine")
    assert (said.code, server.keys) == (0, ["Bearer tw_mine"])


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"null",
        b"[]",
        b"7",
        b'"hello"',
        b"<html></html>",
        b'{"schedules": 5, "cursor": null, "unreadable": [], "total": null}',
        b'{"schedules": [5], "cursor": null, "unreadable": [], "total": null}',
        b'{"schedules": [{"name": "x"}], "cursor": null, "unreadable": [], "total": null}',
        b'{"schedules": [], "cursor": [1], "unreadable": [], "total": null}',
        b'{"nested": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\xff\xfe",
    ],
    ids=lambda body: repr(body[:40]),
)
@pytest.mark.parametrize("status", [200, 404])
def test_a_server_that_answers_something_else_is_reported(
    server: ForeignServer, body: bytes, status: int, output: str
) -> None:
    server.body, server.status = body, status
    said = invoke(None, "--server", server.url, "schedule", "list", "-o", output, TIMEWRIGHT_KEY="tw_mine")
    assert said.code == 1
    assert "Traceback" not in said.err
    assert server.url in said.err
    assert said.out == ""


def test_a_dashboard_link_of_another_server_is_reported(server: ForeignServer) -> None:
    for body in (b"{}", b'{"link": 5}', b"[]"):
        server.body = body
        said = invoke(None, "--server", server.url, "dashboard", TIMEWRIGHT_KEY="tw_mine")
        assert (said.code, server.url in said.err) == (1, True)


def test_every_answer_of_ours_passes_the_check() -> None:
    checked = 0
    for operation in operations:
        for example in operation.examples:
            answer = json.loads(json.dumps(operation(sample_harness().context, example)))
            check_answer(operation, answer, url="http://x")
            checked += 1
    assert checked > 100


def test_an_answer_without_a_field_of_its_type_is_refused(harness: OperationsHarness) -> None:
    operation = operations["schedule get"]
    answer = harness.ask("schedule get", schedule="nightly-report")
    del answer["schedule"]["name"]
    with pytest.raises(StoreUnavailable) as refused:
        check_answer(operation, answer, url="http://x")
    assert "schedule.name" in refused.value.message


def test_an_invalid_server_url_is_still_refused_by_its_form() -> None:
    said = invoke(None, "--server", "nonsense", "schedule", "list", TIMEWRIGHT_KEY="tw_mine")
    assert (said.code, "'nonsense' is not a URL" in said.err) == (1, True)
    with pytest.raises(InvalidInput, match="is not a server URL"):
        ApiClient("nonsense", key="k")
    assert ApiClient("http://x", key="k").url == "http://x"
