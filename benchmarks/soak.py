"""Do all invariants hold for hours under mixed load, while processes are killed and everything is edited?

    python3 dev.py soak [--minutes 15] [--stores sqlite,postgres] [--seed 1]

Two engine processes share one store; one of them is killed, suspended or restarted now and then. Schedules of
every kind are edited, paused, hinted, cancelled and run by hand meanwhile. At the end every occurrence is
accounted for by brute force; any violation is printed, and the exit code is 1. The default is fifteen minutes
a store, a little over half an hour in total.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.parts.measure import (
    STORES,
    Child,
    Goals,
    TemporaryStores,
    comma_list,
    describe_store,
    heading,
    machine,
)
from benchmarks.parts.soak_account import (
    LimitMonitor,
    LoggedCall,
    find_leaks,
    find_violations,
    format_violations,
    read_calls,
)
from benchmarks.parts.soak_engine import children_of
from benchmarks.parts.soak_workload import SoakWorkload
from timewright.core.run.run import RunState
from timewright.errors import TimewrightError
from timewright.ports import RunFilter
from timewright.ports.rows import LeasedRuns
from timewright.wiring import open_store

PROGRESS_INTERVAL_S = 10.0
ACTION_INTERVAL_S = 0.15
SUSPEND_S = 6.0
MAX_DRAIN_S = 120.0
MAX_GROWTH_MB = 60
MIN_SECONDS_FOR_MEMORY = 240
REPORTED = ("rss_mb", "threads", "files", "children", "errors")
PR_SET_CHILD_SUBREAPER = 36


class EngineProcess:
    """One engine process, its newest report, its log, and when it was suspended."""

    def __init__(self, store_url: str, log: Path) -> None:
        self.log = log
        self.born = time.time()
        self.died = float("inf")
        self.suspensions: list[tuple[float, float]] = []
        self.report: dict[str, Any] = {}
        self.final_report: dict[str, Any] = {}
        self._child = Child("benchmarks.parts.soak_engine", "engine", store_url=store_url, log=str(log))
        self.pid = int(self._child.read_answer()["pid"])
        self._reader = threading.Thread(target=self._read_reports, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """Kill the process."""
        self._child.process.kill()
        self._gone()

    def suspend(self) -> None:
        """Suspend the process for longer than a lease, then continue it."""
        began = time.time()
        os.kill(self.pid, signal.SIGSTOP)
        time.sleep(SUSPEND_S)
        os.kill(self.pid, signal.SIGCONT)
        self.suspensions.append((began, time.time()))

    def stop(self) -> dict[str, Any]:
        """Stop it gracefully; return its final report."""
        assert self._child.process.stdin is not None
        with suppress(BrokenPipeError):
            self._child.process.stdin.close()
        self._reader.join(60)
        self._gone()
        return self.final_report

    def calls(self) -> list[LoggedCall]:
        """The calls in its log."""
        return read_calls(self.log, ended=self.died, stops=self.suspensions)

    def _gone(self) -> None:
        try:
            self._child.process.wait(30)
        except Exception:  # noqa: BLE001 - it hangs: kill it, and the missing final report shows that
            self._child.process.kill()
        self._child.end()
        self.died = time.time()

    def _read_reports(self) -> None:
        with suppress(SystemExit, ValueError):
            while not self.final_report:
                answer = self._child.read_answer()
                if "ended" in answer:
                    self.final_report = answer
                else:
                    self.report = answer


class Soak:
    """One store under load, from the first schedule to the final account."""

    def __init__(self, store_url: str, folder: Path, *, seed: int) -> None:
        self._store_url = store_url
        self._folder = folder
        self._server = Child("benchmarks.parts.soak_engine", "server")
        self.store = open_store(store_url)
        self.workload = SoakWorkload(self.store, url=self._server.read_answer()["url"], seed=seed)
        self.limit_monitor = LimitMonitor(self.workload)
        self.engines: list[EngineProcess] = []
        self.killed: Counter[str] = Counter()
        self.began = 0.0
        self.found: list[str] = []
        self.memory: list[float] = []
        self.grown: float | None = None

    def run(self, *, seconds: float) -> list[str]:
        """Run the whole soak; return the violations."""
        self.workload.build()
        self.steady, self.shaky = self._new_engine(), self._new_engine()
        self.began = time.monotonic()
        over = threading.Event()
        watching = [
            threading.Thread(
                target=self._repeat, args=(over, 1.0, self.limit_monitor.check_limits), daemon=True
            ),
            threading.Thread(
                target=self._repeat, args=(over, PROGRESS_INTERVAL_S, self._progress), daemon=True
            ),
        ]
        for thread in watching:
            thread.start()
        self._load(seconds=seconds)
        self._drain()
        over.set()
        for thread in watching:
            thread.join()
        for name, engine in (("the steady engine", self.steady), ("the shaky engine", self.shaky)):
            self._check_stop(name, engine)
        self.grown = self._check_memory(seconds)
        self._server.end()
        self._check_orphans()
        self.workload.end_pauses()
        calls = [call for engine in self.engines for call in engine.calls()]
        self.found += [
            *self.workload.unexpected_errors,
            *self.limit_monitor.found,
            *find_violations(self.workload, calls),
        ]
        print(self._summary(calls, took=time.monotonic() - self.began), flush=True)
        self.store.close()
        return self.found

    def _load(self, *, seconds: float) -> None:
        harm_at = self.began + self._pause()
        while (now := time.monotonic()) < self.began + seconds:
            self.workload.act()
            if now >= harm_at:
                self.shaky = self._disturb(self.shaky)
                harm_at = time.monotonic() + self._pause()
            time.sleep(self.workload.random.uniform(0, 2 * ACTION_INTERVAL_S))

    def _pause(self) -> float:
        return self.workload.random.uniform(5, 20)

    def _disturb(self, engine: EngineProcess) -> EngineProcess:
        """Kill, suspend or restart an engine; return the one that runs now."""
        harm = self.workload.random.choice(["killed", "killed", "frozen", "restarted"])
        self.killed[harm] += 1
        if harm == "frozen":
            engine.suspend()
            return engine
        if harm == "killed":
            engine.kill()
        else:
            self._check_stop("a restarted engine", engine)
        return self._new_engine()

    def _drain(self) -> None:
        """Start nothing new, and wait until retries and held runs have ended too."""
        self.workload.settle_down()
        limit = time.monotonic() + MAX_DRAIN_S
        while time.monotonic() < limit:
            if not any(self._under_way(state) for state in (RunState.LEASED, RunState.READY, RunState.HELD)):
                return
            time.sleep(0.5)
        self.found.append(f"after {MAX_DRAIN_S:.0f} s without new work something is still under way")
        print(f"  last reports of the engines: {self.steady.report}\n  and {self.shaky.report}")

    def _under_way(self, state: RunState) -> bool:
        rows = self.store.read(lambda tx: tx.find(RunFilter(state=state, limit=100))).rows
        # A run released by an external holder that never came back stays ready; that is expected.
        return any(not (run.handoff and run.state is RunState.READY) for run in rows)

    def _check_stop(self, name: str, engine: EngineProcess) -> None:
        """Check that a graceful stop leaves no lease, thread, file or child."""
        words = engine.stop()
        if not words:
            self.found.append(f"{name}: ended without a final report")
            return
        self.found += find_leaks(name, words["before"], words["after"])
        held = self.store.read(lambda tx: tx.select(LeasedRuns(holder=words["instance"])))
        self.found += [f"{name}: still holds run {run.id} after its stop" for run in held]

    def _check_memory(self, seconds: float) -> float | None:
        """By how much memory grew after the first quarter; None if the soak was too short."""
        later = self.memory[len(self.memory) // 4 :]
        if seconds < MIN_SECONDS_FOR_MEMORY or len(later) < 3:
            return None
        grown = max(later) - later[0]
        if grown > MAX_GROWTH_MB:
            self.found.append(f"memory of the steady engine grew from {later[0]:.0f} to {max(later):.0f} MB")
        return grown

    def judge(self, goals: Goals, kind: str) -> None:
        """Compare each goal with the result."""
        row = f"soak, {kind}"
        goals.judge(row, "no violation", found=f"{len(self.found)} violations", met=not self.found)
        if self.grown is not None:
            goals.judge(
                row,
                f"memory grows by <= {MAX_GROWTH_MB} MB after the first quarter",
                found=f"{self.grown:.0f} MB",
                met=self.grown <= MAX_GROWTH_MB,
            )
        errors = self._errors()
        goals.judge(row, "no tick failed", found="; ".join(errors)[:60] or "none", met=not errors)

    def _check_orphans(self) -> None:
        """Check that children of killed processes, which become ours, have ended."""
        limit = time.monotonic() + 10
        while (orphans := list_orphans()) and time.monotonic() < limit:
            time.sleep(0.2)
        self.found += [f"an orphan process is left: {orphan}" for orphan in orphans]

    def _repeat(self, over: threading.Event, seconds: float, look: Callable[[], None]) -> None:
        while not over.wait(seconds):
            with suppress(TimewrightError):  # a busy store is read again later
                look()

    def _new_engine(self) -> EngineProcess:
        engine = EngineProcess(self._store_url, self._folder / f"engine-{len(self.engines)}.log")
        self.engines.append(engine)
        return engine

    def _progress(self) -> None:
        one, two = self.steady.report, self.shaky.report
        self.memory.append(float(one.get("rss_mb", 0.0)))
        started = [report.get("counts", {}).get("AttemptStarted", 0) for report in (one, two)]
        both = {what: f"{one.get(what, 0):.0f} {two.get(what, 0):.0f}" for what in REPORTED}
        print(
            f"  {time.monotonic() - self.began:5.0f} s  started {started[0]:>6} +{started[1]:<5}"
            f" wait p50 {one.get('p50', 0) * 1000:4.0f} p99 {one.get('p99', 0) * 1000:5.0f} ms  "
            + "  ".join(f"{what} {figures}" for what, figures in both.items())
            + f"  acts {self.workload.performed.total()}  harm {self.killed.total()}"
            f"  found {len(self.found) + len(self.limit_monitor.found)}",
            flush=True,
        )

    def _errors(self) -> list[str]:
        said = [engine.final_report or engine.report for engine in self.engines]
        return [f"{one['errors']} times, last {one['last_error']}" for one in said if one.get("errors")]

    def _summary(self, calls: list[LoggedCall], *, took: float) -> str:
        counts: Counter[str] = Counter()
        for engine in self.engines:
            counts.update((engine.final_report or engine.report).get("counts", {}))
        fact_counts = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
        return "\n".join(
            [
                f"  {took:.0f} s, {len(self.workload.tracked)} schedules, {len(calls):,} calls",
                f"  {len(self.engines)} engine processes, {dict(self.killed)}",
                f"  facts (without those of killed engines since their last report): {fact_counts}",
                f"  done {dict(self.workload.performed)}",
                f"  refused {dict(self.workload.refused)}; store errors {dict(self.workload.store_errors)}",
                f"  failed ticks {self._errors() or 'none'}",
                f"  limits checked {self.limit_monitor.checks} times; violations {len(self.found)}",
            ]
        )


def list_orphans() -> list[str]:
    """Children that this process did not start: their own parents were killed."""
    found: list[str] = []
    for pid in children_of(os.getpid()):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) != (0, 0):
                continue
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "postgres_guard" not in command:
                found.append(f"{pid} {command[:120]}")
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="dev.py soak", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=15.0, help="how long each store is under load")
    parser.add_argument("--stores", type=comma_list(STORES), default=list(STORES), help=",".join(STORES))
    parser.add_argument(
        "--seed", type=int, default=None, help="chooses the schedules and the order of events"
    )
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else int(time.time())
    # Become the parent of orphans, to check whether they end.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    print(machine("apsw", "psycopg", "aiohttp"))
    # One more minute per store, for draining and the final account.
    print(f"this takes about {(options.minutes + 1) * len(options.stores):.0f} minutes", flush=True)
    found: dict[str, list[str]] = {}
    goals = Goals()
    with TemporaryStores() as temporary_stores:
        for kind in options.stores:
            heading(
                f"soak, {kind}: {options.minutes:g} minutes, seed {seed}",
                f"{describe_store(kind)}; two engines, one of them killed, frozen or restarted every 5-20 s",
                f"capacity 64, 32 threads, 2 workers; a user action every {ACTION_INTERVAL_S:g} s",
                "a line every 10 s: calls started by each, delay of the steady engine, resources of both",
            )
            with temporary_stores.new_store(kind) as store_url, tempfile.TemporaryDirectory() as folder:
                soak = Soak(store_url, Path(folder), seed=seed)
                found[kind] = soak.run(seconds=options.minutes * 60)
            print(format_violations(found[kind]) or "  no violation", flush=True)
            soak.judge(goals, kind)
    print(f"\nall goals\n{goals.summary()}")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
