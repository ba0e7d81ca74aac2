"""A visitor at the HTTP door: sends one request at a time to the application itself, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from tests.operations.house import House
from timewright.doors.http.app import HttpDoor
from timewright.operations.access import EVERYTHING, Caller

ADA = Caller(actor="ada", scopes=EVERYTHING, local=True)
HOST = "127.0.0.1:7411"


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Visitor:
    """Asks a door; `headers` are sent with every request."""

    def __init__(self, door: Any, headers: Mapping[str, str] | None = None) -> None:
        self.door = door
        self.headers = {"host": HOST, **(headers or {})}
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def ask(
        self, method: str, path: str, data: Any = None, headers: Mapping[str, str | None] | None = None
    ) -> Answer:
        """Ask with a JSON body, or without one."""
        body = b"" if data is None else json.dumps(data).encode()
        kind = {} if data is None else {"content-type": "application/json"}
        sent = {**self.headers, **kind, **(headers or {})}
        pairs = [(name, value) for name, value in sent.items() if value is not None]
        return self.send(method, path, body, pairs)

    def send(self, method: str, path: str, body: bytes, headers: Iterable[tuple[str, str]]) -> Answer:
        """Send anything at all."""
        raw, _, query = path.partition("?")
        pairs = [(name.lower(), value) for name, value in headers]
        measured = not body or any(name == "content-length" for name, _ in pairs)
        scope = {
            "type": "http",
            # A body that does not say how long it is comes by a later version.
            "http_version": "1.1" if measured else "2",
            "method": method,
            "path": raw,
            "raw_path": raw.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "root_path": "",
            "scheme": "http",
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs],
        }
        return self._loop.run_until_complete(self._sent(scope, body))

    async def _sent(self, scope: dict[str, Any], body: bytes) -> Answer:
        parts: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            parts.append(message)

        await self.door(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in parts[0]["headers"]}
        return Answer(parts[0]["status"], headers, b"".join(part.get("body", b"") for part in parts[1:]))


def visiting(house: House, *, caller: Caller | None = ADA, **options: Any) -> Visitor:
    """A visitor of a house as one caller, or as whoever shows a key."""
    known: dict[str, Any] = {"callers": lambda _: caller} if caller is not None else {}
    return Visitor(HttpDoor(house.context, monotonic=house.bench.clock.monotonic, **known, **options))
