"""An HTTP server that records what it is sent."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver(ThreadingHTTPServer):
    """An HTTP server that records requests and answers as told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        self.location = ""
        # The next request is recorded and answered when this is set.
        self.answer_now: threading.Event | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self._record()

    def do_GET(self) -> None:
        self._record()

    def _record(self) -> None:
        server = self.server
        assert isinstance(server, Receiver)
        answer_now, server.answer_now = server.answer_now, None
        if answer_now is not None:
            answer_now.wait(30)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        server.requests.append({"path": self.path, "headers": dict(self.headers), "body": body.decode()})
        status = server.statuses.pop(0) if server.statuses else 200
        self.send_response(status)
        if server.location:
            self.send_header("location", server.location)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass
