"""The plan of a schedule as a set of instants, found without the code that plans."""

from __future__ import annotations

from typing import Protocol
from zoneinfo import ZoneInfoNotFoundError

from timewright.proof.cron_scan import CronScan
from timewright.proof.policy import Policy
from timewright.proof.rows import Plain
from timewright.proof.rrule_scan import RruleScan
from timewright.proof.spans import DAY, instant, span

MOST_INSTANTS = 200_000
FARTHEST = 400 * DAY


class Instants(Protocol):
    """A set of instants."""

    def between(self, after: int, until: int, *, most: int) -> list[int]:
        """Those after one instant and not after another, at most so many and one more."""
        ...

    def count(self, after: int, until: int, *, most: int) -> int:
        """How many those are, at most so many and one more."""
        ...

    def has(self, at: int) -> bool:
        """Whether an instant is in it."""
        ...

    def first_after(self, after: int, *, until: int) -> int | None:
        """The first after an instant, if it is not after another."""
        ...


class Grid:
    """An anchor, and every whole number of intervals after it."""

    def __init__(self, interval: int, anchor: int) -> None:
        self._interval = interval
        self._anchor = anchor

    def between(self, after: int, until: int, *, most: int) -> list[int]:
        """Those after one instant and not after another."""
        first = self._next(after)
        return list(range(first, until + 1, self._interval)[: most + 1])

    def count(self, after: int, until: int, *, most: int) -> int:
        """How many those are, by division."""
        return len(range(self._next(after), until + 1, self._interval))

    def has(self, at: int) -> bool:
        """Whether an instant lies on the grid."""
        return at >= self._anchor and (at - self._anchor) % self._interval == 0

    def first_after(self, after: int, *, until: int) -> int | None:
        """The first point after an instant."""
        first = self._next(after)
        return first if first <= until else None

    def _next(self, after: int) -> int:
        if after < self._anchor:
            return self._anchor
        return self._anchor + ((after - self._anchor) // self._interval + 1) * self._interval


class Several:
    """One instant, or what several sets hold together."""

    def __init__(self, sets: list[Instants], points: tuple[int, ...] = ()) -> None:
        self._sets = sets
        self._points = points

    def between(self, after: int, until: int, *, most: int) -> list[int]:
        """Those after one instant and not after another."""
        found = {at for at in self._points if after < at <= until}
        for one in self._sets:
            found.update(one.between(after, until, most=most))
        return sorted(found)[: most + 1]

    def count(self, after: int, until: int, *, most: int) -> int:
        """How many those are; what is in two sets counts once."""
        return len(self.between(after, until, most=most))

    def has(self, at: int) -> bool:
        """Whether an instant is in any of them."""
        return at in self._points or any(one.has(at) for one in self._sets)

    def first_after(self, after: int, *, until: int) -> int | None:
        """The first after an instant."""
        ahead = [at for at in self._points if after < at <= until]
        ahead += [at for one in self._sets if (at := one.first_after(after, until=until)) is not None]
        return min(ahead, default=None)


NOTHING = Several([])


class Window:
    """A set of instants between a start and an end, both inside it."""

    def __init__(self, inner: Instants, start: int | None, end: int | None) -> None:
        self._inner = inner
        self._before = start - 1 if start is not None else -(2**62)
        self._end = end if end is not None else 2**62

    def between(self, after: int, until: int, *, most: int) -> list[int]:
        """Those after one instant and not after another."""
        return self._inner.between(max(after, self._before), min(until, self._end), most=most)

    def count(self, after: int, until: int, *, most: int) -> int:
        """How many those are."""
        first, last = max(after, self._before), min(until, self._end)
        return self._inner.count(first, last, most=most) if last > first else 0

    def has(self, at: int) -> bool:
        """Whether an instant is in it."""
        return self._before < at <= self._end and self._inner.has(at)

    def first_after(self, after: int, *, until: int) -> int | None:
        """The first after an instant."""
        return self._inner.first_after(max(after, self._before), until=min(until, self._end))


class Plans:
    """The sets of instants of policies; equal triggers share one."""

    def __init__(self) -> None:
        self._known: dict[str, Instants] = {}
        self._of: dict[int, Instants | None] = {}

    def of(self, policy: Policy) -> Instants | None:
        """The instants that the trigger of a policy means inside its window; nothing if it has none."""
        if policy.trigger.get("kind") in ("after", "manual"):
            return NOTHING
        # The policies outlive this list of theirs, so that an address stands for one of them.
        if id(policy) not in self._of:
            self._of[id(policy)] = self._made(policy)
        return self._of[id(policy)]

    def _made(self, policy: Policy) -> Instants | None:
        spelled = repr(policy.trigger)
        try:
            if spelled not in self._known:
                self._known[spelled] = trigger_of(policy.trigger)
        except (KeyError, TypeError, ValueError, IndexError, ZoneInfoNotFoundError):
            return None
        inner = self._known[spelled]
        if policy.start_at is None and policy.end_at is None:
            return inner
        return Window(inner, policy.start_at, policy.end_at)


def trigger_of(body: Plain) -> Instants:
    """The instants of one trigger, from its body."""
    kind = body["kind"]
    if kind == "cron":
        zone, dst = body.get("zone", "UTC"), body.get("dst", "vixie")
        return CronScan(body["expression"], zone=zone, dst=dst, key=body.get("key"))
    if kind == "every":
        return Grid(span(body["interval"]), instant(body["anchor"]))
    if kind == "rrule":
        zone, dst = body.get("zone", "UTC"), body.get("dst", "vixie")
        return RruleScan(body["rule"], zone=zone, dst=dst, anchor=instant(body["anchor"]))
    if kind == "once":
        return Several([], (instant(body["at"]),))
    if kind == "any_of":
        return Several([trigger_of(one) for one in body["triggers"]])
    raise ValueError(f"{kind} has no instants of its own")
