"""A small HTTP server for metrics, for processes without the HTTP interface."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from timewright.errors import Forbidden, TimewrightError, Unauthorized

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATHS = ("/metrics", "/")
READ_TIMEOUT_S = 10.0


class MetricsServer:
    """Answers GET /metrics until closed. `scrape` gets the Authorization header and may refuse it."""

    def __init__(
        self, host: str, port: int, *, scrape: Callable[[str], str], tls: ssl.SSLContext | None = None
    ) -> None:
        self._server = _Server((host, port), _make_handler(scrape), tls=tls)
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

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        *,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._tls = tls
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Handle one request; the TLS handshake is done here, on the request's own thread."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(READ_TIMEOUT_S)
        with self._tls.wrap_socket(request, server_side=True) as encrypted:
            super().finish_request(encrypted, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a broken connection or handshake is the client's error."""


def _make_handler(scrape: Callable[[str], str]) -> type[BaseHTTPRequestHandler]:
    class MetricsHandler(BaseHTTPRequestHandler):
        """Handles one scrape."""

        timeout = READ_TIMEOUT_S

        def do_GET(self) -> None:
            """Send the metrics."""
            status, text = 404, "not found; use /metrics\n"
            if self.path.partition("?")[0] in PATHS:
                status, text = _answer(scrape, self.headers.get("Authorization", ""))
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Log nothing: scrapes come every few seconds."""

    return MetricsHandler


def _answer(scrape: Callable[[str], str], authorization: str) -> tuple[int, str]:
    try:
        return 200, scrape(authorization)
    except Unauthorized as error:
        return 401, f"{error.message}\n"
    except Forbidden as error:
        return 403, f"{error.message}\n"
    except TimewrightError as error:
        return 503, f"{error.message}\n"
