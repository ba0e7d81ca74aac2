"""Demo data: a week of realistic history, produced by the engine itself on a manual clock."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.core.zones import load_zone
from timewright.engine.maintenance import Heartbeat
from timewright.ledger.records.run_counts import count_runs
from timewright.operations import OperationContext, operations
from timewright.ports import Store
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock
from timewright.testing.demo_jobs import JOBS, LIMITS, WORKFLOW, DemoJob
from timewright.testing.targets import ScriptedOutcome, fail, hang, succeed

WEEK = 7 * DAY
MAX_STEP = 2 * HOUR
CAPACITY = 20
# Steps of workflows have no schedule name, so they follow the script under the empty name.
STEP_SCRIPT = ""
Progress = Callable[[float, str], None]
TimedAction = tuple[datetime, Callable[[], object]]


def write_demo_file(
    path: Path, *, until: datetime, today: Callable[[], datetime], progress: Progress
) -> dict[str, int]:
    """Write a store file with the week before `until`; return the counts."""
    clock = ManualClock(until - WEEK)
    # Made in memory, because in a file each of some 20,000 commits would wait for the disk.
    store = SqliteStore(clock=clock)
    try:
        counts = make_demo(store, clock, until=until, today=today, progress=progress)
        store.backup(path)
    finally:
        store.close()
    return counts


def make_demo(
    store: Store,
    clock: ManualClock,
    *,
    until: datetime,
    today: Callable[[], datetime] | None = None,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Fill an empty store with the week before `until`, then advance to today; return the counts."""
    bench = Bench(store=store, clock=clock, name="demo-worker-1", capacity=CAPACITY)
    context = OperationContext(store=store, ids=bench.ids, notify=bench.facts.extend)
    began = clock.now()
    _create_objects(bench, context, began)
    for at, act in _timed_actions(began, until, bench, context):
        while bench.now < at:
            bench.advance(min(MAX_STEP, at - bench.now))
            if progress is not None:
                progress((bench.now - began) / (until - began), f"{bench.now:%a %d %b %H:%M}")
        act()
        bench.tick()
    _queue(context, clock)
    if today is not None:
        bench.advance(max(today() - bench.now, timedelta(0)))
    count_runs(store, now=bench.now)
    launcher = bench.loop.launcher
    Heartbeat(store, "demo-worker-1", clock=clock, capacity=CAPACITY, in_flight=launcher).send_if_due()
    return {"schedules": len(JOBS) + 1, "facts": len(bench.facts)}


def clock_changes(began: datetime, until: datetime) -> list[str]:
    """Return the demo's zones whose offset changes between two instants."""
    names = sorted({str(job.request["zone"]) for job in JOBS if "zone" in job.request})
    return [
        n
        for n in names
        if began.astimezone(load_zone(n)).utcoffset() != until.astimezone(load_zone(n)).utcoffset()
    ]


def _create_objects(bench: Bench, context: OperationContext, began: datetime) -> None:
    for name, most in LIMITS.items():
        operations["limit set"](context, {"limit": name, "max_running": most})
    closed = [f"{began + days * DAY:%Y-%m-%d}" for days in (2, 3)]
    holidays = {"name": "holidays", "zone": "America/New_York", "yearly": ["12-25", "01-01"], "dates": closed}
    operations["calendar put"](context, holidays)
    for job in JOBS:
        # A long lease, because renewing every 20 seconds would be most of the work of making a demo.
        lease = {"length": "1h", "time_limit": "1h"}
        operations["schedule create"](context, {"lease": lease, **job.request})
        bench.target.script(str(job.request["name"]), *_scripted_outcomes(job))
    operations["workflow put"](context, WORKFLOW)
    took = [(2 + _hash_number("steps", number) % 3) * MINUTE for number in range(500)]
    bench.target.script(
        STEP_SCRIPT, *[succeed({"rows": 40_000 + one.seconds * 7}, after=one) for one in took]
    )
    operations["namespace create"](context, {"name": "staging", "description": "where things are tried"})
    staging = replace(context, namespace="staging")
    operations["schedule create"](staging, {"name": "smoke-test", "every": "30m", "note": "still standing"})


