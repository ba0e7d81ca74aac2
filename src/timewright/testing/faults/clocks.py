"""Stories of a clock that is wrong: set forward by an hour under a worker, set back, and set right."""

from __future__ import annotations

import threading
from pathlib import Path

from timewright.testing.faults.fleet import Fleet, Worker, expect, until
from timewright.testing.faults.story import Scene, Story

HOUR = 3600
STANDS_FOR = 2.5


def stepped(scene: Scene) -> str:
    """An hour forward is an outage of an hour; an hour back repeats nothing and waits for the clock."""
    wrong = scene.folder / "clock"
    wrong.write_text("0")
    with scene.file_fleet() as fleet:
        fleet.schedule("tick", "note", every="1s", catch_up="last")
        (worker,) = fleet.start(clock=str(wrong))
        fleet.find("began", schedule="tick")
        step(worker, wrong, HOUR, "clock-stepped 3")
        before = calls(fleet)
        until(lambda: calls(fleet) > before + 2, "work to go on an hour later")
        step(worker, wrong, 0, "clock-stepped -3")
        held = calls(fleet)
        threading.Event().wait(STANDS_FOR)
        expect(calls(fleet) <= held + 1, f"nothing new while the clock is behind, not {calls(fleet) - held}")
        wrong.write_text(str(HOUR + 5))
        until(lambda: calls(fleet) > held + 2, "work to go on when the clock has come so far")
        fleet.stop()
        keys = [line.key for line in fleet.written("began")]
        expect(len(keys) == len(set(keys)), "no occurrence called for twice")
        missed = sum(row["dropped"] for row in fleet.rows("tick"))
        expect(missed > HOUR - 60, f"the hour that never was accounted for, not {missed} s of it")
        return f"{missed} s counted as missed, {len(keys)} calls, none twice"


def step(worker: Worker, wrong: Path, seconds: int, said: str) -> None:
    """Set the clock of a worker, and wait until it has noticed."""
    wrong.write_text(str(seconds))
    worker.hear(said)


def calls(fleet: Fleet) -> int:
    """How often the work was called."""
    return len(fleet.written("began"))


STORIES = (
    Story(
        name="clock-stepped",
        row="B1, B2",
        done="the wall clock of a worker is set forward by an hour, back, and forward again",
        expected="forward is an outage by the catch-up policy; back repeats nothing and waits",
        work=stepped,
    ),
)
