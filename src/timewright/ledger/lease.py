"""Leases ready runs within their limits and budgets, and renews leases; `settle` ends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import Fact, RunDeferred, RunParked
from timewright.core.policies.policies import QueuePolicy
from timewright.core.run.leasing import (
    LeasePlan,
    WaitingRun,
    WaitReason,
    plan_leases,
    update_groups,
    use_limits,
)
from timewright.core.run.lifecycle import RunEvent, next_run_state
from timewright.core.run.needs import LeaseOffer
from timewright.core.run.run import TERMINAL_STATES, ExecutionTerms, Reason, Run, RunState
from timewright.core.schedule.schedule import Schedule, queue_limit_key
from timewright.errors import OutcomeUnknown
from timewright.ledger.alerts.deliveries import deliver_facts
from timewright.ledger.budgets.charges import defer_runs, record_charges, select_affordable
from timewright.ledger.dependencies.follow_ups import split_by_needs
from timewright.ledger.fact_builders import leased_fact, run_fields, skipped_fact
from timewright.ledger.lookups import QueueKey, RunTerms, load_queue_policies, load_queue_policy, load_terms
from timewright.ledger.pauses import PauseLookup, find_paused, load_pauses, shown_end
from timewright.ledger.queues.policies import PolicyFile
from timewright.ledger.records.schedule_states import KeptState
from timewright.ledger.run_ends import apply_finished_runs
from timewright.ports import Grant, Ids, Renewal, Renewed, RunChange, RunFilter, Store, Transaction
from timewright.ports.attempt_output import RunProgress
from timewright.ports.rows import LeasedRuns, QueuedRuns

MAX_PLANNED_RUNS = 10_000
MAX_FINISHED_SHOWN = 1000
MAX_DEFERRED_RUNS = 1000


class Lease(Struct, frozen=True, kw_only=True, gc=False):
    """A leased run, with its schedule and the terms of its attempt."""

    run: Run
    schedule: Schedule | None
    terms: ExecutionTerms
    state: KeptState | None = None
    checkpoint: Any = None


class LeaseResult(Struct, frozen=True, kw_only=True):
    """What one leasing did; `more` says that further runs wait only for capacity."""

    leases: tuple[Lease, ...] = ()
    facts: tuple[Fact, ...] = ()
    more: bool = False
    deferred: int = 0


class _LeaseRequest(Struct, frozen=True, kw_only=True):
    """Who leases how many runs, from which queue, and for how long."""

    batch: str
    holder: str
    capacity: int
    now: datetime
    handoff: bool
    queue: QueueKey | None
    length: timedelta | None
    closed_namespace: str | None
    offer: LeaseOffer | None


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
    offer: LeaseOffer | None = None,
) -> LeaseResult:
    """Lease at most `capacity` ready runs, best first; with `queue` (namespace, name), only from that queue.

    With `offer`, only runs are leased that the instance can run and start now.
    While the policy file is unreadable, nothing is leased from queues: a request for a queue raises its
    error, an engine continues with runs outside of queues.
    """
    if policy_file is not None and (handoff or queue is not None):
        policy_file.check()
    if capacity < 1:
        return LeaseResult()
    request = _LeaseRequest(
        batch=ids.new("lease", now=now),
        holder=holder,
        capacity=capacity,
        now=now,
        handoff=handoff,
        queue=queue,
        length=length,
        closed_namespace=_closed_namespace(policy_file),
        offer=offer,
    )
    try:
        return _lease_until_granted(store, request)
    except OutcomeUnknown:
        # The lease ids were chosen before the commit, so the store can tell whether it succeeded.
        return store.read(lambda tx: find_leased_batch(tx, request.batch, holder=holder, now=now))


def plan_queue(
    store: Store, *, namespace: str, queue: str, now: datetime, finished: bool = False
) -> tuple[LeasePlan, QueuePolicy]:
    """What a queue would lease now, and which runs wait for what; writes nothing.

    With `finished`, the newest MAX_FINISHED_SHOWN finished runs are listed as terminal. A lease that has
    expired and is not reclaimed yet is shown as leased and counts against no limit.
    """

    def work(tx: Transaction) -> tuple[LeasePlan, QueuePolicy]:
        policy = load_queue_policy(tx, namespace, queue)
        runs = tx.select(QueuedRuns(namespace, queue, limit=MAX_PLANNED_RUNS))
        limits = tx.get_limits(
            {key for run in runs for key in run.limit_keys} | {queue_limit_key(namespace, queue)}
        )
        for key in (key for run in runs if _has_expired(run, now=now) for key in run.limit_keys):
            limits[key] = replace(limits[key], held=max(limits[key].held - 1, 0))
        if finished:
            newest = tx.find(RunFilter(namespace=namespace, queue=queue, limit=MAX_FINISHED_SHOWN))
            runs += [run for run in newest.rows if run.state in TERMINAL_STATES]
        ageing = {(namespace, queue): policy.ageing} if policy.ageing is not None else {}
        plan = plan_leases(runs, limits=limits, ageing=ageing, now=now)
        return _within_budgets(tx, _within_pauses(tx, plan)), policy

    return store.read(work)


def _within_pauses(tx: Transaction, plan: LeasePlan) -> LeasePlan:
    """The plan without the runs that are paused."""
    paused = find_paused(tx, plan.leases, load_terms(tx, plan.leases), load_pauses(tx, now=plan.now))
    ids = {one.run.id for one in paused}
    waiting = (WaitingRun(one.run.id, one.wait_reason, one.name, shown_end(one.until)) for one in paused)
    leases = tuple(run for run in plan.leases if run.id not in ids)
    return replace(plan, leases=leases, waiting=(*plan.waiting, *waiting)) if paused else plan


def _within_budgets(tx: Transaction, plan: LeasePlan) -> LeasePlan:
    """The plan without the runs that have to wait for a budget or a provider."""
    if tx.read_budgets().is_empty:
        return plan
    spending = select_affordable(tx, plan.leases, load_terms(tx, plan.leases), now=plan.now, hold=False)
    waiting = (
        WaitingRun(one.run.id, one.wait_reason, blocked_by=one.name, until=one.until)
        for one in spending.deferred
    )
    return replace(plan, leases=spending.granted, waiting=(*plan.waiting, *waiting))


def add_checkpoints(tx: Transaction, leases: Sequence[Lease]) -> Sequence[Lease]:
    """Add the checkpoints of earlier attempts; a run that was never leased before has none."""
    again = [one.run.id for one in leases if one.run.fence > 1]
    if not again:
        return leases
    found = tx.get_run_rows(RunProgress, again)
    return [
        replace(one, checkpoint=found[one.run.id][0].checkpoint) if one.run.id in found else one
        for one in leases
    ]


def renew_leases(store: Store, renewals: Sequence[Renewal]) -> tuple[list[Renewed], list[Renewal]]:
    """Renew leases; return the renewed ones and the lost ones."""
    kept = store.write(lambda tx: tx.renew_leases(renewals))
    held = {(r.run_id, r.fence) for r in kept}
    return kept, [r for r in renewals if (r.run_id, r.fence) not in held]


def find_leased_batch(tx: Transaction, batch: str, *, holder: str, now: datetime) -> LeaseResult:
    """The leases of a batch of lease ids, for a caller that does not know whether its commit succeeded."""
    mine = [run for run in tx.select(LeasedRuns(holder=holder)) if run.lease_id.startswith(f"{batch}-")]
    return _build_result(mine, load_terms(tx, mine), now=now, more=True)


def _lease_until_granted(store: Store, request: _LeaseRequest) -> LeaseResult:
    """Lease; if all candidates had to be deferred for a budget, repeat with the runs behind them."""
    found = store.write(lambda tx: _lease(tx, request))
    facts = list(found.facts)
    while found.deferred and not found.leases:
        found = store.write(lambda tx: _lease(tx, request))
        facts += found.facts
    return replace(found, facts=tuple(facts)) if len(facts) > len(found.facts) else found


def _lease(tx: Transaction, request: _LeaseRequest) -> LeaseResult:
    known = {request.queue: load_queue_policy(tx, *request.queue)} if request.queue is not None else {}
    pauses = load_pauses(tx, now=request.now)
    if request.offer is not None and pauses.holds_installation:
        request = replace(request, offer=replace(request.offer, messages_only=True))
    ready, policies = _candidates(tx, request, known)
    if not ready:
        return LeaseResult()
    terms = load_terms(tx, ready, policies=policies)
    paused = _defer_paused(tx, ready, terms, request, pauses)
    if paused:
        deferred = {fact.run_id for fact in paused}
        ready = [run for run in ready if run.id not in deferred]
    fit, facts = _remove_unstartable(tx, ready, terms, now=request.now)
    facts = [*paused, *facts]
    limits = tx.get_limits((key for run in fit for key in run.limit_keys), lock=True)
    limited_at = _granted_at(tx, request, fit)
    # What is due is decided by `now`, as in the reads above; limits are counted by the store's own time, at
    # which a deadline may have passed: the next leasing ends such a run.
    late = {run.id for run in fit if _is_past_deadline(run, terms, now=limited_at)}
    plan = plan_leases(
        [run for run in fit if run.fire_at <= request.now and run.id not in late],
        limits=limits,
        capacity=request.capacity,
        ageing=_ageing(policies),
        offer=request.offer,
        now=limited_at,
    )
    spending = select_affordable(tx, plan.leases, terms, now=request.now)
    granted_at = limited_at if any(run.limit_keys for run in spending.granted) else request.now
    granted = tx.lease_runs(_grants(spending.granted, terms, request, now=granted_at))
    used = use_limits(limits, granted, now=limited_at)
    if used:
        tx.save_limit_use(used, update_groups(fit, granted, used, now=limited_at), now=limited_at)
    if spending.charges or spending.deferred:
        record_charges(tx, spending.charges, granted=granted)
        facts += defer_runs(tx, spending.deferred, now=request.now)
    lacks_capacity = any(waiting.reason is WaitReason.CAPACITY for waiting in plan.waiting)
    more = lacks_capacity or len(granted) < len(plan.leases) or len(fit) < len(ready) or bool(late)
    found = _build_result(granted, terms, now=request.now, more=more, facts=facts)
    schedules = {one.schedule.id: one.schedule for one in terms.values() if one.schedule is not None}
    told = deliver_facts(tx, found.facts, schedules, now=request.now)
    found = replace(found, facts=(*found.facts, *told)) if told else found
    deferred_count = len(spending.deferred) + len(paused)
    return replace(found, deferred=deferred_count) if deferred_count else found


def _defer_paused(
    tx: Transaction,
    ready: Sequence[Run],
    terms: Mapping[str, RunTerms],
    request: _LeaseRequest,
    pauses: PauseLookup,
) -> list[RunDeferred]:
    """Defer the paused runs, with up to 1000 others of their buckets, so that they are not read again."""
    found = find_paused(tx, ready, terms, pauses)
    if not found:
        return []
    for bucket in {(one.run.needs, one.run.limit_keys) for one in found}:
        oldest = tx.ready_runs(
            now=request.now, limit=MAX_DEFERRED_RUNS, handoff=request.handoff, oldest_of=bucket
        )
        others = [run for run in oldest if run.id not in terms]
        found += find_paused(tx, others, load_terms(tx, others), pauses)
    return defer_runs(tx, found, now=request.now)


def _candidates(
    tx: Transaction, request: _LeaseRequest, known: Mapping[QueueKey, QueuePolicy]
) -> tuple[list[Run], dict[QueueKey, QueuePolicy]]:
    """The best runs of each queue with a readable policy; with ageing, also the longest waiting ones."""
    queue_key = queue_limit_key(*request.queue) if request.queue is not None else ""
    best = tx.ready_runs(
        now=request.now,
        limit=request.capacity + 1,
        handoff=request.handoff,
        queue=queue_key,
        offer=request.offer,
    )
    queues = {(run.namespace, run.queue) for run in best if run.queue}
    if not queues:
        return best, {}
    policies = known if queues <= known.keys() else load_queue_policies(tx, queues)
    closed = {pair for pair in policies if pair[0] == request.closed_namespace}
    policies = {pair: policy for pair, policy in policies.items() if pair not in closed}
    found = {run.id: run for run in best if not run.queue or (run.namespace, run.queue) in policies}
    ageing = _ageing(policies)
    aged = (run for run in found.values() if (run.namespace, run.queue) in ageing)
    for bucket in {(run.needs, run.limit_keys) for run in aged}:
        oldest = tx.ready_runs(
            now=request.now, limit=request.capacity, handoff=request.handoff, oldest_of=bucket
        )
        found |= {run.id: run for run in oldest}
    return list(found.values()), policies


def _closed_namespace(file: PolicyFile | None) -> str | None:
    """The namespace whose queues lease nothing because their policy file is unreadable."""
    return file.namespace if file is not None and file.error is not None else None


def _remove_unstartable(
    tx: Transaction, ready: Sequence[Run], terms: Mapping[str, RunTerms], *, now: datetime
) -> tuple[list[Run], list[Fact]]:
    """Return the runs that may start; end those past their deadline, defer those with unmet needs.

    The deadline is checked again before every attempt.
    """
    late, unreadable, needy = [], [], []
    for run in ready:
        schedule = terms[run.id].schedule
        if not terms[run.id].readable:
            unreadable.append(run)
        elif _is_past_deadline(run, terms, now=now):
            late.append(run)
        elif schedule is not None and schedule.needs:
            needy.append(run)
    ends = [
        *(_ended(run, RunEvent.SKIP, Reason.DEADLINE, now=now) for run in late),
        *(_ended(run, RunEvent.PARK, Reason.UNREADABLE, now=now) for run in unreadable),
    ]
    deferred, unmet = split_by_needs(tx, needy, now=now) if needy else ([], [])
    ends += unmet
    if not ends and not deferred:
        return list(ready), []
    removed = {change.run.id for change in (*ends, *deferred)}
    changed = tx.change_runs([*ends, *deferred])
    facts = [_end_fact(end.run, now=now) for end in ends if end.run.id in changed]
    facts += apply_finished_runs(
        tx, [(e.run, terms[e.run.id].schedule) for e in ends if e.run.id in changed], now=now
    )
    return [run for run in ready if run.id not in removed], facts


def _is_past_deadline(run: Run, terms: Mapping[str, RunTerms], *, now: datetime) -> bool:
    schedule = terms[run.id].schedule
    deadline = schedule.deadline if schedule is not None else None
    return deadline is not None and now - run.planned_at > deadline


def _ended(run: Run, event: RunEvent, reason: Reason, *, now: datetime) -> RunChange:
    after = replace(run, state=next_run_state(run.state, event), reason=reason.value, finished_at=now)
    return RunChange(after, run.state, run.fence)


def _end_fact(run: Run, *, now: datetime) -> Fact:
    if run.state is RunState.SKIPPED:
        return skipped_fact(run, now=now)
    return RunParked(fence=run.fence, attempts=run.attempts, reason=run.reason, **run_fields(run, now=now))


def _granted_at(tx: Transaction, request: _LeaseRequest, runs: Sequence[Run]) -> datetime:
    """When a lease begins: under a limit, not before the end of the lease whose slot it takes.

    The process may have been suspended, or have waited for the lock, since `now` was read.
    """
    return max(request.now, tx.now()) if any(run.limit_keys for run in runs) else request.now


def _grants(
    runs: Sequence[Run], terms: Mapping[str, RunTerms], request: _LeaseRequest, *, now: datetime
) -> list[Grant]:
    lengths = [request.length or terms[run.id].terms.lease.length for run in runs]
    ends = {length: now + length for length in set(lengths)}
    return [
        Grant(
            run=run,
            lease_id=f"{request.batch}-{number}",
            holder=request.holder,
            leased_at=now,
            lease_until=ends[length],
        )
        for number, (run, length) in enumerate(zip(runs, lengths, strict=True), start=1)
    ]


def _ageing(policies: Mapping[QueueKey, QueuePolicy]) -> dict[QueueKey, timedelta]:
    return {pair: policy.ageing for pair, policy in policies.items() if policy.ageing is not None}


def _has_expired(run: Run, *, now: datetime) -> bool:
    return run.state is RunState.LEASED and run.lease_until is not None and run.lease_until <= now


def _build_result(
    runs: Sequence[Run],
    terms: Mapping[str, RunTerms],
    *,
    now: datetime,
    more: bool,
    facts: Sequence[Fact] = (),
) -> LeaseResult:
    return LeaseResult(
        leases=tuple(
            Lease(run=run, schedule=terms[run.id].schedule, terms=terms[run.id].terms) for run in runs
        ),
        facts=(*facts, *(leased_fact(run, now=now) for run in runs)),
        more=more,
    )
