"""The command `python3 dev.py simulate`: run many seeds, print a summary and how to replay failures."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from tests.simulation.coverage import missing_events
from tests.simulation.model.backends import FileBackend, MemoryBackend, PostgresBackend, StoreBackend
from tests.simulation.model.clocks import HOUR
from tests.simulation.mutants.catalog import BY_NAME, MUTANTS
from tests.simulation.mutants.mutation import Mutant, applied
from tests.simulation.verdict import SimulationResult, simulate, sum_counts
from tests.simulation.workload.scenarios import draw_scenario

STORE_KINDS = ("sqlite", "file", "postgres")
SIZES = ("drawn", "dense", "paused", "workflow", "limits", "returned", "fleet", "full")
MAX_SEEDS_PER_MUTANT = 50
MUTANT_HOURS = 2.0
MAX_FRESH_SEEDS = 100_000
BAR_WIDTH = 40


def simulate_seed(
    seed: int, *, hours: float, size: str, store: str, server: str, without_dependencies: bool = False
) -> SimulationResult:
    """Run one simulation."""
    with open_backend(store, server) as base:
        return simulate(
            draw_scenario(seed, hours=hours, size=size, dependencies=not without_dependencies), base
        )


@contextmanager
def open_backend(store: str, server: str = "") -> Iterator[StoreBackend]:
    """Open an empty backend."""
    if store == "postgres":
        from timewright.testing.postgres import fresh_database

        with fresh_database(server) as url:
            yield PostgresBackend(url)
    elif store == "file":
        with tempfile.TemporaryDirectory() as folder:
            yield FileBackend(Path(folder))
    else:
        yield MemoryBackend()


def find_killing_seed(name: str, *, seeds: int = MAX_SEEDS_PER_MUTANT) -> tuple[int, str] | None:
    """The first seed in which an invariant that the mutant breaks is violated, and how; None if there is
    none.
    """
    mutant = BY_NAME[name]
    with applied(mutant) as change:
        for seed in _seeds_of(mutant, count=seeds):
            chosen = draw_scenario(
                seed, hours=MUTANT_HOURS, size=mutant.size, dependencies=mutant.needs_dependencies
            )
            result = simulate(chosen, MemoryBackend(), only=mutant.broken_invariants, mutate=change)
            for violation in result.violations:
                if violation.invariant in mutant.broken_invariants:
                    return seed, f"{violation.invariant} {violation.message}"
    return None


def _seeds_of(mutant: Mutant, *, count: int) -> range:
    """The seeds to try, from the one that detected the mutant before."""
    step = 4 if mutant.needs_dependencies else 1
    first = mutant.first_seed or int(mutant.needs_dependencies)
    return range(first, first + step * count, step)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 1 after a violation or a surviving mutant."""
    asked = _parser().parse_args(arguments)
    if asked.mutants:
        return _run_mutants(asked.seeds)
    if asked.store != "postgres":
        return _simulate(asked, server="")
    from timewright.testing.postgres import shared_postgres

    with tempfile.TemporaryDirectory() as folder, shared_postgres(Path(folder)) as server:
        return _simulate(asked, server=server)


def _simulate(asked: argparse.Namespace, *, server: str) -> int:
    if asked.fresh:
        asked.first, asked.seeds = secrets.randbelow(10**9), MAX_FRESH_SEEDS
        _print(f"new seeds from {asked.first} on, until Ctrl-C")
    seeds = [asked.seed] if asked.seed is not None else range(asked.first, asked.first + asked.seeds)
    work = partial(
        simulate_seed,
        hours=asked.hours,
        size=asked.size,
        store=asked.store,
        server=server,
        without_dependencies=asked.no_dependencies,
    )
    began, results = time.monotonic(), list[SimulationResult]()
    with suppress(KeyboardInterrupt):
        for result in _spread(work, seeds, jobs=min(asked.jobs, len(seeds))):
            results.append(result)
            _bar(len(results), len(seeds), broken=sum(not r.holds for r in results))
            if not result.holds:
                _print_failure(result, asked)
    if not results:
        return 1
    seconds, replay = time.monotonic() - began, asked.seed is not None
    _print_summary(results, size=asked.size, seconds=seconds, replay=replay)
    return int(any(not result.holds for result in results))


def _spread(
    work: partial[SimulationResult], seeds: Sequence[int], *, jobs: int
) -> Iterator[SimulationResult]:
    if jobs < 2:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, seeds, chunksize=4)


