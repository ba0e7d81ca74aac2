"""Fixtures and helpers of the tests of the embedded scheduler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.faults.tools.worker_fleet import wait_until
from timewright import Scheduler
from timewright.operations.views import RunDetail

DONE = ("succeeded", "failed", "parked", "cancelled", "skipped")
QUICK = {"max_attempts": 2, "backoff": {"kind": "constant", "wait": "0.05s"}}
PLURALS = {
    "schedule": "schedules",
    "run": "runs",
    "queue": "queues",
    "hint": "hints",
    "limit": "limits",
    "calendar": "calendars",
    "group": "groups",
    "key": "keys",
    "secret": "secrets",
    "namespace": "namespaces",
}


@pytest.fixture
def app(file: str) -> Iterator[Scheduler]:
    app = Scheduler(file)
    yield app
    app.stop(wait=timedelta(0))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread may be left at the end of a test."""
    yield
    wait_until(lambda: not ours(), "every thread of ours to be gone")


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("timewright-")]


def finish(app: Scheduler, name: str) -> RunDetail:
    """Run a schedule now and wait for its end; return the run with its attempts."""
    run_id = app.schedules.run(schedule=name).run.id

    def look() -> RunDetail | None:
        found = app.runs.get(run=run_id)
        return found if found.run.state in DONE else None

    found: RunDetail = wait_until(look, f"{name} to end")
    return found
