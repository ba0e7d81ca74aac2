"""Tasks for real workers. Each call increments a counter in Redis."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery
from redis import Redis

URL = os.environ.get("TESTS_REDIS", "redis://127.0.0.1:1/0")
app = Celery("tasks", broker=URL, backend=URL)
app.conf.update(worker_prefetch_multiplier=1, broker_connection_retry_on_startup=False)


def count_call(who: str) -> int:
    """Count this call; returns its number."""
    client = Redis.from_url(URL)
    try:
        return int(client.incr(f"called:{who}"))
    finally:
        client.close()


@app.task(name="tasks.add")
def add(who: str, a: int, b: int) -> int:
    count_call(who)
    return a + b


@app.task(name="tasks.fail_first")
def fail_first(who: str) -> str:
    if count_call(who) == 1:
        raise ValueError("not the first time")
    return "the second time"


@app.task(name="tasks.hang_first")
def hang_first(who: str) -> str:
    if count_call(who) == 1:
        time.sleep(3600)
    return "the second time"


@app.task(name="tasks.slow")
def slow(who: str, seconds: float) -> str:
    count_call(who)
    time.sleep(seconds)
    count_call(f"{who}:end")
    return "slept"


def called(url: str, who: str) -> int:
    """How often a task was called."""
    client: Any = Redis.from_url(url)
    try:
        return int(client.get(f"called:{who}") or 0)
    finally:
        client.close()
