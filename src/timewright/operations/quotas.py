"""Quotas of a namespace for remote callers; a caller with direct access to the store has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from timewright.core.facts import Fact, RunAdmitted, ScheduleChanged
from timewright.core.moments import MINUTE, format_duration
from timewright.core.recurrence.triggers import AnyOf
from timewright.core.schedule.forecast import forecast
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.errors import OverQuota
from timewright.ledger.lookups import load_calendars
from timewright.ledger.records.namespaces import Namespace
from timewright.ledger.schedule_progress import progress_when_created
from timewright.operations.access.auth_cache import RateLimit
from timewright.operations.access.callers import Scope
from timewright.operations.context import OperationContext, dry_run, in_transaction
from timewright.ports import ScheduleRecord, Transaction
from timewright.ports.overview import QuotaUse

T = TypeVar("T")

MAX_CHECKED = 1000
SAMPLE_OCCURRENCES = 3
# Workers call these as often as they work, and they add nothing: they count against no quota.
_LEASING = ("lease", "renew", "complete", "release", "reclaim", "drain")
LEASE_OPERATIONS = frozenset({"run report", *(f"queue {verb}" for verb in _LEASING)})
# No transaction may stay open around these: they act outside the store, or set the clock of the store itself.
EXTERNAL_OPERATIONS = frozenset({"clock accept", "schedule test"})


def perform_within_quota(
    context: OperationContext,
    work: Callable[[OperationContext], T],
    *,
    scope: Scope,
    payload: object,
    is_dry_run: bool,
) -> T:
    """Perform a write, and commit it only if the result is within the quotas."""
    quotas = context.quotas()
    _check_size(payload, quotas)

    def perform(nested: OperationContext) -> T:
        facts_seen: list[Fact] = []

        def notify(facts: Sequence[Fact]) -> None:
            facts_seen.extend(facts)
            nested.notify(facts)

        answer = work(replace(nested, notify=notify))
        admits_runs = any(isinstance(fact, RunAdmitted) for fact in facts_seen)
        if admits_runs and scope == "trigger" and not is_dry_run:
            _take_trigger(nested, quotas)
        nested.store.read(lambda tx: _check_totals(tx, nested, facts_seen, quotas))
        return answer

    return (dry_run if is_dry_run else in_transaction)(context, perform)


def charge_target_test(context: OperationContext, payload: object) -> None:
    """Count a target test of a remote caller before it starts."""
    quotas = context.quotas()
    _check_size(payload, quotas)
    _take_trigger(context, quotas)


def charge_request(
    context: OperationContext,
    *,
    quotas: Namespace | None = None,
    now: datetime | None = None,
) -> None:
    """Count a request of a remote caller; an interface that knows the quotas and the time may pass them."""
    if context.caller.local or context.auth_cache is None:
        return
    quotas = quotas or context.quotas()
    rate = RateLimit(per_minute=quotas.requests_per_minute)
    context.auth_cache.limiter.take(_bucket_key(context, "requests"), now or context.now(), rate=rate)


def _take_trigger(context: OperationContext, quotas: Namespace) -> None:
    if context.auth_cache is not None:
        rate, whose = RateLimit(per_minute=quotas.triggers_per_minute), _bucket_key(context, "triggers")
        context.auth_cache.limiter.take(whose, context.now(), rate=rate, what="triggers")


def _bucket_key(context: OperationContext, what: str) -> str:
    return f"{what}\0{context.namespace}\0{context.caller.key or context.caller.actor}"


def _check_size(payload: object, quotas: Namespace) -> None:
    try:
        size = len(msgspec.json.encode(payload))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return  # parsing it raises a clearer error
    if size > quotas.body_bytes:
        raise OverQuota(
            f"the request is too large: {size} bytes",
            field="body_bytes",
            value=size,
            rule=f"at most {quotas.body_bytes} bytes in namespace {quotas.name}",
            fix="send a link instead of the data",
        )


def _check_totals(
    tx: Transaction, context: OperationContext, facts_seen: list[Fact], quotas: Namespace
) -> None:
    changed = [fact for fact in facts_seen if isinstance(fact, ScheduleChanged)]
    admits_runs = any(isinstance(fact, RunAdmitted) for fact in facts_seen)
    if changed or admits_runs:
        use = QuotaUse(
            namespace=context.namespace, max_schedules=quotas.schedules + 1, max_runs=quotas.backlog + 1
        )
        counts = tx.count(use)
        if any(fact.change == "created" for fact in changed) and counts["schedules"] > quotas.schedules:
            raise _too_many(
                "schedules", quotas.schedules, quotas, fix="archive schedules that are not needed"
            )
        if admits_runs and counts["runs"] > quotas.backlog:
            raise _too_many("backlog", quotas.backlog, quotas, fix="wait until some runs have finished")
    ids = sorted({fact.schedule_id for fact in changed if fact.change in ("created", "updated")})
    for record in tx.get_schedules(ids[:MAX_CHECKED]).values() if ids else ():
        _check_frequency(tx, record, quotas, origin=context.by.origin, now=context.now())


def _check_frequency(
    tx: Transaction, record: ScheduleRecord, quotas: Namespace, *, origin: str, now: datetime
) -> None:
    """Reject a schedule whose next occurrences are closer together than the quota allows."""
    if record.progress.state in (ScheduleState.ARCHIVED, ScheduleState.FINISHED):
        return
    schedule, calendars = record.schedule, load_calendars(tx, [record.schedule])
    max_per_minute, shortest = quotas.emissions_for(origin), quotas.interval_for(origin)

    def next_instants(one: Schedule, progress: ScheduleProgress, count: int) -> list[datetime]:
        rows = forecast(one, progress, now=now, count=count, calendars=calendars.for_schedule(schedule))
        return [row.planned_at for row in rows]

    # With several expressions, one may be dense later although the next few of all are far apart.
    parts = schedule.trigger.triggers if isinstance(schedule.trigger, AnyOf) else ()
    for trigger in (schedule.trigger, *parts):
        one = replace(schedule, trigger=trigger)
        waits = record.progress.state is ScheduleState.PENDING_APPROVAL
        uses_progress = trigger is schedule.trigger and not waits
        progress = record.progress if uses_progress else progress_when_created(one, calendars, now=now)
        planned = next_instants(one, progress, SAMPLE_OCCURRENCES)
        # Two instants within a minute show among any three; only then is a whole minute counted.
        if isinstance(trigger, AnyOf) or _shortest_gap(planned) < MINUTE or shortest > MINUTE:
            planned = next_instants(one, progress, min(max_per_minute, MAX_CHECKED) + 1)
        _check_gaps(schedule.name, planned, quotas, origin=origin)


def _shortest_gap(planned: list[datetime]) -> timedelta:
    """Return the shortest time between two consecutive instants."""
    return min((after - before for before, after in pairwise(planned)), default=timedelta.max)


def _check_gaps(name: str, planned: list[datetime], quotas: Namespace, *, origin: str) -> None:
    max_per_minute, shortest = quotas.emissions_for(origin), quotas.interval_for(origin)
    gap = _shortest_gap(planned)
    if gap < shortest:
        raise OverQuota(
            f"schedule {name} would run every {format_duration(gap)}",
            field="shortest_interval",
            value=format_duration(gap),
            rule=f"at least {format_duration(shortest)} between two occurrences{_for_agents(origin)}",
            fix=f"every: {format_duration(shortest)}",
        )
    if len(planned) > max_per_minute and planned[max_per_minute] - planned[0] < MINUTE:
        raise OverQuota(
            f"schedule {name} would run more than {max_per_minute} times a minute",
            field="emissions_per_minute",
            value=max_per_minute,
            rule=f"at most {max_per_minute} occurrences a minute{_for_agents(origin)}",
            fix=f"every: {format_duration(MINUTE / max(max_per_minute, 1))}",
        )


def _for_agents(origin: str) -> str:
    return " for an agent" if origin == "agent" else ""


def _too_many(field: str, limit: int, quotas: Namespace, *, fix: str) -> OverQuota:
    return OverQuota(
        f"namespace {quotas.name} already has {limit} {field}"
        if limit
        else f"namespace {quotas.name} allows no {field}",
        field=field,
        value=limit,
        rule=f"at most {limit}",
        fix=fix,
    )
