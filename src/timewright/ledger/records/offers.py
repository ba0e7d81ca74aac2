"""What the instances offer: stored once per content, and read to find out whether one can run something."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec
from msgspec import Struct

from timewright.core.facts import Fact, NoInstance
from timewright.core.moments import DAY, MINUTE, SECOND, format_instant
from timewright.core.run.needs import NO_QUEUE, Needs, Offer, describe_missing, needs_of_schedule
from timewright.core.target import Handoff
from timewright.ledger.records.instances import (
    MAX_INSTANCES,
    RETENTION,
    InstanceHeartbeat,
    is_alive,
    read_instances,
)
from timewright.ports import ScheduleRecord, StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE

OFFER = "offer"
# An offer is written again after this time, so that it outlives the instances that name it.
REFRESH_AFTER = DAY / 2
# How old the knowledge about other instances may be when a schedule is due that this one cannot run.
FLEET_TTL = 5 * SECOND
# A schedule that no live instance can run is looked at again after this time, or when a capable one starts.
LOOK_AGAIN_AFTER = 10 * MINUTE
MAX_PRUNED_ROWS = 1000


class InstanceOffer(Struct, frozen=True):
    """An instance with its last heartbeat, and what it offers."""

    seen: InstanceHeartbeat
    offer: Offer


def offer_id(offer: Offer) -> str:
    """The id of an offer, from its content."""
    return hashlib.sha256(msgspec.json.encode(offer)).hexdigest()[:32]


def record_offer(tx: Transaction, offer: Offer, *, now: datetime) -> None:
    """Store an offer, and delete those that no instance has named for a week."""
    body = msgspec.json.encode(offer)
    row = StoredObject(
        kind=OFFER, namespace=GLOBAL_NAMESPACE, name=offer_id(offer), revision=1, body=body, at=now
    )
    tx.put_objects([row])
    older_than = now - RETENTION - REFRESH_AFTER
    tx.prune_objects(OFFER, namespace=GLOBAL_NAMESPACE, older_than=older_than, limit=MAX_PRUNED_ROWS)


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

    def split(
        self, tx: Transaction, due: Sequence[ScheduleRecord], *, now: datetime
    ) -> tuple[list[ScheduleRecord], list[NoInstance]]:
        """Set aside the due schedules that no live instance can run; return the others, and what is new."""
        able: list[ScheduleRecord] = []
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
                able.append(record)
                continue
            aside.append((schedule.id, needs or (NO_QUEUE,)))
            found.append(
                NoInstance(at=now, namespace=schedule.namespace, schedule_id=schedule.id, reason=why)
            )
        tx.set_aside(aside, until=now + LOOK_AGAIN_AFTER)
        return able, [fact for fact in found if _key(fact) not in self._reported]

    def report_waiting(self, tx: Transaction, *, now: datetime) -> list[NoInstance]:
        """The ready runs that no live instance can take, one of each bucket, each once."""
        found = [
            NoInstance(
                at=now, namespace=run.namespace, schedule_id=run.schedule_id, run_id=run.id, reason=why
            )
            for run in tx.first_ready_runs()
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
