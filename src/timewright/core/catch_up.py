"""Late, missed, caught up: which of the occurrences due now run, which are skipped, which wait their turn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from timewright.core.policies import CatchUp, Overlap
from timewright.core.run import Reason
from timewright.core.schedule import Schedule
from timewright.core.verdicts import Fire, Hold, Replace

EACH = frozenset({CatchUp.ALL, CatchUp.SPREAD})

Fate = type[Fire] | type[Hold] | type[Replace] | Reason


class Flight(Struct, frozen=True):
    """What a schedule already has under way: live runs (ready or leased) and held ones."""

    live: int = 0
    held: int = 0


class Chosen(Struct, frozen=True):
    """An occurrence that may run: when it was planned, when it may fire, and whether it was missed."""

    planned_at: datetime
    fire_at: datetime
    missed: bool = False


class Choice(Struct, frozen=True):
    """What runs, what is skipped as missed, and where the carried rest begins."""

    runs: tuple[Chosen, ...]
    skipped: tuple[datetime, ...] = ()
    carried: datetime | None = None


def choose(
    schedule: Schedule, due: Sequence[datetime], *, flight: Flight, more: bool, now: datetime
) -> Choice:
    """Split what is due: a late one runs under every policy, for the missed ones the policy speaks.

    One whose successor is also due is missed; the newest is late within the grace and missed beyond it.
    With `more` the newest is not among them.
    """
    past = [at for at in due if at <= now]
    # Early jitter looks ahead: what has not come yet is neither late nor missed.
    ahead = [Chosen(at, at) for at in due[len(past) :]]
    newest = past[-1] if past and (ahead or not more) else None
    late = [Chosen(newest, newest)] if newest is not None and now - newest <= schedule.grace else []
    missed = past[:-1] if late else past
    old = [at for at in missed if schedule.catch_up_window and at < now - schedule.catch_up_window]
    missed = missed[len(old) :]
    if schedule.catch_up in EACH:
        return _each(schedule, missed, old, late + ahead, flight=flight, now=now)
    if schedule.catch_up is CatchUp.LAST and newest is not None and missed and not late:
        late = [Chosen(newest, newest, missed=True)]
        missed = missed[:-1]
    return Choice((*late, *ahead), (*old, *missed))


def overlapped(schedule: Schedule, chosen: Sequence[Chosen], *, flight: Flight) -> list[Fate]:
    """What overlap makes of each: fire, hold, replace, or the reason it is skipped."""
    if schedule.overlap is Overlap.ALLOW:
        return [Fire] * len(chosen)
    busy, held = flight.live > 0, flight.held
    if schedule.overlap is Overlap.REPLACE:
        last: Fate = Replace if busy or held else Fire
        return [*[Reason.SUPERSEDED] * (len(chosen) - 1), last] if chosen else []
    # Caught-up occurrences run in sequence, and with them what came due in the same pass.
    in_sequence = schedule.catch_up in EACH and any(one.missed for one in chosen)
    fates: list[Fate] = []
    for _ in chosen:
        if not busy and not held:
            fates.append(Fire)
            busy = True
        elif schedule.overlap is Overlap.SKIP and not in_sequence:
            fates.append(Reason.OVERLAP)
        elif schedule.overlap is Overlap.QUEUE and held >= schedule.queue_limit:
            fates.append(Reason.QUEUE_FULL)
        else:
            fates.append(Hold)
            held += 1
    return fates


def _each(
    schedule: Schedule,
    missed: Sequence[datetime],
    old: Sequence[datetime],
    after: Sequence[Chosen],
    *,
    flight: Flight,
    now: datetime,
) -> Choice:
    """Every missed one, oldest first, as many as there is room for; the rest is carried, never dropped."""
    limit = schedule.catch_up_limit
    if schedule.overlap is Overlap.QUEUE:
        limit = min(limit, schedule.queue_limit)
    room = max(limit - flight.held, 0)
    taken = missed[:room]
    if schedule.catch_up is CatchUp.SPREAD:
        runs = [
            Chosen(at, now + schedule.spread_over * i / (len(taken) + 1), missed=True)
            for i, at in enumerate(taken, start=1)
        ]
    else:
        runs = [Chosen(at, at, missed=True) for at in taken]
    if len(missed) > room:
        return Choice(tuple(runs), tuple(old), carried=missed[room])
    return Choice((*runs, *after), tuple(old))
