"""Queues: add entries, list, show, and plan the next leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from timewright.core.input.input_errors import check_name
from timewright.core.moments import check_storable, to_micros
from timewright.core.policies.limits import MAX_LIMITS, LimitName
from timewright.core.policies.policies import NORMAL_PRIORITY, Priority, QueuePolicy
from timewright.core.run.leasing import WaitingRun, lease_order
from timewright.core.run.run import TERMINAL_STATES, Reason, Run, RunState
from timewright.core.schedule.schedule import queue_limit_key
from timewright.errors import Conflict, InvalidInput
from timewright.ledger.lease import MAX_PLANNED_RUNS, plan_queue
from timewright.ledger.lookups import load_queue_policy
from timewright.ledger.manual_runs import enqueue
from timewright.ledger.pauses import load_pauses
from timewright.ledger.settle import cancel
from timewright.operations.context import OperationContext
from timewright.operations.pagination import paginate, paginate_rows
from timewright.operations.queues.leases import QueueActivity, read_activity, require_queue
from timewright.operations.queues.policies import list_queue_names, register_queue
from timewright.operations.registry import ListRequest, ObjectName, OperationRequest, WriteRequest, operations
from timewright.operations.text_safety import shorten_data
from timewright.operations.views import RunSummary, summarize_run, summarize_runs
from timewright.ports import RunFilter, Transaction
from timewright.ports.rows import QueuedRuns

MAX_ADDED = 1000
MAX_SHOWN_PAYLOAD_CHARS = 500
# The order of entries: leased, ready or held, ready later, parked.
_RANKS = {RunState.LEASED: 0, RunState.PARKED: 3}
_WAITING_RANK = 1
_UNFINISHED = (RunState.READY, RunState.HELD, RunState.LEASED)
# More than ageing subtracts from a priority in a century, so that positions have no sign.
_AGED_PRIORITIES = 10**12


class AddEntries(WriteRequest, frozen=True, kw_only=True):
    """Entries to add: one payload or several; the same client key returns the same entry.

    With `unique`, the queue has at most one waiting entry of that key: if there is one, or one is under way,
    `on_conflict: keep` adds nothing and returns it; `replace` cancels the waiting one and adds this one.
    `limits` are named limits of these entries, beside those of the queue.
    """

    queue: ObjectName
    payload: Any = None
    payloads: Annotated[tuple[Any, ...], Meta(min_length=1, max_length=MAX_ADDED)] = ()
    priority: Priority = NORMAL_PRIORITY
    not_before: datetime | None = None
    client_key: Annotated[str, Meta(max_length=255)] = ""
    unique: Annotated[str, Meta(max_length=255)] = ""
    on_conflict: Literal["keep", "replace"] = "keep"
    limits: Annotated[tuple[LimitName, ...], Meta(max_length=MAX_LIMITS)] = ()


class AddedEntries(Struct, frozen=True, kw_only=True):
    """The entries; `known` means that the key was used before, and nothing was added."""

    queue: str
    entries: tuple[RunSummary, ...]
    known: bool = False


class ListQueues(ListRequest, frozen=True, kw_only=True):
    """List the queues of the namespace."""


class QueueSummary(Struct, frozen=True, kw_only=True):
    """A queue: entries by state, its concurrency limit and its use; `more` if counting stopped."""

    queue: str
    counts: dict[str, int]
    more: bool
    max_running: int
    in_flight: int
    available: int
    oldest_at: datetime | None = None
    """Since when the entry that may start and waits longest has waited."""
    paused_by: str = ""
    """The pause of the queue or of a wider scope, as in "queue mail by ada: the mail server moves"."""


class QueueList(Struct, frozen=True, kw_only=True):
    """A page of queues, by name."""

    queues: tuple[QueueSummary, ...]
    cursor: str = ""


class ShowQueue(ListRequest, frozen=True, kw_only=True):
    """Which queue, and entries in which state; the default is all that are not finished."""

    queue: ObjectName
    state: RunState | None = None


class EntrySummary(RunSummary, frozen=True, kw_only=True):
    """A queue entry with its payload; a long one is JSON text, marked as cut; `run get` has all of it."""

    payload: Any


class QueueDetail(Struct, frozen=True, kw_only=True):
    """A queue with its policy and a page of its entries.

    First come leased entries, then those that wait in the order they would start, then parked ones.
    Finished entries are newest first.
    """

    queue: QueueSummary
    policy: QueuePolicy
    entries: tuple[EntrySummary, ...]
    activity: QueueActivity
    cursor: str = ""


class PlanQueue(OperationRequest, frozen=True, kw_only=True):
    """Which queue, at which instant (the default is now), and whether to list finished entries too."""

    queue: ObjectName
    now: datetime | None = None
    all: bool = False


class QueueLimitUse(Struct, frozen=True, kw_only=True):
    """A limit of entries: its capacity, how many leases hold it, and when its rate allows a start."""

    capacity: int
    held: int
    free_from: datetime | None = None


class QueuePlan(Struct, frozen=True, kw_only=True):
    """What would be leased, and what waits and why; `expired` leases would be reclaimed first."""

    queue: str
    now: datetime
    max_running: int
    in_flight: int
    available: int
    leases: tuple[EntrySummary, ...]
    waiting: tuple[WaitingRun, ...]
    expired: tuple[str, ...]
    limits: dict[str, QueueLimitUse]


@operations.write(
    "queue add",
    scope="trigger",
    examples=(
        {"queue": "mail", "payload": {"to": "ada@example.com"}, "priority": "high"},
        {"queue": "mail", "payloads": [1, 2, 3], "not_before": "2026-03-10T18:00:00Z"},
    ),
)
def add_entries(context: OperationContext, tx: Transaction, request: AddEntries) -> AddedEntries:
    """Add entries to a queue; each waits until a worker leases it."""
    now = context.now()
    queue = check_name(request.queue, field="queue")
    payloads = _payloads(request)
    if request.not_before is not None:
        check_storable(request.not_before, field="not_before")
    key_name = _key_name(context, request, queue)
    known = _find_known(tx, request, key_name)
    if known is not None and not (request.unique and request.on_conflict == "replace"):
        return AddedEntries(queue=queue, entries=(summarize_run(known, schedule=""),), known=True)
    if known is not None and known.state is RunState.READY:
        by, why = context.by, Reason.SUPERSEDED.value
        context.notify(cancel(context.store, known.id, actor=by.name, origin=by.origin, reason=why, now=now))
    register_queue(context, queue, now=now)
    result = enqueue(
        context.store,
        namespace=context.namespace,
        queue=queue,
        payloads=payloads,
        ids=context.ids,
        by=context.by,
        now=now,
        priority=request.priority,
        not_before=request.not_before,
        limits=request.limits,
    )
    context.notify(result.facts)
    if key_name:
        tx.put_meta(key_name, result.runs[0].id)
    return AddedEntries(queue=queue, entries=tuple(summarize_run(run, schedule="") for run in result.runs))


@operations.read("queue list", scope="read", examples=({},))
def list_queues(context: OperationContext, tx: Transaction, request: ListQueues) -> QueueList:
    """List the queues of the namespace with the number of entries in each state."""
    names = list_queue_names(tx, context.namespace)
    page, cursor = paginate_rows(context, request, names, key=str)
    now = context.now()
    return QueueList(
        queues=tuple(_read_summary(tx, context.namespace, name, now=now) for name in page), cursor=cursor
    )


@operations.read(
    "queue show", scope="read", examples=({"queue": "mail"}, {"queue": "mail", "state": "parked"})
)
def show_queue(context: OperationContext, tx: Transaction, request: ShowQueue) -> QueueDetail:
    """Show a queue: its policy, its counts, and its entries as they would start, parked ones last."""
    now = context.now()
    require_queue(tx, context.namespace, request.queue)
    rows = tx.select(QueuedRuns(context.namespace, request.queue, limit=MAX_PLANNED_RUNS))
    policy = load_queue_policy(tx, context.namespace, request.queue)
    if request.state in TERMINAL_STATES:
        which = RunFilter(namespace=context.namespace, queue=request.queue, state=request.state)
        page, cursor = paginate(
            context, request, lambda limit, place: tx.find(replace(which, limit=limit, cursor=place))
        )
    else:
        matching = [run for run in rows if request.state is None or run.state is request.state]
        position = partial(_position, ageing=policy.ageing, now=now)
        page, cursor = paginate_rows(context, request, matching, key=position)
    return QueueDetail(
        queue=_summarize(tx, context.namespace, request.queue, rows, now=now),
        activity=read_activity(tx, context.namespace, request.queue, rows, now=now),
        policy=policy,
        entries=_summarize_entries(tx, page),
        cursor=cursor,
    )


@operations.add(
    "queue plan",
    scope="read",
    examples=({"queue": "mail"}, {"queue": "mail", "now": "2026-03-10T13:00:00Z", "all": True}),
)
def plan_queue_leases(context: OperationContext, request: PlanQueue) -> QueuePlan:
    """Show what a queue would lease now, and what waits and why; nothing changes.

    With `all`, the newest finished entries are listed as well, as `terminal`.
    """
    now = check_storable(request.now, field="now") if request.now is not None else context.now()
    file = context.queue_policy_file()
    if file is not None:
        file.check()
    plan, _ = plan_queue(
        context.store, namespace=context.namespace, queue=request.queue, now=now, finished=request.all
    )
    usage = plan.limits[queue_limit_key(context.namespace, request.queue)]
    expired = (
        w.run_id for w in plan.waiting if w.reason == "leased" and w.until is not None and w.until <= now
    )
    return QueuePlan(
        queue=request.queue,
        now=now,
        max_running=usage.capacity,
        in_flight=usage.held,
        available=usage.free,
        leases=context.store.read(lambda tx: _summarize_entries(tx, plan.leases)),
        waiting=plan.waiting,
        expired=tuple(expired),
        limits={
            name: QueueLimitUse(
                capacity=one.capacity,
                held=one.held,
                free_from=one.closed_until(now=now) if one.free else None,
            )
            for name, one in plan.limits.items()
        },
    )


def _payloads(request: AddEntries) -> tuple[Any, ...]:
    if request.payloads and request.payload is not None:
        raise InvalidInput(
            "payload and payloads are both given",
            field="payloads",
            rule="use `payload` for one entry, `payloads` for several",
            fix="remove one of them",
        )
    if (request.client_key or request.unique) and len(request.payloads) > 1:
        raise InvalidInput(
            "a key is for one entry only",
            field="client_key" if request.client_key else "unique",
            value=request.client_key or request.unique,
            rule="one key per entry",
            fix="send one request per entry",
        )
    if request.client_key and request.unique:
        raise InvalidInput(
            "client_key and unique are both given",
            field="unique",
            value=request.unique,
            rule="`client_key` returns the entry of an earlier request, `unique` allows one waiting entry",
            fix="remove one of them",
        )
    if request.on_conflict == "replace" and not request.unique:
        raise InvalidInput(
            "on_conflict replace has no key",
            field="on_conflict",
            value=request.on_conflict,
            rule="`replace` replaces the waiting entry with the same `unique` key",
            fix="unique: ada, or leave it out",
        )
    return request.payloads or (request.payload,)


def _key_name(context: OperationContext, request: AddEntries, queue: str) -> str:
    """The name under which the store keeps the entry of the request's key; empty without a key."""
    kind, key = ("client", request.client_key) if request.client_key else ("unique", request.unique)
    return f"{kind}:queue:{context.namespace}/{queue}:{key}" if key else ""


