"""A door that listens: what lingers is closed, what is malformed is refused, and it stops when told to."""

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

import pytest

from tests.doors.http.visitor import ADA
from tests.operations.house import House
from timewright.doors.http import protocols
from timewright.doors.http import server as serving
from timewright.doors.http.addresses import is_loopback, own_addresses
from timewright.doors.http.app import HttpDoor
from timewright.doors.http.client import Client
from timewright.doors.http.events import Hub
from timewright.doors.http.gate import Gate
from timewright.doors.http.server import Server, take_sockets
from timewright.errors import Conflict, Forbidden, InvalidInput, NotFound, StoreUnavailable, Unauthorized

TLS = Path(__file__).parents[2] / "targets" / "data" / "tls"


class Running:
    """A server over a furnished house."""

    def __init__(self, house: House, **options: object) -> None:
        self.hub = Hub("one")
        self.server = Server(bind="127.0.0.1", port=0)
        self.server.start(HttpDoor(house.context, hub=self.hub, **options))  # type: ignore[arg-type]
        self.url = f"http://127.0.0.1:{self.server.port}"

    def talk(self, *raw: bytes, ending: bytes = b"") -> bytes:
        """Send bytes as they are; everything that comes until the other side closes, or the end is there."""
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


@pytest.fixture(params=["FastProtocol", "PlainProtocol"])
def running(
    house: House, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Running]:
    """A server that reads HTTP as it does with the `fast` extra, and as it does without."""
    if request.param == "PlainProtocol":
        monkeypatch.setattr(serving, "protocol", lambda: protocols.PlainProtocol)
        monkeypatch.setattr(serving, "new_loop", asyncio.new_event_loop)
    else:
        assert protocols.protocol().__name__ == "FastProtocol"
    found = Running(house, callers=lambda _: ADA)
    yield found
    found.stop()


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def test_it_answers_in_both_spellings_of_this_machine(running: Running) -> None:
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
def test_what_is_not_http_is_refused_and_closed(running: Running, raw: bytes) -> None:
    try:
        answer = running.talk(raw, ending=b"\r\n\r\n")
    except ConnectionError:
        return
    assert status(answer) in (400, 421, 431, 501, 505)


def test_a_body_in_pieces_is_read_and_one_with_two_lengths_is_not_two_requests(running: Running) -> None:
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


def test_headers_behind_the_body_are_not_heard(running: Running) -> None:
    start = head(
        "POST /api/v1/schedules HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        "transfer-encoding: chunked",
    )
    body = b'{"name": "x", "every": "5m", "note": "x"}'
    pieces = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n"
    assert status(running.talk(start + pieces + b'if-match: "77"\r\n\r\n')) == 201


def test_what_never_ends_is_not_kept_for_ever(running: Running) -> None:
    line = socket.create_connection(("127.0.0.1", running.server.port), timeout=60)
    with line, contextlib.suppress(ConnectionError):
        line.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ")
        sent = 0
        while sent < 64 * 1024 * 1024:
            line.sendall(b"a" * 65536)
            sent += 65536
        raise AssertionError("it took everything")


def test_no_host_is_refused(running: Running) -> None:
    assert status(running.talk(b"GET /healthz HTTP/1.0\r\n\r\n")) == 421


def test_a_head_that_does_not_come_is_waited_for_only_so_long(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "HEAD_SECONDS", 0.2)
    for raw in (b"", b"GET /healthz HTTP/1.1\r\nhost: local"):
        began = time.monotonic()
        assert running.talk(raw) == b""
        assert time.monotonic() - began < 10


def test_a_second_head_that_does_not_come_is_not_waited_for_either(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "HEAD_SECONDS", 0.2)
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=60) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        came = b""
        while b"alive" not in came:
            came += line.recv(65536)
        line.sendall(b"GET /hea")
        assert line.recv(65536) == b""
    assert time.monotonic() - began < 10


