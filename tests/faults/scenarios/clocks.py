"""Scenarios of a wrong clock: stepped an hour forward under a worker, back, and forward again."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.faults.scenario import FaultEnvironment, FaultScenario
from tests.faults.tools.worker_fleet import WorkerFleet, WorkerProcess, expect, wait_until

HOUR = 3600
WAIT_S = 2.5


def clock_stepped(environment: FaultEnvironment) -> str:
    """A step forward is an outage of an hour; a step back repeats nothing and waits for the clock."""
    wrong = environment.folder / "clock"
    wrong.write_text("0")
    with environment.file_fleet() as fleet:
        fleet.schedule("tick", "note", every="1s", catch_up="last")
        (worker,) = fleet.start(clock=str(wrong))
        fleet.wait_for_line("began", schedule="tick")
        set_clock(worker, wrong, HOUR, "clock-stepped 3")
        before = call_count(fleet)
        wait_until(lambda: call_count(fleet) > before + 2, "runs an hour later")
        set_clock(worker, wrong, 0, "clock-stepped -3")
        held = call_count(fleet)
        threading.Event().wait(WAIT_S)
        expect(
            call_count(fleet) <= held + 1,
            f"no new run while the clock is behind, not {call_count(fleet) - held}",
        )
        wrong.write_text(str(HOUR + 5))
        wait_until(lambda: call_count(fleet) > held + 2, "runs after the clock has caught up")
        fleet.stop()
        keys = [line.key for line in fleet.journal_lines("began")]
        expect(len(keys) == len(set(keys)), "no occurrence run twice")
        missed = sum(row.dropped for row in fleet.rows("tick"))
        expect(missed > HOUR - 60, f"the skipped hour recorded as missed, not {missed} s of it")
        return f"{missed} s counted as missed, {len(keys)} calls, none twice"


def set_clock(worker: WorkerProcess, wrong: Path, seconds: int, output: str) -> None:
    """Step the clock of a worker, and wait until it has noticed."""
    wrong.write_text(str(seconds))
    worker.wait_for_output(output)


def call_count(fleet: WorkerFleet) -> int:
    """How often the work was called."""
    return len(fleet.journal_lines("began"))


SCENARIOS = (
    FaultScenario(
        name="clock-stepped",
        row="B1, B2",
        action="the wall clock of a worker is stepped forward by an hour, back, and forward again",
        expected="forward is an outage by the catch-up policy; back repeats nothing and waits",
        run=clock_stepped,
    ),
)
