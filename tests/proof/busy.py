"""A day of every policy there is: outages, failures, pauses, hints, edits, queues, ceilings, runs by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.conformance.databases import Database
from tests.operations.house import House
from timewright.core.moments import micros
from timewright.ids import TimedIds
from timewright.operations import Context
from timewright.operations.verify import gather
from timewright.ports import Prune, Store
from timewright.proof import History, Report, check
from timewright.testing.clock import ManualClock
from timewright.testing.targets import fail, succeed, vanish

START = datetime(2026, 3, 29, 0, 0, tzinfo=UTC)
MINUTES = timedelta(minutes=1)
SECONDS = timedelta(seconds=1)

SCHEDULES: tuple[dict[str, Any], ...] = (
    {"name": "minutely", "every": "2m"},
    {"name": "berlin", "cron": "*/15 * * * *", "zone": "Europe/Berlin", "jitter": "90s"},
    {"name": "gap", "cron": "30 2 * * *", "zone": "Europe/Berlin"},
    {"name": "early", "every": "10m", "jitter": "2m", "jitter_side": "both"},
    {"name": "stable", "every": "30m", "jitter": "5m", "offset": "stable"},
    {"name": "several", "trigger": [{"cron": "0 * * * *"}, {"every": "25m"}]},
    {"name": "once", "at": "2026-03-29T00:17:00Z"},
    {"name": "delay", "after": "11m"},
    {"name": "follower", "after": "minutely", "delay": "30s", "overlap": "allow"},
    {"name": "from-now", "every": "9m", "align": "now"},
    {"name": "thrice", "every": "20m", "max_runs": 3},
    {"name": "window", "every": "10m", "start_at": "2026-03-29T00:20:00Z", "end_at": "2026-03-29T02:00:00Z"},
    {"name": "office", "every": "12m", "calendar": {"only": ["nights"]}},
    {"name": "rolled", "every": "20m", "calendar": {"except": ["sundays"], "roll": "next"}},
    {"name": "none", "every": "5m", "catch_up": "none"},
    {"name": "all", "every": "5m", "catch_up": "all", "overlap": "queue"},
    {"name": "spread", "every": "5m", "catch_up": "spread", "overlap": "allow"},
    {"name": "slow", "every": "10m", "lease": {"time_limit": "40m"}},
    {"name": "replaced", "every": "10m", "overlap": "replace", "lease": {"time_limit": "40m"}},
    {"name": "allowed", "every": "10m", "overlap": "allow", "limits": ["api"]},
    {"name": "limited", "every": "7m", "limits": ["api"]},
    {
        "name": "failing",
        "every": "12m",
        "retry": {"max_attempts": 3, "backoff": {"base": "20s", "jitter": 0.5}},
    },
    {
        "name": "parking",
        "every": "15m",
        "retry": {
            "max_attempts": 2,
            "exhausted": "park",
            "backoff": {"kind": "ladder", "steps": ["1m", "2m"]},
        },
    },
    {"name": "needy", "every": "6m", "needs": ["limited:5m wait 2m"]},
    {"name": "needy-too", "every": "12m", "needs": ["failing:1h wait 9m else run"], "overlap": "queue"},
    {"name": "vanishing", "every": "25m", "lease": {"length": "1m"}, "overlap": "allow"},
    {"name": "careful", "every": "14m", "delivery": "at_most_once", "lease": {"length": "1m"}},
    {"name": "paused", "every": "10m"},
    {"name": "paused-until", "every": "10m"},
    {"name": "edited", "every": "10m"},
    {"name": "hinted", "every": "30m", "adaptive": True},
    {"name": "clamped", "every": "5m", "clamp": {"min": "8m", "max": "40m"}},
    {
        "name": "laddered",
        "every": "15m",
        "cadence": {"kind": "ladder", "steps": ["20m"]},
        "retry": {"max_attempts": 1},
    },
    {"name": "by-hand", "cron": "*/30 * * * *"},
    {"name": "spender", "every": "7m", "budgets": ["day"]},
)


def busy_day(store: Store, clock: ManualClock) -> House:
    """Live through it: an evening, an outage over the change of the clocks, a morning."""
    house = House(store=store, clock=clock)
    house.ask(
        "calendar put", name="nights", weekly=[{"days": list(range(7)), "start": "00:00", "end": "00:40"}]
    )
    house.ask("calendar put", name="sundays", weekly=[{"days": [6]}])
    house.ask("limit set", limit="api", most=2)
    house.ask("budget set", budget="day", unit="requests", limit=1000)
    house.ask("queue policy set", queue="mail", max_concurrent=2, ageing="1m", lease="2m")
    for words in SCHEDULES:
        house.ask("schedule create", **words, **({} if "note" in words else {"note": words["name"]}))
    _script(house)
    house.advance(minutes=31)
    _people(house)
    house.advance(minutes=14)
    house.ask("schedule create", name="dropped", every="1s", catch_up="none", note="many")
    clock.advance(hours=1)  # an outage, over the night in which the clocks go forward
    house.advance(seconds=3)
    house.ask("schedule archive", schedule="dropped")
    _queue(house)
    house.ask("schedule resume", schedule="paused")
    house.ask("limit set", limit="api", most=1)
    house.advance(minutes=25)
    store.write(lambda tx: tx.prune(Prune(older_than=START + 10 * MINUTES)))
    house.advance(minutes=3, seconds=10)
    return house


def gathered(database: Database, *, since: datetime | None = None) -> History:
    """The plain rows of a store."""
    context = Context(store=database.open(), ids=TimedIds(), tell=lambda _facts: None)
    return gather(context, since=since)


def checked(history: History, *only: str, now: datetime | None = None) -> Report:
    """What the checker says about a history; nothing here reads the clock apart."""
    at = micros(now) if now is not None else latest(history)
    return check(history, now=at, only=only, skew=0)


def latest(history: History) -> int:
    """The last instant of which a history knows anything."""
    return max(
        [run.created_at for run in history.runs]
        + [attempt.ended_at for attempt in history.attempts]
        + [line.at for line in history.audit]
    )


def _script(house: House) -> None:
    target = house.bench.target
    target.script("all", succeed(after=3 * MINUTES))
    target.script("slow", succeed(after=25 * MINUTES))
    target.script("replaced", succeed(after=15 * MINUTES))
    target.script("allowed", succeed(after=25 * MINUTES))
    target.script("limited", succeed(after=4 * MINUTES))
    target.script("failing", fail(after=5 * SECONDS))
    target.script("parking", fail())
    target.script("vanishing", vanish(), succeed())
    target.script("careful", vanish())
    target.script("laddered", fail(), fail(), succeed())


def _people(house: House) -> None:
    house.ask("schedule pause", schedule="paused", reason="maintenance")
    house.ask("schedule pause", schedule="paused-until", until="2026-03-29T00:42:00Z")
    house.ask("schedule update", schedule="edited", every="4m")
    house.ask("hint interval", schedule="hinted", interval="7m", reason="look closer")
    house.ask("schedule skip", schedule="by-hand")
    house.ask("schedule run", schedule="by-hand", client_key="ticket-1")
    house.ask("schedule run", schedule="by-hand", client_key="ticket-1")
    house.ask(
        "schedule backfill", schedule="minutely", since="2026-03-29T00:10:00Z", until="2026-03-29T00:14:00Z"
    )
    parked = house.ask("run list", schedule="parking", state="parked")["runs"]
    for run in parked:
        house.ask("run reset", run=run["id"], reason="mended")


def _queue(house: House) -> None:
    house.ask("queue add", queue="mail", payloads=[1, 2, 3, 4, 5])
    for _ in range(4):
        leases = house.ask("queue lease", queue="mail", limit=5, holder="outside")["leases"]
        for n, lease in enumerate(leases):
            if n:
                house.ask("queue release", lease=lease["lease"], failed=True, error="full")
            else:
                house.ask("queue complete", lease=lease["lease"], result={"sent": 1})
        house.advance(minutes=1)
    house.ask("queue lease", queue="mail", limit=1, holder="outside")
