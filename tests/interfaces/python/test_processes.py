"""The Python interface across forks, exits without stop, and repeated definitions."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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

INTERRUPTED = """
import threading
from timewright import Scheduler
app = Scheduler("app.db")
@app.schedule(manual=True, run_at_start=True)
def work():
    print("begun", flush=True)
    threading.Event().wait(60)
app.run()
"""

STARTED_AND_ENDED = """
from timewright import Scheduler
app = Scheduler("app.db")
@app.schedule(manual=True)
def work():
    return "done"
app.start()
app.schedules.run("work")
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
    print(app.run_now("work"), app.schedules.get("work").schedule.trigger.interval)
    exec(CELL.format(trigger="every 3h", result=3))
    print(app.run_now("work"), app.schedules.get("work").schedule.trigger.interval)
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
    """Run a program in its own folder and return its output lines."""
    (here / "program.py").write_text(text)
    # Python 3.12 and newer warn when a process with threads forks, which a program here does on purpose.
    python = [sys.executable, "-W", "ignore:This process:DeprecationWarning"]
    command = [*python, "program.py"] if file else [*python, "-c", text]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def await_text(file: Path, text: str) -> None:
    """Wait until a file contains a text."""
    end = time.monotonic() + 20
    while text not in file.read_text():
        assert time.monotonic() < end, file.read_text()
        time.sleep(0.01)


def test_a_fork_does_not_reuse_the_open_store_of_its_parent(tmp_path: Path) -> None:
    """Like a server that loads the program and forks workers."""
    inside = "exec('try: app.start()\\nexcept Exception as error: print(error.code, error.fix, flush=True)')"
    (said,) = told(tmp_path, FORKED.format(before="", inside=inside, after=""))
    assert said == "unsafe_store create the Scheduler in the worker, after the fork; or use PostgreSQL"


def test_a_fork_can_create_its_own_scheduler(tmp_path: Path) -> None:
    made = "app = Scheduler('other.db'); app.schedule(manual=True, name='who')(os.getpid)"
    inside = f"app.stop(); {made}; app.start(); {SAYS}; app.stop()"
    assert told(tmp_path, FORKED.format(before="", inside=inside, after="")) == ["own True True"]


def test_a_fork_can_open_a_closed_store(tmp_path: Path) -> None:
    inside = "print(len(Scheduler('app.db').schedules.list().schedules), flush=True)"
    assert told(tmp_path, FORKED.format(before="app.start(); app.stop()", inside=inside, after="")) == ["1"]


def test_a_fork_does_not_affect_the_running_parent(tmp_path: Path) -> None:
    inside = "print(app.is_running, flush=True); app.stop()"
    said = told(tmp_path, FORKED.format(before="app.start()", inside=inside, after=f"{SAYS}; app.stop()"))
    assert said == ["False", "own True True"]


def test_runs_are_released_when_a_program_exits_without_stop(tmp_path: Path) -> None:
    assert told(tmp_path, UNSTOPPED) == []
    later = Scheduler(tmp_path / "app.db")
    (run,) = later.runs.list(schedule="work").runs
    (instance,) = later.instances.list().instances
    later.stop()
    assert (run.state, run.attempts, instance.state) == ("ready", 0, "stopped")


@pytest.mark.parametrize("delay_s", [0, 1])
def test_ctrl_c_says_what_it_waits_for_and_a_second_one_ends_without_a_traceback(
    tmp_path: Path, delay_s: int
) -> None:
    (tmp_path / "program.py").write_text(INTERRUPTED)
    command, log = [sys.executable, "program.py"], tmp_path / "log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=stderr, text=True) as program,
    ):
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        program.send_signal(signal.SIGINT)
        await_text(log, "stopping: 1 run in progress, waiting up to 30s; Ctrl-C again stops now\n")
        time.sleep(delay_s)
        program.send_signal(signal.SIGINT)
        assert program.wait(20) == 130
    assert "Traceback" not in log.read_text()


def test_a_program_that_ends_after_its_start_fails_no_run(tmp_path: Path) -> None:
    assert told(tmp_path, STARTED_AND_ENDED) == []
    later = Scheduler(tmp_path / "app.db")
    (run,) = later.runs.list(schedule="work").runs
    later.stop()
    assert run.state in ("ready", "succeeded")


def test_a_notebook_cell_can_be_run_again(tmp_path: Path) -> None:
    assert told(tmp_path, NOTEBOOK.format(cell=CELL), file=False) == ["2 2:00:00", "3 3:00:00"]


def test_two_functions_of_one_name_in_a_file_are_refused(tmp_path: Path) -> None:
    assert told(tmp_path, TWICE) == ["a schedule is already declared as 'work'"]
