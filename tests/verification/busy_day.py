"""A busy day with every policy: outages, failures, pauses, hints, edits, queues, limits and manual runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.conformance.support.databases import Database
from tests.operations.harness import OperationsHarness
from timewright.access.credentials import new_run_token
from timewright.core.moments import to_micros
from timewright.engine.maintenance import Heartbeat
from timewright.ids import TimedIds
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import authenticate, context_for
from timewright.operations.health.verify import read_history
from timewright.ports import PruneRequest, Store
from timewright.ports.attempt_output import RunProgress
from timewright.testing.clock import ManualClock
from timewright.testing.targets import fail, succeed, vanish
from timewright.verification import History, Report, check

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
    {"name": "limited", "every": "7m", "limits": ["api"], "deadline": "3m"},
    {
        "name": "spaced",
        "every": "6m",
        "overlap": "allow",
        "limits": [{"name": "per-job", "key": "schedule.name", "max_running": 2, "rate": "1/m"}],
    },
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
    {"name": "quiet", "every": "11m", "rules": [{"if": "true", "then": "quiet"}]},
    {"name": "by-hand", "cron": "*/30 * * * *"},
    {"name": "spender", "every": "7m", "budgets": ["day"]},
)


def busy_day(store: Store, clock: ManualClock) -> OperationsHarness:
    """Run the day: an evening, an outage over a clock change, a morning."""
    harness = OperationsHarness(store=store, clock=clock)
    holder = harness.bench.loop.tick.holder
    Heartbeat(harness.store, holder, clock=harness.bench.clock, capacity=1, in_flight=()).send_if_due()
    harness.ask(
        "calendar put", name="nights", weekly=[{"days": list(range(7)), "start": "00:00", "end": "00:40"}]
    )
    harness.ask("calendar put", name="sundays", weekly=[{"days": [6]}])
    harness.ask("limit set", limit="api", max_running=2)
    harness.ask("budget set", budget="day", unit="requests", limit=1000)
    harness.ask("queue policy set", queue="mail", max_running=2, ageing="1m", lease="2m")
    for words in SCHEDULES:
        harness.ask("schedule create", **words, **({} if "note" in words else {"note": words["name"]}))
    _script(harness)
    harness.advance(minutes=31)
    _people(harness)
    _workflow(harness)
    _running_job(harness)
    harness.ask("pause", scope="queue", name="mail", reason="maintenance")
    harness.advance(minutes=14)
    harness.ask("resume", scope="queue", name="mail")
    harness.ask("schedule create", name="dropped", every="1s", catch_up="none", note="many")
    clock.advance(hours=1)  # an outage, over the night in which the clocks go forward
    harness.advance(seconds=3)
    harness.ask("schedule archive", schedule="dropped")
    _queue(harness)
    harness.ask("schedule resume", schedule="paused")
    harness.ask("limit set", limit="api", max_running=1)
    harness.advance(minutes=25)
    store.write(lambda tx: tx.prune(PruneRequest(older_than=START + 10 * MINUTES)))
    harness.advance(minutes=3, seconds=10)
    return harness


def gathered(database: Database, *, since: datetime | None = None) -> History:
    """The history of a store."""
    context = OperationContext(store=database.open(), ids=TimedIds(), notify=lambda _facts: None)
    return read_history(context, since=since)


def checked(history: History, *only: str, now: datetime | None = None) -> Report:
    """Check a history at its latest instant."""
    at = to_micros(now) if now is not None else latest(history)
    return check(history, now=at, only=only, skew=0)


def latest(history: History) -> int:
    """The latest instant in a history."""
    return max(
        [run.created_at for run in history.runs]
        + [attempt.ended_at for attempt in history.attempts]
        + [line.at for line in history.audit]
    )


def _script(harness: OperationsHarness) -> None:
    target = harness.bench.target
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


def _workflow(harness: OperationsHarness) -> None:
    """A workflow that asks a person, who answers."""
    steps = [
        {"name": "draft", "target": {"note": "a text"}},
        {"name": "check", "wait": {"answer": {}}, "needs": ["draft"]},
        {"name": "publish", "target": {"note": "published"}, "needs": ["check"]},
    ]
    harness.ask("workflow put", name="ask", steps=steps)
    harness.ask("workflow run", workflow="ask")
    harness.advance(seconds=1)
    [asked] = harness.ask("approval list")["answers"]
    harness.ask("run answer", run=asked["run"], answer="yes")


def _running_job(harness: OperationsHarness) -> None:
    """A run reports how far it is, and pauses its own schedule with its token."""
    harness.advance(minutes=10)
    [running] = harness.ask("run list", schedule="slow", state="leased")["runs"]
    run = harness.store.read(lambda tx: tx.get_runs([running["id"]]))[running["id"]]
    reported = RunProgress(run_id=run.id, fence=run.fence, at=harness.bench.now, fraction=0.5, note="half")
    harness.store.write(lambda tx: tx.put_run_rows([reported]))
    cache = harness.context.auth_cache
    assert cache is not None
    token = new_run_token(cache.keyring, run.id, run.fence, now=harness.bench.now)
    caller = authenticate(harness.context, token)
    until = (harness.bench.now + 20 * MINUTES).isoformat()
    operations["schedule pause"](context_for(harness.context, caller), {"schedule": "slow", "until": until})


def _people(harness: OperationsHarness) -> None:
    harness.ask("schedule pause", schedule="paused", reason="maintenance")
    harness.ask("schedule pause", schedule="paused-until", until="2026-03-29T00:42:00Z")
    harness.ask("schedule update", schedule="edited", every="4m")
    harness.ask("hint interval", schedule="hinted", interval="7m", reason="look closer")
    harness.ask("schedule skip", schedule="by-hand")
    harness.ask("schedule run", schedule="by-hand", client_key="ticket-1")
    harness.ask("schedule run", schedule="by-hand", client_key="ticket-1")
    harness.ask(
        "schedule backfill", schedule="minutely", since="2026-03-29T00:10:00Z", until="2026-03-29T00:14:00Z"
    )
    parked = harness.ask("run list", schedule="parking", state="parked")["runs"]
    for run in parked:
        harness.ask("run reset", run=run["id"], reason="mended")


def _queue(harness: OperationsHarness) -> None:
    harness.ask("queue add", queue="mail", payloads=[1, 2, 3, 4, 5])
    for _ in range(4):
        leases = harness.ask("queue lease", queue="mail", limit=5, holder="outside")["leases"]
        for n, lease in enumerate(leases):
            if n:
                harness.ask("queue release", lease=lease["lease"], failed=True, error="full")
            else:
                harness.ask("queue complete", lease=lease["lease"], result={"sent": 1})
        harness.advance(minutes=1)
    harness.ask("queue lease", queue="mail", limit=1, holder="outside")
