"""Heartbeats of instances, and what they offer: stored once per content, deleted after a week."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec
from msgspec import Struct

from timewright.core.facts import Fact, NoInstance
from timewright.core.moments import DAY, MINUTE, SECOND, ZERO, format_instant
from timewright.core.run.needs import NO_QUEUE, Needs, Offer, describe_missing, needs_of_schedule
from timewright.core.target import Handoff
from timewright.ports import ScheduleRecord, StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE
from timewright.ports.rows import FirstReadyRuns, ObjectPrune
from timewright.ports.store import SessionLock

INSTANCE = "instance"
RETENTION = 7 * DAY
MAX_INSTANCES = 1000
# An instance sends a heartbeat every 15 s; after three missed ones it is silent.
SILENT_AFTER = 50 * SECOND
MAX_PRUNED_ROWS = 1000


class ProcessIdentity(Struct, frozen=True, kw_only=True):
    """What another process of the same host needs to prove that a process has ended.

    A pid is reused, so its start time belongs to it; it only has a meaning on one boot of one host, within
    one pid namespace. `user` decides who can see the environment of its children.
    """

    boot: str
    pid_namespace: str
    started: int
    user: int


class InstanceRecord(Struct, frozen=True, kw_only=True):
    """The state of an instance; `clock_offset` is how far the store's clock is ahead of its own."""

    id: str
    host: str
    pid: int = 0
    version: str
    started_at: datetime
    capacity: int
    under_way: int = 0
    clock_offset: timedelta = ZERO
    stopped: bool = False
    admit: str = "any"
    shard: str = ""
    offer: str = ""
    """The id of what it offers."""
    process: ProcessIdentity | None = None
    """None where the host does not show its processes; then nobody can prove that it ended."""
    session: SessionLock | None = None
    """Its lock on the database server; None on SQLite and behind a pooler."""
    store_free_mb: int | None = None
    """Free space where the store is, in MiB; None if the store is on a server."""


class InstanceHeartbeat(Struct, frozen=True, kw_only=True):
    """An instance, and the time of its last heartbeat by the store's clock."""

    instance: InstanceRecord
    at: datetime


def record_heartbeat(tx: Transaction, instance: InstanceRecord, *, now: datetime) -> None:
    """Store the heartbeat of an instance, and delete instances whose last one is too old."""
    tx.put_objects([StoredObject.of(INSTANCE, instance.id, instance, namespace=GLOBAL_NAMESPACE, at=now)])
    # Pruning scans the first names, and the oldest instances have them: ids ascend with time.
    tx.prune(
        ObjectPrune(
            kind=INSTANCE, namespace=GLOBAL_NAMESPACE, older_than=now - RETENTION, limit=MAX_PRUNED_ROWS
        )
    )


def is_alive(seen: InstanceHeartbeat, *, now: datetime) -> bool:
    """Return whether an instance sent a heartbeat recently and has not stopped."""
    return not seen.instance.stopped and now - seen.at <= SILENT_AFTER


def read_instances(tx: Transaction, *, limit: int) -> list[InstanceHeartbeat]:
    """The instances with a heartbeat, newest first."""
    rows = tx.get_objects(INSTANCE, namespace=GLOBAL_NAMESPACE, newest=limit)
    return [InstanceHeartbeat(instance=row.decode(InstanceRecord), at=row.at) for row in rows]


OFFER = "offer"
# An offer is written again after this time, so that it outlives the instances that name it.
REFRESH_AFTER = DAY / 2
# How old the knowledge about other instances may be when a schedule is due that this one cannot run.
FLEET_TTL = 5 * SECOND
# A schedule that no live instance can run is looked at again after this time, or when a capable one starts.
LOOK_AGAIN_AFTER = 10 * MINUTE


class InstanceOffer(Struct, frozen=True):
    """An instance with its last heartbeat, and what it offers."""

    seen: InstanceHeartbeat
    offer: Offer


def offer_id(offer: Offer) -> str:
    """The id of an offer, from its content."""
    return hashlib.sha256(msgspec.json.encode(offer)).hexdigest()[:32]


def record_offer(tx: Transaction, offer: Offer, *, now: datetime) -> None:
    """Store an offer, and delete those that no instance has named for a week."""
    tx.put_objects([StoredObject.of(OFFER, offer_id(offer), offer, namespace=GLOBAL_NAMESPACE, at=now)])
    older_than = now - RETENTION - REFRESH_AFTER
    tx.prune(
        ObjectPrune(kind=OFFER, namespace=GLOBAL_NAMESPACE, older_than=older_than, limit=MAX_PRUNED_ROWS)
    )


