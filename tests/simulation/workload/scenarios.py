"""Random scenarios: schedules, queues, limits, actors, and the start time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tests.simulation.model.clocks import HOUR
from tests.simulation.model.seeded_random import SeededRandom
from tests.simulation.model.work import CRASHING_PREFIX
from tests.simulation.workload import fleet
from tests.simulation.workload.dependencies import with_dependencies
from timewright.core.moments import to_micros

NAMESPACES = ("default", "acme")
QUEUES = ("mail", "crawl")
LIMITS = ("crm", "gpu")
GROUPS = ("reports", "exports")
PROVIDERS = ("openai", "bank")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")

# Clock changes of the zones; scenarios begin near one, so that many run through it.
CLOCK_CHANGES = tuple(
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
# Near the clock change; elsewhere they hardly ever run.
NIGHTLY = ("30 2 * * *", "15 1 * * *", "0 2 * * *", "30 1 * * *", "15 2 * * *")
INTERVALS = ("7m", "10m", "15m", "20m", "30m", "45m", "1h", "90m", "2h", "3h")


START_NEAR_CHANGE = "in a while"
# Paused from the start for longer than single skip rows are written: its instants become a gap row.
GAP_SCHEDULE = "gap"

FUNCTIONS = ("fetch", "clean", "send")
# The payload of entries that the workers of a queue give back every time.
RETURNED = "given back"


class Scenario(Struct, frozen=True, kw_only=True):
    """Everything about a simulation that is decided before it begins."""

    seed: int
    start: int
    length: int
    calm_share: float = 0.2
    quiet_share: float = 0.25
    instances: int = 3
    workers: int = 2
    holders: int = 1
    reapers: int = 1
    user_actions_per_hour: float = 10.0
    capacity: int = 4
    schedules: tuple[tuple[str, dict[str, Any]], ...] = ()
    queues: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    limits: tuple[tuple[str, str, int], ...] = ()
    budgets: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    keep_history: timedelta | None = None
    with_faults: bool = True
    functions: tuple[str, ...] = ()
    """The functions that schedules call; each instance offers some of them, and others after a restart."""
    workflows: tuple[dict[str, Any], ...] = ()
    """Workflows that ask a person; a simulated one answers."""
    fault_rate: float = 1.0
    is_fleet: bool = False
    pauses: bool = False
    """Whether a user pauses groups, queues, namespaces and everything, and incidents are looked for."""


def draw_scenario(
    seed: int, *, hours: float = 12.0, size: str = "drawn", dependencies: bool = True
) -> Scenario:
    """Draw the scenario of a seed; a `full` one has five instances, eight workers and fifty schedules.

    A `fleet` has as many of each, with schedules as in real use. A `dense` one has as much in two hours as
    another in a day: short intervals, busy users, many faults. A `paused` one is dense, has pauses of every
    scope, and looks for incidents; a `returned` one is dense, and workers give entries back again and again.
    With dependencies, one small scenario in four
    also has followers, needs and budgets; in one of four, instances have different functions.
    """
    if size == "paused":
        return with_pauses(draw_dense(seed, hours=hours))
    if size == "workflow":
        return with_workflows(draw_dense(seed, hours=hours))
    if size == "limits":
        return with_keyed_limits(draw_dense(seed, hours=hours))
    if size == "returned":
        return with_returned_entries(draw_dense(seed, hours=hours))
    base = draw_dense(seed, hours=hours) if size == "dense" else _draw_base(seed, hours=hours, size=size)
    is_small = size in ("drawn", "dense")
    if is_small and seed % 4 == 2:
        return with_functions(base)
    return (
        with_dependencies(base, often=size == "dense")
        if dependencies and is_small and seed % 4 == 1
        else base
    )


def _draw_base(seed: int, *, hours: float, size: str) -> Scenario:
    rng, full, is_fleet = SeededRandom(seed, "scenario"), size in ("full", "fleet"), size == "fleet"
    change = rng.choice(CLOCK_CHANGES)
    start = change - timedelta(hours=hours) * rng.uniform(0.25, 0.6)
    count = fleet.FLEET_SIZE if full else rng.choice((4, 6, 8, 12, 18, 24))
    return Scenario(
        seed=seed,
        start=to_micros(start.replace(microsecond=0)),
        length=int(hours * HOUR),
        instances=5 if full else rng.choice((1, 2, 2, 3, 4)),
        workers=8 if full else rng.choice((0, 1, 1, 2, 4)),
        holders=1 if full else rng.choice((1, 1, 2)),
        reapers=1 if full else rng.choice((0, 0, 1)),
        user_actions_per_hour=rng.choice((3.0, 8.0, 20.0)),
        capacity=rng.choice((1, 2, 4, 8)),
        schedules=tuple(
            draw_schedule(rng.fork(f"schedule {n}"), n, change=change, is_fleet=is_fleet)
            for n in range(count)
        ),
        queues=tuple((ns, q, draw_queue_policy(rng)) for ns in NAMESPACES for q in QUEUES),
        limits=tuple((ns, name, rng.choice((1, 1, 2, 3))) for ns in NAMESPACES for name in LIMITS),
        keep_history=timedelta(hours=rng.choice((1, 3))) if rng.happens(0.2) else None,
        is_fleet=is_fleet,
    )


def with_functions(base: Scenario) -> Scenario:
    """The same scenario with schedules that call functions which only some instances have.

    Some of them also run when the first instance that can run them starts.
    """
    rng = SeededRandom(base.seed, "functions")

    def calls(draft: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in draft.items() if key != "note"}
        if rng.fork(f"start {draft['name']}").happens(0.3):
            kept["run_at_start"] = True
        return kept | {"call": rng.choice(FUNCTIONS)} if "note" in draft else draft

    schedules = tuple((namespace, calls(draft)) for namespace, draft in base.schedules)
    return replace(base, schedules=schedules, functions=FUNCTIONS)


def with_pauses(base: Scenario) -> Scenario:
    """The same scenario with groups that a user pauses; some schedules have a provider."""
    rng = SeededRandom(base.seed, "pauses")

    def grouped(draft: dict[str, Any]) -> dict[str, Any]:
        provider = {"provider": rng.choice(PROVIDERS)} if rng.happens(0.3) else {}
        return {**draft, "group": rng.choice(GROUPS), **provider}

    schedules = tuple((namespace, grouped(draft)) for namespace, draft in base.schedules)
    return replace(base, schedules=schedules, pauses=True)


def with_workflows(base: Scenario) -> Scenario:
    """Two schedules of the same scenario, and one that runs a workflow with a question and a fan-out."""
    steps: list[dict[str, Any]] = [
        {"name": "a", "target": {"note": "a"}},
        {"name": "items", "target": {"note": "{{ item }}"}, "each": {"$from": "input.items"}, "needs": ["a"]},
        {
            "name": "check",
            "needs": ["a"],
            "wait": {"answer": {"form": {"go": "boolean"}}, "event": {"name": "go"}, "until": "10m"},
        },
        {"name": "publish", "target": {"note": "publish"}, "needs": ["check", "items"]},
        {"name": "tidy", "target": {"note": "tidy"}, "needs": ["publish"], "run_if": "always"},
    ]
    flow = {"name": "ask", "steps": steps, "input": {"items": [1, 2, 3]}}
    every = ("default", {"name": "asks", "every": "3m", "overlap": "allow", "workflow": "ask"})
    return replace(base, schedules=(*base.schedules[:2], every), workflows=(flow,))


def with_returned_entries(base: Scenario) -> Scenario:
    """Two schedules of the same scenario, and one whose queue entries are given back at every lease."""
    handoff = {"payload": RETURNED}
    returned = {"name": "returned", "every": "10m", "handoff": handoff, "queue": QUEUES[0], "overlap": "skip"}
    return replace(base, schedules=(*base.schedules[:2], ("default", returned)))


def with_keyed_limits(base: Scenario) -> Scenario:
    """A scenario whose schedules and queues have limits by key, by rate and by share."""
    rng = SeededRandom(base.seed, "limits")
    keyed = {"name": "keyed", "key": "schedule.name", "max_running": 1, "weights": {"s01": 3}}
    spaced = {
        "name": "spaced",
        "rate": rng.choice(("4/m", "10/m burst 3")),
        "key": rng.choice(("", "queue")),
    }
    schedules = []
    for namespace, draft in base.schedules:
        uses = rng.sample([keyed, spaced, "crm"], rng.randint(1, 2))
        changed = {
            **draft,
            "limits": uses,
            "overlap": rng.choice(("allow", "allow", draft.get("overlap", "skip"))),
        }
        own = rng.fork(f"own {draft['name']}")
        if changed["overlap"] == "allow" and own.happens(0.4):
            changed["max_running"] = own.randint(1, 2)
        schedules.append((namespace, changed))
    entries = {"name": "entries", "key": "payload", "max_running": 1}
    queues = [(ns, queue, {**policy, "limits": [entries]}) for ns, queue, policy in base.queues]
    return replace(base, schedules=tuple(schedules), queues=tuple(queues))


def draw_dense(seed: int, *, hours: float) -> Scenario:
    """A scenario with much happening in little time."""
    base, rng = _draw_base(seed, hours=hours, size="dense"), SeededRandom(seed, "dense")
    change = rng.choice(CLOCK_CHANGES)
    schedules = []
    for number in range(10):
        namespace, draft = draw_schedule(rng.fork(f"schedule {number}"), number, change=change)
        if "every" in draft:
            draft["every"] = rng.choice(("40s", "1m", "2m", "5m"))
        elif "cron" in draft and draft["cron"] in CRONS:
            draft["cron"] = rng.choice(("* * * * *", "*/3 * * * *"))
        elif "after" in draft.get("trigger", {}):
            draft["trigger"] = {"after": "3m"}
        draft |= {
            "catch_up": rng.choice(("all", "all", "spread", "none")),
            "catch_up_limit": rng.choice((1, 2)),
        }
        draft |= {"catch_up_window": "3m"} if rng.happens(0.4) else {}
        draft |= {"adaptive": True} if rng.happens(0.4) else {}
        if not isinstance(draft.get("start_at"), str):
            draft.pop("max_runs", None)
        schedules.append((namespace, draft))
    if seed % 4 == 0:
        schedules.append(("default", {"name": GAP_SCHEDULE, "every": "1s", "max_runs": 3, "note": "often"}))
    start = to_micros((change - timedelta(hours=hours) * 0.4).replace(microsecond=0))
    return replace(
        base,
        start=start,
        instances=2,
        workers=1,
        holders=1,
        reapers=seed % 2,
        user_actions_per_hour=60.0,
        schedules=tuple(schedules),
        calm_share=0.1,
        quiet_share=0.2,
        fault_rate=6.0,
        keep_history=timedelta(minutes=20) if seed % 3 == 0 else None,
    )


def draw_schedule(
    rng: SeededRandom, number: int, *, change: datetime, is_fleet: bool = False
) -> tuple[str, dict[str, Any]]:
    """One schedule: its namespace and its request."""
    namespace = NAMESPACES[rng.happens(0.25)]
    draft: dict[str, Any] = {"name": f"s{number:02d}", **draw_policies(rng)}
    draft |= fleet.draw_cron(rng, number) if is_fleet else draw_trigger(rng, change=change)
    if is_fleet and "max" in draft.get("clamp", {}):
        # The clamp would run a daily schedule every hour.
        del draft["clamp"]
    if draft.get("start_at") == START_NEAR_CHANGE:
        draft["start_at"] = (change - timedelta(minutes=rng.randrange(60, 120))).isoformat()
    if rng.happens(0.06):
        draft["name"] = f"{CRASHING_PREFIX}-{number:02d}"
    if rng.happens(0.2):
        draft |= {"handoff": {"payload": number}, "queue": rng.choice(QUEUES)}
    else:
        draft["note"] = f"work of {number}"
        if rng.happens(0.2):
            draft["queue"] = rng.choice(QUEUES)
        draw_thread(rng.fork("thread"), draft)
    if rng.happens(0.25):
        draft["limits"] = rng.sample(LIMITS, rng.choice((1, 1, 2)))
    return namespace, draft


def draw_thread(rng: SeededRandom, draft: dict[str, Any]) -> None:
    """Let some work be a function on a thread, perhaps without a time limit, and vary how losses count."""
    if rng.happens(0.25):
        draft["call"] = draft.pop("note")
        if rng.happens(0.3):
            draft["lease"] = {**draft["lease"], "time_limit": "none"}
    losses = rng.choice(({}, {}, {"max_losses": 0}, {"max_losses": 1}, {"losses_are_attempts": True}))
    if losses:
        draft["retry"] = {**draft.get("retry", {}), **losses}


def draw_trigger(rng: SeededRandom, *, change: datetime) -> dict[str, Any]:
    """A random trigger."""
    draw = rng.random()
    if draw < 0.42:
        every: dict[str, Any] = {"every": rng.choice(INTERVALS)}
        if rng.happens(0.15):
            every["align"] = "now"
        return every
    if draw < 0.75:
        cron = rng.choice(CRONS if rng.happens(0.6) else NIGHTLY)
        return {"cron": cron, "zone": rng.choice(ZONES)}
    if draw < 0.85:
        return {"trigger": {"after": rng.choice(("10m", "40m", "1h30m"))}}
    if draw < 0.92:
        return {"trigger": {"once": (change + timedelta(minutes=rng.randrange(240))).isoformat()}}
    if draw < 0.96:
        return {"trigger": {"manual": True}}
    # Many instants in little time: they reach the catch-up limits and become gap rows.
    return {
        "every": rng.choice(("1s", "30s", "1m")),
        "max_runs": rng.choice((5, 30)),
        "start_at": START_NEAR_CHANGE,
    }


def draw_policies(rng: SeededRandom) -> dict[str, Any]:
    """Random policies."""
    chosen: dict[str, Any] = {
        "overlap": rng.choice(("skip", "skip", "queue", "replace", "allow")),
        "lease": {
            "length": rng.choice(("30s", "30s", "1m", "5m")),
            "time_limit": rng.choice(("60s", "120s", "5m")),
            "grace": rng.choice(("0s", "2s", "10s")),
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
        (0.7, "retry", RETRY_POLICIES),
    )
    for share, field, values in optional:
        if rng.happens(share):
            chosen[field] = rng.choice(values)
    chosen.setdefault("retry", {"max_attempts": 3})
    return chosen


RETRY_POLICIES = (
    {"max_attempts": 1},
    {"max_attempts": 2, "backoff": {"kind": "constant", "wait": "20s"}},
    {"max_attempts": 3, "backoff": {"kind": "exponential", "base": "5s", "jitter": 0.5}},
    {"max_attempts": 3, "exhausted": "park"},
    {"max_attempts": 5, "backoff": {"kind": "ladder", "steps": ["10s", "1m", "5m"]}},
)


def draw_queue_policy(rng: SeededRandom) -> dict[str, Any]:
    """A random queue policy."""
    return {
        "max_running": rng.choice((1, 1, 2, 3)),
        "max_attempts": rng.choice((1, 2, 3)),
        "lease": rng.choice(("30s", "1m", "5m")),
        "backoff": {"kind": "exponential", "base": rng.choice(("1s", "10s"))},
        "exhausted": rng.choice(("park", "park", "fail")),
    }
