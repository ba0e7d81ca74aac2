"""Houses to be advised, on both stores; and an endpoint that answers by a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.conformance.conftest import postgres_template, postgres_url
from tests.operations.house import NOON, House
from timewright.stores.postgres import PostgresStore
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database

__all__ = ["both_houses", "endpoint", "house", "postgres_template", "postgres_url"]


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture(params=["sqlite", "postgres"])
def both_houses(request: pytest.FixtureRequest) -> Iterator[House]:
    """An empty house, once on each store."""
    if request.param == "sqlite":
        yield House()
        return
    url, template = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_template")
    with fresh_database(url, template=template) as place:
        clock = ManualClock(NOON)
        store = PostgresStore(place, clock=clock)
        try:
            yield House(store=store, clock=clock)
        finally:
            store.close()


class Endpoint:
    """A model on this machine that says what its script says, in order; the last line repeats."""

    def __init__(self) -> None:
        self.script: list[tuple[int, dict[str, str], Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.heard = threading.Event()
        owner = self

        class Answering(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                owner.asked.append(json.loads(self.rfile.read(length)))
                owner.headers.append({name.lower(): value for name, value in self.headers.items()})
                owner.paths.append(self.path)
                owner.heard.set()
                status, headers, body = owner.script.pop(0) if len(owner.script) > 1 else owner.script[0]
                text = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def says(self, *bodies: Any) -> None:
        """What it answers, one after another, each with success."""
        self.script = [(200, {}, body) for body in bodies]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()
