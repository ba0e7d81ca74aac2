"""A harness for operations, and sample data: nine days of history and every object that the examples use."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from typing import Any

from msgspec.structs import replace

from timewright.access.keyring import derive_keyring
from timewright.core.alerts.incidents import Incident
from timewright.core.facts import Fact
from timewright.core.moments import MINUTE
from timewright.core.run.needs import needs_of_wait
from timewright.core.run.run import Failed, Run, RunState
from timewright.core.schedule.schedule import queue_limit_key
from timewright.ledger.approvals import hold_for_approval
from timewright.ledger.backfills.records import Backfill, put_backfill
from timewright.ledger.records.analyses import Analysis, ToolCall, save_analysis
from timewright.ledger.replan import Actor
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import settle_results
from timewright.ledger.workflow_runs.records import HELD_BY_WAIT, HeldVersion, WorkflowContext, find_header
from timewright.operations import OperationContext, operations
from timewright.operations.access.auth_cache import AuthCache
from timewright.operations.registry import (
    ANALYSIS,
    BACKFILL,
    FAILED_RUN,
    INCIDENT,
    LEASE,
    LEASED_RUN,
    PARKED_RUN,
    WAITING_RUN,
    WORKFLOW_RUN,
)
from timewright.operations.workflows.workflow_schedules import header_row
from timewright.ports import Grant, Store, Transaction
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock

OLD_TOKEN = "a value that nobody sees"
KEYRING = derive_keyring([b"a secret key for tests, not more"])
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)

Plain = dict[str, Any]


class OperationsHarness:
    """A bench with an operation context: call operations by name with JSON values, move time, read facts."""

    def __init__(
        self, *, start: datetime = NOON, store: Store | None = None, clock: ManualClock | None = None
    ) -> None:
        self.bench = Bench(start=start if clock is None else None, store=store, clock=clock)
        self.facts: list[Fact] = []
        self.context = OperationContext(
            store=self.bench.store,
            ids=self.bench.ids,
            by=Actor(name="ada"),
            notify=self.facts.extend,
            auth_cache=AuthCache(lambda: KEYRING, random=_deterministic_bytes(start)),
        )

    @property
    def now(self) -> datetime:
        return self.bench.now

    @property
    def store(self) -> Store:
        return self.bench.store

    def ask(self, operation: str, payload: Mapping[str, Any] | None = None, /, **fields: Any) -> Plain:
        """Call an operation with JSON values, as every interface does."""
        return operations[operation](self.context, {**(payload or {}), **fields})

    def in_namespace(self, namespace: str = "other") -> OperationsHarness:
        """Return a harness on the same store in another namespace."""
        other = object.__new__(OperationsHarness)
        other.bench = self.bench
        other.facts = []
        other.context = replace(self.context, namespace=namespace, notify=other.facts.extend)
        return other

    def advance(self, **parts: float) -> None:
        self.bench.advance(timedelta(**parts))

    def sleep(self, **parts: float) -> None:
        """Advance the clock while no engine runs."""
        self.bench.clock.advance(timedelta(**parts))


def fill_with_samples(*, store: Store | None = None, clock: ManualClock | None = None) -> OperationsHarness:
    """Return a harness with nine and a half days of history, up to noon of 10 March."""
    if clock is not None:
        clock.step(BEGAN)
    harness = OperationsHarness(start=BEGAN, store=store, clock=clock)
    harness.ask("reminder set", name="tea", text="the tea is ready", at=(NOON + 30 * MINUTE).isoformat())
    harness.ask(
        "schedule create",
        name="nightly-report",
        cron="0 3 * * *",
        http="POST https://example.com/report",
        group="reports",
        tags=["daily"],
        metadata={"team": "finance"},
        calendar={"except": []},
    )
    harness.advance(days=9, hours=11, minutes=58)
    harness.ask("schedule create", name="orders-poll", every="5m", call="orders.poll", adaptive=True)
    kept = {"group": "exports", "keep_state": True}
    harness.ask("schedule create", kept, name="paused-export", every="1h", call="export")
    harness.ask("schedule pause", schedule="paused-export", reason="the disk is full")
    harness.ask("calendar put", name="holidays", yearly=["12-25"])
    harness.ask("calendar put", name="germany", holidays="DE", years="2026-2027")
    harness.ask("calendar put", name="old-office", weekly=[{"days": [0, 1, 2, 3, 4]}])
    harness.ask("limit set", limit="crm-api", max_running=2)
    harness.ask("budget set", budget="inference", unit="tokens", limit=1_000_000)
    harness.ask("budget set", budget="old-trial", unit="requests", limit=100, period="month")
    harness.ask("provider close", provider="mail-api", until=(NOON + 10 * MINUTE).isoformat())
    harness.ask("queue policy set", queue="mail", max_running=2)
    harness.ask("key create", key="grafana-old", role="viewer")
    harness.ask("secret set", secret="old-token", value=OLD_TOKEN)
    harness.ask("namespace create", name="team-a", schedules=20)
    _entry(harness, LEASED_RUN, lease=LEASE)
    _entry(harness, PARKED_RUN, lease=f"{LEASE}2")
    _fail(harness, PARKED_RUN, "mailbox is full")
    harness.ask("queue add", queue="mail", payload={"to": "bob@example.com"})
    _failed_by_hand(harness)
    _workflow(harness)
    _analysis(harness)
    _backfill(harness)
    _waiting(harness)
    harness.advance(minutes=2)
    _alerts(harness)
    assert harness.now == NOON
    harness.facts.clear()
    return harness


@cache
def _original() -> OperationsHarness:
    return fill_with_samples()


def sample_harness() -> OperationsHarness:
    """Return a harness with sample data, copied from a cached original."""
    template: Any = _original().store
    clock = ManualClock(NOON)
    store = SqliteStore(":memory:", clock=clock)
    with store._writer.connection.backup("main", template._writer.connection, "main") as copy:
        copy.step(-1)
    return OperationsHarness(store=store, clock=clock)


def dump(store: Any) -> dict[str, Any]:
    """Return every row of a store, read directly from the database."""
    tables = (
        "schedules",
        "revisions",
        "runs",
        "attempts",
        "limits",
        "limit_holds",
        "budget_accounts",
        "budget_charges",
        "workflow_steps",
        "objects",
        "audit",
        "meta",
        "incidents",
    )
    if hasattr(store, "_writer"):
        read = store._writer.connection.execute
        return {table: sorted(map(str, read(f"SELECT * FROM {table}"))) for table in tables}
    with store._pool.connection() as connection:
        return {
            table: sorted(map(str, connection.execute(f"SELECT * FROM {table}").fetchall()))
            for table in tables
        }


def as_json(answer: Any) -> str:
    """Return the answer as JSON text; fails if it contains other than JSON values."""
    return json.dumps(answer, allow_nan=False)


def _deterministic_bytes(start: datetime) -> Callable[[int], bytes]:
    """Return a deterministic source of random bytes, seeded with the start time."""
    throws = count()
    return lambda size: hashlib.blake2b(f"{start} {next(throws)}".encode(), digest_size=size).digest()


def _entry(harness: OperationsHarness, run_id: str, *, lease: str) -> None:
    """Create a leased entry of the mail queue with a given id."""
    run = Run(
        id=run_id,
        dedupe_scope=run_id,
        planned_at=harness.now,
        fire_at=harness.now,
        state=RunState.READY,
        queue="mail",
        limit_keys=(queue_limit_key("default", "mail"),),
        exclusive=False,
        handoff=True,
        created_at=harness.now,
        payload={"to": "ada@example.com"},
    )
    until = harness.now + 5 * MINUTE
    grant = Grant(run=run, lease_id=lease, holder="worker-1", leased_at=harness.now, lease_until=until)

    def work(tx: Transaction) -> None:
        tx.add_runs([run])
        tx.get_limits(run.limit_keys, lock=True)
        tx.lease_runs([grant])

    harness.store.write(work)


def _fail(harness: OperationsHarness, run_id: str, error: str) -> None:
    run = harness.store.read(lambda tx: tx.get_runs([run_id]))[run_id]
    answer = AttemptResult(run=run, outcome=Failed(error=error, final=True), started_at=harness.now)
    settle_results(harness.store, [answer], now=harness.now)


def _failed_by_hand(harness: OperationsHarness) -> None:
    """Create a failed run of the nightly report with a given id."""
    schedule_id = harness.bench.find("nightly-report")

    def work(tx: Transaction) -> None:
        due = tx.get_schedules([schedule_id])[schedule_id]
        run = Run(
            id=FAILED_RUN,
            schedule_id=schedule_id,
            dedupe_scope=FAILED_RUN,
            planned_at=harness.now,
            fire_at=harness.now,
            state=RunState.READY,
            revision=due.schedule.revision,
            created_at=harness.now,
        )
        tx.add_runs([run])
        until = harness.now + MINUTE
        tx.lease_runs(
            [Grant(run=run, lease_id=f"{LEASE}3", holder="ada", leased_at=harness.now, lease_until=until)]
        )

    harness.store.write(work)
    _fail(harness, FAILED_RUN, "502 Bad Gateway")


def _workflow(harness: OperationsHarness) -> None:
    """Create a workflow, and a run of it with a given id that waits for approval."""
    harness.ask(
        "workflow put",
        name="nightly-load",
        input={"day": "2026-03-08"},
        steps=[
            {"name": "fetch", "target": {"call": "fetch"}, "input": {"day": {"$from": "input.day"}}},
            {"name": "approve", "target": {"handoff": {"payload": {"ask": "load it?"}}}, "needs": ["fetch"]},
            {"name": "load", "target": {"call": "load"}, "needs": ["approve"]},
        ],
    )
    steps = harness.store.read(lambda tx: find_header(tx, "default", "nightly-load"))
    assert steps is not None
    part = WorkflowContext(
        workflow="nightly-load", version=1, digest=steps.digest, input={"day": "2026-03-08"}
    )
    run = Run(
        id=WORKFLOW_RUN,
        dedupe_scope=WORKFLOW_RUN,
        planned_at=harness.now,
        fire_at=harness.now,
        state=RunState.READY,
        exclusive=False,
        created_at=harness.now,
        payload=part.to_payload(),
    )
    harness.store.write(lambda tx: tx.add_runs([run]))
    _waiting_step(harness, run)


def _waiting_step(harness: OperationsHarness, parent: Run) -> None:
    """Create a step with a given id that waits for an answer."""
    step = {"name": "check", "wait": {"answer": {"to": "ops", "form": {"approved": "boolean"}}}}
    harness.ask("workflow put", name="ask", steps=[step])
    head = harness.store.read(lambda tx: find_header(tx, "default", "ask"))
    assert head is not None
    part = WorkflowContext(workflow="ask", version=1, digest=head.digest, step="check")
    run = replace(
        parent,
        id=WAITING_RUN,
        dedupe_scope=WAITING_RUN,
        needs=needs_of_wait(answer=True, event=None),
        state=RunState.LEASED,
        fence=1,
        lease_id="lease_waiting",
        holder=HELD_BY_WAIT,
        leased_at=harness.now,
        lease_until=harness.now + timedelta(days=300),
        payload=part.to_payload(),
    )
    harness.store.write(lambda tx: tx.add_runs([run]))


def _analysis(harness: OperationsHarness) -> None:
    """Create an analysis of orders-poll with a given id."""
    one = Analysis(
        id=ANALYSIS,
        schedule_id=harness.bench.find("orders-poll"),
        schedule="orders-poll",
        at=harness.now,
        advisor="heuristic",
        tools=(ToolCall(tool="get_latest_response", result={"found": False}),),
        reasoning="no response to read yet",
        confidence="low",
        look_again_at=harness.now + 5 * MINUTE,
    )
    harness.store.write(lambda tx: save_analysis(tx, one, namespace="default", keep=timedelta(days=30)))


def _backfill(harness: OperationsHarness) -> None:
    """Create a backfill of orders-poll with a given id, which waits for its first run."""
    one = Backfill(
        id=BACKFILL,
        namespace="default",
        schedule_id=harness.bench.find("orders-poll"),
        since=harness.now - timedelta(hours=1),
        until=harness.now,
        created_at=harness.now,
        total=0,
    )
    harness.store.write(lambda tx: put_backfill(tx, one, now=harness.now))


def _waiting(harness: OperationsHarness) -> None:
    """Create an agent's schedule and workflow version that wait for approval."""
    harness.ask("schedule create", name="digest", every="6h", call="digest.send")
    by = Actor(name="assistant", origin="agent")
    harness.ask("workflow put", name="draft-load", steps=[{"name": "load", "target": {"call": "load"}}])
    held = HeldVersion(version=1, author="assistant", at=harness.now)

    def hold(tx: Transaction) -> None:
        head = find_header(tx, "default", "draft-load")
        assert head is not None
        tx.put_objects([header_row("default", "draft-load", replace(head, held=(held,)), now=harness.now)])

    harness.store.write(hold)
    hold_for_approval(harness.store, harness.bench.find("digest"), by=by, now=harness.now)


def _alerts(harness: OperationsHarness) -> None:
    """Create a channel, a foreign job with an address, and an open incident."""
    harness.ask("channel create", channel="ops", to="https://example.com/hook")
    harness.ask("schedule create", name="foreign-backup", every="1d", handoff={}, expect="2h")
    harness.ask("ping create", schedule="foreign-backup")
    incident = Incident(
        id=INCIDENT,
        namespace="default",
        kind="failed",
        subject="sch_old",
        severity="fail",
        sentence="old-import failed",
        since=NOON,
        opened_at=NOON,
        told_at=NOON,
        calm=10 * MINUTE,
    )
    harness.store.write(lambda tx: tx.save_incidents([incident], new=True))


def instant(moment: datetime) -> str:
    """Return an instant in the form of an answer."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def feed_events(text: str) -> list[Any]:
    """Parse the events of an iCalendar feed."""
    import icalendar

    return list(icalendar.Calendar.from_ical(text).walk("VEVENT"))
