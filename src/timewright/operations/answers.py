"""What the holder of a lease says: it goes on, it is done, it is given back; and the way out of park."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.costs import Cost
from timewright.core.moments import bounded
from timewright.core.run import Failed, Outcome, Released, Run, RunState, Succeeded
from timewright.core.telling_names import hide_named
from timewright.errors import InvalidInput, NotFound, Stale
from timewright.ledger.lease import renew
from timewright.ledger.settle import Answer, reset, settle_answers
from timewright.ledger.shelf import terms_for
from timewright.ledger.unfold_start import reported, started
from timewright.operations.context import Context, together
from timewright.operations.examples import LEASE, LEASED_RUN, PARKED_RUN
from timewright.operations.find import find_run
from timewright.operations.registry import Named, Text, Write, operations
from timewright.operations.views import RunRow, names_of_schedules, run_row
from timewright.ports import Renewal, Transaction

Fence = Annotated[int, Meta(ge=1)]


class Held(Write, frozen=True, kw_only=True):
    """Which lease: by its id, or by its run and fence."""

    lease: str = ""
    run: str = ""
    fence: Fence | None = None


class Renew(Held, frozen=True, kw_only=True):
    """Which lease to prolong, and by how much from now; without a length the one it was granted for."""

    length: timedelta | None = None


class Prolonged(Struct, frozen=True, kw_only=True):
    """A lease that holds on; `cancel_at` is set when its run was asked to stop."""

    run: str
    fence: int
    lease_until: datetime
    cancel_at: datetime | None


class Complete(Held, frozen=True, kw_only=True):
    """Which lease ends well, with what result, and what it cost."""

    result: Any = None
    cost: Cost | None = None


class Release(Held, frozen=True, kw_only=True):
    """Which lease is given back; `failed` charges an attempt, and the run waits its backoff or is parked."""

    failed: bool = False
    error: Text = ""
    cost: Cost | None = None


class Ended(Struct, frozen=True, kw_only=True):
    """A run after its lease ended."""

    run: RunRow


class Reset(Write, frozen=True, kw_only=True):
    """Which parked run gets its attempts back."""

    run: Named


@operations.add(
    "queue",
    "renew",
    Renew,
    scope="trigger",
    examples=(
        {"run": LEASED_RUN, "fence": 1},
        {"lease": LEASE, "length": "10m"},
    ),
)
def renew_lease(context: Context, ask: Renew) -> Prolonged:
    """Prolong a lease while its work is alive; the answer says whether the run was asked to stop."""
    now = context.now()

    def work(inside: Context) -> Prolonged:
        run = inside.store.read(lambda tx: _held(tx, inside.namespace, ask))
        length = ask.length
        if length is None:
            length = inside.store.read(lambda tx: terms_for(tx, [run])[run.id].terms.lease.length)
        until = now + bounded(length, field="length")
        kept, _ = renew(inside.store, [Renewal(run.id, run.fence, until)], now=now)
        if not kept:
            raise _lost(run.id, run.fence)
        renewed = inside.store.read(lambda tx: tx.get_runs([run.id])[run.id])
        return Prolonged(
            run=run.id,
            fence=run.fence,
            lease_until=renewed.lease_until or until,
            cancel_at=renewed.cancel_at,
        )

    return together(context, work)


@operations.add(
    "queue",
    "complete",
    Complete,
    scope="trigger",
    examples=(
        {"run": LEASED_RUN, "fence": 1, "result": {"sent": 1}, "cost": {"tokens": 1200, "money": "0.02"}},
        {"lease": LEASE},
    ),
)
def complete_lease(context: Context, ask: Complete) -> Ended:
    """Say that the work of a lease is done."""
    return _settle(context, ask, Succeeded(result=ask.result, cost=ask.cost))


@operations.add(
    "queue",
    "release",
    Release,
    scope="trigger",
    examples=(
        {"run": LEASED_RUN, "fence": 1},
        {"lease": LEASE, "failed": True, "error": "mailbox is full"},
    ),
)
def release_lease(context: Context, ask: Release) -> Ended:
    """Give a lease back: cleanly, and the run is ready as it was; or as failed, at the cost of an attempt."""
    said = hide_named(ask.error or ask.reason)
    outcome: Outcome = Released(reason=said, cost=ask.cost)
    if ask.failed:
        outcome = Failed(error=said or "released as failed", cost=ask.cost)
    return _settle(context, ask, outcome)


@operations.add(
    "queue",
    "reset",
    Reset,
    scope="trigger",
    examples=({"run": PARKED_RUN, "reason": "fixed"},),
)
def reset_entry(context: Context, ask: Reset) -> Ended:
    """Give a parked entry its attempts back; the only way out of park."""
    now = context.now()

    def work(inside: Context) -> Ended:
        run = inside.store.read(lambda tx: find_run(tx, inside.namespace, ask.run))
        by = inside.because(ask.reason)
        inside.tell(reset(inside.store, run.id, actor=by.actor, origin=by.origin, reason=by.reason, now=now))
        return _ended(inside, run.id)

    return together(context, work)


def answer_lease(context: Context, run_id: str, fence: int, outcome: Outcome) -> Ended:
    """Write the outcome of a live lease; the same answer again is no news, any other is refused as stale."""
    now = context.now()

    def look(tx: Transaction) -> tuple[Run, Run | None]:
        run = find_run(tx, context.namespace, run_id)
        return run, reported(tx, run) if _is_held(run, fence) else None

    run, told = context.store.read(look)
    if told is None:
        if not context.store.read(lambda tx: _was_said(tx, run_id, fence, outcome)):
            raise _lost(run_id, fence)
        return _ended(context, run_id)
    answer = Answer(run=told, outcome=outcome, started_at=run.started_at or run.leased_at)
    settled = settle_answers(context.store, [answer], now=now)
    context.tell(settled.facts)
    if settled.stale:
        raise _lost(run_id, fence)
    return _ended(context, run_id)


def start_lease(context: Context, run_id: str, fence: int) -> Ended:
    """Note that the work of a live lease began: it has its whole time from here on."""
    now = context.now()
    run = context.store.read(lambda tx: find_run(tx, context.namespace, run_id))
    if not _is_held(run, fence):
        raise _lost(run_id, fence)
    started(context.store, run, now=now)
    return _ended(context, run_id)


def _settle(context: Context, ask: Held, outcome: Outcome) -> Ended:
    if ask.lease and not ask.run:
        run = context.store.read(lambda tx: _by_lease(tx, context.namespace, ask.lease))
        return answer_lease(context, run.id, run.fence, outcome)
    return answer_lease(context, *_named(ask), outcome)


def _held(tx: Transaction, namespace: str, ask: Held) -> Run:
    """The run whose lease is meant, if that lease is still the one that counts."""
    if ask.lease and not ask.run:
        return _by_lease(tx, namespace, ask.lease)
    run_id, fence = _named(ask)
    run = find_run(tx, namespace, run_id)
    if not _is_held(run, fence):
        raise _lost(run_id, fence)
    return run


def _is_held(run: Run, fence: int) -> bool:
    return run.state is RunState.LEASED and run.fence == fence


def _named(ask: Held) -> tuple[str, int]:
    if not ask.run or ask.fence is None:
        raise InvalidInput(
            "which lease?",
            field="lease",
            rule="a lease by its id, or a run and its fence",
            fix="the run and fence that queue lease gave",
        )
    return ask.run, ask.fence


def _was_said(tx: Transaction, run_id: str, fence: int, outcome: Outcome) -> bool:
    """Whether exactly this answer was written before: whoever sent it may not have heard so."""
    tag = str(type(outcome).__struct_config__.tag)
    attempts = tx.get_attempts([run_id]).get(run_id, ())
    return any((a.fence, a.outcome, a.result) == (fence, tag, outcome.result) for a in attempts)


def _by_lease(tx: Transaction, namespace: str, lease_id: str) -> Run:
    run = tx.find_lease(lease_id)
    if run is not None and run.namespace == namespace:
        return run
    raise NotFound(
        f"no lease {lease_id[:255]!r} is out",
        field="lease",
        value=lease_id[:255],
        rule="a lease of this namespace that nobody has answered, lost or taken back yet",
        fix="stop this work; if you never heard back, answer again with run and fence instead of lease",
    )


def _lost(run_id: str, fence: int) -> Stale:
    return Stale(
        f"the lease of {run_id} with fence {fence} is over",
        field="fence",
        value=fence,
        rule="only the newest lease of a run may answer, and only once",
        fix="stop this work; run get shows what became of it",
    )


def _ended(context: Context, run_id: str) -> Ended:
    def work(tx: Transaction) -> Ended:
        run = tx.get_runs([run_id])[run_id]
        return Ended(run=run_row(run, schedule=names_of_schedules(tx, [run]).get(run.schedule_id, "")))

    return context.store.read(work)
