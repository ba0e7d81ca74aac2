"""Loads what decisions need: calendars, queue policies, the terms of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.alerts.channels import is_delivery
from timewright.core.calendars import Calendar
from timewright.core.policies.policies import LeaseTerms, QueuePolicy
from timewright.core.run.run import ExecutionTerms, Run
from timewright.core.schedule.governor import NO_CALENDARS
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Handoff
from timewright.errors import NotFound, TimewrightError, UnreadableRow
from timewright.ledger.alerts.deliveries import delivery_terms, load_channels
from timewright.ledger.workflow_runs.records import step_terms
from timewright.ports import ScheduleRecord, StoredObject, Transaction

CALENDAR = "calendar"
QUEUE = "queue"

QueueKey = tuple[str, str]

_decode_calendar = msgspec.json.Decoder(Calendar).decode
_decode_policy = msgspec.json.Decoder(QueuePolicy).decode
_DEFAULT_POLICY = QueuePolicy()


class CalendarLookup:
    """Calendars by namespace and name; an unreadable one only affects the schedules that name it."""

    __slots__ = ("_bodies",)

    def __init__(self, rows: Iterable[StoredObject] = ()) -> None:
        self._bodies = {(row.namespace, row.name): row.body for row in rows}

    def for_schedule(self, schedule: Schedule) -> Mapping[str, Calendar]:
        """The calendars that a schedule names; missing ones are left out, and the core reports them."""
        if schedule.calendar is None:
            return NO_CALENDARS
        wanted = ((name, self._bodies.get((schedule.namespace, name))) for name in schedule.calendar.names)
        return {name: _calendar(name, body) for name, body in wanted if body is not None}


class RunTerms(Struct, frozen=True, gc=False):
    """The terms of a run: its schedule as it was at admission, and the terms of its attempts.

    If the schedule is unreadable, the terms are the safe defaults and `readable` is false.
    """

    schedule: Schedule | None
    terms: ExecutionTerms
    readable: bool = True


def load_calendars(tx: Transaction, schedules: Iterable[Schedule]) -> CalendarLookup:
    """Load the calendars that schedules name."""
    names = {name for schedule in schedules if schedule.calendar for name in schedule.calendar.names}
    return CalendarLookup(tx.get_objects(CALENDAR, names=sorted(names)) if names else ())


def load_queue_policies(tx: Transaction, queues: Iterable[QueueKey]) -> dict[QueueKey, QueuePolicy]:
    """Load the policies of queues by namespace and name; a queue without a policy has the default one.

    An unreadable policy is left out, so that nothing is leased from its queue.
    """
    policies = dict.fromkeys(queues, _DEFAULT_POLICY)
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


def load_queue_policy(tx: Transaction, namespace: str, queue: str) -> QueuePolicy:
    """Load the policy of one queue; an unreadable policy is an error."""
    policy = load_queue_policies(tx, [(namespace, queue)]).get((namespace, queue))
    if policy is None:
        raise UnreadableRow(
            f"the policy of queue {queue} cannot be read",
            field="queue.policy",
            value=queue,
            rule="a queue with an unreadable policy leases nothing",
            fix=f"set it again: queue policy set {queue}",
        )
    return policy


def load_terms(
    tx: Transaction, runs: Iterable[Run], *, policies: Mapping[QueueKey, QueuePolicy] | None = None
) -> dict[str, RunTerms]:
    """Load the terms of runs by run id: from the schedule as it was at admission, or from the queue."""
    wanted = list(runs)
    revisions = _load_revisions(tx, {(run.schedule_id, run.revision) for run in wanted if run.schedule_id})
    of_schedules = {
        pair: RunTerms(schedule, schedule_terms(schedule)) for pair, schedule in revisions.items()
    }
    if policies is None:
        policies = load_queue_policies(
            tx, {(run.namespace, run.queue) for run in wanted if _is_queue_entry(run)}
        )
    channels = load_channels(tx, wanted)
    found: dict[str, RunTerms] = {}
    for run in wanted:
        under = of_schedules.get((run.schedule_id, run.revision))
        if under is not None:
            found[run.id] = under
        elif run.parent or not (run.schedule_id or run.queue):
            terms = step_terms(tx, run)
            found[run.id] = RunTerms(
                None, terms or _queue_terms(run, _DEFAULT_POLICY), readable=terms is not None
            )
        elif is_delivery(run.queue) and not run.handoff:
            terms = delivery_terms(run, channels)
            found[run.id] = RunTerms(
                None, terms or _queue_terms(run, _DEFAULT_POLICY), readable=terms is not None
            )
        else:
            policy = policies.get((run.namespace, run.queue), _DEFAULT_POLICY)
            found[run.id] = RunTerms(None, _queue_terms(run, policy), readable=not run.schedule_id)
    return found


def schedule_terms(schedule: Schedule) -> ExecutionTerms:
    """The terms of the runs of a schedule."""
    return ExecutionTerms(
        target=schedule.target,
        check=schedule.check,
        retry=schedule.retry,
        lease=schedule.lease,
        delivery=schedule.delivery,
    )


def lock_readable_schedules(tx: Transaction, ids: Iterable[str]) -> dict[str, ScheduleRecord]:
    """Lock and return schedules by id; unreadable ones are left out."""
    wanted = sorted(set(ids))
    if not wanted:
        return {}
    try:
        return tx.get_schedules(wanted, lock=True)
    except UnreadableRow:
        found: dict[str, ScheduleRecord] = {}
        for one in wanted if len(wanted) > 1 else ():
            found |= lock_readable_schedules(tx, [one])
        return found


def _load_revisions(tx: Transaction, pairs: set[tuple[str, int]]) -> dict[tuple[str, int], Schedule]:
    """Load revisions of schedules; unreadable ones are left out."""
    if not pairs:
        return {}
    try:
        return tx.get_revisions(pairs)
    except UnreadableRow:
        found: dict[tuple[str, int], Schedule] = {}
        for pair in pairs if len(pairs) > 1 else ():
            found |= _load_revisions(tx, {pair})
        return found


def _is_queue_entry(run: Run) -> bool:
    return bool(run.queue) and not run.schedule_id and not run.parent


def _queue_terms(run: Run, policy: QueuePolicy) -> ExecutionTerms:
    return ExecutionTerms(
        target=Handoff(payload=run.payload),
        retry=policy.retry,
        lease=_lease_terms(policy.lease),
    )


@lru_cache(maxsize=256)
def _lease_terms(length: timedelta) -> LeaseTerms:
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
            rule="a schedule with an unreadable calendar does not run",
            fix=f"write it again: calendar put {name}",
        ) from error


@lru_cache(maxsize=256)
def _read_calendar(body: bytes) -> Calendar:
    return _decode_calendar(body)


MAX_NESTING = 16


class Owner(Struct, frozen=True):
    """The schedule and principal whose budgets a run uses; for a step, those of its workflow."""

    schedule: Schedule | None
    principal: str


def find_owners(tx: Transaction, runs: Iterable[Run], terms: Mapping[str, RunTerms]) -> dict[str, Owner]:
    """The owner of each run; a step has the owner of its workflow."""
    found: dict[str, Owner] = {}
    steps: list[Run] = []
    for run in runs:
        if run.parent:
            steps.append(run)
        else:
            found[run.id] = _owner(run, terms[run.id].schedule)
    if steps:
        roots = _roots(tx, steps)
        terms = load_terms(tx, {root.id: root for root in roots.values()}.values())
        found |= {i: _owner(root, terms[root.id].schedule) for i, root in roots.items()}
    return found


def _owner(run: Run, schedule: Schedule | None) -> Owner:
    return Owner(schedule, schedule.created_by if schedule is not None else run.made_by)


def _roots(tx: Transaction, steps: Sequence[Run]) -> dict[str, Run]:
    """The outermost run of each step."""
    found = {step.id: step for step in steps}
    for _ in range(MAX_NESTING):
        parents = {run.parent for run in found.values() if run.parent}
        if not parents:
            break
        rows = tx.get_runs(sorted(parents))
        found = {
            i: rows.get(run.parent, replace(run, parent="")) if run.parent else run
            for i, run in found.items()
        }
    return found


def lock_schedule(tx: Transaction, schedule_id: str) -> ScheduleRecord:
    """Lock and return a schedule; an unknown id is an error."""
    found = tx.get_schedules([schedule_id], lock=True)
    if schedule_id not in found:
        why = f"no schedule {schedule_id}"
        raise NotFound(why, field="schedule_id", value=schedule_id, fix="see `schedule list`")
    return found[schedule_id]
