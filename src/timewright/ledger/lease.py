"""Ready runs become leases under their ceilings; leases are renewed, and handed back by `settle`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import Fact, RunParked
from timewright.core.leasing import LeasePlan, Waiting, Waits, plan_leases
from timewright.core.lifecycle import RunEvent, run_after
from timewright.core.policies import QueuePolicy
from timewright.core.run import Reason, Run, RunState, Terms
from timewright.core.schedule import Schedule, queue_gate
from timewright.errors import OutcomeUnknown
from timewright.ledger.budgets import afford, charge, defer
from timewright.ledger.endings import end_runs
from timewright.ledger.following import without_needs
from timewright.ledger.policy_file import PolicyFile
from timewright.ledger.shelf import Pair, Under, queue_policies, queue_policy, terms_for
from timewright.ledger.telling import about, leased, skipped
from timewright.ports import Change, Grant, Ids, Renewal, Renewed, Store, Transaction

MOST_PLANNED = 10_000


class Lease(Struct, frozen=True, kw_only=True, gc=False):
    """A run that was handed out, with what it is attempted under."""

    run: Run
    schedule: Schedule | None
    terms: Terms


class Leased(Struct, frozen=True, kw_only=True):
    """What one pass of leasing did; `more` says that runs wait for nothing but capacity."""

    leases: tuple[Lease, ...] = ()
    facts: tuple[Fact, ...] = ()
    more: bool = False
    deferred: int = 0
    out_of_turn: bool = False


class _Ask(Struct, frozen=True, kw_only=True):
    """Who wants runs, how many, from where, and for how long."""

    batch: str
    holder: str
    capacity: int
    now: datetime
    handoff: bool
    queue: Pair | None
    length: timedelta | None
    closed: str | None
    turn: timedelta | None


def lease_ready(
    store: Store,
    *,
    ids: Ids,
    holder: str,
    capacity: int,
    now: datetime,
    handoff: bool = False,
    queue: tuple[str, str] | None = None,
    length: timedelta | None = None,
    policy_file: PolicyFile | None = None,
    turn: timedelta | None = None,
) -> Leased:
    """Lease at most `capacity` ready runs, best first; with a queue (namespace, name), only from that one.

    Those who take many wait for their `turn`, no longer than that: where all of them look at once, each walks
    past what the others hold.

    A policy file that could not be read leases nothing from a queue: whoever asks for one is told why, and
    an engine goes on with what is in none.
    """
    if policy_file is not None and (handoff or queue is not None):
        policy_file.check()
    if capacity < 1:
        return Leased()
    ask = _Ask(
        batch=ids.new("lease", now=now),
        holder=holder,
        capacity=capacity,
        now=now,
        handoff=handoff,
        queue=queue,
        length=length,
        closed=_closed_by(policy_file),
        turn=turn,
    )
    try:
        return _lease_some(store, ask)
    except OutcomeUnknown:
        # Our lease ids were chosen before the commit, so the store can tell whether it happened.
        return store.read(lambda tx: found_again(tx, ask.batch, holder=holder, now=now))


def plan_queue(store: Store, *, namespace: str, queue: str, now: datetime) -> tuple[LeasePlan, QueuePolicy]:
    """What a queue would lease now, and what waits and why; reads only.

    A lease that is over but not yet reclaimed frees its place in the plan, and is shown as leased.
    """

    def work(tx: Transaction) -> tuple[LeasePlan, QueuePolicy]:
        policy = queue_policy(tx, namespace, queue)
        runs = tx.queue_runs(namespace, queue, limit=MOST_PLANNED)
        gates = tx.read_gates({gate for run in runs for gate in run.gates} | {queue_gate(namespace, queue)})
        for gate in (gate for run in runs if _is_over(run, now=now) for gate in run.gates):
            gates[gate] = replace(gates[gate], held=max(gates[gate].held - 1, 0))
        ageing = {(namespace, queue): policy.ageing} if policy.ageing is not None else {}
        return _within_budgets(tx, plan_leases(runs, gates=gates, ageing=ageing, now=now)), policy

    return store.read(work)


def _within_budgets(tx: Transaction, plan: LeasePlan) -> LeasePlan:
    """The plan without those who would have to wait for a budget or a provider."""
    if tx.book().is_empty:
        return plan
    spending = afford(tx, plan.leases, terms_for(tx, plan.leases), now=plan.now, hold=False)
    waiting = (Waiting(one.run.id, one.waits, gate=one.name, until=one.until) for one in spending.deferred)
    return replace(plan, leases=spending.granted, waiting=(*plan.waiting, *waiting))


def renew(store: Store, renewals: Sequence[Renewal], *, now: datetime) -> tuple[list[Renewed], list[Renewal]]:
    """Prolong leases; gives back those that hold, and those that were lost."""
    kept = store.write(lambda tx: tx.renew_leases(renewals, now=now))
    held = {(r.run_id, r.fence) for r in kept}
    return kept, [r for r in renewals if (r.run_id, r.fence) not in held]


def found_again(tx: Transaction, batch: str, *, holder: str, now: datetime) -> Leased:
    """What was leased under a batch of lease ids, for those who never heard whether they got it."""
    mine = [run for run in tx.leased_runs(holder=holder) if run.lease_id.startswith(f"{batch}-")]
    return _answer(mine, terms_for(tx, mine), now=now, more=True)


def _lease_some(store: Store, ask: _Ask) -> Leased:
    """Look again where all who came first must wait for a budget: others behind them need not.

    Whoever missed its turn has waited long enough, and comes again.
    """
    found = store.write(lambda tx: _lease(tx, ask))
    facts = list(found.facts)
    while found.deferred and not (found.leases or found.out_of_turn):
        found = store.write(lambda tx: _lease(tx, ask))
        facts += found.facts
    return replace(found, facts=tuple(facts)) if len(facts) > len(found.facts) else found


def _lease(tx: Transaction, ask: _Ask) -> Leased:
    if ask.turn is None:
        return _lease_best(tx, ask)
    turn = tx.take_turn(patience=ask.turn)
    # It may have been long in coming: what is leased counts from now.
    found = _lease_best(tx, replace(ask, now=max(ask.now, turn.at)))
    return found if turn.had else replace(found, out_of_turn=True)


def _lease_best(tx: Transaction, ask: _Ask) -> Leased:
    known = {ask.queue: queue_policy(tx, *ask.queue)} if ask.queue is not None else {}
    ready, policies = _candidates(tx, ask, known)
    if not ready:
        return Leased()
    under = terms_for(tx, ready, policies=policies)
    fit, facts = _set_aside(tx, ready, under, now=ask.now)
    plan = plan_leases(
        fit,
        gates=tx.hold_gates(gate for run in fit for gate in run.gates),
        capacity=ask.capacity,
        ageing=_ageing(policies),
        now=ask.now,
    )
    spending = afford(tx, plan.leases, under, now=ask.now)
    granted = tx.lease_runs(_grants(spending.granted, under, ask, now=_granted_at(tx, ask, spending.granted)))
    if spending.charges or spending.deferred:
        charge(tx, spending.charges, granted=granted)
        facts += defer(tx, spending.deferred, now=ask.now)
    waits = any(waiting.reason is Waits.CAPACITY for waiting in plan.waiting)
    more = waits or len(granted) < len(plan.leases) or len(fit) < len(ready)
    found = _answer(granted, under, now=ask.now, more=more, facts=facts)
    return replace(found, deferred=len(spending.deferred)) if spending.deferred else found


def _candidates(
    tx: Transaction, ask: _Ask, known: Mapping[Pair, QueuePolicy]
) -> tuple[list[Run], dict[Pair, QueuePolicy]]:
    """The best of each line whose policy can be read; where waiting counts, its longest waiting too."""
    gate = queue_gate(*ask.queue) if ask.queue is not None else ""
    best = tx.ready_runs(now=ask.now, limit=ask.capacity + 1, handoff=ask.handoff, queue=gate)
    queues = {(run.namespace, run.queue) for run in best if run.queue}
    if not queues:
        return best, {}
    policies = known if queues <= known.keys() else queue_policies(tx, queues)
    closed = {pair for pair in policies if pair[0] == ask.closed}
    policies = {pair: policy for pair, policy in policies.items() if pair not in closed}
    found = {run.id: run for run in best if not run.queue or (run.namespace, run.queue) in policies}
    ageing = _ageing(policies)
    for gates in {run.gates for run in found.values() if (run.namespace, run.queue) in ageing}:
        oldest = tx.oldest_ready_runs(gates=gates, limit=ask.capacity, handoff=ask.handoff)
        found |= {run.id: run for run in oldest}
    return list(found.values()), policies


def _closed_by(file: PolicyFile | None) -> str | None:
    """The namespace whose queues are closed because nobody can read what they stand under."""
    return file.namespace if file is not None and file.refusal is not None else None


def _set_aside(
    tx: Transaction, ready: Sequence[Run], under: Mapping[str, Under], *, now: datetime
) -> tuple[list[Run], list[Fact]]:
    """Those that may start; the deadline is looked at again at every attempt to start."""
    late, unreadable, needy = [], [], []
    for run in ready:
        one = under[run.id]
        schedule = one.schedule
        if not one.readable:
            unreadable.append(run)
        elif schedule is None:
            continue
        elif schedule.deadline is not None and now - run.planned_at > schedule.deadline:
            late.append(run)
        elif schedule.needs:
            needy.append(run)
    ends = [
        *(_ended(run, RunEvent.SKIP, Reason.DEADLINE, now=now) for run in late),
        *(_ended(run, RunEvent.PARK, Reason.UNREADABLE, now=now) for run in unreadable),
    ]
    asleep, unmet = without_needs(tx, needy, now=now) if needy else ([], [])
    ends += unmet
    if not ends and not asleep:
        return list(ready), []
    aside = {change.run.id for change in (*ends, *asleep)}
    gone = tx.change_runs([*ends, *asleep])
    facts = [_told(end.run, now=now) for end in ends if end.run.id in gone]
    facts += end_runs(tx, [(e.run, under[e.run.id].schedule) for e in ends if e.run.id in gone], now=now)
    return [run for run in ready if run.id not in aside], facts


def _ended(run: Run, event: RunEvent, reason: Reason, *, now: datetime) -> Change:
    after = replace(run, state=run_after(run.state, event), reason=reason.value, finished_at=now)
    return Change(after, run.state, run.fence)


def _told(run: Run, *, now: datetime) -> Fact:
    if run.state is RunState.SKIPPED:
        return skipped(run, now=now)
    return RunParked(fence=run.fence, attempts=run.attempts, reason=run.reason, **about(run, now=now))


def _granted_at(tx: Transaction, ask: _Ask, runs: Sequence[Run]) -> datetime:
    """When a grant begins: what was read before may be older than the end of those whose place it takes.

    Between the clock and the gates a process may stand still, or wait for others.
    """
    return max(ask.now, tx.now()) if any(run.gates for run in runs) else ask.now


def _grants(runs: Sequence[Run], under: Mapping[str, Under], ask: _Ask, *, now: datetime) -> list[Grant]:
    lengths = [ask.length or under[run.id].terms.lease.length for run in runs]
    ends = {length: now + length for length in set(lengths)}
    return [
        Grant(
            run=run,
            lease_id=f"{ask.batch}-{number}",
            holder=ask.holder,
            leased_at=now,
            lease_until=ends[length],
        )
        for number, (run, length) in enumerate(zip(runs, lengths, strict=True), start=1)
    ]


def _ageing(policies: Mapping[Pair, QueuePolicy]) -> dict[Pair, timedelta]:
    return {pair: policy.ageing for pair, policy in policies.items() if policy.ageing is not None}


def _is_over(run: Run, *, now: datetime) -> bool:
    return run.state is RunState.LEASED and run.lease_until is not None and run.lease_until <= now


def _answer(
    runs: Sequence[Run], under: Mapping[str, Under], *, now: datetime, more: bool, facts: Sequence[Fact] = ()
) -> Leased:
    return Leased(
        leases=tuple(
            Lease(run=run, schedule=under[run.id].schedule, terms=under[run.id].terms) for run in runs
        ),
        facts=(*facts, *(leased(run, now=now) for run in runs)),
        more=more,
    )
