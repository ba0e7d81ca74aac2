"""No-op runs end to end, durable: enqueued in bulk, run and settled, compared with other libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized

from benchmarks.parts import rivals
from benchmarks.parts.measure import (
    ACTOR,
    IDS,
    Goals,
    TemporaryStores,
    build_instance,
    check_each_ran_once,
    create_paused_schedule,
    describe_store,
    enqueue_backfill,
    heading,
    median,
    progress,
    schedule,
    spread,
)
from benchmarks.parts.rivals import NotInstalled, Stopwatch, Timings
from timewright.core.policies.policies import Overlap
from timewright.core.recurrence.triggers import Manual
from timewright.core.target import Call
from timewright.ledger.manual_runs import run_now
from timewright.ledger.replan import create

SLOW_FACTOR = 5  # a library that takes this much longer gets this much less to do

Contender = Callable[[int, str], Timings]


def drain(goals: Goals, temporary_stores: TemporaryStores, *, kind: str, rounds: int, quick: bool) -> None:
    """Bulk enqueue and drain on one kind of store, with the libraries that use it."""
    runs = 1_000 if quick else 10_000
    parties = CONTENDERS[kind]
    heading(
        f"no-op runs end to end, {kind}",
        f"{describe_store(kind)}; empty store, one process, {rounds} rounds, by turns",
        "timewright: one paused schedule, default settings; checked that every run ran once, in one attempt",
        "timewright adds its runs by an internal call; `bench library` measures the public ones",
        "functions are declared before the clock starts: a schedule here, a task or an entry point there",
        *(
            f"{name}: {jobs:,} jobs; {(party.__doc__ or '').strip()}"
            for name, party, jobs in _given(kind, runs)
        ),
    )
    taken: dict[str, list[Timings]] = {name: [] for name in parties}
    absent: dict[str, str] = {}
    for number in range(rounds):
        for name, party, jobs in _given(kind, runs):
            if name not in absent:
                progress(f"drain, {kind}: round {number + 1} of {rounds}, {name}")
                try:
                    with temporary_stores.new_store(kind) as store_url:
                        taken[name].append(party(jobs, store_url))
                except NotInstalled as reason:
                    absent[name] = str(reason)
    _show(taken, absent)
    rates = {name: Rates(rows) for name, rows in taken.items() if rows}
    {"sqlite": _judge_sqlite, "postgres": _judge_postgres}[kind](goals, rates)


def timewright_bulk(runs: int, store_url: str) -> Timings:
    """One call of backfill, then one instance; the no-op is a plain function on threads."""
    ran: list[None] = []

    def noop() -> None:
        ran.append(None)

    return _in_bulk(runs, store_url, noop, ran)


def timewright_async(runs: int, store_url: str) -> Timings:
    """The same; the no-op is an async function on the loop, as PgQueuer's is."""
    ran: list[None] = []

    async def noop() -> None:
        ran.append(None)

    return _in_bulk(runs, store_url, noop, ran)


def _in_bulk(runs: int, store_url: str, noop: Callable[[], object], ran: Sized) -> Timings:
    with build_instance(store_url, {"noop": noop}, awaited=runs) as (instance, ends):
        backlog = create_paused_schedule(instance.store, "backlog")
        watch = Stopwatch()
        enqueue_backfill(instance.store, backlog, runs)
        watch.mark()
        instance.start()
        ends.wait()
        watch.mark()
        taken = watch.timings(runs)
        check_each_ran_once(instance.store, runs)
        if len(ran) != runs:
            raise SystemExit(f"{len(ran)} calls for {runs} runs")
    return taken


def timewright_one_by_one(runs: int, store_url: str) -> Timings:
    """One manual run at a time, one commit each, then the same instance."""

    def noop() -> None:
        """Do nothing."""

    with build_instance(store_url, {"noop": noop}, awaited=runs) as (instance, ends):
        now = instance.store.now()
        one = schedule("manual", Manual(), Call(name="noop"), now=now, overlap=Overlap.ALLOW)
        create(instance.store, [one], by=ACTOR, now=now)
        watch = Stopwatch()
        for _ in range(runs):
            run_now(instance.store, one.id, ids=IDS, by=ACTOR, now=instance.store.now())
        watch.mark()
        instance.start()
        ends.wait()
        watch.mark()
        return watch.timings(runs)


CONTENDERS: Mapping[str, Mapping[str, tuple[Contender, int]]] = {
    "sqlite": {
        "timewright": (timewright_bulk, 1),
        "huey": (rivals.huey, 1),
        "apscheduler": (rivals.apscheduler, SLOW_FACTOR),
        "celery": (rivals.celery, SLOW_FACTOR),
        "timewright one by one": (timewright_one_by_one, SLOW_FACTOR),
    },
    "postgres": {
        "timewright": (timewright_bulk, 1),
        "timewright, async": (timewright_async, 1),
        "pgqueuer": (rivals.pgqueuer, 1),
        "pgqueuer, batches of 100": (rivals.pgqueuer_in_large_batches, 1),
        "procrastinate": (rivals.procrastinate, 2 * SLOW_FACTOR),
        "oban": (rivals.oban, 1),
        "dbos": (rivals.dbos, 4 * SLOW_FACTOR),
        "apscheduler 4": (rivals.apscheduler4, 8 * SLOW_FACTOR),
        "timewright one by one": (timewright_one_by_one, 2 * SLOW_FACTOR),
    },
}


def _given(kind: str, runs: int) -> list[tuple[str, Contender, int]]:
    return [(name, party, runs // part) for name, (party, part) in CONTENDERS[kind].items()]


class Rates:
    """Jobs per second, one figure per round."""

    def __init__(self, rows: list[Timings]) -> None:
        self.enqueue = [row.jobs / row.enqueue for row in rows]
        self.drain = [row.jobs / row.drain for row in rows]
        self.both = [row.jobs / (row.enqueue + row.drain) for row in rows]
        self.cpu_us = [row.cpu / row.jobs * 1e6 for row in rows]


def _show(taken: Mapping[str, list[Timings]], absent: Mapping[str, str]) -> None:
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
    """Compare with PgQueuer in both batch sizes, with the no-op on threads and on the loop."""
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
