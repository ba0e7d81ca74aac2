"""A furnished house: nine days of history, a queue at work, someone paused; all that examples speak of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from typing import Any

from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.moments import MINUTE
from timewright.core.run import Failed, Run, RunState
from timewright.core.schedule import queue_gate
from timewright.ledger.analyses import Analysis, ToolCall, keep_analysis
from timewright.ledger.approvals import hold_for_approval
from timewright.ledger.keyring import drawn_from
from timewright.ledger.replan import By
from timewright.ledger.settle import Answer, settle_answers
from timewright.ledger.unfold_parts import Part, find_head
from timewright.operations import Context, operations
from timewright.operations.doorkeeper import Doorkeeper
from timewright.operations.examples import ANALYSIS, FAILED_RUN, LEASE, LEASED_RUN, PARKED_RUN, WORKFLOW_RUN
from timewright.ports import Grant, Stood, Store, Transaction
from timewright.stores.sqlite import SqliteStore
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock

OLD_TOKEN = "a value that nobody sees"
KEYRING = drawn_from([b"a secret key for tests, not more"])
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)

Plain = dict[str, Any]


class House:
    """A bench with a context: ask by name and plain data, move time, look at the facts."""

    def __init__(
        self, *, start: datetime = NOON, store: Store | None = None, clock: ManualClock | None = None
    ) -> None:
        self.bench = Bench(start=start if clock is None else None, store=store, clock=clock)
        self.told: list[Fact] = []
        self.context = Context(
            store=self.bench.store,
            ids=self.bench.ids,
            by=By(actor="ada"),
            tell=self.told.extend,
            doorkeeper=Doorkeeper(lambda: KEYRING, random=_dice(start)),
        )

    @property
    def now(self) -> datetime:
        return self.bench.now

    @property
    def store(self) -> Store:
        return self.bench.store

    def ask(self, operation: str, payload: Mapping[str, Any] | None = None, /, **fields: Any) -> Plain:
        """Ask with plain data, as every door does."""
        return operations[operation](self.context, {**(payload or {}), **fields})

    def elsewhere(self, namespace: str = "other") -> House:
        """The same house, asked from another namespace."""
        neighbour = object.__new__(House)
        neighbour.bench = self.bench
        neighbour.told = []
        neighbour.context = replace(self.context, namespace=namespace, tell=neighbour.told.extend)
        return neighbour

    def advance(self, **parts: float) -> None:
        self.bench.advance(timedelta(**parts))

    def sleep(self, **parts: float) -> None:
        """Let time pass while no engine runs."""
        self.bench.clock.advance(timedelta(**parts))


def furnish(*, store: Store | None = None, clock: ManualClock | None = None) -> House:
    """Nine and a half days in the life of a house, up to noon of 10 March."""
    if clock is not None:
        clock.step(BEGAN)
    house = House(start=BEGAN, store=store, clock=clock)
    house.ask("reminder set", name="tea", text="the tea is ready", at=(NOON + 30 * MINUTE).isoformat())
    house.ask(
        "schedule create",
        name="nightly-report",
        cron="0 3 * * *",
        http="POST https://example.com/report",
        group="reports",
        tags=["daily"],
        metadata={"team": "finance"},
        calendar={"except": []},
    )
    house.advance(days=9, hours=11, minutes=58)
    house.ask("schedule create", name="orders-poll", every="5m", call="orders.poll", adaptive=True)
    house.ask("schedule create", name="paused-export", every="1h", call="export", group="exports")
    house.ask("group pause", group="exports", reason="the disk is full")
    house.ask("calendar put", name="holidays", yearly=["12-25"])
    house.ask("calendar put", name="germany", holidays="DE", years="2026-2027")
    house.ask("calendar put", name="old-office", weekly=[{"days": [0, 1, 2, 3, 4]}])
    house.ask("limit set", limit="crm-api", most=2)
    house.ask("budget set", budget="inference", unit="tokens", limit=1_000_000)
    house.ask("budget set", budget="old-trial", unit="requests", limit=100, period="month")
    house.ask("provider close", provider="mail-api", until=(NOON + 10 * MINUTE).isoformat())
    house.ask("queue policy set", queue="mail", max_concurrent=2)
    house.ask("key create", key="grafana-old", role="viewer")
    house.ask("secret set", secret="old-token", value=OLD_TOKEN)
    house.ask("namespace create", name="team-a", schedules=20)
    _entry(house, LEASED_RUN, lease=LEASE)
    _entry(house, PARKED_RUN, lease=f"{LEASE}2")
    _fail(house, PARKED_RUN, "mailbox is full")
    house.ask("queue add", queue="mail", payload={"to": "bob@example.com"})
    _failed_by_hand(house)
    _workflow(house)
    _analysis(house)
    _waiting(house)
    house.advance(minutes=2)
    assert house.now == NOON
    house.told.clear()
    return house


@cache
def _furnished() -> House:
    return furnish()


def furnished() -> House:
    """A furnished house of one's own, copied from one that nobody touches."""
    template: Any = _furnished().store
    clock = ManualClock(NOON)
    store = SqliteStore(":memory:", clock=clock)
    with store._writer.connection.backup("main", template._writer.connection, "main") as copy:
        copy.step(-1)
    return House(store=store, clock=clock)


