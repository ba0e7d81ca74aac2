"""How late does work start: a hundred schedules a second for a while, and thousands in one instant?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.parts import rivals
from benchmarks.parts.measure import (
    ACTOR,
    Goals,
    TemporaryStores,
    build_instance,
    describe_store,
    heading,
    median,
    percentile,
    progress,
    schedule,
    spread,
)
from benchmarks.parts.rivals import NotInstalled
from timewright.core.recurrence.triggers import Every
from timewright.core.target import Call
from timewright.ledger.replan import create

PER_SECOND = 100
HEADROOM_S = 0.5  # the first instant is this far ahead, so that every contender is ready for it
MAX_BURST_DELAY_S = {1_000: 0.5, 10_000: 4.0}

Delays = list[float]


# -------------------------------------------------------------------------------------- a hundred a second


def delay(
    goals: Goals, temporary_stores: TemporaryStores, *, kinds: Sequence[str], rounds: int, quick: bool
) -> None:
    """The start delay of a hundred schedules that run once a second, ten milliseconds apart."""
    seconds = 3 if quick else max(20, 60 // rounds)
    rivals_seconds = seconds if quick else seconds // 2
    parties: dict[str, Callable[[], Delays]] = {
        "bare asyncio timer": lambda: _bare(_grid(rivals_seconds)),
        "apscheduler, memory": lambda: _apscheduler_grid(rivals.memory_apscheduler(), rivals_seconds),
        "apscheduler, sqlite": lambda: _apscheduler_stored(temporary_stores, rivals_seconds),
        "apscheduler 4, memory": lambda: rivals.apscheduler4_grid(PER_SECOND, rivals_seconds, HEADROOM_S),
        **{
            f"timewright, {kind}": lambda kind=kind: _ours_grid(temporary_stores, kind, seconds)
            for kind in kinds
        },
    }
    heading(
        "start delay, 100 schedules a second",
        "100 schedules, every 1s, 10 ms apart",
        f"{seconds} s a round, other libraries {rivals_seconds} s; {rounds} rounds, by turns",
        "from the planned instant to the first line of the function, by the wall clock; ms",
        *(f"timewright, {kind}: {describe_store(kind)}" for kind in kinds),
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


def _ours_grid(temporary_stores: TemporaryStores, kind: str, seconds: int) -> Delays:
    delays: Delays = []

    def note(context: Any) -> None:
        delays.append(time.time() - context.planned_at.timestamp())

    awaited = PER_SECOND * seconds
    with (
        temporary_stores.new_store(kind) as store_url,
        build_instance(store_url, {"note": note}, awaited=awaited) as (instance, ends),
    ):
        now = instance.store.now()
        first = now + timedelta(seconds=HEADROOM_S + 0.5)
        step = timedelta(seconds=1) / PER_SECOND
        create(
            instance.store,
            [
                schedule(
                    f"grid-{n}", Every(timedelta(seconds=1), first + n * step), Call(name="note"), now=now
                )
                for n in range(PER_SECOND)
            ],
            by=ACTOR,
            now=now,
        )
        instance.start()
        ends.wait(seconds=seconds + 5)
    return delays[:awaited]


def _apscheduler_grid(scheduler: Any, seconds: int) -> Delays:
    rivals.RAN.clear()
    first = datetime.now(UTC) + timedelta(seconds=HEADROOM_S)
    scheduler.start(paused=True)
    for n in range(PER_SECOND):
        begins = first + timedelta(seconds=n / PER_SECOND)
        ends = begins + timedelta(seconds=seconds - 1)
        scheduler.add_job(
            rivals.record_delay,
            "interval",
            seconds=1,
            start_date=begins,
            end_date=ends,
            args=(begins.timestamp(),),
        )
    scheduler.resume()
    time.sleep(max(0.0, first.timestamp() - time.time()) + seconds + 0.5)
    scheduler.shutdown(wait=True)
    return list(rivals.RAN)


def _apscheduler_stored(temporary_stores: TemporaryStores, seconds: int) -> Delays:
    with temporary_stores.new_store("sqlite") as store_url:
        return _apscheduler_grid(rivals.stored_apscheduler(store_url), seconds)


def _grid(seconds: int) -> list[float]:
    first = time.time() + HEADROOM_S
    return [first + n / PER_SECOND for n in range(seconds * PER_SECOND)]


# ------------------------------------------------------------------------------------- all in one instant


def burst(
    goals: Goals, temporary_stores: TemporaryStores, *, kinds: Sequence[str], rounds: int, quick: bool
) -> None:
    """When the last of many runs that are due in the same instant has started."""
    for count, latest in MAX_BURST_DELAY_S.items():
        if quick and count > 1_000:
            continue
        _burst(goals, temporary_stores, kinds=kinds, rounds=rounds, count=count, latest=latest)


def _burst(
    goals: Goals,
    temporary_stores: TemporaryStores,
    *,
    kinds: Sequence[str],
    rounds: int,
    count: int,
    latest: float,
) -> None:
    parties: dict[str, Callable[[], Delays]] = {
        "bare asyncio timer": lambda: _bare([time.time() + HEADROOM_S] * count),
        "apscheduler, memory": lambda: _apscheduler_burst(count),
        **{
            f"timewright, {kind}": lambda kind=kind: _ours_burst(temporary_stores, kind, count)
            for kind in kinds
        },
    }
    heading(
        f"{count:,} due in one instant",
        f"{count:,} schedules, every 1h, one anchor; no-op on threads; {rounds} rounds, by turns",
        "from the planned instant to the first line of the function, by the wall clock; ms",
        *(f"timewright, {kind}: {describe_store(kind)}, default settings" for kind in kinds),
    )
    found = _by_turns(parties, rounds)
    _show(found)
    for name, rows in found.items():
        wrong = [len(delays) for delays in rows if len(delays) != count]
        if wrong:
            raise SystemExit(f"{name}: {wrong} started, {count} were due")
    rivals_last = [max(delays) for delays in found["apscheduler, memory"]]
    for kind in kinds:
        row = f"burst of {count:,}, {kind}"
        last = median([max(delays) for delays in found[f"timewright, {kind}"]])
        goals.judge(row, f"last one started <= {latest:g} s late", found=f"{last:.2f} s", met=last <= latest)
        if rivals_last:
            theirs = median(rivals_last)
            words = f"{last:.2f} : {theirs:.2f} s"
            goals.judge(row, "ahead of apscheduler 3, memory", found=words, met=last <= theirs)


def _ours_burst(temporary_stores: TemporaryStores, kind: str, count: int) -> Delays:
    """Double the lead time until all schedules are written before their instant."""
    ahead = HEADROOM_S + count / 5_000
    while True:
        with temporary_stores.new_store(kind) as store_url:
            delays = _one_burst(store_url, count, ahead=ahead)
        if delays:
            return delays
        ahead *= 2


def _one_burst(store_url: str, count: int, *, ahead: float) -> Delays:
    delays: Delays = []

    def note(context: Any) -> None:
        delays.append(time.time() - context.planned_at.timestamp())

    with build_instance(store_url, {"note": note}, awaited=count) as (instance, ends):
        now = instance.store.now()
        anchor = now + timedelta(seconds=ahead)
        rows = [
            schedule(f"burst-{n}", Every(timedelta(hours=1), anchor), Call(name="note"), now=now)
            for n in range(count)
        ]
        create(instance.store, rows, by=ACTOR, now=now)
        if instance.store.now() + timedelta(seconds=HEADROOM_S) / 2 > anchor:
            return []
        instance.start()
        ends.wait()
    return delays


def _apscheduler_burst(count: int) -> Delays:
    scheduler = rivals.memory_apscheduler()
    delays: Delays = []
    due = datetime.now(UTC) + timedelta(seconds=HEADROOM_S + count / 2_000)

    def note() -> None:
        delays.append(time.time() - due.timestamp())

    scheduler.start(paused=True)
    for _ in range(count):
        scheduler.add_job(note, "interval", hours=1, start_date=due)
    scheduler.resume()
    limit = time.time() + 120
    while len(delays) < count and time.time() < limit:
        time.sleep(0.01)
    scheduler.shutdown(wait=True)
    return delays


# ------------------------------------------------------------------------------------------------ shared


def _bare(instants: Sequence[float]) -> Delays:
    """The delay of the machine's timer alone: a loop callback at each instant."""
    delays: Delays = []

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        shift = loop.time() - time.time()
        for at in instants:
            loop.call_at(at + shift, lambda at=at: delays.append(time.time() - at))
        await asyncio.sleep(max(instants) - time.time() + 0.5)

    asyncio.run(wait())
    return delays


