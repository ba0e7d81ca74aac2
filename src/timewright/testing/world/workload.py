"""The workload of a world, drawn from a grammar: schedules, queues, limits, actors, and when it begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import micros
from timewright.testing.world import fleet
from timewright.testing.world.chance import Chance
from timewright.testing.world.clocks import HOUR
from timewright.testing.world.linked import linked
from timewright.testing.world.work import CRASHER

NAMESPACES = ("default", "acme")
QUEUES = ("mail", "crawl")
LIMITS = ("crm", "gpu")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")

# The instants at which clocks change, so that many a world lives through one.
CHANGES = tuple(
    datetime.fromisoformat(spelled).replace(tzinfo=UTC)
    for spelled in (
        "2026-03-08T07:00",
        "2026-03-29T01:00",
        "2026-04-04T15:00",
        "2026-10-03T15:30",
        "2026-10-25T01:00",
        "2026-11-01T06:00",
    )
)
CRONS = (
    "0 * * * *",
    "*/15 * * * *",
    "30 * * * *",
    "5,35 * * * *",
    "0 */2 * * *",
    "*/20 1-4 * * *",
    "0 0-23/3 * * *",
)
# Around the change of the clock; where it is not near, they hardly ever fire.
NIGHTLY = ("30 2 * * *", "15 1 * * *", "0 2 * * *", "30 1 * * *", "15 2 * * *")
INTERVALS = ("7m", "10m", "15m", "20m", "30m", "45m", "1h", "90m", "2h", "3h")


BUSY = "in a while"
# Paused from the beginning for longer than rows are written for: its instants become one gap.
GAP = "gap"


class Scenario(Struct, frozen=True, kw_only=True):
    """Everything about a world that is decided before it begins."""

    seed: int
    start: int
    length: int
    calm: float = 0.2
    quiet: float = 0.25
    instances: int = 3
    workers: int = 2
    holders: int = 1
    reapers: int = 1
    people: float = 10.0
    capacity: int = 4
    schedules: tuple[tuple[str, dict[str, Any]], ...] = ()
    queues: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    limits: tuple[tuple[str, str, int], ...] = ()
    budgets: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    keep_history: timedelta | None = None
    stormy: bool = True
    weather: float = 1.0
    is_fleet: bool = False


def scenario(seed: int, *, hours: float = 12.0, size: str = "drawn", relations: bool = True) -> Scenario:
    """The world of a seed; a `full` one has five instances, eight workers and fifty schedules.

    A `fleet` has as many of each, and its schedules come as often as those that people have. A `dense` one
    has as much in two hours as another in a day: short intervals, busy people, bad weather. With `relations`,
    one small world in four also has schedules that follow, need, and spend.
    """
    plain = dense(seed, hours=hours) if size == "dense" else _plain(seed, hours=hours, size=size)
    is_small = size in ("drawn", "dense")
    return linked(plain, often=size == "dense") if relations and is_small and seed % 4 == 1 else plain


def _plain(seed: int, *, hours: float, size: str) -> Scenario:
    chance, full, is_fleet = Chance(seed, "scenario"), size in ("full", "fleet"), size == "fleet"
    change = chance.choice(CHANGES)
    start = change - timedelta(hours=hours) * chance.uniform(0.25, 0.6)
    count = fleet.SIZE if full else chance.choice((4, 6, 8, 12, 18, 24))
    return Scenario(
        seed=seed,
        start=micros(start.replace(microsecond=0)),
        length=int(hours * HOUR),
        instances=5 if full else chance.choice((1, 2, 2, 3, 4)),
        workers=8 if full else chance.choice((0, 1, 1, 2, 4)),
        holders=1 if full else chance.choice((1, 1, 2)),
        reapers=1 if full else chance.choice((0, 0, 1)),
        people=chance.choice((3.0, 8.0, 20.0)),
        capacity=chance.choice((1, 2, 4, 8)),
        schedules=tuple(
            drawn(chance.fork(f"schedule {n}"), n, change=change, is_fleet=is_fleet) for n in range(count)
        ),
        queues=tuple((ns, q, queue_policy(chance)) for ns in NAMESPACES for q in QUEUES),
        limits=tuple((ns, name, chance.choice((1, 1, 2, 3))) for ns in NAMESPACES for name in LIMITS),
        keep_history=timedelta(hours=chance.choice((1, 3))) if chance.maybe(0.2) else None,
        is_fleet=is_fleet,
    )


def dense(seed: int, *, hours: float) -> Scenario:
    """Much in little time."""
    plain, chance = _plain(seed, hours=hours, size="dense"), Chance(seed, "dense")
    change = chance.choice(CHANGES)
    schedules = []
    for number in range(10):
        namespace, draft = drawn(chance.fork(f"schedule {number}"), number, change=change)
        if "every" in draft:
            draft["every"] = chance.choice(("40s", "1m", "2m", "5m"))
        elif "cron" in draft and draft["cron"] in CRONS:
            draft["cron"] = chance.choice(("* * * * *", "*/3 * * * *"))
        elif "after" in draft.get("trigger", {}):
            draft["trigger"] = {"after": "3m"}
        draft |= {
            "catch_up": chance.choice(("all", "all", "spread", "none")),
            "catch_up_limit": chance.choice((1, 2)),
        }
        draft |= {"catch_up_window": "3m"} if chance.maybe(0.4) else {}
        draft |= {"adaptive": True} if chance.maybe(0.4) else {}
        if not isinstance(draft.get("start_at"), str):
            draft.pop("max_runs", None)
        schedules.append((namespace, draft))
    if seed % 4 == 0:
        schedules.append(("default", {"name": GAP, "every": "1s", "max_runs": 3, "note": "often"}))
    start = micros((change - timedelta(hours=hours) * 0.4).replace(microsecond=0))
    return replace(
        plain,
        start=start,
        instances=2,
        workers=1,
        holders=1,
        reapers=seed % 2,
        people=60.0,
        schedules=tuple(schedules),
        calm=0.1,
        quiet=0.2,
        weather=6.0,
        keep_history=timedelta(minutes=20) if seed % 3 == 0 else None,
    )


def drawn(
    chance: Chance, number: int, *, change: datetime, is_fleet: bool = False
) -> tuple[str, dict[str, Any]]:
    """One schedule: its namespace, and what someone would write."""
    namespace = NAMESPACES[chance.maybe(0.25)]
    draft: dict[str, Any] = {"name": f"s{number:02d}", **policies(chance)}
    draft |= fleet.when(chance, number) if is_fleet else trigger(chance, change=change)
    if is_fleet and "max" in draft.get("clamp", {}):
        # It would have what is daily come every hour.
        del draft["clamp"]
    if draft.get("start_at") == BUSY:
        draft["start_at"] = (change - timedelta(minutes=chance.randrange(60, 120))).isoformat()
    if chance.maybe(0.06):
        draft["name"] = f"{CRASHER}-{number:02d}"
    if chance.maybe(0.2):
        draft |= {"handoff": {"payload": number}, "queue": chance.choice(QUEUES)}
    else:
        draft["note"] = f"work of {number}"
        if chance.maybe(0.2):
            draft["queue"] = chance.choice(QUEUES)
    if chance.maybe(0.25):
        draft["limits"] = chance.sample(LIMITS, chance.choice((1, 1, 2)))
    return namespace, draft


def trigger(chance: Chance, *, change: datetime) -> dict[str, Any]:
    """When it wants to run."""
    draw = chance.random()
    if draw < 0.42:
        every: dict[str, Any] = {"every": chance.choice(INTERVALS)}
        if chance.maybe(0.15):
            every["align"] = "now"
        return every
    if draw < 0.75:
        cron = chance.choice(CRONS if chance.maybe(0.6) else NIGHTLY)
        return {"cron": cron, "zone": chance.choice(ZONES)}
    if draw < 0.85:
        return {"trigger": {"after": chance.choice(("10m", "40m", "1h30m"))}}
    if draw < 0.92:
        return {"trigger": {"once": (change + timedelta(minutes=chance.randrange(240))).isoformat()}}
    if draw < 0.96:
        return {"trigger": {"manual": True}}
    # Many instants in little time: they fill the limits of catch-up and collapse into gaps.
    return {"every": chance.choice(("1s", "30s", "1m")), "max_runs": chance.choice((5, 30)), "start_at": BUSY}


def policies(chance: Chance) -> dict[str, Any]:
    """What it says about late, overlapping, failing and slow runs."""
    chosen: dict[str, Any] = {
        "overlap": chance.choice(("skip", "skip", "queue", "replace", "allow")),
        "lease": {
            "length": chance.choice(("30s", "30s", "1m", "5m")),
            "time_limit": chance.choice(("60s", "120s", "5m")),
            "grace": chance.choice(("0s", "2s", "10s")),
        },
    }
    optional: tuple[tuple[float, str, tuple[Any, ...]], ...] = (
        (0.7, "catch_up", ("none", "last", "all", "spread")),
        (0.3, "catch_up_limit", (1, 2, 5)),
        (0.2, "catch_up_window", ("10m", "1h", "6h")),
        (0.2, "grace", ("0s", "5s", "10m")),
        (0.2, "queue_limit", (1, 2, 5)),
        (0.3, "jitter", ("20s", "3m")),
        (0.05, "jitter_side", ("both",)),
        (0.1, "deadline", ("2m", "20m")),
        (0.1, "max_runs", (2, 5, 20)),
        (0.1, "disable_after", (2, 4)),
        (0.15, "delivery", ("at_most_once",)),
        (0.3, "priority", (0, 50, 200)),
        (0.15, "cadence", ({"kind": "stretch"}, {"kind": "ladder", "steps": ["1m", "10m"]})),
        (0.3, "adaptive", (True,)),
        (0.15, "clamp", ({"min": "2m"}, {"min": "5m", "max": "2h"}, {"max": "1h"})),
        (0.7, "retry", RETRIES),
    )
    for share, field, values in optional:
        if chance.maybe(share):
            chosen[field] = chance.choice(values)
    return chosen


RETRIES = (
    {"max_attempts": 1},
    {"max_attempts": 2, "backoff": {"kind": "constant", "wait": "20s"}},
    {"max_attempts": 3, "backoff": {"kind": "exponential", "base": "5s", "jitter": 0.5}},
    {"max_attempts": 3, "exhausted": "park"},
    {"max_attempts": 5, "backoff": {"kind": "ladder", "steps": ["10s", "1m", "5m"]}},
)


def queue_policy(chance: Chance) -> dict[str, Any]:
    """The standing policy of a queue."""
    return {
        "max_concurrent": chance.choice((1, 1, 2, 3)),
        "max_attempts": chance.choice((1, 2, 3)),
        "lease": chance.choice(("30s", "1m", "5m")),
        "backoff": {"kind": "exponential", "base": chance.choice(("1s", "10s"))},
        "exhausted": chance.choice(("park", "park", "fail")),
    }
