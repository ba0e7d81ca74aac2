"""The embedded door in a life of a process: forks, an end without a stop, and code that is defined again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from timewright import Scheduler

FORKED = """
import os
from timewright import Scheduler
app = Scheduler("app.db")
app.schedule(manual=True, name="who")(os.getpid)
{before}
child = os.fork()
if child == 0:
    {inside}
    os._exit(0)
os.waitpid(child, 0)
{after}
"""

SAYS = "print('own', app.run_now('who', timeout='20s') == os.getpid(), app.is_running, flush=True)"

UNSTOPPED = """
import threading
from timewright import Scheduler
app = Scheduler("app.db")
begun = threading.Event()
@app.schedule(manual=True)
def work(ctx):
    begun.set()
    ctx.cancelled.wait(30)
app.start()
app.schedules.run("work")
begun.wait(20)
"""

CELL = """
@app.schedule({trigger!r})
def work():
    return {result}
"""

NOTEBOOK = """
from timewright import Scheduler
app = Scheduler("app.db")
CELL = {cell!r}
exec(CELL.format(trigger="every 1h", result=1))
exec(CELL.format(trigger="every 2h", result=2))
with app:
    print(app.run_now("work"), app.schedules.get("work")["schedule"]["trigger"]["interval"])
    exec(CELL.format(trigger="every 3h", result=3))
    print(app.run_now("work"), app.schedules.get("work")["schedule"]["trigger"]["interval"])
"""

TWICE = """
from timewright import Scheduler
from timewright.errors import Conflict
app = Scheduler("app.db")
def work():
    return 1
app.schedule("every 1h")(work)
def work():
    return 2
try:
    app.schedule("every 1h")(work)
except Conflict as error:
    print(error.message)
"""


def told(here: Path, text: str, *, file: bool = True) -> list[str]:
    """What a program prints that lives in a folder of its own."""
    (here / "program.py").write_text(text)
    command = [sys.executable, "program.py"] if file else [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_fork_does_not_open_the_file_its_parent_has_open(tmp_path: Path) -> None:
    """As a server would that loads the program once and forks its workers."""
    inside = "exec('try: app.start()\\nexcept Exception as error: print(error.code, error.fix, flush=True)')"
    (said,) = told(tmp_path, FORKED.format(before="", inside=inside, after=""))
    assert said == "unsafe_store make the Scheduler in the worker, after the fork; or use PostgreSQL"


def test_a_fork_may_make_a_scheduler_of_its_own(tmp_path: Path) -> None:
    made = "app = Scheduler('other.db'); app.schedule(manual=True, name='who')(os.getpid)"
    inside = f"app.stop(); {made}; app.start(); {SAYS}; app.stop()"
    assert told(tmp_path, FORKED.format(before="", inside=inside, after="")) == ["own True True"]


def test_a_fork_opens_a_file_that_was_closed_before_it(tmp_path: Path) -> None:
    inside = "print(len(Scheduler('app.db').schedules.list()['schedules']), flush=True)"
    assert told(tmp_path, FORKED.format(before="app.start(); app.stop()", inside=inside, after="")) == ["1"]


def test_a_fork_of_a_program_that_runs_leaves_its_parent_alone(tmp_path: Path) -> None:
    inside = "print(app.is_running, flush=True); app.stop()"
    said = told(tmp_path, FORKED.format(before="app.start()", inside=inside, after=f"{SAYS}; app.stop()"))
    assert said == ["False", "own True True"]


def test_a_program_that_ends_without_a_stop_gives_back_what_it_had_under_way(tmp_path: Path) -> None:
    assert told(tmp_path, UNSTOPPED) == []
    later = Scheduler(tmp_path / "app.db")
    (run,) = later.runs.list(schedule="work")["runs"]
    (instance,) = later.instances.list()["instances"]
    later.stop()
    assert (run["state"], run["attempts"], instance["state"]) == ("ready", 0, "stopped")


def test_a_cell_of_a_notebook_may_be_run_again_before_the_start_and_after(tmp_path: Path) -> None:
    assert told(tmp_path, NOTEBOOK.format(cell=CELL), file=False) == ["2 2h", "3 3h"]


def test_two_functions_of_one_name_in_a_file_are_refused(tmp_path: Path) -> None:
    assert told(tmp_path, TWICE) == ["a schedule is already declared as 'work'"]