def dump(store: Any) -> dict[str, Any]:
    """Every row of a store, read behind its back."""
    tables = (
        "schedules",
        "revisions",
        "runs",
        "attempts",
        "gates",
        "holds",
        "accounts",
        "charges",
        "steps",
        "objects",
        "audit",
        "meta",
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
    """The answer as a door would send it; what is not plain data is refused."""
    return json.dumps(answer, allow_nan=False)


def _dice(start: datetime) -> Callable[[int], bytes]:
    """Chance that falls the same way in every house that begins at the same instant."""
    throws = count()
    return lambda size: hashlib.blake2b(f"{start} {next(throws)}".encode(), digest_size=size).digest()


def _entry(house: House, run_id: str, *, lease: str) -> None:
    """An entry of the mail queue with a given id, leased."""
    run = Run(
        id=run_id,
        lane=run_id,
        planned_at=house.now,
        fire_at=house.now,
        state=RunState.READY,
        queue="mail",
        gates=(queue_gate("default", "mail"),),
        alone=False,
        handoff=True,
        created_at=house.now,
        payload={"to": "ada@example.com"},
    )
    until = house.now + 5 * MINUTE
    grant = Grant(run=run, lease_id=lease, holder="worker-1", leased_at=house.now, lease_until=until)

    def work(tx: Transaction) -> None:
        tx.add_runs([run])
        tx.hold_gates(run.gates)
        tx.lease_runs([grant])

    house.store.write(work)


def _fail(house: House, run_id: str, error: str) -> None:
    run = house.store.read(lambda tx: tx.get_runs([run_id]))[run_id]
    answer = Answer(run=run, outcome=Failed(error=error, final=True), started_at=house.now)
    settle_answers(house.store, [answer], now=house.now)


def _failed_by_hand(house: House) -> None:
    """A run of the nightly report with a given id that failed."""
    schedule_id = house.bench.find("nightly-report")

    def work(tx: Transaction) -> None:
        due = tx.get_schedules([schedule_id])[schedule_id]
        run = Run(
            id=FAILED_RUN,
            schedule_id=schedule_id,
            lane=FAILED_RUN,
            planned_at=house.now,
            fire_at=house.now,
            state=RunState.READY,
            revision=due.schedule.revision,
            created_at=house.now,
            previous=due.last_run,
        )
        tx.add_runs([run])
        tx.stand([Stood(schedule_id, due.standing, FAILED_RUN)])
        until = house.now + 5 * MINUTE
        tx.lease_runs(
            [Grant(run=run, lease_id=f"{LEASE}3", holder="ada", leased_at=house.now, lease_until=until)]
        )

    house.store.write(work)
    _fail(house, FAILED_RUN, "502 Bad Gateway")


def _workflow(house: House) -> None:
    """A workflow, and a run of it with a given id that waits for someone to approve."""
    house.ask(
        "workflow put",
        name="nightly-load",
        input={"day": "2026-03-08"},
        steps=[
            {"name": "fetch", "target": {"call": "fetch"}, "input": {"day": {"$from": "input.day"}}},
            {"name": "approve", "target": {"handoff": {"payload": {"ask": "load it?"}}}, "needs": ["fetch"]},
            {"name": "load", "target": {"call": "load"}, "needs": ["approve"]},
        ],
    )
    steps = house.store.read(lambda tx: find_head(tx, "default", "nightly-load"))
    assert steps is not None
    part = Part(workflow="nightly-load", version=1, digest=steps.digest, input={"day": "2026-03-08"})
    run = Run(
        id=WORKFLOW_RUN,
        lane=WORKFLOW_RUN,
        planned_at=house.now,
        fire_at=house.now,
        state=RunState.READY,
        alone=False,
        created_at=house.now,
        payload=part.told(),
    )
    house.store.write(lambda tx: tx.add_runs([run]))


def _analysis(house: House) -> None:
    """A look at the orders with a given id, that saw nothing to do."""
    one = Analysis(
        id=ANALYSIS,
        schedule_id=house.bench.find("orders-poll"),
        schedule="orders-poll",
        at=house.now,
        advisor="heuristic",
        tools=(ToolCall(tool="get_latest_response", result={"found": False}),),
        reasoning="no response to read yet",
        confidence="low",
        look_again_at=house.now + 5 * MINUTE,
    )
    house.store.write(lambda tx: keep_analysis(tx, one, namespace="default", keep=timedelta(days=30)))


def _waiting(house: House) -> None:
    """A schedule that an agent made and nobody has looked at."""
    house.ask("schedule create", name="digest", every="6h", call="digest.send")
    by = By(actor="assistant", origin="agent")
    hold_for_approval(house.store, house.bench.find("digest"), by=by, now=house.now)


def instant(moment: datetime) -> str:
    """An instant as an answer spells it."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
