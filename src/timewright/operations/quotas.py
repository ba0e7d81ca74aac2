"""How much a caller from outside may ask for; whoever has the store itself is not counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from timewright.core.facts import Fact, RunAdmitted, ScheduleChanged
from timewright.core.forecast import forecast
from timewright.core.moments import spell_duration
from timewright.core.schedule import Schedule, ScheduleState, Standing
from timewright.core.triggers import AnyOf
from timewright.errors import OverQuota
from timewright.ledger.namespaces import Namespace, namespace_of
from timewright.ledger.shelf import calendars_for
from timewright.ledger.standings import opened
from timewright.operations.callers import Scope
from timewright.operations.context import Context, rehearse, together
from timewright.operations.limiter import Rate
from timewright.ports import Due, Transaction

T = TypeVar("T")

MINUTE = timedelta(minutes=1)
MOST_LOOKED_AT = 1000
FEW = 3
# What a worker does with what it leased adds nothing, and is as frequent as the work is.
_LEASING = ("lease", "renew", "complete", "release", "reclaim", "drain")
WORKING = frozenset({"run report", *(f"queue {verb}" for verb in _LEASING)})
# What acts outside and writes nothing: no transaction may be held open around it.
OUTSIDE = frozenset({"schedule test"})


def within_quota(
    context: Context, work: Callable[[Context], T], *, scope: Scope, payload: object, rehearsed: bool
) -> T:
    """Do something that writes, and keep it only if what it leaves behind is within the quotas."""
    terms = context.store.read(lambda tx: namespace_of(tx, context.namespace))
    _check_size(payload, terms)

    def watched(inside: Context) -> T:
        seen: list[Fact] = []

        def tell(facts: Sequence[Fact]) -> None:
            seen.extend(facts)
            inside.tell(facts)

        answer = work(replace(inside, tell=tell))
        admits = any(isinstance(fact, RunAdmitted) for fact in seen)
        if admits and scope == "trigger" and not rehearsed:
            _take_trigger(inside, terms)
        inside.store.read(lambda tx: _check(tx, inside, seen, terms))
        return answer

    return (rehearse if rehearsed else together)(context, watched)


def take_trial(context: Context, payload: object) -> None:
    """Count something that is tried by a caller from outside, before it is."""
    terms = context.store.read(lambda tx: namespace_of(tx, context.namespace))
    _check_size(payload, terms)
    _take_trigger(context, terms)


def take_request(
    context: Context, *, cost: float = 1.0, terms: Namespace | None = None, now: datetime | None = None
) -> None:
    """Count a request of a caller from outside; a door that knows the terms and the time may say them."""
    if context.caller.local or context.doorkeeper is None:
        return
    terms = terms or context.store.read(lambda tx: namespace_of(tx, context.namespace))
    rate = Rate(per_minute=terms.requests_per_minute)
    context.doorkeeper.limiter.take(_whose(context, "requests"), cost, now or context.now(), rate=rate)


def _take_trigger(context: Context, terms: Namespace) -> None:
    if context.doorkeeper is not None:
        rate, whose = Rate(per_minute=terms.triggers_per_minute), _whose(context, "triggers")
        context.doorkeeper.limiter.take(whose, 1, context.now(), rate=rate, what="triggers")


def _whose(context: Context, what: str) -> str:
    return f"{what}\0{context.namespace}\0{context.caller.key or context.caller.actor}"


def _check_size(payload: object, terms: Namespace) -> None:
    try:
        size = len(msgspec.json.encode(payload))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return  # reading it refuses it with better words
    if size > terms.body_bytes:
        raise OverQuota(
            f"the request has {size} bytes",
            field="body_bytes",
            value=size,
            rule=f"at most {terms.body_bytes} bytes in namespace {terms.name}",
            fix="send a link instead of the data",
        )


def _check(tx: Transaction, context: Context, seen: list[Fact], terms: Namespace) -> None:
    changed = [fact for fact in seen if isinstance(fact, ScheduleChanged)]
    admits = any(isinstance(fact, RunAdmitted) for fact in seen)
    if changed or admits:
        schedules, waiting = tx.count_namespace(
            context.namespace, most_schedules=terms.schedules + 1, most_runs=terms.backlog + 1
        )
        if any(fact.change == "created" for fact in changed) and schedules > terms.schedules:
            raise _too_many("schedules", terms.schedules, terms, fix="schedule archive what is not needed")
        if admits and waiting > terms.backlog:
            raise _too_many("backlog", terms.backlog, terms, fix="wait until some of it has run")
    ids = sorted({fact.schedule_id for fact in changed if fact.change in ("created", "updated")})
    for due in tx.get_schedules(ids[:MOST_LOOKED_AT]).values() if ids else ():
        _check_pace(tx, due, terms, origin=context.by.origin, now=context.now())


def _check_pace(tx: Transaction, due: Due, terms: Namespace, *, origin: str, now: datetime) -> None:
    """Refuse a schedule whose next occurrences come faster than they may."""
    if due.standing.state in (ScheduleState.ARCHIVED, ScheduleState.FINISHED):
        return
    schedule, shelf = due.schedule, calendars_for(tx, [due.schedule])
    most, shortest = terms.emissions_for(origin), terms.interval_for(origin)

    def ahead(one: Schedule, standing: Standing, count: int) -> list[datetime]:
        rows = forecast(one, standing, now=now, count=count, calendars=shelf.of(schedule))
        return [row.planned_at for row in rows]

    # Of several expressions one may be crowded at a time when the next of all of them are far apart.
    parts = schedule.trigger.triggers if isinstance(schedule.trigger, AnyOf) else ()
    for trigger in (schedule.trigger, *parts):
        one = replace(schedule, trigger=trigger)
        waits = due.standing.state is ScheduleState.PENDING_APPROVAL
        is_whole = trigger is schedule.trigger and not waits
        standing = due.standing if is_whole else opened(one, shelf, now=now)
        planned = ahead(one, standing, FEW)
        # What has two instants in one minute shows it among any three; only then is a minute counted.
        if isinstance(trigger, AnyOf) or _closest(planned) < MINUTE or shortest > MINUTE:
            planned = ahead(one, standing, min(most, MOST_LOOKED_AT) + 1)
        _check_planned(schedule.name, planned, terms, origin=origin)


def _closest(planned: list[datetime]) -> timedelta:
    """The shortest time between two of them."""
    return min((after - before for before, after in pairwise(planned)), default=timedelta.max)


def _check_planned(name: str, planned: list[datetime], terms: Namespace, *, origin: str) -> None:
    most, shortest = terms.emissions_for(origin), terms.interval_for(origin)
    gap = _closest(planned)
    if gap < shortest:
        raise OverQuota(
            f"schedule {name} would run every {spell_duration(gap)}",
            field="shortest_interval",
            value=spell_duration(gap),
            rule=f"at least {spell_duration(shortest)} between two occurrences{_for(origin)}",
            fix=f"every: {spell_duration(shortest)}",
        )
    if len(planned) > most and planned[most] - planned[0] < MINUTE:
        raise OverQuota(
            f"schedule {name} would run more than {most} times a minute",
            field="emissions_per_minute",
            value=most,
            rule=f"at most {most} occurrences a minute{_for(origin)}",
            fix=f"every: {spell_duration(MINUTE / max(most, 1))}",
        )


def _for(origin: str) -> str:
    return " for an agent" if origin == "agent" else ""


def _too_many(field: str, most: int, terms: Namespace, *, fix: str) -> OverQuota:
    return OverQuota(
        f"namespace {terms.name} has its {most} {field}"
        if most
        else f"namespace {terms.name} takes no {field}",
        field=field,
        value=most,
        rule=f"at most {most}",
        fix=fix,
    )
