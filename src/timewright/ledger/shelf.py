"""Reads the small named things that decisions need: calendars, queue policies, the terms of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import lru_cache

import msgspec
from msgspec import Struct

from timewright.core.calendars import Calendar
from timewright.core.governor import NO_CALENDARS
from timewright.core.policies import LeaseTerms, QueuePolicy
from timewright.core.run import Run, Terms
from timewright.core.schedule import Schedule
from timewright.core.target import Handoff
from timewright.errors import TimewrightError, UnreadableRow
from timewright.ledger.unfold_parts import part_terms
from timewright.ports import Due, Stored, Transaction

CALENDAR = "calendar"
QUEUE = "queue"
LIMIT = "limit"

Pair = tuple[str, str]

_decode_calendar = msgspec.json.Decoder(Calendar).decode
_decode_policy = msgspec.json.Decoder(QueuePolicy).decode
_CAUTIOUS = QueuePolicy()


class Calendars:
    """Calendars by namespace and name; one that cannot be read stops only those who name it."""

    __slots__ = ("_bodies",)

    def __init__(self, rows: Iterable[Stored] = ()) -> None:
        self._bodies = {(row.namespace, row.name): row.body for row in rows}

    def of(self, schedule: Schedule) -> Mapping[str, Calendar]:
        """The calendars that a schedule names; those nobody wrote are left out, for the core to refuse."""
        if schedule.calendar is None:
            return NO_CALENDARS
        wanted = ((name, self._bodies.get((schedule.namespace, name))) for name in schedule.calendar.names)
        return {name: _calendar(name, body) for name, body in wanted if body is not None}


class Under(Struct, frozen=True, gc=False):
    """What a run is attempted under: its schedule as it was when the run was admitted, and the terms.

    Where the schedule's text cannot be read the terms are cautious ones, and `readable` says so.
    """

    schedule: Schedule | None
    terms: Terms
    readable: bool = True


def calendars_for(tx: Transaction, schedules: Iterable[Schedule]) -> Calendars:
    """The calendars that schedules name; none is asked for when none is named."""
    names = {name for schedule in schedules if schedule.calendar for name in schedule.calendar.names}
    return Calendars(tx.get_objects(CALENDAR, names=sorted(names)) if names else ())


def queue_policies(tx: Transaction, queues: Iterable[Pair]) -> dict[Pair, QueuePolicy]:
    """The policies of queues by namespace and name; one that nobody set is the cautious one.

    A policy that cannot be read is left out: when unsure, nothing of that queue is leased.
    """
    policies = dict.fromkeys(queues, _CAUTIOUS)
    if not policies:
        return policies
    namespaces = {namespace for namespace, _ in policies}
    only = namespaces.pop() if len(namespaces) == 1 else None
    for row in tx.get_objects(QUEUE, namespace=only, names=sorted({name for _, name in policies})):
        if (row.namespace, row.name) in policies:
            try:
                policies[row.namespace, row.name] = _policy(row.body)
            except (msgspec.MsgspecError, TimewrightError):
                del policies[row.namespace, row.name]
    return policies


def queue_policy(tx: Transaction, namespace: str, queue: str) -> QueuePolicy:
    """The policy of one queue; one that cannot be read is refused."""
    policy = queue_policies(tx, [(namespace, queue)]).get((namespace, queue))
    if policy is None:
        raise UnreadableRow(
            f"the policy of queue {queue} cannot be read",
            field="queue.policy",
            value=queue,
            rule="an unreadable policy leases nothing",
            fix=f"queue policy set {queue}",
        )
    return policy


def terms_for(
    tx: Transaction, runs: Iterable[Run], *, policies: Mapping[Pair, QueuePolicy] | None = None
) -> dict[str, Under]:
    """What each run is attempted under, by run id: its schedule as it was at admission, or its queue."""
    wanted = list(runs)
    revisions = _revisions(tx, {(run.schedule_id, run.revision) for run in wanted if run.schedule_id})
    of_schedules = {pair: Under(schedule, terms_of(schedule)) for pair, schedule in revisions.items()}
    if policies is None:
        policies = queue_policies(tx, {(run.namespace, run.queue) for run in wanted if _is_entry(run)})
    found: dict[str, Under] = {}
    for run in wanted:
        under = of_schedules.get((run.schedule_id, run.revision))
        if under is not None:
            found[run.id] = under
        elif run.parent or not (run.schedule_id or run.queue):
            terms = part_terms(tx, run)
            found[run.id] = Under(None, terms or _queue_terms(run, _CAUTIOUS), readable=terms is not None)
        else:
            policy = policies.get((run.namespace, run.queue), _CAUTIOUS)
            found[run.id] = Under(None, _queue_terms(run, policy), readable=not run.schedule_id)
    return found


def terms_of(schedule: Schedule) -> Terms:
    """What the runs of a schedule are attempted under."""
    return Terms(
        target=schedule.target, retry=schedule.retry, lease=schedule.lease, delivery=schedule.delivery
    )


def readable_schedules(tx: Transaction, ids: Iterable[str]) -> dict[str, Due]:
    """Schedules by id, locked; one that cannot be read is left out and does not stop the others."""
    wanted = sorted(set(ids))
    if not wanted:
        return {}
    try:
        return tx.get_schedules(wanted, lock=True)
    except UnreadableRow:
        found: dict[str, Due] = {}
        for one in wanted if len(wanted) > 1 else ():
            found |= readable_schedules(tx, [one])
        return found


def _revisions(tx: Transaction, pairs: set[tuple[str, int]]) -> dict[tuple[str, int], Schedule]:
    """Schedules as they were; one that cannot be read is left out and does not stop the others."""
    if not pairs:
        return {}
    try:
        return tx.get_revisions(pairs)
    except UnreadableRow:
        found: dict[tuple[str, int], Schedule] = {}
        for pair in pairs if len(pairs) > 1 else ():
            found |= _revisions(tx, {pair})
        return found


def _is_entry(run: Run) -> bool:
    return bool(run.queue) and not run.schedule_id and not run.parent


def _queue_terms(run: Run, policy: QueuePolicy) -> Terms:
    return Terms(
        target=Handoff(payload=run.payload),
        retry=policy.retry,
        lease=_lease_of(policy.lease),
    )


@lru_cache(maxsize=256)
def _lease_of(length: timedelta) -> LeaseTerms:
    return LeaseTerms(length=length)


@lru_cache(maxsize=256)
def _policy(body: bytes) -> QueuePolicy:
    return _decode_policy(body)


def _calendar(name: str, body: bytes) -> Calendar:
    try:
        return _read_calendar(body)
    except (msgspec.MsgspecError, TimewrightError) as error:
        raise UnreadableRow(
            f"calendar {name} cannot be read: {error}",
            field="calendar",
            value=name,
            rule="what depends on an unreadable calendar does not run",
            fix=f"calendar put {name}",
        ) from error


@lru_cache(maxsize=256)
def _read_calendar(body: bytes) -> Calendar:
    return _decode_calendar(body)
