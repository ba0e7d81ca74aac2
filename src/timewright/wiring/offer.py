"""What an instance offers to run, and the slots that its runs take."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from timewright.core.run.needs import HOST, Needs, Offer
from timewright.engine.in_flight import SlotLimits
from timewright.settings import Settings

if TYPE_CHECKING:
    from timewright.targets.call.registry import FunctionRegistry

PROCESS, THREAD = "process", "thread"


class OfferSource:
    """The current offer of an instance; the same object until a function is added."""

    def __init__(self, settings: Settings, registry: FunctionRegistry, *, isolated: bool) -> None:
        self._settings = settings
        self._registry = registry
        self._isolated = isolated
        self._version = -1
        self._offer = Offer()
        self._slots: dict[Needs, str] = {}

    def current(self) -> Offer:
        """What the instance can run."""
        if self._version != self._registry.version:
            self._version = self._registry.version
            self._slots = {}
            self._offer = Offer(
                functions=tuple(sorted(one.name for one in self._registry)),
                queues=self._settings.queues or None,
                labels=self._settings.labels,
                programs=self._settings.shell and (self._settings.commands.programs or True),
                brokers=_usable_brokers(self._settings.publish),
            )
        return self._offer

    def slot_limits(self) -> SlotLimits:
        """The worker processes and threads that calls wait for."""
        counts = {PROCESS: self._settings.workers, THREAD: self._settings.threads}
        return SlotLimits(slot_of=self._slot_of, counts=counts, per_host=self._settings.egress.per_host)

    def _slot_of(self, needs: Needs) -> str:
        """The slot of a run: a process or a thread for a call that runs in one."""
        found = self._slots.get(needs)
        if found is None:
            found = self._slots[needs] = self._find_slot(dict(need.partition(":")[::2] for need in needs))
        return found

    def _find_slot(self, needs: dict[str, str]) -> str:
        if "host" in needs:
            return f"{HOST}{needs['host']}"
        if "call" not in needs or needs["call"] not in self._registry:
            return ""
        registered = self._registry.resolve(needs["call"])
        isolation = needs.get("isolation") or registered.isolation
        if isolation == "inherit" and self._isolated:
            return PROCESS
        if isolation == "inherit":
            return "" if registered.is_async else THREAD
        return isolation if isolation in (PROCESS, THREAD) else ""


def _usable_brokers(allowed: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the brokers that are allowed, by name or by an address, and whose client is installed."""
    if not allowed:
        return ()
    from timewright.targets.publish.broker_types import BROKER_TYPES

    schemes = {entry.partition("://")[0] for entry in allowed if "://" in entry}
    return tuple(
        name
        for name, kind in sorted(BROKER_TYPES.items())
        if (kind.name in allowed or schemes.intersection(kind.schemes))
        and all(find_spec(module) is not None for module in kind.modules)
    )
