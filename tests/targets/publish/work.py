"""What real workers do for these tests; each call leaves a line in the Redis it came from."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery
from redis import Redis

URL = os.environ.get("TESTS_REDIS", "redis://127.0.0.1:1/0")
app = Celery("work", broker=URL, backend=URL)
app.conf.update(worker_prefetch_multiplier=1, broker_connection_retry_on_startup=False)


def note(who: str) -> int:
    """Say that this was called, and for which time."""
    client = Redis.from_url(URL)
    try:
        return int(client.incr(f"called:{who}"))
    finally:
        client.close()


@app.task(name="work.add")
def add(who: str, a: int, b: int) -> int:
    note(who)
    return a + b


@app.task(name="work.fail_first")
def fail_first(who: str) -> str:
    if note(who) == 1:
        raise ValueError("not the first time")
    return "the second time"


@app.task(name="work.slow")
def slow(who: str, seconds: float) -> str:
    note(who)
    time.sleep(seconds)
    note(f"{who}:end")
    return "slept"


def called(url: str, who: str) -> int:
    """How often something was called."""
    client: Any = Redis.from_url(url)
    try:
        return int(client.get(f"called:{who}") or 0)
    finally:
        client.close()