def read_offers(tx: Transaction) -> list[InstanceOffer]:
    """The instances with what they offer, newest heartbeat first; those without an offer are left out."""
    seen = read_instances(tx, limit=MAX_INSTANCES)
    wanted = sorted({one.instance.offer for one in seen} - {""})
    rows = tx.get_objects(OFFER, namespace=GLOBAL_NAMESPACE, names=wanted) if wanted else ()
    offers = {row.name: _decode(row.body) for row in rows}
    found = [InstanceOffer(one, offers[one.instance.offer]) for one in seen if one.instance.offer in offers]
    return sorted(found, key=lambda one: one.seen.at, reverse=True)


def explain_waiting(offers: Sequence[InstanceOffer], needs: Needs, *, now: datetime) -> str:
    """Why no live instance can take a run with these needs, and who last could; "" if one can."""
    missing = describe_missing(needs, [one.offer for one in offers if is_alive(one.seen, now=now)])
    if not missing:
        return ""
    last = next((one.seen for one in offers if not one.offer.lacks(needs)), None)
    if last is None:
        return f"{missing}; none has offered it within a week"
    who = f"{last.instance.id} on {last.instance.host}"
    return f"{missing}; last offered by {who} at {format_instant(last.at)}"


def explain_placement(tx: Transaction, needs: Needs, *, now: datetime) -> str:
    """Why no live instance can take a run with these needs; "" if one can, or if no instance is known."""
    offers = read_offers(tx) if needs else []
    return explain_waiting(offers, needs, now=now) if offers else ""


class FleetOffers:
    """Decides for one instance which due schedules no live instance can run.

    The offers of other instances are read only when this one cannot run something, at most every 5 s.
    """

    def __init__(self, own: Callable[[], Offer]) -> None:
        self._own = own
        self._read_at: datetime | None = None
        self._offers: list[InstanceOffer] = []
        self._reported: set[str] = set()

    def explain(self, tx: Transaction, needs: Needs, *, now: datetime) -> str:
        """Why no live instance can take a run with these needs; "" if one can."""
        if not self._own().lacks(needs):
            return ""
        if self._read_at is None or not timedelta(0) <= now - self._read_at < FLEET_TTL:
            self._read(tx, now=now)
        return explain_waiting(self._offers, needs, now=now)

    def _read(self, tx: Transaction, *, now: datetime) -> None:
        self._offers, self._read_at = read_offers(tx), now

    def set_aside_unplaced(
        self, tx: Transaction, due: Sequence[ScheduleRecord], *, now: datetime
    ) -> tuple[list[ScheduleRecord], list[NoInstance]]:
        """Set aside the due schedules that no live instance can run; return the others, and the new facts."""
        placed: list[ScheduleRecord] = []
        aside: list[tuple[str, Needs]] = []
        found: list[NoInstance] = []
        is_fresh = False
        for record in due:
            schedule = record.schedule
            needs = needs_of_schedule(schedule)
            why = "" if isinstance(schedule.target, Handoff) else self.explain(tx, needs, now=now)
            if why and not is_fresh:
                # A capable instance may have started since: it must not find the schedule set aside later.
                self._read(tx, now=now)
                why, is_fresh = self.explain(tx, needs, now=now), True
            if not why:
                placed.append(record)
                continue
            aside.append((schedule.id, needs or (NO_QUEUE,)))
            found.append(
                NoInstance(at=now, namespace=schedule.namespace, schedule_id=schedule.id, reason=why)
            )
        tx.set_aside(aside, until=now + LOOK_AGAIN_AFTER)
        return placed, [fact for fact in found if _key(fact) not in self._reported]

    def report_waiting(self, tx: Transaction, *, now: datetime) -> list[NoInstance]:
        """The ready runs that no live instance can take, one of each bucket, each once."""
        found = [
            NoInstance(
                at=now, namespace=run.namespace, schedule_id=run.schedule_id, run_id=run.id, reason=why
            )
            for run in tx.select(FirstReadyRuns())
            if (why := self.explain(tx, run.needs, now=now))
        ]
        return [fact for fact in found if _key(fact) not in self._reported]

    def mark_reported(self, found: Iterable[Fact]) -> None:
        """Remember what was committed and reported, so that it is reported once."""
        self._reported.update(_key(fact) for fact in found if isinstance(fact, NoInstance))


def _key(fact: NoInstance) -> str:
    return fact.schedule_id or fact.run_id


@lru_cache(maxsize=256)
def _decode(body: bytes) -> Offer:
    return msgspec.json.decode(body, type=Offer)
