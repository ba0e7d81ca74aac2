"""Commit a small write again and again, so that the server's caches are invalid most of the time.

python -m benchmarks.parts.api_writer STORE SECONDS
"""

from __future__ import annotations

import sys
import time

import apsw


def main(arguments: list[str]) -> None:
    store_url, pause = arguments[0], float(arguments[1])
    connection = apsw.Connection(store_url)
    connection.set_busy_timeout(10_000)
    connection.execute("PRAGMA synchronous = OFF")
    while True:
        connection.execute("UPDATE schedules SET runs = runs + 1 WHERE name = 'schedule-00000999'")
        time.sleep(pause)


if __name__ == "__main__":
    main(sys.argv[1:])
