"""Scenarios of a store that is moved to another database while workers run on it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from tests.faults.scenario import FaultEnvironment, FaultScenario
from tests.faults.tools.worker_fleet import WorkerFleet, assert_verified, expect, gaps_between, wait_until
from timewright.core.schedule.pauses import Pause
from timewright.ports.objects import OpenPauses
from timewright.stores.table_copy import PROGRESS_META
from timewright.wiring import open_store

SCHEDULES = 50
SECONDS_BETWEEN = 8.0
MOVE_TIMEOUT_S = 120


def store_moved(environment: FaultEnvironment) -> str:
    """File to server and back under 50 starts a second; the move and a worker are killed on each way."""
    folder = environment.folder
    with environment.database() as server, ExitStack() as stack:
        places = [str(folder / "store.db"), server, str(folder / "back.db")]
        fleet = stack.enter_context(environment.fleet(places[0]))
        for number in range(SCHEDULES):
            fleet.schedule(f"every-second-{number}", "note", every="1s", catch_up="all", overlap="allow")
        for old, new in pairwise(places):
            move_under_load(fleet, old, new)
            fleet = stack.enter_context(environment.fleet(new))
        fleet.start(1)
        wait_for_work(fleet)
        fleet.stop()
        for place in places:
            assert_verified(place)
        return check_occurrences(fleet)


def move_under_load(fleet: WorkerFleet, old: str, new: str) -> None:
    """Move a store that two workers use; kill a worker, and the move while it waits and while it copies."""
    doomed, survivor = fleet.start(2)
    wait_for_work(fleet)
    threading.Event().wait(SECONDS_BETWEEN)
    kill_move_when(lambda: bool(pauses_of(old)), old, new)
    doomed.close()
    fleet.workers.remove(doomed)
    kill_move_when(lambda: copy_has_begun(new), old, new)
    expect([one.origin for one in pauses_of(new)] == ["move"], "the unfinished copy to be paused")
    done = subprocess.run(
        move_command(old, new), capture_output=True, text=True, timeout=MOVE_TIMEOUT_S, check=False
    )
    expect(done.returncode == 0, f"the move to end, not {done.stderr}")
    started = len(fleet.journal_lines())
    threading.Event().wait(2.0)
    expect(len(fleet.journal_lines()) == started, "nothing to start on the old store")
    expect(not survivor.has_ended, "the worker on the old store to survive")
    survivor.close()
    fleet.workers.remove(survivor)


def wait_for_work(fleet: WorkerFleet) -> None:
    """Wait until every schedule has run a few times more."""
    before = len(fleet.journal_lines())
    wait_until(lambda: len(fleet.journal_lines()) > before + 4 * SCHEDULES, "work to run")


def move_command(old: str, new: str) -> list[str]:
    """The command that moves a store."""
    return [sys.executable, "-m", "timewright", "move", new, "--store", old]


def kill_move_when(condition: Callable[[], bool], old: str, new: str) -> None:
    """Start a move and kill it when a condition holds."""
    process = subprocess.Popen(move_command(old, new), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: condition() or process.poll() is not None, "the move to get there")
    expect(process.poll() is None, "the move to be under way when it is killed")
    process.kill()
    process.wait()


def pauses_of(place: str) -> list[Pause]:
    """The open pauses of a store."""
    with closing(open_store(place)) as store:
        return store.read(lambda tx: tx.select(OpenPauses()))


def copy_has_begun(place: str) -> bool:
    """Whether rows were copied to a store, and the copy is not complete."""
    if "://" not in place and not Path(place).exists():
        return False
    with closing(open_store(place)) as store:
        return store.read(lambda tx: tx.get_meta(PROGRESS_META)) is not None


def check_occurrences(fleet: WorkerFleet) -> str:
    """Every second of every schedule has one row; a row ran once, or again after its worker was killed."""
    calls = Counter(line.key for line in fleet.journal_lines("began"))
    leases = Counter((line.key, line.fence) for line in fleet.journal_lines("began"))
    expect(max(leases.values()) == 1, "one call for each lease")
    runs = 0
    for number in range(SCHEDULES):
        rows = fleet.rows(f"every-second-{number}")
        runs += len(rows)
        expect(gaps_between(rows) == {timedelta(seconds=1)}, f"one row each second, not {gaps_between(rows)}")
        unfinished = [row for row in rows[:-2] if row.state not in ("succeeded", "ready", "leased")]
        expect(not unfinished, f"every occurrence to run, not {unfinished[:1]}")
    repeated = sum(count > 1 for count in calls.values())
    return (
        f"{runs} occurrences of {SCHEDULES} schedules, one row each; {len(calls)} ran,"
        f" {repeated} again after a kill; 4 moves and 2 workers killed"
    )


SCENARIOS = (
    FaultScenario(
        name="store-moved",
        row="C13",
        action="a store is moved to PostgreSQL and back under load; moves and workers are killed",
        expected="every occurrence has one row and runs; nothing starts on an old store; verify holds on all",
        run=store_moved,
    ),
)
