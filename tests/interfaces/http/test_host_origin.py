"""The Host and Origin check."""

from __future__ import annotations

import pytest

from tests.interfaces.http.http_client import HOST, HttpTestClient, client_for
from tests.operations.harness import OperationsHarness
from timewright.interfaces.http.authentication import HostOriginCheck, parse_authority
from timewright.interfaces.http.routing import routes_of
from timewright.operations import operations

OTHERS = [
    "/healthz",
    "/readyz",
    "/overdue",
    "/api/v1/events",
    "/openapi.json",
    "/docs",
    "/",
    "/session",
    "/x",
]

OURS = [
    "127.0.0.1",
    "127.0.0.1:7411",
    "localhost:7411",
    "LocalHost:7411",
    "localhost.:7411",
    "[::1]:7411",
    "localhost:65535",
]
NOT_OURS = [
    "",
    "example.com",
    "127.0.0.1.example.com:7411",
    "localhost.example.com",
    "127.0.0.2:7411",
    "127.1:7411",
    "2130706433",
    "0x7f.1",
    "0.0.0.0:7411",
    "[::]:7411",
    "[::ffff:127.0.0.1]",
    "[::1%25lo]",
    "localhost..",
    "localhost:0",
    "localhost:65536",
    "localhost:-1",
    "localhost:7411:7411",
    "localhost:",
    "localhost/",
    "user@localhost",
    "localhost\\",
    " localhost",
    "localhost ",
    "local host",
    "l\u00f6calhost",
    "localhost,example.com",
    "x" * 10_000,
]
SAME = [
    "http://127.0.0.1:7411",
    "HTTP://127.0.0.1:7411",
    "https://127.0.0.1:7411",
]
CROSS = [
    "null",
    "",
    "http://127.0.0.1",
    "http://127.0.0.1:7412",
    "http://localhost:7411",
    "http://[::1]:7411",
    "http://evil.example",
    "http://127.0.0.1:7411.evil.example",
    "http://127.0.0.1:7411@evil.example",
    "http://evil.example#127.0.0.1:7411",
    "http://127.0.0.1:7411/",
    "file://",
    "chrome-extension://abcdef",
    "ws://127.0.0.1:7411",
    "http://127.0.0.1:7411, http://127.0.0.1:7411",
]


@pytest.mark.parametrize("host", OURS)
def test_every_name_of_the_local_machine_is_allowed(client: HttpTestClient, host: str) -> None:
    assert client.request("GET", "/healthz", headers={"host": host}).status == 200


@pytest.mark.parametrize("host", NOT_OURS)
def test_another_host_is_refused(client: HttpTestClient, host: str) -> None:
    answer = client.request("GET", "/healthz", headers={"host": host})
    assert (answer.status, answer.data["code"]) == (421, "wrong_host")


def test_a_missing_or_repeated_host_is_refused(client: HttpTestClient) -> None:
    assert client.send("GET", "/healthz", b"", []).status == 421
    assert client.send("GET", "/healthz", b"", [("host", HOST), ("host", HOST)]).status == 421


@pytest.mark.parametrize("origin", SAME)
def test_a_same_origin_request_is_allowed(client: HttpTestClient, origin: str) -> None:
    assert client.request("GET", "/healthz", headers={"origin": origin}).status == 200


@pytest.mark.parametrize("origin", CROSS)
def test_a_cross_origin_request_is_refused(client: HttpTestClient, origin: str) -> None:
    answer = client.request("GET", "/healthz", headers={"origin": origin})
    assert (answer.status, answer.data["code"]) == (403, "wrong_origin")


def test_two_origins_are_refused(client: HttpTestClient) -> None:
    twice = [("host", HOST), ("origin", SAME[0]), ("origin", SAME[0])]
    assert client.send("GET", "/healthz", b"", twice).status == 403


def test_sec_fetch_headers_are_respected(client: HttpTestClient) -> None:
    for site, mode, status in (
        ("cross-site", "no-cors", 403),
        ("same-site", "cors", 403),
        ("cross-site", "navigate", 200),
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
    ):
        said = {"sec-fetch-site": site, "sec-fetch-mode": mode}
        assert client.request("GET", "/healthz", headers=said).status == status


def test_every_route_checks_the_host(harness: OperationsHarness) -> None:
    asked = [("GET", path) for path in OTHERS]
    asked += [
        (p.method, p.template.replace("{", "").replace("}", "")) for o in operations for p in routes_of(o)
    ]
    with client_for(harness) as client:
        for method, path in asked:
            assert client.request(method, path, headers={"host": "evil.example"}).status == 421, path
            assert client.request(method, path, headers={"origin": "http://evil.example"}).status == 403, path


def test_a_public_server_allows_addresses_and_its_names_only() -> None:
    check = HostOriginCheck(["scheduler.example.com"], allow_any_address=True)
    for host in ("192.0.2.7:7411", "[2001:db8::7]:7411", "scheduler.example.com", "SCHEDULER.example.com."):
        assert check.allows_host(host), host
    for host in (
        "0.0.0.0",
        "[::]",
        "evil.example",
        "scheduler.example.com.evil.example",
        "192.0.2.7.evil.example",
    ):
        assert not check.allows_host(host), host


def test_an_authority_is_a_host_with_an_optional_port() -> None:
    assert parse_authority("LOCALHOST.:80") == ("localhost", 80)
    assert parse_authority("[::1]") == ("[::1]", None)
    assert parse_authority("a:b") is None


def test_web_sockets_are_refused(harness: OperationsHarness) -> None:
    import asyncio

    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    with client_for(harness) as client:
        asyncio.run(client.app({"type": "websocket", "path": "/mcp"}, receive, send))
    assert [message["type"] for message in sent] == ["websocket.close"]
