"""No-op runs end to end, durable: handed over in bulk, run, settled; beside the rivals by turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized

from benchmarks import _rivals as rivals
from benchmarks._measure import (
    BY,
    IDS,
    Goals,
    Places,
    check_once,
    hand_over,
    heading,
    house,
    median,
    paused_lane,
    progress,
    schedule,
    spread,
    store_words,
)
from benchmarks._rivals import Absent, Stopwatch, Taken
from timewright.core.policies import Overlap
from timewright.core.target import Call
from timewright.core.triggers import Manual
from timewright.ledger.by_hand import run_now
from timewright.ledger.replan import create

SLOW = 5  # a rival that takes this much longer is given that much less to do

Party = Callable[[int, str], Taken]


def drain(goals: Goals, places: Places, *, kind: str, rounds: int, quick: bool) -> None:
    """Bulk enqueue and drain on one kind of store, with the rivals that use it."""
    runs = 1_000 if quick else 10_000
    parties = ON[kind]
    heading(
        f"no-op runs end to end, {kind}",
        f"{store_words(kind)}; empty store, one process, {rounds} rounds, the parties by turns in each",
        "timewright: one paused schedule, settings as they come; every run once, one attempt each, checked",
        "what is called is declared before the clock runs: a schedule here, a task or an entry point there",
        *(
            f"{name}: {jobs:,} jobs; {(party.__doc__ or '').strip()}"
            for name, party, jobs in _given(kind, runs)
        ),
    )
    taken: dict[str, list[Taken]] = {name: [] for name in parties}
    absent: dict[str, str] = {}
    for number in range(rounds):
        for name, party, jobs in _given(kind, runs):
            if name not in absent:
                progress(f"drain, {kind}: round {number + 1} of {rounds}, {name}")
                try:
                    with places.fresh(kind) as place:
                        taken[name].append(party(jobs, place))
                except Absent as reason:
                    absent[name] = str(reason)
    _show(taken, absent)
    rates = {name: Rates(rows) for name, rows in taken.items() if rows}
    {"sqlite": _judge_sqlite, "postgres": _judge_postgres}[kind](goals, rates)


def ours(runs: int, place: str) -> Taken:
    """In one call by backfill, then one instance; the no-op is a plain function on threads."""
    ran: list[None] = []

    def noop() -> None:
        ran.append(None)

    return _in_bulk(runs, place, noop, ran)


def ours_async(runs: int, place: str) -> Taken:
    """The same; the no-op is an async function on the loop, as PgQueuer's is."""
    ran: list[None] = []

    async def noop() -> None:
        ran.append(None)

    return _in_bulk(runs, place, noop, ran)


def _in_bulk(runs: int, place: str, noop: Callable[[], object], ran: Sized) -> Taken:
    with house(place, {"noop": noop}, awaited=runs) as (built, ends):
        lane = paused_lane(built.store, "lane")
        watch = Stopwatch()
        hand_over(built.store, lane, runs)
        watch.mark()
        built.start()
        ends.wait()
        watch.mark()
        taken = watch.taken(runs)
        check_once(built.store, runs)
        if len(ran) != runs:
            raise SystemExit(f"{len(ran)} calls for {runs} runs")
    return taken


def ours_singly(runs: int, place: str) -> Taken:
    """Run by run by hand, one commit each, then the same instance."""

    def noop() -> None:
        """Do nothing."""

    with house(place, {"noop": noop}, awaited=runs) as (built, ends):
        now = built.store.now()
        one = schedule("manual", Manual(), Call(name="noop"), now=now, overlap=Overlap.ALLOW)
        create(built.store, [one], by=BY, now=now)
        watch = Stopwatch()
        for _ in range(runs):
            run_now(built.store, one.id, ids=IDS, by=BY, now=built.store.now())
        watch.mark()
        built.start()
        ends.wait()
        watch.mark()
        return watch.taken(runs)


ON: Mapping[str, Mapping[str, tuple[Party, int]]] = {
    "sqlite": {
        "timewright": (ours, 1),
        "huey": (rivals.huey, 1),
        "apscheduler": (rivals.apscheduler, SLOW),
        "celery": (rivals.celery, SLOW),
        "timewright singly": (ours_singly, SLOW),
    },
    "postgres": {
        "timewright": (ours, 1),
        "timewright, async": (ours_async, 1),
        "pgqueuer": (rivals.pgqueuer, 1),
        "pgqueuer, batches of 100": (rivals.pgqueuer_in_large_batches, 1),
        "procrastinate": (rivals.procrastinate, 2 * SLOW),
        "oban": (rivals.oban, 1),
        "dbos": (rivals.dbos, 4 * SLOW),
        "apscheduler 4": (rivals.apscheduler4, 8 * SLOW),
        "timewright singly": (ours_singly, 2 * SLOW),
    },
}


def _given(kind: str, runs: int) -> list[tuple[str, Party, int]]:
    return [(name, party, runs // part) for name, (party, part) in ON[kind].items()]


class Rates:
    """Jobs per second, a figure a round."""

    def __init__(self, rows: list[Taken]) -> None:
        self.enqueue = [row.jobs / row.enqueue for row in rows]
        self.drain = [row.jobs / row.drain for row in rows]
        self.both = [row.jobs / (row.enqueue + row.drain) for row in rows]
        self.cpu_us = [row.cpu / row.jobs * 1e6 for row in rows]


def _show(taken: Mapping[str, list[Taken]], absent: Mapping[str, str]) -> None:
    print(f"  {'per second':<26}{'enqueue':>24}{'drain':>24}{'end to end':>24}{'us of a core each':>26}")
    for name, rows in taken.items():
        if name in absent:
            print(f"  {name:<26}{absent[name]}")
        elif rows:
            rates = Rates(rows)
            cells = (rates.enqueue, rates.drain, rates.both)
            cpu = spread(rates.cpu_us) if rates.cpu_us[0] > 0 else "another process"
            print(
                f"  {name:<26}" + "".join(f"{spread(cell):>24}" for cell in cells) + f"{cpu:>26}", flush=True
            )


def _judge_sqlite(goals: Goals, rates: Mapping[str, Rates]) -> None:
    row = "drain, sqlite"
    _against(goals, row, rates, rival="huey", what="drain", least=2)
    for rival, least in (("huey", 3), ("apscheduler", 10), ("celery", 10)):
        _against(goals, row, rates, rival=rival, what="both", least=least)


def _judge_postgres(goals: Goals, rates: Mapping[str, Rates]) -> None:
    """Against PgQueuer in either batch, once with the no-op on threads and once with its like on the loop."""
    row = "drain, postgres"
    for rival in ("pgqueuer", "pgqueuer, batches of 100"):
        for what, least in (("drain", 1), ("both", 3)):
            for who in ("timewright", "timewright, async"):
                _against(goals, row, rates, rival=rival, what=what, least=least, who=who)
    for rival in ("oban", "dbos", "apscheduler 4"):
        _against(goals, row, rates, rival=rival, what="both", least=3)
    _against(goals, row, rates, rival="procrastinate", what="both", least=10)


def _against(
    goals: Goals,
    row: str,
    rates: Mapping[str, Rates],
    *,
    rival: str,
    what: str,
    least: float,
    who: str = "timewright",
) -> None:
    if rival not in rates:
        return
    ratio = median(getattr(rates[who], what)) / median(getattr(rates[rival], what))
    words = {"drain": "drain", "both": "bulk end to end"}[what] + who.removeprefix("timewright")
    goals.judge(row, f"{words} >= {least:g} x {rival}", found=f"{ratio:.2f} x", met=ratio >= least)