def test_it_stops_soon_with_streams_and_idle_connections_open(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "STOP_SECONDS", 60)
    running = Running(house, callers=lambda _: ADA)
    idle = socket.create_connection(("127.0.0.1", running.server.port))
    stream = http.client.HTTPConnection("127.0.0.1", running.server.port, timeout=60)
    stream.request("GET", "/api/v1/events")
    answer = stream.getresponse()
    assert answer.read(5) == b"retry"
    began = time.monotonic()
    running.stop()
    assert time.monotonic() - began < 45, "of itself, and not when its patience has come to an end"
    assert b'"reason":"stopping"' in answer.read()
    assert not [one for one in threading.enumerate() if one.name == "timewright-door"]
    idle.close()
    stream.close()


def test_a_server_that_never_began_can_be_stopped() -> None:
    server = Server(bind="127.0.0.1", port=0)
    server.stop()
    assert all(one.fileno() == -1 for one in server.sockets)


def test_a_port_that_is_taken_is_refused_with_the_way_out() -> None:
    taken = take_sockets("127.0.0.1", 0)
    port = taken[0].getsockname()[1]
    with pytest.raises(Conflict) as refusal:
        take_sockets("127.0.0.1", port)
    assert (refusal.value.field, refusal.value.value) == ("port", port)
    assert "--port 0" in str(refusal.value.fix)
    for one in taken:
        one.close()


@pytest.mark.parametrize("bind", ["nowhere.invalid", "192.0.2.1", "300.1.1.1", "", "x" * 300, "a b"])
def test_an_address_that_is_not_ours_is_refused(bind: str) -> None:
    with pytest.raises((InvalidInput, Conflict)) as refusal:
        take_sockets(bind or "\x00", 0)
    assert refusal.value.field == "bind"


def test_everywhere_is_both_kinds_of_address(house: House) -> None:
    server = Server(bind="::", port=0)
    server.start(HttpDoor(house.context, gate=Gate(open=True)))
    for name in ("127.0.0.1", "::1"):
        line = http.client.HTTPConnection(name, server.port, timeout=60)
        line.request("GET", "/healthz")
        assert line.getresponse().status == 200
        line.close()
    server.stop()


def test_which_addresses_only_this_machine_reaches() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.0.2.1", "example.com", "")))
    assert own_addresses("127.0.0.1") == []
    assert "0.0.0.0" in own_addresses("0.0.0.0")


def test_the_client_of_the_command_line_gets_answers_and_errors_as_they_are(house: House) -> None:
    running = Running(house)
    token = house.ask("key create", key="k", role="editor")["token"]
    client = Client(running.url, key=token)
    assert client.ask("schedule list", {"limit": 1}) == house.ask("schedule list", limit=1)
    with pytest.raises(NotFound) as missing:
        client.ask("schedule get", {"schedule": "nightly-reprt"})
    assert missing.value.fix == "did you mean nightly-report?"
    with pytest.raises(InvalidInput):
        client.ask("schedule get", {"schedule": ""})
    with pytest.raises(Forbidden):
        client.ask("key list", {})
    with pytest.raises(Unauthorized):
        Client(running.url, key="tw_x_y").ask("health", {})
    running.stop()
    with pytest.raises(StoreUnavailable) as away:
        client.ask("health", {})
    assert running.url in away.value.message


@pytest.mark.parametrize("url", ["", "timewright.db", "ftp://x", "http://", "http://u:p@x", "http://x?y=1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        Client(url, key="k")


def test_tls_is_spoken_with_a_certificate_and_only_then(house: House) -> None:
    server = Server(bind="127.0.0.1", port=0, tls=(str(TLS / "good.pem"), ""))
    server.start(HttpDoor(house.context, callers=lambda _: ADA))
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
        Server(bind="127.0.0.1", port=0, tls=(str(TLS / "ca.pem"), ""))
    assert refusal.value.field == "tls_cert"


def test_without_the_fast_extra_everything_is_served_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("timewright.doors.http.fast_protocol", "uvloop"):
        monkeypatch.setitem(sys.modules, missing, None)
    assert protocols.protocol() is protocols.PlainProtocol
    loop = protocols.new_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    loop.close()
