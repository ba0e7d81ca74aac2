"""The short way from a head to its answer: the same answers, in order, for the same people, counted once."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.http.test_http_callers import made_key
from tests.operations.house import House
from timewright.doors.http import protocols
from timewright.doors.http.app import HttpDoor
from timewright.doors.http.server import Server
from timewright.stores.sqlite import SqliteStore

SCHEDULES = "/api/v1/schedules"
QUESTIONS = [
    f"{SCHEDULES}/new",
    f"{SCHEDULES}/n%65w",
    f"{SCHEDULES}?limit=1",
    f"{SCHEDULES}?limit=1&tag=%3E",
    f"{SCHEDULES}?limit=0",
    f"{SCHEDULES}?limit=1&limit=2",
    f"{SCHEDULES}/nobody",
    f"{SCHEDULES}/%00",
    f"{SCHEDULES}/%ff",
    f"{SCHEDULES}/new?schedule=other",
    "/api/v1/runs?limit=2",
    "/api/v1/nothing",
    "/healthz",
    f"{SCHEDULES}/new#there",
    f"/{SCHEDULES}/new",
]


class Counted(HttpDoor):
    """A door that counts what came the long way."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.long = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.long += 1
        await super().__call__(scope, receive, send)


class Roundabout(HttpDoor):
    """A door that has no short way."""

    at_once = None  # type: ignore[assignment]


class Line:
    """A connection that stays open, and a key."""

    def __init__(self, server: Server, token: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        self._token = token
        self._came = b""

    def head(self, path: str, *more: str, method: str = "GET") -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {self._token}",
            *more,
        ]
        return "\r\n".join([*lines, "", ""]).encode()

    def send(self, raw: bytes) -> None:
        self._socket.sendall(raw)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer: its status, its headers but the date, its body."""
        while b"\r\n\r\n" not in self._came:
            self._more()
        head, _, self._came = self._came.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        assert headers.pop("date")
        length = int(headers["content-length"])
        while len(self._came) < length:
            self._more()
        body, self._came = self._came[:length], self._came[length:]
        return int(first.split()[1]), headers, body

    def ask(self, path: str, *more: str) -> tuple[int, dict[str, str], bytes]:
        self.send(self.head(path, *more))
        return self.answer()

    def close(self) -> None:
        self._socket.close()

    def _more(self) -> None:
        part = self._socket.recv(65536)
        assert part, "the other side has closed"
        self._came += part


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A house in a file, by the clock on the wall: keys are remembered by the time that really passes."""
    store = SqliteStore(tmp_path / "store.db")
    house = House(store=store)
    house.ask("schedule create", name="new", every="1h", note="x")
    house.ask("schedule create", name="other", every="1h", note="x")
    yield house
    store.close()


@pytest.fixture
def served(house: House) -> Iterator[tuple[Server, Counted]]:
    assert protocols.protocol().__name__ == "FastProtocol"
    server, door = Server(bind="127.0.0.1", port=0), Counted(house.context)
    server.start(door)
    yield server, door
    server.stop()


@pytest.fixture
def line(house: House, served: tuple[Server, Counted]) -> Iterator[Line]:
    """Someone who was let in a moment ago."""
    found = Line(served[0], made_key(house, "k", role="admin"))
    assert found.ask("/api/v1/health")[0] == 200
    yield found
    found.close()


def test_what_is_answered_the_short_way_is_what_is_answered_the_long_way(
    house: House, served: tuple[Server, Counted], line: Line
) -> None:
    plain = Server(bind="127.0.0.1", port=0)
    plain.start(Roundabout(house.context))
    other = Line(plain, line._token)
    for path in QUESTIONS:
        for _ in range(2):
            assert line.ask(path) == other.ask(path), path
    for more in ("accept: text/html", "origin: http://evil.example", "timewright-namespace: x"):
        assert line.ask(QUESTIONS[0], more) == other.ask(QUESTIONS[0], more), more
    other.close()
    plain.stop()
    before = served[1].long
    assert [line.ask(path)[0] for path in QUESTIONS[:3]] == [200, 200, 200]
    assert served[1].long == before, "these are the ones that take the short way"


def test_questions_that_come_together_are_answered_in_their_order(
    served: tuple[Server, Counted], line: Line
) -> None:
    paths = [f"{SCHEDULES}/new", f"{SCHEDULES}/other", "/healthz", f"{SCHEDULES}/nobody", f"{SCHEDULES}/new"]
    before = served[1].long
    line.send(b"".join(map(line.head, paths)))
    bodies = [line.answer()[2] for _ in paths]
    found = [re.search(rb'"name":"(\w+)"|(alive)|(nobody)', body) for body in bodies]
    assert [one[0] if one else b"" for one in found] == [
        b'"name":"new"',
        b'"name":"other"',
        b"alive",
        b"nobody",
        b'"name":"new"',
    ]
    assert served[1].long - before == 4, "of those that come together, one takes the short way"


def test_a_key_that_is_revoked_opens_nothing_by_the_short_way(
    house: House, served: tuple[Server, Counted], line: Line
) -> None:
    assert line.ask(f"{SCHEDULES}/new")[0] == 200
    house.ask("key revoke", key="k")
    assert line.ask(f"{SCHEDULES}/new")[0] == 401


def test_a_question_that_leaves_the_short_way_is_counted_once(
    house: House, served: tuple[Server, Counted]
) -> None:
    house.ask("namespace create", name="team-a", requests_per_minute=4)
    token = house.ask("key create", key="a", role="viewer", within=["team-a"])["token"]
    line = Line(served[0], token)
    assert [line.ask(f"{SCHEDULES}/nobody")[0] for _ in range(5)] == [404] * 4 + [429]
    line.close()


def test_after_a_short_answer_a_connection_rests_as_after_any_other(
    served: tuple[Server, Counted], line: Line
) -> None:
    assert line.ask(f"{SCHEDULES}/new")[0] == 200
    assert served[0]._server is not None
    protocol: Any = next(iter(served[0]._server.server_state.connections))
    assert protocol._waiting is None, "nobody waits for a head that has not begun"
    assert protocol.timeout_keep_alive_task is not None
    line.send(b"GET /healthz HTTP/1.1\r\n")
    line.send(b"Host: localhost\r\n\r\n")
    assert line.answer()[0] == 200


def test_an_answer_that_ends_its_connection_and_one_without_a_body_take_the_long_way(
    served: tuple[Server, Counted], line: Line
) -> None:
    before = served[1].long
    line.send(line.head(f"{SCHEDULES}/new", method="HEAD"))
    while b"\r\n\r\n" not in line._came:
        line._more()
    assert line._came.endswith(b"\r\n\r\n")
    line._came = b""
    assert line.ask(f"{SCHEDULES}/new", "Connection: close")[0] == 200
    assert served[1].long - before == 2
