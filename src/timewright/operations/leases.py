"""Taking work from a queue, and taking leases back that are over: lease, reclaim, drain."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.facts import LeaseLost
from timewright.core.moments import SECOND, bounded, spell_duration
from timewright.core.run import RunState, Succeeded, run_key
from timewright.core.target import Handoff
from timewright.errors import InvalidInput
from timewright.ledger.lease import MOST_PLANNED, Lease, lease_ready
from timewright.ledger.settle import Answer, reclaim, settle_answers
from timewright.operations.context import Context, together
from timewright.operations.registry import Named, Write, operations
from timewright.operations.views import RunRow, names_of_schedules, run_row
from timewright.ports import Transaction

MOST_LEASED = 1000
MOST_DRAINED = 1000
RECLAIMED_AT_ONCE = 1000


class Take(Write, frozen=True, kw_only=True):
    """From which queue, how many at most, for whom, and for how long; without a length the policy's."""

    queue: Named
    limit: Annotated[int, Meta(ge=0, le=MOST_LEASED)] = 1
    holder: Annotated[str, Meta(max_length=255)] = ""
    length: timedelta | None = None


class LeaseRow(Struct, frozen=True, kw_only=True):
    """A run that was handed out: what to do, until when, and the fence to answer with."""

    run: str
    lease: str
    fence: int
    attempt: int
    key: str
    queue: str
    schedule: str
    priority: int
    planned_at: datetime
    lease_until: datetime
    missed: int
    payload: Any
    metadata: dict[str, Any]


class Taken(Struct, frozen=True, kw_only=True):
    """What was handed out; `more` says that others wait for nothing but a taker."""

    leases: tuple[LeaseRow, ...]
    more: bool


class Reclaim(Write, frozen=True, kw_only=True):
    """Which queue to tell about; expired leases are taken back whatever their queue."""

    queue: str = ""


class Reclaimed(Struct, frozen=True, kw_only=True):
    """The runs of this namespace whose lease was over and is taken back."""

    runs: tuple[RunRow, ...]


class Drain(Write, frozen=True, kw_only=True):
    """From which queue, and how many entries, are marked as done in order."""

    queue: Named
    limit: Annotated[int, Meta(ge=1, le=MOST_DRAINED)] = 1


class Drained(Struct, frozen=True, kw_only=True):
    """The entries that were marked as done, and how many are left in the queue."""

    drained: tuple[RunRow, ...]
    remaining: int


@operations.add(
    "queue",
    "lease",
    Take,
    scope="trigger",
    examples=({"queue": "mail"}, {"queue": "mail", "limit": 5, "holder": "worker-7", "length": "2m"}),
)
def lease_entries(context: Context, ask: Take) -> Taken:
    """Lease what a queue would hand out now, under its ceiling; leases that are over are reclaimed first."""
    now = context.now()
    if ask.length is not None and bounded(ask.length, field="length") < SECOND:
        raise InvalidInput(
            f"a lease of {spell_duration(ask.length)} is over before it begins",
            field="length",
            value=spell_duration(ask.length),
            rule="at least 1s",
            fix="length: 5m",
        )
    _reclaim_first(context, now=now)
    found = lease_ready(
        context.store,
        ids=context.ids,
        holder=ask.holder or context.by.actor,
        capacity=ask.limit,
        now=now,
        handoff=True,
        queue=(context.namespace, ask.queue),
        length=ask.length,
        policy_file=context.policies(),
    )
    context.tell(found.facts)
    return Taken(leases=tuple(_lease_row(lease) for lease in found.leases), more=found.more)


def _reclaim_first(context: Context, *, now: datetime) -> None:
    """Take back what is over; a look that finds nothing costs no write."""
    ends_at = context.store.read(lambda tx: tx.next_lease_end())
    if ends_at is not None and ends_at <= now:
        context.tell(reclaim(context.store, now=now, limit=RECLAIMED_AT_ONCE).facts)


@operations.add("queue", "reclaim", Reclaim, scope="trigger", examples=({}, {"queue": "mail"}))
def reclaim_leases(context: Context, ask: Reclaim) -> Reclaimed:
    """Take back every lease that is over; each counts one failed attempt."""
    now = context.now()
    settled = reclaim(context.store, now=now, limit=RECLAIMED_AT_ONCE)
    context.tell(settled.facts)
    lost = [fact.run_id for fact in settled.facts if isinstance(fact, LeaseLost)]

    def work(tx: Transaction) -> Reclaimed:
        runs = [run for run in tx.get_runs(lost).values() if run.namespace == context.namespace]
        runs = [run for run in runs if not ask.queue or run.queue == ask.queue]
        names = names_of_schedules(tx, runs)
        return Reclaimed(runs=tuple(run_row(run, schedule=names.get(run.schedule_id, "")) for run in runs))

    return context.store.read(work)


@operations.add(
    "queue", "drain", Drain, scope="trigger", examples=({"queue": "mail"}, {"queue": "mail", "limit": 10})
)
def drain_queue(context: Context, ask: Drain) -> Drained:
    """Lease and complete entries in order, one after another, obeying ceiling and backoff."""
    now = context.now()

    def work(inside: Context) -> Drained:
        done: list[str] = []
        _reclaim_first(inside, now=now)
        while len(done) < ask.limit:
            found = lease_ready(
                inside.store,
                ids=inside.ids,
                holder=inside.by.actor,
                capacity=ask.limit - len(done),
                now=now,
                handoff=True,
                queue=(inside.namespace, ask.queue),
                policy_file=inside.policies(),
            )
            inside.tell(found.facts)
            if not found.leases:
                break
            answers = [Answer(run=lease.run, outcome=Succeeded(), started_at=now) for lease in found.leases]
            inside.tell(settle_answers(inside.store, answers, now=now).facts)
            done += [lease.run.id for lease in found.leases]
        return inside.store.read(lambda tx: _drained(tx, inside.namespace, ask.queue, done))

    return together(context, work)


def _lease_row(lease: Lease) -> LeaseRow:
    run, schedule, target = lease.run, lease.schedule, lease.terms.target
    assert run.lease_until is not None
    standing = target.payload if isinstance(target, Handoff) else None
    return LeaseRow(
        run=run.id,
        lease=run.lease_id,
        fence=run.fence,
        attempt=run.attempts + 1,
        key=run_key(run),
        queue=run.queue,
        schedule=schedule.name if schedule is not None else "",
        priority=run.priority,
        planned_at=run.planned_at,
        lease_until=run.lease_until,
        missed=run.missed,
        payload=run.payload if run.payload is not None else standing,
        metadata=schedule.metadata if schedule is not None else {},
    )


def _drained(tx: Transaction, namespace: str, queue: str, done: list[str]) -> Drained:
    runs = tx.get_runs(done)
    names = names_of_schedules(tx, runs.values())
    left = tx.queue_runs(namespace, queue, limit=MOST_PLANNED)
    waiting = [run for run in left if run.state is RunState.READY]
    return Drained(
        drained=tuple(run_row(runs[i], schedule=names.get(runs[i].schedule_id, "")) for i in done),
        remaining=len(waiting),
    )