def _run_mutants(seeds: int) -> int:
    """Run every mutant until a seed detects it."""
    alive = 0
    for number, mutant in enumerate(MUTANTS, start=1):
        found = (
            None
            if mutant.redundant
            else find_killing_seed(mutant.name, seeds=min(seeds, MAX_SEEDS_PER_MUTANT))
        )
        _bar(number, len(MUTANTS), broken=alive)
        text = f"seed {found[0]}: {found[1]}" if found else f"redundant: {mutant.redundant}"
        if found is None and not mutant.redundant:
            alive += 1
            text = "LIVES"
        _print(f"{mutant.name:<52} {text[:120]}")
    _print(f"{len(MUTANTS)} mutants, {alive} of them alive")
    return int(alive > 0)


def _print_failure(result: SimulationResult, asked: argparse.Namespace) -> None:
    _print(f"seed {result.seed} violated an invariant")
    for violation in result.violations[:10]:
        _print(f"  {violation.invariant}  {violation.message}")
    _print("  last facts of the rows involved:")
    for line in result.last_facts:
        _print(f"    {line}")
    options = f"--hours {asked.hours:g} --size {asked.size} --store {asked.store}"
    options += " --no-dependencies" * asked.no_dependencies
    _print(f"  replay: python3 dev.py simulate --seed {result.seed} {options}")


def _print_summary(results: Sequence[SimulationResult], *, size: str, seconds: float, replay: bool) -> None:
    counts = sum_counts(results)
    days = sum(_days(result) for result in results)
    refused, stale = counts["stale result refused"], sum(r.stale_effects for r in results)
    for line in (
        f"{len(results)} {size} simulations, {days:.1f} simulated days in {seconds:.0f} s",
        *_pace(results),
        _density(results, size=size, crashes=counts["crash injected"]),
        f"{refused} stale results refused, {stale} stale effects that an unfenced receiver accepted",
        f"{sum(not r.holds for r in results)} simulations with a violation",
    ):
        _print(line)
    for name, count in sorted(counts.items()):
        if " " in name:
            _print(f"  {count:>9}  {name}")
    if replay:
        _print(f"hash {results[0].digest}")
    elif missing_events(counts):
        _print(f"not covered: {', '.join(missing_events(counts))}")


def _pace(results: Sequence[SimulationResult]) -> Iterator[str]:
    """Simulated days per second of CPU time."""
    paces = sorted(_days(result) / result.cpu_seconds for result in results)
    overall = sum(_days(result) for result in results) / sum(result.cpu_seconds for result in results)
    yield f"{overall:.2f} simulated days per second of one core"
    if len(paces) > 1:
        yield f"  one simulation: {median(paces):.2f} in the median, {paces[0]:.2f} to {paces[-1]:.2f}"


def _density(results: Sequence[SimulationResult], *, size: str, crashes: int) -> str:
    """What happens in a simulated day of this size, because the speed depends on it."""
    days = sum(_days(result) for result in results)
    executions, transactions = sum(r.executions for r in results), sum(r.transactions for r in results)
    return (
        f"a {size} day: {executions / days:,.0f} executions, {transactions / days:,.0f} transactions,"
        f" {crashes / days:,.0f} crashes"
    )


def _days(result: SimulationResult) -> float:
    return result.simulated / HOUR / 24


def _bar(done: int, of: int, *, broken: int) -> None:
    if sys.stderr.isatty():
        full = BAR_WIDTH * done // of
        end = "\n" if done == of else ""
        print(
            f"\r{'#' * full}{'.' * (BAR_WIDTH - full)} {done}/{of}, {broken} broken ",
            end=end,
            file=sys.stderr,
        )


def _print(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dev.py simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="number of simulations")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--fresh", action="store_true", help="new random seeds, until Ctrl-C")
    parser.add_argument("--seed", type=int, help="replay this seed")
    parser.add_argument("--hours", type=float, default=24.0, help="simulated hours of each")
    parser.add_argument(
        "--store", choices=STORE_KINDS, default="sqlite", help="in memory, in a file, or PostgreSQL"
    )
    parser.add_argument("--size", choices=SIZES, default="drawn", help="size of a simulation")
    parser.add_argument(
        "--no-dependencies", action="store_true", help="without follow-ups, needs and budgets"
    )
    parser.add_argument("--jobs", type=int, default=1, help="parallel processes")
    parser.add_argument(
        "--mutants", action="store_true", help="check that each mutant of the protocol is detected"
    )
    return parser
