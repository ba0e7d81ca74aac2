"""Whose requests are let in at all: our own hosts, our own origin, and nobody's page from elsewhere."""

from __future__ import annotations

import pytest

from tests.doors.http.visitor import HOST, Visitor, visiting
from tests.operations.house import House
from timewright.doors.http.gate import Gate, parse_authority
from timewright.doors.http.places import places_of
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
def test_we_answer_to_every_spelling_of_this_machine(visitor: Visitor, host: str) -> None:
    assert visitor.ask("GET", "/healthz", headers={"host": host}).status == 200


@pytest.mark.parametrize("host", NOT_OURS)
def test_a_name_that_is_not_ours_is_refused_before_anything_else(visitor: Visitor, host: str) -> None:
    answer = visitor.ask("GET", "/healthz", headers={"host": host})
    assert (answer.status, answer.data["code"]) == (421, "wrong_host")


def test_no_host_and_two_hosts_are_refused(visitor: Visitor) -> None:
    assert visitor.send("GET", "/healthz", b"", []).status == 421
    assert visitor.send("GET", "/healthz", b"", [("host", HOST), ("host", HOST)]).status == 421


@pytest.mark.parametrize("origin", SAME)
def test_a_page_of_ours_may_ask(visitor: Visitor, origin: str) -> None:
    assert visitor.ask("GET", "/healthz", headers={"origin": origin}).status == 200


@pytest.mark.parametrize("origin", CROSS)
def test_a_page_from_elsewhere_may_not_ask(visitor: Visitor, origin: str) -> None:
    answer = visitor.ask("GET", "/healthz", headers={"origin": origin})
    assert (answer.status, answer.data["code"]) == (403, "wrong_origin")


def test_two_origins_are_refused(visitor: Visitor) -> None:
    twice = [("host", HOST), ("origin", SAME[0]), ("origin", SAME[0])]
    assert visitor.send("GET", "/healthz", b"", twice).status == 403


def test_what_a_browser_says_about_another_site_is_believed(visitor: Visitor) -> None:
    for site, mode, status in (
        ("cross-site", "no-cors", 403),
        ("same-site", "cors", 403),
        ("cross-site", "navigate", 200),
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
    ):
        said = {"sec-fetch-site": site, "sec-fetch-mode": mode}
        assert visitor.ask("GET", "/healthz", headers=said).status == status


def test_every_route_is_behind_the_gate(house: House) -> None:
    asked = [("GET", path) for path in OTHERS]
    asked += [
        (p.method, p.template.replace("{", "").replace("}", "")) for o in operations for p in places_of(o)
    ]
    with visiting(house) as visitor:
        for method, path in asked:
            assert visitor.ask(method, path, headers={"host": "evil.example"}).status == 421, path
            assert visitor.ask(method, path, headers={"origin": "http://evil.example"}).status == 403, path


def test_an_open_door_answers_to_addresses_and_to_its_names_but_to_no_other_name() -> None:
    gate = Gate(names=frozenset({"localhost", "scheduler.example.com"}), open=True)
    for host in ("192.0.2.7:7411", "[2001:db8::7]:7411", "scheduler.example.com", "SCHEDULER.example.com."):
        assert gate.answers_to(host), host
    for host in (
        "0.0.0.0",
        "[::]",
        "evil.example",
        "scheduler.example.com.evil.example",
        "192.0.2.7.evil.example",
    ):
        assert not gate.answers_to(host), host


def test_an_authority_is_a_host_and_perhaps_a_port() -> None:
    assert parse_authority("LOCALHOST.:80") == ("localhost", 80)
    assert parse_authority("[::1]") == ("[::1]", None)
    assert parse_authority("a:b") is None


def test_there_are_no_web_sockets(house: House) -> None:
    import asyncio

    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    with visiting(house) as visitor:
        asyncio.run(visitor.door({"type": "websocket", "path": "/mcp"}, receive, send))
    assert [message["type"] for message in sent] == ["websocket.close"]
