"""The lane `python3 dev.py simulate`: many seeds, a bar, a summary, and one command for what fails."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from timewright.testing.world.bases import Base, FileBase, MemoryBase, PostgresBase
from timewright.testing.world.clocks import HOUR
from timewright.testing.world.dangers import unmet
from timewright.testing.world.mutants import BY_NAME, MUTANTS
from timewright.testing.world.mutating import switched_on
from timewright.testing.world.verdict import Result, live, total
from timewright.testing.world.workload import scenario

STORES = ("sqlite", "file", "postgres")
SIZES = ("drawn", "dense", "fleet", "full")
MOST_SEEDS_FOR_A_MUTANT = 50
MUTANT_HOURS = 2.0
WIDTH = 40


def one_seed(seed: int, *, hours: float, size: str, store: str, server: str, alone: bool = False) -> Result:
    """One world from beginning to end."""
    with base_of(store, server) as base:
        return live(scenario(seed, hours=hours, size=size, relations=not alone), base)


@contextmanager
def base_of(store: str, server: str = "") -> Iterator[Base]:
    """A fresh place of a kind."""
    if store == "postgres":
        from timewright.testing.postgres import fresh_database

        with fresh_database(server) as url:
            yield PostgresBase(url)
    elif store == "file":
        with tempfile.TemporaryDirectory() as folder:
            yield FileBase(Path(folder))
    else:
        yield MemoryBase()


def killed_by(name: str, *, seeds: int = MOST_SEEDS_FOR_A_MUTANT) -> tuple[int, str] | None:
    """The first seed in which a promise that a mutant breaks is seen to be broken, and how; else nothing."""
    mutant = BY_NAME[name]
    with switched_on(mutant) as change:
        for seed in range(1, 4 * seeds, 4) if mutant.relations else range(seeds):
            world = scenario(seed, hours=MUTANT_HOURS, size="dense", relations=mutant.relations)
            result = live(world, MemoryBase(), only=mutant.owners, mutate=change)
            for violation in result.violations:
                if violation.invariant in mutant.owners:
                    return seed, f"{violation.invariant} {violation.message}"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; the exit code is 1 when a promise was broken or a mutant lives."""
    asked = _parser().parse_args(arguments)
    if asked.mutants:
        return _hunt(asked.seeds)
    if asked.store != "postgres":
        return _simulate(asked, server="")
    from timewright.testing.postgres import shared_postgres

    with tempfile.TemporaryDirectory() as folder, shared_postgres(Path(folder)) as server:
        return _simulate(asked, server=server)


def _simulate(asked: argparse.Namespace, *, server: str) -> int:
    seeds = [asked.seed] if asked.seed is not None else range(asked.first, asked.first + asked.seeds)
    work = partial(
        one_seed, hours=asked.hours, size=asked.size, store=asked.store, server=server, alone=asked.alone
    )
    began, results = time.monotonic(), list[Result]()
    for result in _spread(work, seeds, jobs=min(asked.jobs, len(seeds))):
        results.append(result)
        _bar(len(results), len(seeds), broken=sum(not r.holds for r in results))
        if not result.holds:
            _tell_failure(result, asked)
    seconds, replay = time.monotonic() - began, asked.seed is not None
    _tell_summary(results, size=asked.size, seconds=seconds, replay=replay)
    return int(any(not result.holds for result in results))


def _spread(work: partial[Result], seeds: Sequence[int], *, jobs: int) -> Iterator[Result]:
    if jobs < 2:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, seeds, chunksize=4)


def _hunt(seeds: int) -> int:
    """Every mutant, until a seed sees it."""
    alive = 0
    for number, mutant in enumerate(MUTANTS, start=1):
        found = (
            None if mutant.redundant else killed_by(mutant.name, seeds=min(seeds, MOST_SEEDS_FOR_A_MUTANT))
        )
        _bar(number, len(MUTANTS), broken=alive)
        said = f"seed {found[0]}: {found[1]}" if found else f"redundant: {mutant.redundant}"
        if found is None and not mutant.redundant:
            alive += 1
            said = "LIVES"
        _say(f"{mutant.name:<52} {said[:120]}")
    _say(f"{len(MUTANTS)} mutants, {alive} of them alive")
    return int(alive > 0)


def _tell_failure(result: Result, asked: argparse.Namespace) -> None:
    _say(f"seed {result.seed} broke a promise")
    for violation in result.violations[:10]:
        _say(f"  {violation.invariant}  {violation.message}")
    _say("  the last facts of what is involved:")
    for line in result.last_facts:
        _say(f"    {line}")
    options = f"--hours {asked.hours:g} --size {asked.size} --store {asked.store}{' --alone' * asked.alone}"
    _say(f"  replay: python3 dev.py simulate --seed {result.seed} {options}")


def _tell_summary(results: Sequence[Result], *, size: str, seconds: float, replay: bool) -> None:
    counts = total(results)
    days = sum(_days(result) for result in results)
    refused, stale = counts["stale answer refused"], sum(r.stale_effects for r in results)
    for line in (
        f"{len(results)} {size} worlds, {days:.1f} simulated days in {seconds:.0f} s",
        *_pace(results),
        _busy(results, size=size, crashes=counts["crash injected"]),
        f"{refused} stale answers refused, {stale} stale effects that an unfenced sink would have taken",
        f"{sum(not r.holds for r in results)} worlds in which a promise was broken",
    ):
        _say(line)
    for name, count in sorted(counts.items()):
        if " " in name:
            _say(f"  {count:>9}  {name}")
    if replay:
        _say(f"hash {results[0].digest}")
    elif unmet(counts):
        _say(f"never met: {', '.join(unmet(counts))}")


def _pace(results: Sequence[Result]) -> Iterator[str]:
    """How fast it went, by the time that one core worked for it."""
    paces = sorted(_days(result) / result.cpu_seconds for result in results)
    overall = sum(_days(result) for result in results) / sum(result.cpu_seconds for result in results)
    yield f"{overall:.2f} simulated days per second of one core"
    if len(paces) > 1:
        yield f"  one world: {median(paces):.2f} in the median, {paces[0]:.2f} to {paces[-1]:.2f}"


def _busy(results: Sequence[Result], *, size: str, crashes: int) -> str:
    """What a day of this size has in it: without that, nobody can tell one pace from another."""
    days = sum(_days(result) for result in results)
    executions, transactions = sum(r.executions for r in results), sum(r.transactions for r in results)
    return (
        f"a {size} day: {executions / days:,.0f} executions, {transactions / days:,.0f} transactions,"
        f" {crashes / days:,.0f} crashes"
    )


def _days(result: Result) -> float:
    return result.simulated / HOUR / 24


def _bar(done: int, of: int, *, broken: int) -> None:
    if sys.stderr.isatty():
        full = WIDTH * done // of
        end = "\n" if done == of else ""
        print(f"\r{'#' * full}{'.' * (WIDTH - full)} {done}/{of}, {broken} broken ", end=end, file=sys.stderr)


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dev.py simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--hours", type=float, default=24.0, help="simulated hours of each")
    parser.add_argument(
        "--store", choices=STORES, default="sqlite", help="in memory, in a file, or PostgreSQL"
    )
    parser.add_argument("--size", choices=SIZES, default="drawn", help="how much there is in a world")
    parser.add_argument("--alone", action="store_true", help="no schedules that follow, need or spend")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time")
    parser.add_argument(
        "--mutants", action="store_true", help="hunt the protocols with one thing wrong in them"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
