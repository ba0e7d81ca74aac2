"""Catch-up and overlap: which of the due occurrences run, which are skipped, and which wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from timewright.core.policies.policies import CatchUp, Overlap
from timewright.core.run.run import Reason
from timewright.core.run.verdicts import Fire, Hold, Replace
from timewright.core.schedule.schedule import Schedule

RUNS_EVERY_MISSED = frozenset({CatchUp.ALL, CatchUp.SPREAD})

OverlapResult = type[Fire] | type[Hold] | type[Replace] | Reason


class InFlightCounts(Struct, frozen=True):
    """The unfinished runs of a schedule: live ones (ready or leased) and held ones."""

    live: int = 0
    held: int = 0


class ChosenOccurrence(Struct, frozen=True):
    """An occurrence chosen to run: when it was planned, when it may start, and whether it was missed."""

    planned_at: datetime
    fire_at: datetime
    missed: bool = False


class CatchUpChoice(Struct, frozen=True):
    """The occurrences that run, those skipped as missed, and the first one carried to the next pass."""

    runs: tuple[ChosenOccurrence, ...]
    skipped: tuple[datetime, ...] = ()
    carried: datetime | None = None


def choose_occurrences(
    schedule: Schedule, due: Sequence[datetime], *, in_flight: InFlightCounts, more: bool, now: datetime
) -> CatchUpChoice:
    """Split the due occurrences: late ones run under every policy, missed ones by the catch-up policy.

    An occurrence is missed if its successor is also due. The newest is late within `grace` and missed beyond
    it. With `more`, the newest is not in the list yet.
    """
    past = [at for at in due if at <= now]
    # With early jitter the list includes future occurrences: they are neither late nor missed.
    future = [ChosenOccurrence(at, at) for at in due[len(past) :]]
    newest = past[-1] if past and (future or not more) else None
    late = [ChosenOccurrence(newest, newest)] if newest is not None and now - newest <= schedule.grace else []
    missed = past[:-1] if late else past
    old = [at for at in missed if schedule.catch_up_window and at < now - schedule.catch_up_window]
    missed = missed[len(old) :]
    if schedule.catch_up in RUNS_EVERY_MISSED:
        return _choose_every_missed(schedule, missed, old, late + future, in_flight=in_flight, now=now)
    if schedule.catch_up is CatchUp.LAST and newest is not None and missed and not late:
        late = [ChosenOccurrence(newest, newest, missed=True)]
        missed = missed[:-1]
    return CatchUpChoice((*late, *future), (*old, *missed))


def apply_overlap(
    schedule: Schedule, chosen: Sequence[ChosenOccurrence], *, in_flight: InFlightCounts
) -> list[OverlapResult]:
    """Return for each occurrence: fire, hold, replace, or the reason it is skipped."""
    if schedule.overlap is Overlap.ALLOW:
        return [Fire] * len(chosen)
    busy, held = in_flight.live > 0, in_flight.held
    # Caught-up occurrences run one after another, together with those that became due in the same pass.
    sequential = schedule.catch_up in RUNS_EVERY_MISSED and any(one.missed for one in chosen)
    if schedule.overlap is Overlap.REPLACE and not sequential:
        last: OverlapResult = Replace if busy or held else Fire
        return [*[Reason.SUPERSEDED] * (len(chosen) - 1), last] if chosen else []
    results: list[OverlapResult] = []
    for _ in chosen:
        if not busy and not held:
            results.append(Fire)
            busy = True
        elif schedule.overlap is Overlap.SKIP and not sequential:
            results.append(Reason.OVERLAP)
        elif schedule.overlap is Overlap.QUEUE and held >= schedule.queue_limit:
            results.append(Reason.QUEUE_FULL)
        else:
            results.append(Hold)
            held += 1
    return results


def _choose_every_missed(
    schedule: Schedule,
    missed: Sequence[datetime],
    old: Sequence[datetime],
    after: Sequence[ChosenOccurrence],
    *,
    in_flight: InFlightCounts,
    now: datetime,
) -> CatchUpChoice:
    """Choose every missed occurrence, oldest first, up to the limit; the rest is carried over."""
    limit = schedule.catch_up_limit
    if schedule.overlap is Overlap.QUEUE:
        limit = min(limit, schedule.queue_limit)
    free = max(limit - in_flight.held, 0)
    chosen = missed[:free]
    if schedule.catch_up is CatchUp.SPREAD:
        runs = [
            ChosenOccurrence(at, now + schedule.spread_over * i / (len(chosen) + 1), missed=True)
            for i, at in enumerate(chosen, start=1)
        ]
    else:
        runs = [ChosenOccurrence(at, at, missed=True) for at in chosen]
    if len(missed) > free:
        return CatchUpChoice(tuple(runs), tuple(old), carried=missed[free])
    return CatchUpChoice((*runs, *after), tuple(old))
