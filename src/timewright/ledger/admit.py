"""Due schedules become runs: the runs, the skips and the advance of the cursor are one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.facts import Fact
from timewright.core.moments import ZERO
from timewright.core.ordinary import stands_alone
from timewright.core.run import Run
from timewright.core.schedule import Schedule
from timewright.core.shards import WHOLE, Shard, check_shard
from timewright.errors import Conflict, OutcomeUnknown
from timewright.ledger.admission_pass import AdmissionPass, Offer
from timewright.ledger.lease import found_again
from timewright.ledger.shelf import calendars_for
from timewright.ports import Due, Ids, Store, Transaction

MOST_RACES = 3

Vigil = Callable[[], None]


class Admitted(Struct, frozen=True, kw_only=True):
    """What one pass of admission did; `full` says that there may be more."""

    facts: tuple[Fact, ...] = ()
    leased: tuple[tuple[Run, Schedule], ...] = ()
    looked_at: int = 0
    full: bool = False
    latest: datetime | None = None


def admit_due(
    store: Store,
    *,
    ids: Ids,
    now: datetime,
    limit: int,
    since: datetime | None = None,
    offer: Offer | None = None,
    shard: Shard = WHOLE,
    waited: timedelta = ZERO,
    vigil: Vigil | None = None,
) -> Admitted:
    """Decide every due occurrence of at most `limit` schedules.

    With a shard (k, n), of that part of them; with `waited`, of those that nobody looked at for so long.
    Where `now` is a moment ahead, `vigil` waits for it: all is written by then, and nothing is committed.
    """
    check_shard(shard)
    batch = ids.new("lease", now=now) if offer is not None else ""

    def work(tx: Transaction) -> Admitted:
        due = tx.due_schedules(now=now - waited, limit=limit, since=since, shard=shard)
        if vigil is not None and not all(stands_alone(d.schedule, d.flight) for d in due):
            raise _TooSoon
        calendars = calendars_for(tx, [d.schedule for d in due])
        taken = offer if offer is not None and _in_order(due, room=offer.capacity) else None
        # What starts here takes the place of what ended while we stood still or waited for the store.
        dated = max(now, tx.now()) if due and taken is not None else now
        admission = AdmissionPass(tx, ids=ids, now=dated, offer=taken, batch=batch)
        admission.hear(due)
        for d in due:
            if not admission.advance(d):
                admission.take(d, calendars)
        admission.write()
        admitted = Admitted(
            facts=tuple(admission.facts),
            leased=admission.leased(),
            looked_at=len(due),
            full=len(due) >= limit or admission.more,
            latest=due[-1].standing.wake_at if due else None,
        )
        if vigil is not None:
            tx.make_ready()
            vigil()
        return admitted

    try:
        return _write(store, work)
    except _TooSoon:
        assert vigil is not None
        vigil()
        return admit_due(
            store, ids=ids, now=now, limit=limit, since=since, offer=offer, shard=shard, waited=waited
        )
    except OutcomeUnknown:
        if offer is None:
            return Admitted(full=True)
        # Our lease ids were chosen before the commit, so the store can tell whether it happened.
        mine = store.read(lambda tx: found_again(tx, batch, holder=offer.holder, now=now))
        started = tuple((one.run, one.schedule) for one in mine.leases if one.schedule is not None)
        return Admitted(facts=mine.facts, leased=started, full=True)


def joined(passes: Sequence[Admitted]) -> Admitted:
    """What several passes did, as one."""
    return Admitted(
        facts=tuple(fact for one in passes for fact in one.facts),
        leased=tuple(pair for one in passes for pair in one.leased),
        looked_at=sum(one.looked_at for one in passes),
        full=any(one.full for one in passes),
        latest=max((one.latest for one in passes if one.latest is not None), default=None),
    )


class _TooSoon(Exception):
    """What is due cannot be decided before its instant."""


def _in_order(due: Sequence[Due], *, room: int) -> bool:
    """Whether those due first may start first: all have room, or none of them is more urgent than another."""
    return len(due) <= room or len({one.schedule.priority for one in due}) == 1


def _write(store: Store, work: Callable[[Transaction], Admitted]) -> Admitted:
    """Someone who makes a run by hand may come between our look and our write: then look again."""
    for _ in range(MOST_RACES - 1):
        try:
            return store.write(work)
        except Conflict:
            continue
    return store.write(work)
