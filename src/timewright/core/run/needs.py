"""What a run needs of the instance that runs it, and what an instance offers.

A need is a text: `call:NAME`, `queue:NAME`, `label:NAME`, `shell:PROGRAM`, `publish:BROKER`, or
`isolation:KIND` and `host:NAME`, which every instance meets. A workflow step that waits needs `answer:` or
`event:NAME`, which no instance offers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from urllib.parse import urlsplit

from msgspec import Struct

from timewright.core.alerts.channels import QUEUE_PREFIX
from timewright.core.policies.policies import NORMAL_PRIORITY
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Call, Handoff, Http, Publish, RunTarget, Shell

Needs = tuple[str, ...]
# What a run without a queue needs of an instance that names its queues.
NO_QUEUE = "queue:"
HOST = "host:"
ANSWER, EVENT = "answer:", "event:"
_MESSAGES = f"queue:{QUEUE_PREFIX}"
# A host may take at most this many times the places that it leaves free for other hosts.
HOST_SHARE = 4

_NOUNS = {
    "call": "has function",
    "queue": "serves queue",
    "label": "has label",
    "shell": "may run the command",
    "publish": "may publish to",
}


def find_needs(target: RunTarget, *, queue: str = "", runs_on: Iterable[str] = ()) -> Needs:
    """The sorted needs of a run with this target."""
    found = [f"label:{label}" for label in runs_on]
    if queue:
        found.append(f"queue:{queue}")
    if isinstance(target, Handoff):
        return ()  # an external worker takes it
    if isinstance(target, Call):
        found.append(f"call:{target.name}")
        if target.isolation != "inherit":
            found.append(f"isolation:{target.isolation}")
    elif isinstance(target, Shell):
        found.append(f"shell:{target.command[0]}")
    elif isinstance(target, Publish):
        found.append(f"publish:{target.to}")
    elif isinstance(target, Http):
        host = _host_of(target.url)
        found += [f"{HOST}{host}"] if host else []
    # A line feed separates needs in the store; no function, program or label contains one.
    return tuple(sorted({need.replace("\n", " ") for need in found}))


def needs_of_wait(*, answer: bool, event: str | None) -> Needs:
    """The sorted needs of a step that waits for an answer, an event, either of them, or only for time."""
    found = [ANSWER] if answer else []
    return tuple(found if event is None else [*found, EVENT + event.replace("\n", " ")])


def runs_command(needs: Needs) -> bool:
    """Whether a run with these needs starts a command."""
    return any(need.startswith("shell:") for need in needs)


@lru_cache(maxsize=10_000)
def _host_of(url: str) -> str:
    """The host of a URL in lower case; "" if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def needs_of_schedule(schedule: Schedule) -> Needs:
    """The needs of the runs of a schedule."""
    found = find_needs(schedule.target, queue=schedule.queue or "", runs_on=schedule.runs_on)
    if schedule.check is None or isinstance(schedule.target, Handoff):
        return found
    return tuple(sorted({*found, *find_needs(schedule.check)}))


def may_run_program(program: str, allowed: bool | tuple[str, ...]) -> bool:
    """Whether the administrator allows this program: by name, full path, or folder.

    An entry with a trailing slash allows the programs directly in that folder.
    """
    if isinstance(allowed, bool):
        return allowed
    if program.endswith("/") or ".." in program.split("/"):
        return False
    folder = program.rpartition("/")[0] + "/"
    return program in allowed or (program.startswith("/") and folder in allowed)


