"""Call an HTTP endpoint on a schedule. Here the endpoint is in this program, on loopback."""

from __future__ import annotations

import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from timewright import Scheduler

called = threading.Event()


class Report(BaseHTTPRequestHandler):
    """Responds to every POST and prints the idempotency key."""

    def do_POST(self) -> None:
        """Receive the report."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print("received", body.decode(), "key", self.headers["Idempotency-Key"][:8])
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"queue_depth": 3}')
        called.set()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def main() -> None:
    """Start the server, create the schedule, and print the stored response."""
    server = HTTPServer(("127.0.0.1", 0), Report)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    finished = threading.Event()
    app = Scheduler(Path(tempfile.mkdtemp()) / "timewright.db")
    app.on_completed(lambda _: finished.set())
    with app:
        url = f"http://127.0.0.1:{server.server_port}/report"
        app.schedules.create(
            name="report",
            trigger={"every": "1s"},
            target={"http": {"method": "POST", "url": url, "body": {"hello": 1}}},
        )
        finished.wait(10)
        (run,) = app.runs.list(schedule="report", state="succeeded", limit=1).runs
        print(app.runs.get(run=run.id).attempts[0].result["body"])
    server.shutdown()
    print("done")


if __name__ == "__main__":
    main()
