"""How late does work start: a hundred schedules a second for a while, and thousands in one instant?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks import _rivals as rivals
from benchmarks._measure import (
    BY,
    Goals,
    Places,
    heading,
    house,
    median,
    percentile,
    progress,
    schedule,
    spread,
    store_words,
)
from benchmarks._rivals import Absent
from timewright.core.target import Call
from timewright.core.triggers import Every
from timewright.ledger.replan import create

PER_SECOND = 100
HEADROOM = 0.5  # the first instant lies this far ahead, so that everyone is ready for it
BURSTS = {1_000: 0.5, 10_000: 4.0}

Lates = list[float]


# -------------------------------------------------------------------------------------- a hundred a second


def delay(goals: Goals, places: Places, *, kinds: Sequence[str], rounds: int, quick: bool) -> None:
    """The start delay of a hundred schedules that come once a second, ten milliseconds apart."""
    seconds = 3 if quick else max(20, 60 // rounds)
    rivals_seconds = seconds if quick else seconds // 2
    parties: dict[str, Callable[[], Lates]] = {
        "bare asyncio timer": lambda: _bare(_grid(rivals_seconds)),
        "apscheduler, memory": lambda: _apscheduler_grid(rivals.memory_apscheduler(), rivals_seconds),
        "apscheduler, sqlite": lambda: _apscheduler_stored(places, rivals_seconds),
        "apscheduler 4, memory": lambda: rivals.apscheduler4_grid(PER_SECOND, rivals_seconds, HEADROOM),
        **{f"timewright, {kind}": lambda kind=kind: _ours_grid(places, kind, seconds) for kind in kinds},
    }
    heading(
        "start delay, 100 schedules a second",
        "100 schedules, every 1s, 10 ms apart",
        f"{seconds} s a round, rivals {rivals_seconds} s; {rounds} rounds, the parties by turns",
        "from the planned instant to the first line of the function, by the wall clock; ms",
        *(f"timewright, {kind}: {store_words(kind)}" for kind in kinds),
    )
    found = _by_turns(parties, rounds)
    _show(found)
    bare50, bare99 = _figures(found["bare asyncio timer"])
    for kind in kinds:
        row = f"start delay, {kind}"
        p50, p99 = _figures(found[f"timewright, {kind}"])
        above50, above99 = p50 - bare50, p99 - bare99
        goals.judge(row, "p50 <= 3 ms above the bare timer", found=f"{above50:.1f} ms", met=above50 <= 3)
        goals.judge(row, "p99 <= 15 ms above the bare timer", found=f"{above99:.1f} ms", met=above99 <= 15)
        for rival in ("apscheduler, memory", "apscheduler, sqlite", "apscheduler 4, memory"):
            if found[rival]:
                rival50, rival99 = _figures(found[rival])
                words = f"{p50:.1f}, {p99:.1f} : {rival50:.1f}, {rival99:.1f} ms"
                better = p50 <= rival50 and p99 <= rival99
                goals.judge(row, f"p50 and p99 better than {rival}", found=words, met=better)


def _ours_grid(places: Places, kind: str, seconds: int) -> Lates:
    lates: Lates = []

    def note(context: Any) -> None:
        lates.append(time.time() - context.planned_at.timestamp())

    awaited = PER_SECOND * seconds
    with places.fresh(kind) as place, house(place, {"note": note}, awaited=awaited) as (built, ends):
        now = built.store.now()
        first = now + timedelta(seconds=HEADROOM + 0.5)
        step = timedelta(seconds=1) / PER_SECOND
        create(
            built.store,
            [
                schedule(
                    f"grid-{n}", Every(timedelta(seconds=1), first + n * step), Call(name="note"), now=now
                )
                for n in range(PER_SECOND)
            ],
            by=BY,
            now=now,
        )
        built.start()
        ends.wait(seconds=seconds + 5)
    return lates[:awaited]


def _apscheduler_grid(scheduler: Any, seconds: int) -> Lates:
    rivals.RAN.clear()
    first = datetime.now(UTC) + timedelta(seconds=HEADROOM)
    scheduler.start(paused=True)
    for n in range(PER_SECOND):
        begins = first + timedelta(seconds=n / PER_SECOND)
        ends = begins + timedelta(seconds=seconds - 1)
        scheduler.add_job(
            rivals.late, "interval", seconds=1, start_date=begins, end_date=ends, args=(begins.timestamp(),)
        )
    scheduler.resume()
    time.sleep(max(0.0, first.timestamp() - time.time()) + seconds + 0.5)
    scheduler.shutdown(wait=True)
    return list(rivals.RAN)


def _apscheduler_stored(places: Places, seconds: int) -> Lates:
    with places.fresh("sqlite") as place:
        return _apscheduler_grid(rivals.stored_apscheduler(place), seconds)


def _grid(seconds: int) -> list[float]:
    first = time.time() + HEADROOM
    return [first + n / PER_SECOND for n in range(seconds * PER_SECOND)]


# ------------------------------------------------------------------------------------- all in one instant


def burst(goals: Goals, places: Places, *, kinds: Sequence[str], rounds: int, quick: bool) -> None:
    """When the last of many that are due in the same instant has started."""
    for count, latest in BURSTS.items():
        if quick and count > 1_000:
            continue
        _burst(goals, places, kinds=kinds, rounds=rounds, count=count, latest=latest)


def _burst(
    goals: Goals, places: Places, *, kinds: Sequence[str], rounds: int, count: int, latest: float
) -> None:
    parties: dict[str, Callable[[], Lates]] = {
        "bare asyncio timer": lambda: _bare([time.time() + HEADROOM] * count),
        "apscheduler, memory": lambda: _apscheduler_burst(count),
        **{f"timewright, {kind}": lambda kind=kind: _ours_burst(places, kind, count) for kind in kinds},
    }
    heading(
        f"{count:,} due in one instant",
        f"{count:,} schedules, every 1h, one anchor; no-op on threads; {rounds} rounds, the parties by turns",
        "from the planned instant to the first line of the function, by the wall clock; ms",
        *(f"timewright, {kind}: {store_words(kind)}, settings as they come" for kind in kinds),
    )
    found = _by_turns(parties, rounds)
    _show(found)
    for name, rows in found.items():
        wrong = [len(lates) for lates in rows if len(lates) != count]
        if wrong:
            raise SystemExit(f"{name}: {wrong} started, {count} were due")
    rivals_last = [max(lates) for lates in found["apscheduler, memory"]]
    for kind in kinds:
        row = f"burst of {count:,}, {kind}"
        last = median([max(lates) for lates in found[f"timewright, {kind}"]])
        goals.judge(row, f"last one started <= {latest:g} s late", found=f"{last:.2f} s", met=last <= latest)
        if rivals_last:
            theirs = median(rivals_last)
            words = f"{last:.2f} : {theirs:.2f} s"
            goals.judge(row, "ahead of apscheduler 3, memory", found=words, met=last <= theirs)


def _ours_burst(places: Places, kind: str, count: int) -> Lates:
    """Their instant must lie ahead until all of them are written; how long that takes is found by trying."""
    ahead = HEADROOM + count / 5_000
    while True:
        with places.fresh(kind) as place:
            lates = _one_burst(place, count, ahead=ahead)
        if lates:
            return lates
        ahead *= 2


def _one_burst(place: str, count: int, *, ahead: float) -> Lates:
    lates: Lates = []

    def note(context: Any) -> None:
        lates.append(time.time() - context.planned_at.timestamp())

    with house(place, {"note": note}, awaited=count) as (built, ends):
        now = built.store.now()
        anchor = now + timedelta(seconds=ahead)
        rows = [
            schedule(f"burst-{n}", Every(timedelta(hours=1), anchor), Call(name="note"), now=now)
            for n in range(count)
        ]
        create(built.store, rows, by=BY, now=now)
        if built.store.now() + timedelta(seconds=HEADROOM) / 2 > anchor:
            return []
        built.start()
        ends.wait()
    return lates


def _apscheduler_burst(count: int) -> Lates:
    scheduler = rivals.memory_apscheduler()
    lates: Lates = []
    due = datetime.now(UTC) + timedelta(seconds=HEADROOM + count / 2_000)

    def note() -> None:
        lates.append(time.time() - due.timestamp())

    scheduler.start(paused=True)
    for _ in range(count):
        scheduler.add_job(note, "interval", hours=1, start_date=due)
    scheduler.resume()
    limit = time.time() + 120
    while len(lates) < count and time.time() < limit:
        time.sleep(0.01)
    scheduler.shutdown(wait=True)
    return lates


# ------------------------------------------------------------------------------------------------ shared


def _bare(instants: Sequence[float]) -> Lates:
    """What the machine's timer alone costs: a callback of the loop at each instant."""
    lates: Lates = []

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        shift = loop.time() - time.time()
        for at in instants:
            loop.call_at(at + shift, lambda at=at: lates.append(time.time() - at))
        await asyncio.sleep(max(instants) - time.time() + 0.5)

    asyncio.run(wait())
    return lates


