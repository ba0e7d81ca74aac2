"""Runs the schedules with `run_at_start` when the first instance that can run them starts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.run.needs import Offer, needs_of_schedule
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import StoreError, TimewrightError
from timewright.ledger.manual_runs import run_now
from timewright.ledger.records.instances import SILENT_AFTER, InstanceOffer, is_alive, read_offers
from timewright.operations.context import OperationContext, in_transaction
from timewright.operations.lookup import readable_schedules
from timewright.ports import ScheduleRecord, StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE
from timewright.ports.schedules import SchedulesAtStart

START = "start"
REASON = "run_at_start"

_LOGGER = logging.getLogger("timewright")


class StartedProcess(Struct, frozen=True, kw_only=True):
    """An instance and its process."""

    id: str
    host: str
    pid: int


IsGone = Callable[[str, int], bool]


def run_schedules_at_start(
    context: OperationContext, own: StartedProcess, offer: Offer, *, is_gone: IsGone
) -> int:
    """Run each schedule with `run_at_start` that this instance can run, unless another one can already.

    So workers that start together run it once, and a program that is started again runs it again. `is_gone`
    tells whether the process of a host has ended, although its last heartbeat is recent. Returns how many.
    """
    if not context.store.read(lambda tx: tx.select(SchedulesAtStart())):
        return 0
    now = context.now()

    def work(nested: OperationContext) -> int:
        found = nested.store.read(
            lambda tx: readable_schedules(tx, [one.id for one in tx.select(SchedulesAtStart())])
        )
        offers = [
            one
            for one in nested.store.read(read_offers)
            if is_alive(one.seen, now=now)
            and one.seen.instance.id != own.id
            and not is_gone(one.seen.instance.host, one.seen.instance.pid)
        ]
        wanted = [
            record
            for record in found.values()
            if record.schedule.run_at_start and _starts_it(record, own=offer, others=offers)
        ]
        return sum(_run_once(nested, record, own, now=now, is_gone=is_gone) for record in wanted)

    return in_transaction(context, work)


def _starts_it(record: ScheduleRecord, *, own: Offer, others: list[InstanceOffer]) -> bool:
    """Whether this instance can run a schedule and no other live one can."""
    needs = needs_of_schedule(record.schedule)
    is_active = record.progress.state is ScheduleState.ACTIVE
    return is_active and not own.lacks(needs) and all(one.offer.lacks(needs) for one in others)


def _run_once(
    context: OperationContext,
    record: ScheduleRecord,
    own: StartedProcess,
    *,
    now: datetime,
    is_gone: IsGone,
) -> bool:
    schedule = record.schedule
    if not context.store.write(lambda tx: _claim(tx, schedule.id, own, now=now, is_gone=is_gone)):
        return False
    try:
        by = replace(context.with_reason(REASON).by, origin="service")
        made = run_now(context.store, schedule.id, ids=context.ids, by=by, now=now)
    except StoreError:
        raise  # tried again, with its claim
    except TimewrightError as error:
        _LOGGER.warning("%s did not run at the start: %s", schedule.name, error)
        return False
    context.notify(made.facts)
    return True


def _claim(tx: Transaction, schedule_id: str, own: StartedProcess, *, now: datetime, is_gone: IsGone) -> bool:
    """Record this start; False if this instance did, or a moment ago one without a heartbeat yet."""
    rows = tx.get_objects(START, namespace=GLOBAL_NAMESPACE, names=[schedule_id])
    last = rows[0] if rows else None
    other = msgspec.json.decode(last.body, type=StartedProcess) if last is not None else None
    if other is not None and other.id == own.id:
        return False  # the answer to an earlier try was lost
    if last is not None and other is not None and now - last.at <= SILENT_AFTER:
        ended = any(one.seen.instance.stopped for one in read_offers(tx) if one.seen.instance.id == other.id)
        if not ended and not is_gone(other.host, other.pid):
            return False
    revision = last.revision if last is not None else 0
    row = StoredObject(
        kind=START,
        namespace=GLOBAL_NAMESPACE,
        name=schedule_id,
        revision=revision + 1,
        body=msgspec.json.encode(own),
        at=now,
    )
    tx.put_objects([row], replaces={schedule_id: revision})
    return True
