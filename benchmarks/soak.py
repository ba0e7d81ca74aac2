"""Does it keep its word for hours: mixed load, processes killed, everything changed all the time?

    python3 dev.py soak [--minutes 15] [--stores sqlite,postgres] [--seed 1]

Two engine processes on one store, one of them killed, frozen or restarted now and then; schedules of every
kind, edited, paused, hinted, cancelled and run by hand meanwhile. At the end every occurrence is accounted
for by brute force, and whatever is not as promised is told: then the exit code is 1. Fifteen minutes a store
are the default; with both stores and the account it takes a little over half an hour.
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

from benchmarks._measure import STORES, Child, Goals, Places, chosen, heading, machine, store_words
from benchmarks._soak_account import Call, Watchman, leaks, read_calls, told, violations
from benchmarks._soak_engine import children_of
from benchmarks._soak_world import World
from timewright.assembly import open_store
from timewright.core.run import RunState
from timewright.errors import TimewrightError
from timewright.ports import RunFilter

PROGRESS = 10.0
ACT_EVERY = 0.15
FROZEN = 6.0
QUIET = 120.0
MOST_GROWN_MB = 60
SHORTEST_FOR_MEMORY = 240
REPORTED = ("rss_mb", "threads", "files", "children", "errors")
SUBREAPER = 36


class Engine:
    """One engine process, its newest report, its log, and the times at which it lay still."""

    def __init__(self, place: str, log: Path) -> None:
        self.log = log
        self.born = time.time()
        self.died = float("inf")
        self.stops: list[tuple[float, float]] = []
        self.report: dict[str, Any] = {}
        self.last_words: dict[str, Any] = {}
        self._child = Child("benchmarks._soak_engine", "engine", place=place, log=str(log))
        self.pid = int(self._child.hear()["pid"])
        self._ear = threading.Thread(target=self._listen, daemon=True)
        self._ear.start()

    def kill(self) -> None:
        """No last word."""
        self._child.process.kill()
        self._gone()

    def freeze(self) -> None:
        """Lie still for longer than a lease lasts, then go on as if nothing had been."""
        began = time.time()
        os.kill(self.pid, signal.SIGSTOP)
        time.sleep(FROZEN)
        os.kill(self.pid, signal.SIGCONT)
        self.stops.append((began, time.time()))

    def stop(self) -> dict[str, Any]:
        """Ask it to end, and hear what it still holds."""
        assert self._child.process.stdin is not None
        with suppress(BrokenPipeError):
            self._child.process.stdin.close()
        self._ear.join(60)
        self._gone()
        return self.last_words

    def calls(self) -> list[Call]:
        """What it did."""
        return read_calls(self.log, ended=self.died, stops=self.stops)

    def _gone(self) -> None:
        try:
            self._child.process.wait(30)
        except Exception:  # noqa: BLE001 - it hangs: then it is killed, and its missing last words tell
            self._child.process.kill()
        self._child.end()
        self.died = time.time()

    def _listen(self) -> None:
        with suppress(SystemExit, ValueError):
            while not self.last_words:
                heard = self._child.hear()
                if "ended" in heard:
                    self.last_words = heard
                else:
                    self.report = heard


class Soak:
    """One store under load, from the first schedule to the account."""

    def __init__(self, place: str, folder: Path, *, seed: int) -> None:
        self._place = place
        self._folder = folder
        self._server = Child("benchmarks._soak_engine", "server")
        self.store = open_store(place)
        self.world = World(self.store, url=self._server.hear()["url"], seed=seed)
        self.watchman = Watchman(self.world)
        self.engines: list[Engine] = []
        self.killed: Counter[str] = Counter()
        self.began = 0.0
        self.found: list[str] = []
        self.memory: list[float] = []
        self.grown: float | None = None

    def run(self, *, seconds: float) -> list[str]:
        """Everything in order; gives back what was not as promised."""
        self.world.build()
        self.steady, self.shaky = self._new_engine(), self._new_engine()
        self.began = time.monotonic()
        over = threading.Event()
        watching = [
            threading.Thread(target=self._repeat, args=(over, 1.0, self.watchman.look), daemon=True),
            threading.Thread(target=self._repeat, args=(over, PROGRESS, self._progress), daemon=True),
        ]
        for thread in watching:
            thread.start()
        self._load(seconds=seconds)
        self._quieten()
        over.set()
        for thread in watching:
            thread.join()
        for name, engine in (("the one that lived", self.steady), ("the other", self.shaky)):
            self._check_stop(name, engine)
        self.grown = self._check_memory(seconds)
        self._server.end()
        self._check_orphans()
        self.world.account()
        calls = [call for engine in self.engines for call in engine.calls()]
        self.found += [*self.world.broken, *self.watchman.found, *violations(self.world, calls)]
        print(self._summary(calls, took=time.monotonic() - self.began), flush=True)
        self.store.close()
        return self.found

    def _load(self, *, seconds: float) -> None:
        harm_at = self.began + self._pause()
        while (now := time.monotonic()) < self.began + seconds:
            self.world.act()
            if now >= harm_at:
                self.shaky = self._harm(self.shaky)
                harm_at = time.monotonic() + self._pause()
            time.sleep(self.world.chance.uniform(0, 2 * ACT_EVERY))

    def _pause(self) -> float:
        return self.world.chance.uniform(5, 20)

    def _harm(self, engine: Engine) -> Engine:
        """Kill it, freeze it, or restart it as a person would; gives back the one that is there now."""
        harm = self.world.chance.choice(["killed", "killed", "frozen", "restarted"])
        self.killed[harm] += 1
        if harm == "frozen":
            engine.freeze()
            return engine
        if harm == "killed":
            engine.kill()
        else:
            self._check_stop("one that was restarted", engine)
        return self._new_engine()

    def _quieten(self) -> None:
        """Nothing new begins; what is under way ends, retries and held runs included."""
        self.world.settle_down()
        limit = time.monotonic() + QUIET
        while time.monotonic() < limit:
            if not any(self._under_way(state) for state in (RunState.LEASED, RunState.READY, RunState.HELD)):
                return
            time.sleep(0.5)
        self.found.append(f"after {QUIET:.0f} s of quiet something is still under way")
        print(f"  the engines last said {self.steady.report}\n  and {self.shaky.report}")

    def _under_way(self, state: RunState) -> bool:
        rows = self.store.read(lambda tx: tx.find_runs(RunFilter(state=state, limit=100))).rows
        # What was leased by someone outside who is never heard of again, and is ready once more, waits.
        return any(not (run.handoff and run.state is RunState.READY) for run in rows)

    def _check_stop(self, name: str, engine: Engine) -> None:
        """A graceful stop leaves no lease, no thread, no file, no child."""
        words = engine.stop()
        if not words:
            self.found.append(f"{name}: ended without its last words")
            return
        self.found += leaks(name, words["before"], words["after"])
        held = self.store.read(lambda tx: tx.leased_runs(holder=words["instance"]))
        self.found += [f"{name}: still holds run {run.id} after its stop" for run in held]

    def _check_memory(self, seconds: float) -> float | None:
        """By how much memory grew after the first quarter; a short soak says nothing about it."""
        later = self.memory[len(self.memory) // 4 :]
        if seconds < SHORTEST_FOR_MEMORY or len(later) < 3:
            return None
        grown = max(later) - later[0]
        if grown > MOST_GROWN_MB:
            self.found.append(f"memory of the one that lived grew from {later[0]:.0f} to {max(later):.0f} MB")
        return grown

    def judge(self, goals: Goals, kind: str) -> None:
        """Each goal beside what was found."""
        row = f"soak, {kind}"
        goals.judge(row, "every promise kept", found=f"{len(self.found)} violations", met=not self.found)
        if self.grown is not None:
            goals.judge(
                row,
                f"memory grows by <= {MOST_GROWN_MB} MB after the first quarter",
                found=f"{self.grown:.0f} MB",
                met=self.grown <= MOST_GROWN_MB,
            )
        errors = self._errors()
        goals.judge(row, "no tick failed", found="; ".join(errors)[:60] or "none", met=not errors)

    def _check_orphans(self) -> None:
        """What the killed left behind has come to us, and must be over by now."""
        limit = time.monotonic() + 10
        while (orphans := living_orphans()) and time.monotonic() < limit:
            time.sleep(0.2)
        self.found += [f"an orphan process is left: {orphan}" for orphan in orphans]

    def _repeat(self, over: threading.Event, seconds: float, look: Callable[[], None]) -> None:
        while not over.wait(seconds):
            with suppress(TimewrightError):  # a store that is busy is looked at again later
                look()

    def _new_engine(self) -> Engine:
        engine = Engine(self._place, self._folder / f"engine-{len(self.engines)}.log")
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
            + f"  acts {self.world.done.total()}  harm {self.killed.total()}"
            f"  found {len(self.found) + len(self.watchman.found)}",
            flush=True,
        )

    def _errors(self) -> list[str]:
        said = [engine.last_words or engine.report for engine in self.engines]
        return [f"{one['errors']} times, last {one['last_error']}" for one in said if one.get("errors")]

    def _summary(self, calls: list[Call], *, took: float) -> str:
        counts: Counter[str] = Counter()
        for engine in self.engines:
            counts.update((engine.last_words or engine.report).get("counts", {}))
        told_facts = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
        return "\n".join(
            [
                f"  {took:.0f} s, {len(self.world.kept)} schedules, {len(calls):,} calls",
                f"  {len(self.engines)} engine processes, {dict(self.killed)}",
                f"  facts (without those of the killed since their last report): {told_facts}",
                f"  done {dict(self.world.done)}",
                f"  refused {dict(self.world.refused)}; store away {dict(self.world.away)}",
                f"  errors of a tick {self._errors() or 'none'}",
                f"  gates looked at {self.watchman.looks} times; violations {len(self.found)}",
            ]
        )


def living_orphans() -> list[str]:
    """Our children that nobody here started: processes whose own parents were killed."""
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
    parser.add_argument("--stores", type=chosen(STORES), default=list(STORES), help=",".join(STORES))
    parser.add_argument(
        "--seed", type=int, default=None, help="chooses the schedules and the order of events"
    )
    asked = parser.parse_args(arguments)
    seed = asked.seed if asked.seed is not None else int(time.time())
    # What the killed leave behind becomes ours, so that we can see whether it ends.
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    print(machine("apsw", "psycopg", "aiohttp"))
    # What is under way at the end ends, and then all of it is read.
    print(f"this takes about {(asked.minutes + 1) * len(asked.stores):.0f} minutes", flush=True)
    found: dict[str, list[str]] = {}
    goals = Goals()
    with Places() as places:
        for kind in asked.stores:
            heading(
                f"soak, {kind}: {asked.minutes:g} minutes, seed {seed}",
                f"{store_words(kind)}; two engines, one of them killed, frozen or restarted every 5-20 s",
                f"capacity 64, 32 threads, 2 workers; an edit, a pause, runs by hand … every {ACT_EVERY:g} s",
                "a line every 10 s: calls started by each, wait of the one that lives, what both hold",
            )
            with places.fresh(kind) as place, tempfile.TemporaryDirectory() as folder:
                soak = Soak(place, Path(folder), seed=seed)
                found[kind] = soak.run(seconds=asked.minutes * 60)
            print(told(found[kind]) or "  every promise was kept", flush=True)
            soak.judge(goals, kind)
    print(f"\nall goals\n{goals.summary()}")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
