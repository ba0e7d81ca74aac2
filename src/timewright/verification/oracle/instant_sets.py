"""The planned instants of a schedule as a set, found without the engine's recurrence code."""

from __future__ import annotations

from typing import Protocol
from zoneinfo import ZoneInfoNotFoundError

from timewright.verification.oracle.cron_scan import CronScan
from timewright.verification.oracle.rrule_scan import RruleScan
from timewright.verification.oracle.schedule_policy import SchedulePolicy
from timewright.verification.oracle.times import DAY, parse_duration, parse_instant
from timewright.verification.rows import JsonObject

MAX_INSTANTS = 200_000
MAX_LOOKAHEAD_US = 400 * DAY


class InstantSet(Protocol):
    """A set of instants."""

    def between(self, after: int, until: int, *, limit: int) -> list[int]:
        """The instants after `after` up to `until`, at most `limit` + 1."""
        ...

    def count(self, after: int, until: int, *, limit: int) -> int:
        """How many there are, at most `limit` + 1."""
        ...

    def has(self, at: int) -> bool:
        """Whether the set contains an instant."""
        ...

    def first_after(self, after: int, *, until: int) -> int | None:
        """The first instant after `after` up to `until`, or None."""
        ...


class IntervalInstants:
    """An anchor and every whole number of intervals after it."""

    def __init__(self, interval: int, anchor: int) -> None:
        self._interval = interval
        self._anchor = anchor

    def between(self, after: int, until: int, *, limit: int) -> list[int]:
        """The instants after `after` up to `until`."""
        first = self._next(after)
        return list(range(first, until + 1, self._interval)[: limit + 1])

    def count(self, after: int, until: int, *, limit: int) -> int:
        """How many there are, by division."""
        return len(range(self._next(after), until + 1, self._interval))

    def has(self, at: int) -> bool:
        """Whether an instant is a whole number of intervals after the anchor."""
        return at >= self._anchor and (at - self._anchor) % self._interval == 0

    def first_after(self, after: int, *, until: int) -> int | None:
        """The first instant after `after`."""
        first = self._next(after)
        return first if first <= until else None

    def _next(self, after: int) -> int:
        if after < self._anchor:
            return self._anchor
        return self._anchor + ((after - self._anchor) // self._interval + 1) * self._interval


class UnionInstants:
    """The union of several sets and single points."""

    def __init__(self, sets: list[InstantSet], points: tuple[int, ...] = ()) -> None:
        self._sets = sets
        self._points = points

    def between(self, after: int, until: int, *, limit: int) -> list[int]:
        """The instants after `after` up to `until`."""
        found = {at for at in self._points if after < at <= until}
        for one in self._sets:
            found.update(one.between(after, until, limit=limit))
        return sorted(found)[: limit + 1]

    def count(self, after: int, until: int, *, limit: int) -> int:
        """How many there are; an instant in two sets counts once."""
        return len(self.between(after, until, limit=limit))

    def has(self, at: int) -> bool:
        """Whether any set contains the instant."""
        return at in self._points or any(one.has(at) for one in self._sets)

    def first_after(self, after: int, *, until: int) -> int | None:
        """The first instant after `after`."""
        ahead = [at for at in self._points if after < at <= until]
        ahead += [at for one in self._sets if (at := one.first_after(after, until=until)) is not None]
        return min(ahead, default=None)


EMPTY = UnionInstants([])


class BoundedInstants:
    """A set of instants limited to a start and an end, both inclusive."""

    def __init__(self, inner: InstantSet, start: int | None, end: int | None) -> None:
        self._inner = inner
        self._before = start - 1 if start is not None else -(2**62)
        self._end = end if end is not None else 2**62

    def between(self, after: int, until: int, *, limit: int) -> list[int]:
        """The instants after `after` up to `until`."""
        return self._inner.between(max(after, self._before), min(until, self._end), limit=limit)

    def count(self, after: int, until: int, *, limit: int) -> int:
        """How many there are."""
        first, last = max(after, self._before), min(until, self._end)
        return self._inner.count(first, last, limit=limit) if last > first else 0

    def has(self, at: int) -> bool:
        """Whether the set contains an instant."""
        return self._before < at <= self._end and self._inner.has(at)

    def first_after(self, after: int, *, until: int) -> int | None:
        """The first instant after `after`."""
        return self._inner.first_after(max(after, self._before), until=min(until, self._end))


class InstantSetCache:
    """Caches the instant sets of policies; equal triggers share one."""

    def __init__(self) -> None:
        self._by_trigger: dict[str, InstantSet] = {}
        self._by_policy: dict[int, InstantSet | None] = {}

    def get(self, policy: SchedulePolicy) -> InstantSet | None:
        """The instants of a policy's trigger within its start and end, or None if the trigger has none."""
        if policy.trigger.get("kind") in ("after", "manual"):
            return EMPTY
        # The policies outlive this cache, so an id() stands for one policy.
        if id(policy) not in self._by_policy:
            self._by_policy[id(policy)] = self._build(policy)
        return self._by_policy[id(policy)]

    def _build(self, policy: SchedulePolicy) -> InstantSet | None:
        key = repr(policy.trigger)
        try:
            if key not in self._by_trigger:
                self._by_trigger[key] = parse_trigger(policy.trigger)
        except (KeyError, TypeError, ValueError, IndexError, ZoneInfoNotFoundError):
            return None
        inner = self._by_trigger[key]
        if policy.start_at is None and policy.end_at is None:
            return inner
        return BoundedInstants(inner, policy.start_at, policy.end_at)


def parse_trigger(body: JsonObject) -> InstantSet:
    """Build the instant set of one trigger from its body."""
    kind = body["kind"]
    if kind == "cron":
        zone, dst = body.get("zone", "UTC"), body.get("dst", "vixie")
        return CronScan(body["expression"], zone=zone, dst=dst, key=body.get("key"))
    if kind == "every":
        return IntervalInstants(parse_duration(body["interval"]), parse_instant(body["anchor"]))
    if kind == "rrule":
        zone, dst = body.get("zone", "UTC"), body.get("dst", "vixie")
        return RruleScan(body["rule"], zone=zone, dst=dst, anchor=parse_instant(body["anchor"]))
    if kind == "once":
        return UnionInstants([], (parse_instant(body["at"]),))
    if kind == "any_of":
        return UnionInstants([parse_trigger(one) for one in body["triggers"]])
    raise ValueError(f"trigger kind {kind!r} has no instants of its own")
