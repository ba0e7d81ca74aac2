"""The server: malformed requests, timeouts, binding, TLS and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.interfaces.http.http_client import ADMIN
from tests.operations.harness import OperationsHarness
from timewright.errors import Conflict, Forbidden, InvalidInput, NotFound, StoreUnavailable, Unauthorized
from timewright.interfaces.cli.api_client import ApiClient
from timewright.interfaces.http import server as serving
from timewright.interfaces.http.app import HttpApp
from timewright.interfaces.http.authentication import HostOriginCheck, own_addresses
from timewright.interfaces.http.events import EventHub
from timewright.interfaces.http.server import ServerThread, bind_sockets
from timewright.settings import is_loopback

TLS = Path(__file__).parents[3] / "targets" / "http" / "data" / "tls"


class Running:
    """A server with sample data."""

    def __init__(self, harness: OperationsHarness, **options: object) -> None:
        self.hub = EventHub("one")
        self.server = ServerThread(bind="127.0.0.1", port=0)
        self.server.start(HttpApp(harness.context, hub=self.hub, **options))  # type: ignore[arg-type]
        self.url = f"http://127.0.0.1:{self.server.port}"

    def talk(self, *raw: bytes, ending: bytes = b"") -> bytes:
        """Send raw bytes and read until the connection closes or `end` is received."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as line:
            came = b""
            for part in raw:
                line.sendall(part)
                came += line.recv(65536)
            while not (ending and ending in came):
                part = line.recv(65536)
                if not part:
                    break
                came += part
            return came

    def stop(self) -> None:
        self.hub.close()
        self.server.stop()


@pytest.fixture(params=["HttptoolsServerProtocol", "H11ServerProtocol"])
def running(
    harness: OperationsHarness, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Running]:
    """A server with each protocol: httptools (extra `fast`) and h11."""
    if request.param == "H11ServerProtocol":
        monkeypatch.setattr(serving, "protocol_class", lambda: serving.H11ServerProtocol)
        monkeypatch.setattr(serving, "new_event_loop", asyncio.new_event_loop)
    else:
        assert serving.protocol_class().__name__ == "HttptoolsServerProtocol"
    found = Running(harness, authenticate=lambda _: ADMIN)
    yield found
    found.stop()


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def test_the_server_listens_on_ipv4_and_ipv6_loopback(running: Running) -> None:
    for name in ("127.0.0.1", "::1"):
        line = http.client.HTTPConnection(name, running.server.port, timeout=60)
        line.request("GET", "/healthz")
        answer = line.getresponse()
        assert (answer.status, json.load(answer)) == (200, {"alive": True})
        assert answer.headers["date"]
        assert answer.headers["server"] is None
        line.close()


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 64,
        b"GET\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nbroken\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n na me: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: a\x00b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx y: a\r\n\r\n",
        b"POST /api/v1/schedules HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        b"POST /api/v1/schedules HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
    ],
    ids=range(14),
)
def test_data_that_is_not_http_closes_the_connection(running: Running, raw: bytes) -> None:
    try:
        answer = running.talk(raw, ending=b"\r\n\r\n")
    except ConnectionError:
        return
    assert status(answer) in (400, 421, 431, 501, 505)