def _by_turns(parties: Mapping[str, Callable[[], Delays]], rounds: int) -> dict[str, list[Delays]]:
    found: dict[str, list[Delays]] = {name: [] for name in parties}
    for number in range(rounds):
        for name, party in parties.items():
            progress(f"start delay: round {number + 1} of {rounds}, {name}")
            try:
                found[name].append(party())
            except NotInstalled as reason:
                progress(f"{name}: {reason}")
    return found


def _figures(rows: Sequence[Delays]) -> tuple[float, float]:
    """The medians over the rounds of p50 and p99, in milliseconds."""
    p50, p99 = (median([percentile(delays, share) * 1000 for delays in rows]) for share in (0.5, 0.99))
    return p50, p99


def _show(found: Mapping[str, list[Delays]]) -> None:
    print(f"  {'ms':<24}{'p50':>24}{'p99':>24}{'last':>24}{'started':>10}")
    for name, rows in found.items():
        if not rows:
            print(f"  {name:<24}not run: see above")
            continue
        cells = [_ms([percentile(delays, share) for delays in rows]) for share in (0.5, 0.99)]
        cells.append(_ms([max(delays) for delays in rows]))
        print(f"  {name:<24}" + "".join(f"{c:>24}" for c in cells) + f"{min(map(len, rows)):>10}", flush=True)


def _ms(seconds: Sequence[float]) -> str:
    return spread([one * 1000 for one in seconds], digits=1 if max(seconds) < 0.1 else 0)
