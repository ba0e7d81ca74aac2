"""Queues: what is put into them, what waits there and why, and what they would hand out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.leasing import Gate, Waiting
from timewright.core.moments import check_stored, micros
from timewright.core.policies import NORMAL, Priority, QueuePolicy
from timewright.core.run import TERMINAL, Run, RunState
from timewright.core.schedule import queue_gate
from timewright.core.vocabulary import check_name
from timewright.errors import Conflict, InvalidInput
from timewright.ledger.by_hand import enqueue
from timewright.ledger.lease import MOST_PLANNED, plan_queue
from timewright.ledger.shelf import queue_policy
from timewright.operations.context import Context, together
from timewright.operations.find import no_such
from timewright.operations.pages import paged
from timewright.operations.queue_policies import keep_queue, queue_names
from timewright.operations.registry import Listing, Named, Request, Write, operations
from timewright.operations.views import RunRow, names_of_schedules, run_row
from timewright.ports import Page, RunFilter, Transaction

MOST_ADDED = 1000


class Add(Write, frozen=True, kw_only=True):
    """What to put into a queue: one payload or several; the same client key gives the same entry."""

    queue: Named
    payload: Any = None
    payloads: Annotated[tuple[Any, ...], Meta(max_length=MOST_ADDED)] = ()
    priority: Priority = NORMAL
    not_before: datetime | None = None
    client_key: Annotated[str, Meta(max_length=255)] = ""


class Added(Struct, frozen=True, kw_only=True):
    """The entries that now wait; `known` says that the client key was used before."""

    queue: str
    entries: tuple[RunRow, ...]
    known: bool = False


class List(Listing, frozen=True, kw_only=True):
    """Which queues: all of the namespace."""


class QueueRow(Struct, frozen=True, kw_only=True):
    """A queue: how much of what it has, its ceiling and how full that is; `more` if not all was counted."""

    queue: str
    counts: dict[str, int]
    more: bool
    max_concurrent: int
    in_flight: int
    available: int


class Queues(Struct, frozen=True, kw_only=True):
    """A page of queues, by name."""

    queues: tuple[QueueRow, ...]
    cursor: str = ""


class Show(Listing, frozen=True, kw_only=True):
    """Which queue, and which of its entries; without a state those that are not finished."""

    queue: Named
    state: RunState | None = None


class Shown(Struct, frozen=True, kw_only=True):
    """A queue with its policy and a page of its entries: in order, or newest first if they are over."""

    queue: QueueRow
    policy: QueuePolicy
    entries: tuple[RunRow, ...]
    cursor: str = ""


class Plan(Request, frozen=True, kw_only=True):
    """Which queue, and at which instant; without one, now."""

    queue: Named
    now: datetime | None = None


class Planned(Struct, frozen=True, kw_only=True):
    """What would be leased and what waits and why; `expired` leases are over and will be reclaimed first."""

    queue: str
    now: datetime
    max_concurrent: int
    in_flight: int
    available: int
    leases: tuple[RunRow, ...]
    waiting: tuple[Waiting, ...]
    expired: tuple[str, ...]
    gates: dict[str, Gate]


@operations.add(
    "queue",
    "add",
    Add,
    scope="trigger",
    examples=(
        {"queue": "mail", "payload": {"to": "ada@example.com"}, "priority": "high"},
        {"queue": "mail", "payloads": [1, 2, 3], "not_before": "2026-03-10T18:00:00Z"},
    ),
)
def add_entries(context: Context, ask: Add) -> Added:
    """Put entries into a queue; each waits until someone leases it."""
    now = context.now()
    queue = check_name(ask.queue, field="queue")
    payloads = _payloads(ask)
    if ask.not_before is not None:
        check_stored(ask.not_before, field="not_before")

    def work(inside: Context) -> Added:
        known = _known_entry(inside, ask, queue)
        if known is not None:
            return Added(queue=queue, entries=(run_row(known, schedule=""),), known=True)
        keep_queue(inside, queue, now=now)
        made = enqueue(
            inside.store,
            namespace=inside.namespace,
            queue=queue,
            payloads=payloads,
            ids=inside.ids,
            by=inside.because(ask.reason),
            now=now,
            priority=ask.priority,
            not_before=ask.not_before,
        )
        inside.tell(made.facts)
        if ask.client_key:
            inside.store.write(lambda tx: tx.put_meta(_client(inside, ask, queue), made.runs[0].id))
        return Added(queue=queue, entries=tuple(run_row(run, schedule="") for run in made.runs))

    return together(context, work)


@operations.add("queue", "list", List, scope="read", examples=({},))
def list_queues(context: Context, ask: List) -> Queues:
    """List the queues of the namespace with what waits in them."""

    def work(tx: Transaction) -> Queues:
        names = queue_names(tx, context.namespace)

        def find(limit: int, place: str) -> Page:
            after = [name for name in names if name > place]
            return Page(tuple(after[:limit]), after[limit - 1] if len(after) > limit else "")

        page, cursor = paged(context, ask, find)
        return Queues(queues=tuple(_queue_row(tx, context.namespace, name) for name in page), cursor=cursor)

    return context.store.read(work)


@operations.add(
    "queue", "show", Show, scope="read", examples=({"queue": "mail"}, {"queue": "mail", "state": "parked"})
)
def show_queue(context: Context, ask: Show) -> Shown:
    """Show a queue: its policy, its counts, and its entries in the order they would start."""

    def work(tx: Transaction) -> Shown:
        _must_know(tx, context.namespace, ask.queue)
        rows = tx.queue_runs(context.namespace, ask.queue, limit=MOST_PLANNED)

        def find(limit: int, place: str) -> Page:
            if ask.state in TERMINAL:
                return _ended(tx, context.namespace, ask, limit=limit, place=place)
            kept = [run for run in rows if ask.state is None or run.state is ask.state]
            return _entries(kept, limit, place)

        page, cursor = paged(context, ask, find)
        names = names_of_schedules(tx, page)
        return Shown(
            queue=_counted(tx, context.namespace, ask.queue, rows),
            policy=queue_policy(tx, context.namespace, ask.queue),
            entries=tuple(run_row(run, schedule=names.get(run.schedule_id, "")) for run in page),
            cursor=cursor,
        )

    return context.store.read(work)


@operations.add(
    "queue",
    "plan",
    Plan,
    scope="read",
    examples=({"queue": "mail"}, {"queue": "mail", "now": "2026-03-10T13:00:00Z"}),
)
def plan_leases_of(context: Context, ask: Plan) -> Planned:
    """Show what a queue would lease, and what waits and why; nothing changes."""
    now = check_stored(ask.now, field="now") if ask.now is not None else context.now()
    file = context.policies()
    if file is not None:
        file.check()
    plan, _ = plan_queue(context.store, namespace=context.namespace, queue=ask.queue, now=now)
    gate = plan.gates[queue_gate(context.namespace, ask.queue)]
    names = context.store.read(lambda tx: names_of_schedules(tx, plan.leases))
    over = (w.run_id for w in plan.waiting if w.reason == "leased" and w.until is not None and w.until <= now)
    return Planned(
        queue=ask.queue,
        now=now,
        max_concurrent=gate.limit,
        in_flight=gate.held,
        available=gate.free,
        leases=tuple(run_row(run, schedule=names.get(run.schedule_id, "")) for run in plan.leases),
        waiting=plan.waiting,
        expired=tuple(over),
        gates=plan.gates,
    )


def _payloads(ask: Add) -> tuple[Any, ...]:
    if ask.payloads and ask.payload is not None:
        raise InvalidInput(
            "payload and payloads are both given",
            field="payloads",
            rule="one entry has a payload, several have payloads",
            fix="take one of them out",
        )
    if ask.client_key and len(ask.payloads) > 1:
        raise InvalidInput(
            "a client key stands for one entry",
            field="client_key",
            value=ask.client_key,
            rule="one key, one entry",
            fix="one request for each entry",
        )
    return ask.payloads or (ask.payload,)


def _client(context: Context, ask: Add, queue: str) -> str:
    return f"client:queue:{context.namespace}/{queue}:{ask.client_key}"


def _known_entry(context: Context, ask: Add, queue: str) -> Run | None:
    """The entry that was made with this client key before, if any; another payload is a conflict."""
    if not ask.client_key:
        return None
    # Whoever asks for client keys of a queue does so in turn: two at once would both find nothing.
    context.store.write(lambda tx: tx.put_meta(f"client:queue:{context.namespace}/{queue}", "held"))
    run_id = context.store.read(lambda tx: tx.get_meta(_client(context, ask, queue)))
    run = context.store.read(lambda tx: tx.get_runs([run_id])).get(run_id) if run_id is not None else None
    if run is None:
        return None
    if run.payload != _payloads(ask)[0]:
        raise Conflict(
            f"client key {ask.client_key!r} stands for another entry",
            field="client_key",
            value=ask.client_key,
            rule="the same key comes with the same payload",
            fix="another client key",
        )
    return run


def _must_know(tx: Transaction, namespace: str, queue: str) -> None:
    known = queue_names(tx, namespace)
    if queue not in known and not tx.queue_runs(namespace, queue, limit=1):
        raise no_such("queue", queue, known, lister="queue list")


def _queue_row(tx: Transaction, namespace: str, queue: str) -> QueueRow:
    return _counted(tx, namespace, queue, tx.queue_runs(namespace, queue, limit=MOST_PLANNED))


def _counted(tx: Transaction, namespace: str, queue: str, rows: Iterable[Run]) -> QueueRow:
    counts = Counter(run.state.value for run in rows)
    gate = tx.read_gates([queue_gate(namespace, queue)])[queue_gate(namespace, queue)]
    return QueueRow(
        queue=queue,
        counts=dict(sorted(counts.items())),
        more=counts.total() >= MOST_PLANNED,
        max_concurrent=gate.limit,
        in_flight=gate.held,
        available=gate.free,
    )


def _ended(tx: Transaction, namespace: str, ask: Show, *, limit: int, place: str) -> Page:
    """A page of entries that are over, newest first."""
    return tx.find_runs(
        RunFilter(namespace=namespace, queue=ask.queue, state=ask.state, limit=limit, cursor=place)
    )


def _entries(rows: list[Run], limit: int, place: str) -> Page:
    """A page of entries, in order, behind the one that was shown last."""
    behind = [run for run in rows if _place(run) > place]
    page = behind[:limit]
    return Page(tuple(page), _place(page[-1]) if len(behind) > limit else "")


def _place(run: Run) -> str:
    """Where an entry stands in its queue, as a text that sorts as the queue does."""
    return f"{run.priority:04d} {micros(run.planned_at):020d} {run.id}"
