"""What a run needs of the instance that runs it, and what an instance offers.

A need is a text: `call:NAME`, `queue:NAME`, `label:NAME`, `shell:PROGRAM`, `publish:BROKER`, or
`isolation:KIND`, which every instance meets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from msgspec import Struct

from timewright.core.alerts.channels import QUEUE_PREFIX
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Call, Handoff, Publish, RunTarget, Shell

Needs = tuple[str, ...]
# What a run without a queue needs of an instance that names its queues.
NO_QUEUE = "queue:"

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
    # A line feed separates needs in the store; no function, program or label contains one.
    return tuple(sorted({need.replace("\n", " ") for need in found}))


def needs_of_schedule(schedule: Schedule) -> Needs:
    """The needs of the runs of a schedule."""
    return find_needs(schedule.target, queue=schedule.queue or "", runs_on=schedule.runs_on)


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
        return kind == "isolation"

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


class LeaseOffer(Struct, frozen=True, kw_only=True):
    """What an instance can start now: its offer, and the free places of what its runs would wait for.

    `slot_of` names the place that a run with some needs takes, such as a worker process; "" is none.
    """

    offer: Offer = ANYTHING
    free: Mapping[str, int] = {}
    slot_of: Callable[[Needs], str] = no_slot

    def count_startable(self, needs: Needs, *, at_most: int) -> int:
        """How many runs with these needs may start here now."""
        if self.offer.lacks(needs):
            return 0
        return min(at_most, self.free.get(self.slot_of(needs), at_most))


class SlotCount:
    """Counts down the free places of an offer while runs are chosen."""

    def __init__(self, offer: LeaseOffer) -> None:
        self.offer = offer
        self._free = dict(offer.free)

    def take(self, needs: Needs) -> bool:
        """Take a place for one run; returns False if it cannot start here now."""
        if self.offer.offer.lacks(needs):
            return False
        if self._free:
            slot = self.offer.slot_of(needs)
            left = self._free.get(slot)
            if left is not None:
                self._free[slot] = left - 1
                return left > 0
        return True


def describe_missing(needs: Needs, offers: Iterable[Offer]) -> str:
    """Why no instance with one of these offers can take a run; "" if one can."""
    lacking = [offer.lacks(needs) for offer in offers]
    if not all(lacking):
        return ""
    nowhere = [need for need in needs if all(need in lacks for lacks in lacking)]
    found = [_describe(need) for need in nowhere or needs or (NO_QUEUE,) if not need.startswith("isolation:")]
    together = "" if nowhere or len(found) < 2 else " together"
    return f"no running instance {' and '.join(found)}{together}"


def _describe(need: str) -> str:
    kind, _, value = need.partition(":")
    if need == NO_QUEUE:
        return "serves runs without a queue"
    return f"{_NOUNS.get(kind, 'offers')} {value!r}"