def _find_known(tx: Transaction, request: AddEntries, key_name: str) -> Run | None:
    """Return the entry of the request's key: of a client key any, of a unique key only an unfinished one."""
    if not key_name:
        return None
    # Of two requests with one key at the same time, the second waits here and then finds the entry.
    tx.lock(key_name)
    run_id = tx.get_meta(key_name)
    run = tx.get_runs([run_id], lock=True).get(run_id) if run_id else None
    if run is None or (request.unique and run.state not in _UNFINISHED):
        return None
    if request.client_key and run.payload != _payloads(request)[0]:
        raise Conflict(
            f"client key {request.client_key!r} was used for an entry with another payload",
            field="client_key",
            value=request.client_key,
            rule="a client key belongs to one payload",
            fix="use another client key",
        )
    return run


def _read_summary(tx: Transaction, namespace: str, queue: str, *, now: datetime) -> QueueSummary:
    rows = tx.select(QueuedRuns(namespace, queue, limit=MAX_PLANNED_RUNS))
    return _summarize(tx, namespace, queue, rows, now=now)


def _summarize(
    tx: Transaction, namespace: str, queue: str, rows: Sequence[Run], *, now: datetime
) -> QueueSummary:
    pause = load_pauses(tx, now=now).active_for(namespace, queue=queue, schedule=None)
    may_start = [run.fire_at for run in rows if run.state is RunState.READY and run.fire_at <= now]
    counts = Counter(run.state.value for run in rows)
    usage = tx.get_limits([queue_limit_key(namespace, queue)])[queue_limit_key(namespace, queue)]
    return QueueSummary(
        queue=queue,
        counts=dict(sorted(counts.items())),
        more=counts.total() >= MAX_PLANNED_RUNS,
        max_running=usage.capacity,
        in_flight=usage.held,
        available=usage.free,
        oldest_at=min(may_start, default=None),
        paused_by=pause.describe() if pause is not None else "",
    )


def _summarize_entries(tx: Transaction, runs: Sequence[Run]) -> tuple[EntrySummary, ...]:
    return tuple(
        EntrySummary(**asdict(shown), payload=shorten_data(run.payload, max_chars=MAX_SHOWN_PAYLOAD_CHARS))
        for run, shown in zip(runs, summarize_runs(tx, runs), strict=True)
    )


def _position(run: Run, *, ageing: timedelta | None, now: datetime) -> str:
    """Return the position of an entry as text: leased ones first, then by start, then parked ones."""
    is_later = run.state is RunState.READY and run.fire_at > now
    rank = _RANKS.get(run.state, _WAITING_RANK) + is_later
    start = to_micros(run.fire_at) if is_later else 0
    priority, planned, run_id = lease_order(run, ageing=ageing, now=now)
    return f"{rank} {start:020d} {priority + _AGED_PRIORITIES:014d} {to_micros(planned):020d} {run_id}"