def _by_turns(parties: Mapping[str, Callable[[], Lates]], rounds: int) -> dict[str, list[Lates]]:
    found: dict[str, list[Lates]] = {name: [] for name in parties}
    for number in range(rounds):
        for name, party in parties.items():
            progress(f"start delay: round {number + 1} of {rounds}, {name}")
            try:
                found[name].append(party())
            except Absent as reason:
                progress(f"{name}: {reason}")
    return found


def _figures(rows: Sequence[Lates]) -> tuple[float, float]:
    """The median rounds' p50 and p99, in milliseconds."""
    p50, p99 = (median([percentile(lates, share) * 1000 for lates in rows]) for share in (0.5, 0.99))
    return p50, p99


def _show(found: Mapping[str, list[Lates]]) -> None:
    print(f"  {'ms':<24}{'p50':>24}{'p99':>24}{'last':>24}{'started':>10}")
    for name, rows in found.items():
        if not rows:
            print(f"  {name:<24}not run: see above")
            continue
        cells = [_ms([percentile(lates, share) for lates in rows]) for share in (0.5, 0.99)]
        cells.append(_ms([max(lates) for lates in rows]))
        print(f"  {name:<24}" + "".join(f"{c:>24}" for c in cells) + f"{min(map(len, rows)):>10}", flush=True)


def _ms(seconds: Sequence[float]) -> str:
    return spread([one * 1000 for one in seconds], digits=1 if max(seconds) < 0.1 else 0)