class Offer(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """What an instance can run; None and True mean everything.

    An instance that names its queues takes only runs of these queues.
    """

    functions: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()
    programs: bool | tuple[str, ...] = True
    brokers: tuple[str, ...] | None = None

    def lacks(self, needs: Needs) -> Needs:
        """The needs that this offer does not meet; empty if such runs can run here."""
        found = self._lacking.get(needs)
        if found is None:
            no_queue = self.queues is not None and not any(need.startswith("queue:") for need in needs)
            wanted = (*needs, NO_QUEUE) if no_queue else needs
            found = self._lacking[needs] = tuple(need for need in wanted if not self._meets(need))
        return found

    def _meets(self, need: str) -> bool:
        kind, _, value = need.partition(":")
        if kind == "call":
            return self.functions is None or value in self._functions
        if kind == "queue":
            # Messages of channels are sent by every instance, whatever queues it names.
            return self.queues is None or value in self.queues or value.startswith(QUEUE_PREFIX)
        if kind == "label":
            return value in self.labels
        if kind == "shell":
            return may_run_program(value, self.programs)
        if kind == "publish":
            return self.brokers is None or value in self.brokers
        return kind in ("isolation", "host")

    @cached_property
    def _functions(self) -> frozenset[str]:
        return frozenset(self.functions or ())

    @cached_property
    def _lacking(self) -> dict[Needs, Needs]:
        return {}


ANYTHING = Offer()


def offer_anything() -> Offer:
    """The offer of an instance that can run everything but what needs a label."""
    return ANYTHING


def no_slot(_needs: Needs) -> str:
    """The slot of runs that wait for nothing but the capacity of the instance."""
    return ""


# From this capacity on, it is shared between hosts. A tenth is kept for what is no HTTP request, and a
# twentieth for priorities above normal: targets that never answer leave free capacity for others.
MIN_SHARED_CAPACITY = 20
KEPT_PART = 10
RESERVED_PART = 20


class CapacityShares(Struct, frozen=True, kw_only=True):
    """How the capacity of an instance is shared between hosts, and what is kept for higher priorities.

    `used` are the runs in flight of each host, `total` their sum, and `free` the places that are left of the
    capacity. `kept` places are not for requests, and `reserve` only for runs of a higher priority than
    normal. With `per_host`, a host has at most that many. A small capacity is not `shared`.
    """

    free: int
    used: Mapping[str, int] = {}
    total: int = 0
    per_host: int = 0
    kept: int = 0
    reserve: int = 0
    shared: bool = True

    def allows(self, used: int, *, total: int, free: int) -> bool:
        """Whether a host with `used` runs may start another; its first one needs only a free place."""
        if free < 1 or (self.per_host and used >= self.per_host):
            return False
        left = self._left(total=total, free=free)
        return left > 0 and (not used or not self.shared or used < HOST_SHARE * (left - 1))

    def _left(self, *, total: int, free: int) -> int:
        """What is free for requests: at least one place, if there is none yet."""
        return free - self.kept if total else max(free - self.kept, 1)

    @property
    def is_used_up(self) -> bool:
        """Whether a host has its whole share, or only the reserve is left."""
        return self.free <= self.reserve or any(
            not self.allows(used, total=self.total, free=self.free) for used in self.used.values()
        )

    def startable(self, host: str) -> int:
        """How many runs of a host may start now, at most."""
        used = self.used.get(host, 0)
        if not self.allows(used, total=self.total, free=self.free):
            return 0
        own = self.per_host - used if self.per_host else self.free
        if not self.shared:
            return own
        left = self._left(total=self.total, free=self.free)
        return min(own, max((HOST_SHARE * left - used) // (HOST_SHARE + 1), 1))


def share_capacity(
    capacity: int, *, free: int, used: Mapping[str, int], per_host: int
) -> CapacityShares | None:
    """How a capacity is shared between hosts; None if nothing limits a host."""
    shared = capacity >= MIN_SHARED_CAPACITY
    if not shared and not per_host:
        return None
    return CapacityShares(
        free=free,
        used=used,
        total=sum(used.values()),
        per_host=per_host,
        kept=capacity // KEPT_PART if shared else 0,
        reserve=capacity // RESERVED_PART if shared else 0,
        shared=shared,
    )


class LeaseOffer(Struct, frozen=True, kw_only=True):
    """What an instance can start now: its offer, and the free places of what its runs would wait for.

    `slot_of` names the place that a run with some needs takes, such as a worker process; "" is none.
    """

    offer: Offer = ANYTHING
    free: Mapping[str, int] = {}
    slot_of: Callable[[Needs], str] = no_slot
    shares: CapacityShares | None = None
    messages_only: bool = False
    """Under a pause, only messages to channels start."""

    def is_able(self, needs: Needs) -> bool:
        """Whether the instance takes runs with these needs at all."""
        if self.messages_only and not any(need.startswith(_MESSAGES) for need in needs):
            return False
        return not self.offer.lacks(needs)

    def count_startable(self, needs: Needs, *, at_most: int) -> int:
        """How many runs with these needs may start here now."""
        if not self.is_able(needs):
            return 0
        slot = self.slot_of(needs)
        if self.shares is not None and slot.startswith(HOST):
            return min(at_most, self.shares.startable(slot))
        return min(at_most, self.free.get(slot, at_most))


class SlotCount:
    """Counts down the free places of an offer while runs are chosen."""

    def __init__(self, offer: LeaseOffer) -> None:
        self.offer = offer
        self._free = dict(offer.free)
        self._taken: dict[str, int] = {}
        self._taken_by_hosts = 0
        self._taken_in_all = 0

    def take(self, needs: Needs, *, priority: int = NORMAL_PRIORITY) -> bool:
        """Take a place for one run; returns False if it cannot start here now."""
        if not self.offer.is_able(needs):
            return False
        slot = self.offer.slot_of(needs) if self._free or self.offer.shares is not None else ""
        if self._free.get(slot, 1) < 1 or not self._is_within_shares(slot, priority=priority):
            return False
        if slot in self._free:
            self._free[slot] -= 1
        elif slot.startswith(HOST):
            self._taken[slot] = self._taken.get(slot, 0) + 1
            self._taken_by_hosts += 1
        self._taken_in_all += 1
        return True

    def _is_within_shares(self, slot: str, *, priority: int) -> bool:
        shares = self.offer.shares
        if shares is None:
            return True
        free = shares.free - self._taken_in_all
        if free < 1 or (priority >= NORMAL_PRIORITY and free <= shares.reserve):
            return False
        if not slot.startswith(HOST):
            return True
        used = shares.used.get(slot, 0) + self._taken.get(slot, 0)
        return shares.allows(used, total=shares.total + self._taken_by_hosts, free=free)


def describe_missing(needs: Needs, offers: Iterable[Offer]) -> str:
    """Why no instance with one of these offers can take a run; "" if one can."""
    lacking = [offer.lacks(needs) for offer in offers]
    if not all(lacking):
        return ""
    nowhere = [need for need in needs if all(need in lacks for lacks in lacking)]
    found = [
        _describe(need)
        for need in nowhere or needs or (NO_QUEUE,)
        if not need.startswith(("isolation:", HOST))
    ]
    if not found:
        return "no running instance has a free slot" if lacking else "no instance is running"
    together = "" if nowhere or len(found) < 2 else " together"
    return f"no running instance {' and '.join(found)}{together}"


def _describe(need: str) -> str:
    kind, _, value = need.partition(":")
    if need == NO_QUEUE:
        return "serves runs without a queue"
    return f"{_NOUNS.get(kind, 'offers')} {value!r}"
