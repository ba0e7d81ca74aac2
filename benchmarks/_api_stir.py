"""Commits a small write again and again, so that nothing a door remembers of the store is true for long.

python -m benchmarks._api_stir PLACE SECONDS
"""

from __future__ import annotations

import sys
import time

import apsw


def main(arguments: list[str]) -> None:
    place, pause = arguments[0], float(arguments[1])
    connection = apsw.Connection(place)
    connection.set_busy_timeout(10_000)
    connection.execute("PRAGMA synchronous = OFF")
    while True:
        connection.execute("UPDATE schedules SET runs = runs + 1 WHERE name = 'schedule-00000999'")
        time.sleep(pause)


if __name__ == "__main__":
    main(sys.argv[1:])
