"""A small HTTP server for metrics, for processes without the HTTP interface."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATHS = ("/metrics", "/")
READ_TIMEOUT_S = 10.0


class MetricsServer:
    """Answers GET /metrics until closed."""

    def __init__(self, host: str, port: int, *, text: Callable[[], str]) -> None:
        self._server = _Server((host, port), _make_handler(text))
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="timewright-metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that was opened."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """An HTTP server on IPv4 or IPv6 whose threads do not block shutdown."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        import socket

        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)


def _make_handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class MetricsHandler(BaseHTTPRequestHandler):
        """Handles one scrape."""

        timeout = READ_TIMEOUT_S

        def do_GET(self) -> None:
            """Send the metrics."""
            found = self.path.partition("?")[0] in PATHS
            body = (text() if found else "not found; use /metrics\n").encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Log nothing: scrapes come every few seconds."""

    return MetricsHandler
