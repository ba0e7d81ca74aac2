"""A week of believable history, made by the engine itself on a clock that runs ahead."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.core.zones import zone
from timewright.engine.presence import Presence
from timewright.operations import Context, operations
from timewright.ports import Store
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock
from timewright.testing.demo_jobs import JOBS, LIMITS, WORKFLOW, Job
from timewright.testing.targets import Act, fail, hang, succeed

WEEK = 7 * DAY
STEP = 2 * HOUR
CAPACITY = 20
# Steps of workflows belong to no schedule, and follow the script without a name.
STEPS = ""
Progress = Callable[[float, str], None]
Happening = tuple[datetime, Callable[[], object]]


def make_demo(
    store: Store,
    clock: ManualClock,
    *,
    until: datetime,
    today: Callable[[], datetime] | None = None,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Fill an empty store with the week before `until`, then on to today; says what was made."""
    bench = Bench(store=store, clock=clock, name="demo-worker-1", capacity=CAPACITY)
    context = Context(store=store, ids=bench.ids, tell=bench.facts.extend)
    began = clock.now()
    _say_what_runs(bench, context, began)
    for at, act in _happenings(began, until, bench, context):
        while bench.now < at:
            bench.advance(min(STEP, at - bench.now))
            if progress is not None:
                progress((bench.now - began) / (until - began), f"{bench.now:%a %d %b %H:%M}")
        act()
        bench.tick()
    _queue(context, clock)
    if today is not None:
        bench.advance(max(today() - bench.now, timedelta(0)))
    launcher = bench.loop.launcher
    Presence(store, "demo-worker-1", clock=clock, capacity=CAPACITY, work=launcher).beat()
    return {"schedules": len(JOBS) + 1, "facts": len(bench.facts)}


def clock_changes(began: datetime, until: datetime) -> list[str]:
    """The zones of the demo whose clocks change between two instants."""
    names = sorted({str(job.ask["zone"]) for job in JOBS if "zone" in job.ask})
    return [
        n for n in names if began.astimezone(zone(n)).utcoffset() != until.astimezone(zone(n)).utcoffset()
    ]


def _say_what_runs(bench: Bench, context: Context, began: datetime) -> None:
    for name, most in LIMITS.items():
        operations["limit set"](context, {"limit": name, "most": most})
    closed = [f"{began + days * DAY:%Y-%m-%d}" for days in (2, 3)]
    holidays = {"name": "holidays", "zone": "America/New_York", "yearly": ["12-25", "01-01"], "dates": closed}
    operations["calendar put"](context, holidays)
    for job in JOBS:
        operations["schedule create"](context, {"time_limit": "1h", **job.ask})
        bench.target.script(str(job.ask["name"]), *_acts(job))
    operations["workflow put"](context, WORKFLOW)
    took = [(2 + _roll("steps", number) % 3) * MINUTE for number in range(500)]
    bench.target.script(STEPS, *[succeed({"rows": 40_000 + one.seconds * 7}, after=one) for one in took])
    operations["namespace create"](context, {"name": "staging", "description": "where things are tried"})
    staging = replace(context, namespace="staging")
    operations["schedule create"](staging, {"name": "smoke-test", "every": "30m", "note": "still standing"})


def _acts(job: Job) -> Iterator[Act]:
    """What its runs do, one after the other, the same in every demo."""
    streak = 0
    for number in range(1, 6001):
        roll = _roll(str(job.ask["name"]), number)
        took = job.takes * (0.6 + (roll % 1000) / 1000)
        if not streak and job.fails and (roll >> 10) % job.fails == 0:
            streak = 1 + (roll >> 30) % 4
        if job.hangs and roll % job.hangs == 0:
            yield hang()
        elif streak or number in job.breaks:
            streak = max(0, streak - 1)
            yield fail(job.says, after=took / 3)
        else:
            depth = round(45 + 35 * math.sin(number / 8) + (roll >> 20) % 11)
            yield succeed({"status": 200, "queue_depth": depth, "items": depth * 3}, after=took)


def _roll(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:6], "big")


def _happenings(began: datetime, until: datetime, bench: Bench, context: Context) -> list[Happening]:
    """What people, an advisor and bad luck do in the week, in order."""

    def ask(name: str, *, actor: str = "ada", origin: str = "human", **request: Any) -> Callable[[], object]:
        by = replace(context, by=replace(context.by, actor=actor, origin=origin))
        return lambda: operations[name](by, request)

    agent = {"actor": "planner", "origin": "agent"}
    return [
        (began + DAY, ask("schedule update", schedule="crm-export", every="45m", reason="needed sooner")),
        (began + DAY, ask("reminder set", text="Renew the certificate of the shop", every="2d")),
        (began + 2 * DAY, ask("schedule run", schedule="invoice-run", reason="a customer asked")),
        (began + 3 * DAY + 40 * MINUTE, lambda: bench.clock.advance(3 * HOUR)),
        (began + 4 * DAY, ask("schedule skip", schedule="nightly-report", reason="the books are closed")),
        (began + 5 * DAY, ask("schedule pause", schedule="thumbnails", reason="the media host moves house")),
        (
            began + 6 * DAY,
            ask("schedule update", actor="grace", schedule="index-refresh", jitter="1m", reason="no herd"),
        ),
        (until - 40 * MINUTE, ask("analysis submit", **agent, **_seen())),
        (until - 25 * MINUTE, ask("schedule run", schedule="month-end-close", reason="a rehearsal")),
        (until - 20 * MINUTE, ask("hint interval", **agent, **_wish())),
        (until - 12 * MINUTE, ask("reminder set", text="Call the bank about the 429s", after="2h")),
        (until - 6 * MINUTE, ask("workflow run", workflow="warehouse-load", reason="after the hotfix")),
        (until, lambda: None),
    ]


def _wish() -> dict[str, Any]:
    reason = "a sale has begun; orders come faster"
    return {"schedule": "orders-poll", "interval": "2m", "ttl": "3h", "reason": reason}


def _seen() -> dict[str, Any]:
    return {
        "schedule": "orders-poll",
        "advisor": "heuristic",
        "reasoning": "queue_depth rose from 20 to 75 within two hours; runs stayed at 2 s: look more often.",
        "proposals": ["hint interval 2m for 3h"],
        "confidence": "high",
    }


def _queue(context: Context, clock: ManualClock) -> None:
    """A queue at work: some wait, one is held by someone outside, one has given up."""
    operations["queue policy set"](context, {"queue": "mail", "max_concurrent": 3})
    people = ("ada", "grace", "edsger", "barbara", "tony", "leslie", "frances", "donald")
    for name in people:
        payload = {"to": f"{name}@example.com", "template": "welcome"}
        operations["queue add"](context, {"queue": "mail", "payload": payload})
    for _ in range(2):
        operations["queue lease"](context, {"queue": "mail", "holder": "mailer-1", "length": "30m"})
    for _ in range(3):
        leased = operations["queue lease"](context, {"queue": "mail", "holder": "mailer-2"})["leases"]
        for one in leased:
            said = {"lease": one["lease"], "failed": True, "error": "550 mailbox unavailable"}
            operations["queue release"](context, said)
        clock.advance(MINUTE)