def test_a_chunked_body_is_read_and_two_lengths_are_refused(running: Running) -> None:
    start = head(
        "POST /api/v1/schedules HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        "transfer-encoding: chunked",
    )
    body = b'{"name": "x", "every": "5m", "note": "x"}'
    assert status(running.talk(start + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")) == 201
    both = head(
        "POST /api/v1/schedules HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        "content-length: 6",
        "transfer-encoding: chunked",
    )
    smuggled = running.talk(both + b"0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert smuggled.count(b"HTTP/1.1") == 1


def test_trailers_are_ignored(running: Running) -> None:
    start = head(
        "POST /api/v1/schedules HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        "transfer-encoding: chunked",
    )
    body = b'{"name": "x", "every": "5m", "note": "x"}'
    pieces = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n"
    assert status(running.talk(start + pieces + b'if-match: "77"\r\n\r\n')) == 201


def test_endless_headers_are_refused(running: Running) -> None:
    line = socket.create_connection(("127.0.0.1", running.server.port), timeout=60)
    with line, contextlib.suppress(ConnectionError):
        line.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ")
        sent = 0
        while sent < 64 * 1024 * 1024:
            line.sendall(b"a" * 65536)
            sent += 65536
        raise AssertionError("it took everything")


def test_a_request_without_host_is_refused(running: Running) -> None:
    assert status(running.talk(b"GET /healthz HTTP/1.0\r\n\r\n")) == 421


def test_incomplete_headers_time_out(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEADER_TIMEOUT_S", 0.2)
    for raw in (b"", b"GET /healthz HTTP/1.1\r\nhost: local"):
        began = time.monotonic()
        assert running.talk(raw) == b""
        assert time.monotonic() - began < 10


def test_incomplete_headers_of_a_second_request_time_out(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HEADER_TIMEOUT_S", 0.2)
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=60) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        came = b""
        while b"alive" not in came:
            came += line.recv(65536)
        line.sendall(b"GET /hea")
        assert line.recv(65536) == b""
    assert time.monotonic() - began < 10


def test_the_server_stops_quickly_with_open_connections(
    harness: OperationsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "SHUTDOWN_TIMEOUT_S", 60)
    running = Running(harness, authenticate=lambda _: ADMIN)
    idle = socket.create_connection(("127.0.0.1", running.server.port))
    stream = http.client.HTTPConnection("127.0.0.1", running.server.port, timeout=60)
    stream.request("GET", "/api/v1/events")
    answer = stream.getresponse()
    assert answer.read(5) == b"retry"
    began = time.monotonic()
    running.stop()
    assert time.monotonic() - began < 45, "by itself, not after its timeout"
    assert b'"reason":"stopping"' in answer.read()
    assert not [one for one in threading.enumerate() if one.name == "timewright-http"]
    idle.close()
    stream.close()


def test_a_server_that_was_not_started_can_be_stopped() -> None:
    server = ServerThread(bind="127.0.0.1", port=0)
    server.stop()
    assert all(one.fileno() == -1 for one in server.sockets)


def test_a_port_in_use_is_refused_with_a_fix() -> None:
    taken = bind_sockets("127.0.0.1", 0)
    port = taken[0].getsockname()[1]
    with pytest.raises(Conflict) as refusal:
        bind_sockets("127.0.0.1", port)
    assert (refusal.value.field, refusal.value.value) == ("port", port)
    assert "--port 0" in str(refusal.value.fix)
    for one in taken:
        one.close()


@pytest.mark.parametrize("bind", ["nowhere.invalid", "192.0.2.1", "300.1.1.1", "", "x" * 300, "a b"])
def test_a_foreign_address_is_refused(bind: str) -> None:
    with pytest.raises((InvalidInput, Conflict)) as refusal:
        bind_sockets(bind or "\x00", 0)
    assert refusal.value.field == "bind"


def test_the_wildcard_address_accepts_ipv4_and_ipv6(harness: OperationsHarness) -> None:
    server = ServerThread(bind="::", port=0)
    server.start(HttpApp(harness.context, host_check=HostOriginCheck(allow_any_address=True)))
    for name in ("127.0.0.1", "::1"):
        line = http.client.HTTPConnection(name, server.port, timeout=60)
        line.request("GET", "/healthz")
        assert line.getresponse().status == 200
        line.close()
    server.stop()


def test_loopback_addresses_are_recognized() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.0.2.1", "example.com", "")))
    assert own_addresses("127.0.0.1") == []
    assert "0.0.0.0" in own_addresses("0.0.0.0")


def test_the_api_client_returns_answers_and_raises_errors(
    harness: OperationsHarness,
) -> None:
    running = Running(harness)
    token = harness.ask("key create", key="k", role="editor")["token"]
    client = ApiClient(running.url, key=token)
    assert client.call("schedule list", {"limit": 1}) == harness.ask("schedule list", limit=1)
    with pytest.raises(NotFound) as missing:
        client.call("schedule get", {"schedule": "nightly-reprt"})
    assert missing.value.fix == "did you mean nightly-report?"
    with pytest.raises(InvalidInput):
        client.call("schedule get", {"schedule": ""})
    with pytest.raises(Forbidden):
        client.call("key list", {})
    with pytest.raises(Unauthorized):
        ApiClient(running.url, key="tw_x_y").call("health", {})
    running.stop()
    with pytest.raises(StoreUnavailable) as away:
        client.call("health", {})
    assert running.url in away.value.message


@pytest.mark.parametrize("url", ["", "timewright.db", "ftp://x", "http://", "http://u:p@x", "http://x?y=1"])
def test_an_invalid_server_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        ApiClient(url, key="k")


def test_tls_needs_a_certificate(harness: OperationsHarness) -> None:
    server = ServerThread(bind="127.0.0.1", port=0, tls=(str(TLS / "good.pem"), ""))
    server.start(HttpApp(harness.context, authenticate=lambda _: ADMIN))
    context = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
    line = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=context)
    line.request("GET", "/healthz")
    answer = line.getresponse()
    assert (answer.status, answer.headers["strict-transport-security"]) == (200, "max-age=31536000")
    line.close()
    plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    plain.request("GET", "/healthz")
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.getresponse()
    plain.close()
    server.stop()
    with pytest.raises(InvalidInput) as refusal:
        ServerThread(bind="127.0.0.1", port=0, tls=(str(TLS / "ca.pem"), ""))
    assert refusal.value.field == "tls_cert"


def test_the_server_works_without_the_fast_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("uvicorn.protocols.http.httptools_impl", "uvloop"):
        monkeypatch.setitem(sys.modules, missing, None)
    assert serving.protocol_class() is serving.H11ServerProtocol
    loop = serving.new_event_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    loop.close()


def test_a_server_answers_although_the_host_clock_is_beyond_what_python_can_read(
    harness: OperationsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = threading.Semaphore(0)

    def unreadable() -> float:
        ticks.release()
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    # `import time` of uvicorn: a clock set to the year 2999 makes `time.time()` raise.
    monkeypatch.setattr("uvicorn.server.time", SimpleNamespace(time=unreadable))
    running = Running(harness, authenticate=lambda _: ADMIN)
    try:
        assert ticks.acquire(timeout=60)
        assert b" 200 " in running.talk(
            b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
    finally:
        running.stop()
