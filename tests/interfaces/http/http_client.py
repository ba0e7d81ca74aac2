"""HTTP clients for tests that call the ASGI application without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from tests.operations.harness import OperationsHarness
from timewright.interfaces.cli.api_client import ApiClient
from timewright.interfaces.http.app import HttpApp
from timewright.operations.access.authentication import ALL_SCOPES, Caller

ADMIN = Caller(actor="ada", scopes=ALL_SCOPES, local=True)
HOST = "127.0.0.1:7411"


class HttpAnswer(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class HttpTestClient:
    """Calls an ASGI application; `headers` are sent with every request."""

    def __init__(self, app: Any, headers: Mapping[str, str] | None = None) -> None:
        self.app = app
        self.headers = {"host": HOST, **(headers or {})}
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def request(
        self, method: str, path: str, data: Any = None, headers: Mapping[str, str | None] | None = None
    ) -> HttpAnswer:
        """Send a request with or without a JSON body."""
        body = b"" if data is None else json.dumps(data).encode()
        kind = {} if data is None else {"content-type": "application/json"}
        sent = {**self.headers, **kind, **(headers or {})}
        pairs = [(name, value) for name, value in sent.items() if value is not None]
        return self.send(method, path, body, pairs)

    def send(self, method: str, path: str, body: bytes, headers: Iterable[tuple[str, str]]) -> HttpAnswer:
        """Send raw bytes and headers."""
        raw, _, query = path.partition("?")
        pairs = [(name.lower(), value) for name, value in headers]
        measured = not body or any(name == "content-length" for name, _ in pairs)
        scope = {
            "type": "http",
            # HTTP/1.1 needs a content length; send a body without one as HTTP/2.
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

    async def _sent(self, scope: dict[str, Any], body: bytes) -> HttpAnswer:
        parts: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            parts.append(message)

        await self.app(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in parts[0]["headers"]}
        return HttpAnswer(parts[0]["status"], headers, b"".join(part.get("body", b"") for part in parts[1:]))


def client_for(
    harness: OperationsHarness, *, caller: Caller | None = ADMIN, **options: Any
) -> HttpTestClient:
    """Return a client that acts as `caller`, or authenticates with keys if it is None."""
    known: dict[str, Any] = {"authenticate": lambda _: caller} if caller is not None else {}
    return HttpTestClient(
        HttpApp(harness.context, monotonic=harness.bench.clock.monotonic, **known, **options)
    )


def create_key(harness: OperationsHarness, name: str, **fields: object) -> str:
    token: str = harness.ask("key create", key=name, **fields)["token"]
    return token


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


class ApiTestClient(ApiClient):
    """The API client of the command line, without a socket."""

    def __init__(self, client: HttpTestClient) -> None:
        super().__init__("http://127.0.0.1:7411", key="tw_none")
        self._client = client
        self.status = 0

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        answer = self._client.request(method, path, body)
        self.status = answer.status
        if answer.status >= 400:
            self.refusal = answer.data
            raise AssertionError(answer.data)
        found: dict[str, Any] = answer.data
        return found
