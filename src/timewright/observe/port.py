"""A port of its own where the numbers are read, for a process that opens no other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATHS = ("/metrics", "/")
SLOWEST_READER = 10.0


class MetricsPort:
    """Answers GET /metrics, and nothing else, until it is closed."""

    def __init__(self, host: str, port: int, *, text: Callable[[], str]) -> None:
        self._server = _Server((host, port), _answering(text))
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="timewright-metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that was opened."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """Threads that keep nobody from stopping, on either family of addresses."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        import socket

        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)


def _answering(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Answering(BaseHTTPRequestHandler):
        """One question of a scraper."""

        timeout = SLOWEST_READER

        def do_GET(self) -> None:
            """Give the numbers."""
            found = self.path.partition("?")[0] in PATHS
            body = (text() if found else "only /metrics is here\n").encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Say nothing: who scrapes does so all day."""

    return Answering