def _scripted_outcomes(job: DemoJob) -> Iterator[ScriptedOutcome]:
    """What the job's runs do, one after another, the same in every demo."""
    streak = 0
    for number in range(1, 6001):
        roll = _hash_number(str(job.request["name"]), number)
        took = job.duration * (0.6 + (roll % 1000) / 1000)
        if not streak and job.fails_one_in and (roll >> 10) % job.fails_one_in == 0:
            streak = 1 + (roll >> 30) % 4
        if job.hangs_one_in and roll % job.hangs_one_in == 0:
            yield hang()
        elif streak or number in job.failing_launches:
            streak = max(0, streak - 1)
            yield fail(job.error, after=took / 3)
        else:
            depth = round(45 + 35 * math.sin(number / 8) + (roll >> 20) % 11)
            yield succeed({"status": 200, "queue_depth": depth, "items": depth * 3}, after=took)


def _hash_number(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:6], "big")


def _timed_actions(
    began: datetime, until: datetime, bench: Bench, context: OperationContext
) -> list[TimedAction]:
    """The actions of users and of the planner, and one outage, in order of time."""

    def ask(name: str, *, actor: str = "ada", origin: str = "human", **request: Any) -> Callable[[], object]:
        by = replace(context, by=replace(context.by, name=actor, origin=origin))
        return lambda: operations[name](by, request)

    agent = {"actor": "planner", "origin": "agent"}
    return [
        (began + DAY, ask("schedule update", schedule="crm-export", every="45m", reason="needed sooner")),
        (began + DAY, ask("reminder set", text="Renew the certificate of the shop", every="2d")),
        (began + 2 * DAY, ask("schedule run", schedule="invoice-run", reason="a customer asked")),
        (began + 3 * DAY + 40 * MINUTE, lambda: bench.clock.advance(3 * HOUR)),
        (began + 4 * DAY, ask("schedule skip", schedule="nightly-report", reason="the books are closed")),
        (began + 5 * DAY, ask("schedule pause", schedule="thumbnails", reason="media host migration")),
        (
            began + 6 * DAY,
            ask("schedule update", actor="grace", schedule="index-refresh", jitter="1m", reason="no herd"),
        ),
        (until - 40 * MINUTE, ask("analysis submit", **agent, **_analysis())),
        (until - 25 * MINUTE, ask("schedule run", schedule="month-end-close", reason="a rehearsal")),
        (until - 20 * MINUTE, ask("hint interval", **agent, **_hint())),
        (until - 12 * MINUTE, ask("reminder set", text="Call the bank about the 429s", after="2h")),
        (until - 6 * MINUTE, ask("workflow run", workflow="warehouse-load", reason="after the hotfix")),
        (until, lambda: None),
    ]


def _hint() -> dict[str, Any]:
    reason = "a sale has begun; orders come faster"
    return {"schedule": "orders-poll", "interval": "2m", "ttl": "3h", "reason": reason}


def _analysis() -> dict[str, Any]:
    return {
        "schedule": "orders-poll",
        "advisor": "heuristic",
        "reasoning": "queue_depth rose from 20 to 75 within two hours; runs stayed at 2 s: run more often.",
        "proposals": ["hint interval 2m for 3h"],
        "confidence": "high",
    }


def _queue(context: OperationContext, clock: ManualClock) -> None:
    """Fill a queue: some entries wait, two are leased by an external worker, one is parked."""
    operations["queue policy set"](context, {"queue": "mail", "max_running": 3})
    people = ("ada", "grace", "edsger", "barbara", "tony", "leslie", "frances", "donald")
    for name in people:
        payload = {"to": f"{name}@example.com", "template": "welcome"}
        operations["queue add"](context, {"queue": "mail", "payload": payload})
    for _ in range(2):
        operations["queue lease"](context, {"queue": "mail", "holder": "mailer-1", "length": "30m"})
    for _ in range(3):
        leased = operations["queue lease"](context, {"queue": "mail", "holder": "mailer-2"})["leases"]
        for one in leased:
            release = {"lease": one["lease"], "failed": True, "error": "550 mailbox unavailable"}
            operations["queue release"](context, release)
        clock.advance(MINUTE)
