"""Calls in worker processes: they can be killed, and a function cannot affect the scheduler process."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.targets.call import functions
from tests.targets.call.outcomes import RAISES, RETURNS
from tests.targets.kit import (
    OutcomeRecorder,
    is_alive,
    launch_of,
    nothing_left,
    outcome_of,
    read,
    start_launch,
    wait_until,
)
from timewright.core.run.run import Cancelled, Failed, Lost, Outcome, Released, Succeeded, TimedOut
from timewright.core.target import Call
from timewright.targets.call.messages import (
    FrameDecoder,
    InvalidFrame,
    JobStarted,
    decode_from_worker,
    encode_frame,
)
from timewright.targets.call.registry import FunctionRegistry, load_app
from timewright.targets.call.target import CallTarget
from timewright.targets.call.workers import WorkerPool
from timewright.targets.context import RunInfo
from timewright.targets.processes.children import ChildProcesses
from timewright.targets.reports import OUTPUT_BYTES

SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def shared() -> Iterator[CallTarget]:
    """One target for all tests that do not change its workers."""
    with nothing_left():
        made = CallTarget(functions.registry, isolation="process", workers=2)
        yield made
        made.close(grace=SECOND)


@pytest.fixture
def target() -> Iterator[CallTarget]:
    with nothing_left():
        made = CallTarget(functions.registry, isolation="process", workers=2)
        yield made
        made.close(grace=SECOND)


def call(name: str, **args: Any) -> Call:
    return Call(name=name, args=args)


# Outcomes, as on a thread


@pytest.mark.parametrize(("name", "args", "outcome"), RETURNS)
def test_the_return_value_of_a_function_is_its_outcome(
    shared: CallTarget, name: str, args: dict[str, Any], outcome: Outcome
) -> None:
    assert outcome_of(shared, Call(name=name, args=args)) == outcome


@pytest.mark.parametrize(("name", "args", "error"), RAISES)
def test_an_exception_is_a_failure_and_the_worker_continues(
    shared: CallTarget, name: str, args: dict[str, Any], error: str
) -> None:
    before = outcome_of(shared, call("pid")).result
    outcome = outcome_of(shared, Call(name=name, args=args))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(error)
    assert "functions.py" in outcome.result["traceback"]
    assert outcome_of(shared, call("pid")).result == before


def test_async_functions_run_in_workers_too(shared: CallTarget) -> None:
    assert outcome_of(shared, call("tell_async", x=1)).result["args"] == {"x": 1}


def test_a_too_large_result_is_refused_in_the_worker(shared: CallTarget) -> None:
    assert "the result has 1000002 bytes" in outcome_of(shared, call("huge")).error


# Facts and environment


def test_a_worker_gets_the_facts_of_the_run_but_no_secrets_of_ours(
    target: CallTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMEWRIGHT_KEY", "canary")
    monkeypatch.setenv("DATABASE_PASSWORD", "canary")
    result = outcome_of(target, call("tell"), missed=4, payload={"n": 1}).result
    assert (result["run"][:4], result["missed"], result["fence"]) == ("run_", 4, 3)
    assert result["planned_at"] == "2026-03-10T12:00:00Z"
    assert 0 < result["remaining"] <= 60
    assert result["pid"] != os.getpid()
    assert result["env"]["TIMEWRIGHT_RUN_MISSED"] == "4"
    assert result["env"]["TIMEWRIGHT_RUN_PAYLOAD"] == '{"n":1}'
    assert {"DATABASE_PASSWORD", "PATH"} <= set(result["names"])
    assert "TIMEWRIGHT_KEY" not in result["names"]


def test_the_environment_of_workers_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres:///x")
    with nothing_left():
        target = CallTarget(functions.registry, isolation="process", environment=lambda: {"ONLY": "this"})
        names = outcome_of(target, call("tell")).result["names"]
        assert [name for name in names if not name.startswith(("TIMEWRIGHT_", "PYTHON", "LC_"))] == ["ONLY"]
        target.close(grace=SECOND)


def test_printed_output_is_stored_with_the_result(shared: CallTarget) -> None:
    outcome = outcome_of(shared, call("print_much", megabytes=0))
    assert outcome.result["output"] == "the end\n"
    assert outcome.result["value"] > 0


def test_a_gigabyte_of_output_neither_blocks_nor_fills_memory(target: CallTarget) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = outcome_of(target, call("print_pieces", megabytes=1024), limit=60)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    assert isinstance(outcome, Succeeded)
    output = outcome.result["output"]
    assert output.startswith("xxx")
    assert output.endswith("the end\n")
    assert f"{1024 * 1024 * 1024 + 8 - OUTPUT_BYTES} bytes left out" in output
    assert len(output) < OUTPUT_BYTES + 100


# Reuse of workers


def test_an_idle_worker_is_reused(target: CallTarget) -> None:
    pids = {outcome_of(target, call("pid")).result for _ in range(5)}
    assert len(pids) == 1
    assert target._workers.count == 1


def test_workers_can_be_started_before_the_first_call(target: CallTarget) -> None:
    target.warm_up()
    wait_until(lambda: target._workers.count == 2)
    assert isinstance(outcome_of(target, call("pid")), Succeeded)
    assert target._workers.count == 2, "the call took one that was ready"


def test_the_number_of_workers_never_exceeds_the_limit(target: CallTarget, tmp_path: Path) -> None:
    ready = [tmp_path / str(number) for number in range(4)]
    begun = [start_launch(target, call("wait_until_cancelled", ready=str(path))) for path in ready]
    for path in ready[:2]:
        read(path)
    assert target._workers.count == 2
    assert not any(path.exists() for path in ready[2:])
    begun[3][0].stop("in line")
    assert begun[3][1].wait() == Cancelled(reason="in line")
    begun[0][0].stop("first")
    read(ready[2])
    assert not ready[3].exists()
    for number in (1, 2):
        begun[number][0].stop("rest")
        assert begun[number][1].wait() == Cancelled(reason="rest")


def test_an_idle_worker_ends_after_the_idle_time() -> None:
    with nothing_left():
        children = ChildProcesses()
        workers, recorder = WorkerPool(children, idle_seconds=0.05), OutcomeRecorder()
        reference = functions.registry.resolve("pid").import_reference()
        workers.run(
            "pid",
            reference,
            args={},
            info=RunInfo.from_launch(launch_of(call("pid"))),
            grace=1,
            done=recorder,
        )
        pid = recorder.wait().result
        wait_until(lambda: not is_alive(pid))
        wait_until(lambda: workers.count == 0)
        workers.close(grace=1)
        children.close(grace=1)


def test_an_idle_worker_that_was_killed_is_replaced(target: CallTarget) -> None:
    pid = outcome_of(target, call("pid")).result
    os.kill(pid, signal.SIGKILL)
    assert outcome_of(target, call("pid")).result != pid


# Functions that damage their worker


@pytest.mark.parametrize(
    ("name", "args", "error"),
    [
        ("leave", {"code": 3}, "worker exited with code 3"),
        ("leave", {"code": 0}, "worker exited with code 0"),
        (
            "kill_yourself",
            {"signum": 9},
            "worker was killed by SIGKILL, but not by Timewright: perhaps out of memory",
        ),
        ("kill_yourself", {"signum": 11}, "worker was killed by SIGSEGV"),
        ("kill_yourself", {"signum": 15}, "SystemExit: 143"),
    ],
)
def test_a_function_that_ends_its_process_fails_and_the_next_call_gets_a_new_worker(
    target: CallTarget, name: str, args: dict[str, Any], error: str
) -> None:
    before = outcome_of(target, call("pid")).result
    outcome = outcome_of(target, Call(name=name, args=args))
    # A process that was killed from outside is a loss; one that ends itself has failed.
    assert isinstance(outcome, Lost if args.get("signum") == 9 else Failed)
    assert outcome.error == error
    assert outcome_of(target, call("pid")).result != before
    assert not is_alive(before)


def test_the_last_output_before_a_crash_is_kept(target: CallTarget) -> None:
    output = outcome_of(target, call("kill_yourself", signum=11)).result["output"]
    assert "Fatal Python error: Segmentation fault" in output
    assert "in kill_yourself" in output


def test_a_function_that_holds_the_gil_is_killed_without_affecting_others(
    target: CallTarget,
) -> None:
    _, stuck = start_launch(target, call("hold_the_interpreter"), limit=0.4, grace=0.1)
    for _ in range(3):
        assert outcome_of(target, call("add", a=1)).result == 2
    assert stuck.wait() == TimedOut(error="time limit of 0.4 s reached")


def test_a_function_that_ignores_term_is_killed_after_its_grace(target: CallTarget, tmp_path: Path) -> None:
    work, recorder = start_launch(target, call("ignore_term", ready=str(tmp_path / "pid")), grace=0.2)
    pid = int(read(tmp_path / "pid"))
    work.stop("by_hand")
    assert recorder.wait() == Cancelled(reason="by_hand")
    assert not is_alive(pid)


@pytest.mark.parametrize("name", ["tidy_up", "tidy_up_async"])
def test_a_stopped_function_may_clean_up(target: CallTarget, tmp_path: Path, name: str) -> None:
    ready, tidied = tmp_path / "ready", tmp_path / "tidied"
    work, recorder = start_launch(target, call(name, ready=str(ready), tidied=str(tidied)), grace=10)
    read(ready)
    work.stop("replaced, with half a character: \udc80")
    assert recorder.wait() == Cancelled(reason="replaced, with half a character: \udc80")
    assert tidied.read_text() == "tidied"


def test_a_timed_out_function_may_clean_up(target: CallTarget, tmp_path: Path) -> None:
    what = call("tidy_up", ready=str(tmp_path / "ready"), tidied=str(tmp_path / "tidied"))
    outcome = outcome_of(target, what, limit=0.1)
    assert outcome == TimedOut(error="time limit of 0.1 s reached")
    assert (tmp_path / "tidied").read_text() == "tidied"


def test_a_function_that_forks_reports_once(target: CallTarget) -> None:
    assert outcome_of(target, call("fork_and_return")).result.startswith("run_")
    assert outcome_of(target, call("add", a=1)).result == 2


@pytest.mark.parametrize("own_process", [False, True])
def test_a_process_left_by_the_function_is_ended_with_the_run(tmp_path: Path, own_process: bool) -> None:
    with nothing_left():
        target = CallTarget(functions.registry, isolation="process", own_process=own_process)
        assert outcome_of(target, call("leave_a_daemon", ready=str(tmp_path / "pid"))) == Succeeded(
            outcome_label="useful"
        )
        assert not is_alive(int((tmp_path / "pid").read_text()))
        target.close(grace=SECOND)


def test_an_orphan_of_the_function_is_ended_with_the_run(target: CallTarget, tmp_path: Path) -> None:
    ready = tmp_path / "pid"
    assert outcome_of(target, call("leave_an_orphan", ready=str(ready))) == Succeeded(outcome_label="useful")
    assert not is_alive(int(ready.read_text()))


def test_a_worker_with_a_leftover_thread_is_not_reused(target: CallTarget) -> None:
    pid = outcome_of(target, call("leave_a_thread")).result
    assert not is_alive(pid)
    assert outcome_of(target, call("pid")).result != pid


@pytest.mark.parametrize("name", ["close_output", "close_outputs"])
def test_a_worker_with_a_closed_output_is_not_reused(target: CallTarget, name: str) -> None:
    pid = outcome_of(target, call(name)).result
    assert not is_alive(pid)
    assert outcome_of(target, call("print_much", megabytes=0)).result["output"] == "the end\n"


def test_process_state_changed_by_a_function_is_restored(target: CallTarget) -> None:
    pid = outcome_of(target, call("change_everything")).result
    around = outcome_of(target, call("look_around")).result
    assert around == {
        "pid": pid,
        "left": None,
        "cwd": str(Path.cwd()),
        "chld": signal.SIG_DFL,
        "blocked": [],
        "alarm": [0.0, 0.0],
        "depth": sys.getrecursionlimit(),
        "timeout": None,
        "mask": around["mask"],
        "hook": True,
    }
    assert around["mask"] != 0o777


def test_state_set_while_importing_a_module_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settled.py").write_text(
        "import os, socket, sys, threading, time\n"
        "def f(): return [os.getpid(), socket.getdefaulttimeout(), os.environ.get('SETTLED')]\n"
        "if 'timewright.targets.call.worker' in sys.orig_argv:\n"
        "    socket.setdefaulttimeout(7)\n"
        "    os.environ['SETTLED'] = 'yes'\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import settled  # type: ignore[import-not-found]

    registry = FunctionRegistry()
    registry.add(settled.f)
    with nothing_left():
        target = CallTarget(registry, isolation="process")
        first = outcome_of(target, call("f")).result
        assert first[1:] == [7, "yes"]
        assert outcome_of(target, call("f")).result == first
        target.close(grace=SECOND)


def test_a_worker_that_cannot_be_restored_is_not_reused(target: CallTarget) -> None:
    spoiled = [outcome_of(target, call("spoil", what=what)).result for what in functions.SPOILS]
    assert len({*spoiled, outcome_of(target, call("pid")).result}) == len(functions.SPOILS) + 1


def test_an_invalid_message_from_a_worker_ends_it(target: CallTarget) -> None:
    outcome = outcome_of(target, call("babble_to_the_owner"))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("the worker sent an invalid message")
    assert outcome_of(target, call("add", a=1)).result == 2


def test_a_worker_that_floods_its_connection_does_not_delay_other_workers(target: CallTarget) -> None:
    _, flood = start_launch(target, call("flood_the_owner"), limit=0.5, grace=0.1)
    assert outcome_of(target, call("add", a=1)).result == 2
    assert isinstance(flood.wait(), TimedOut)


def test_a_worker_that_closes_its_connection_is_ended(target: CallTarget) -> None:
    assert isinstance(outcome_of(target, call("hang_up"), limit=0.3, grace=0.1), TimedOut | Failed)
    assert outcome_of(target, call("add", a=1)).result == 2


def test_invalid_frames_are_detected() -> None:
    sent = encode_frame(JobStarted(7)) + encode_frame(JobStarted(8))
    frames = FrameDecoder()
    bodies = [body for i in range(len(sent)) for body in frames.feed(sent[i : i + 1])]
    assert list(map(decode_from_worker, bodies)) == [JobStarted(7), JobStarted(8)]
    for nonsense in (b"{}", b"\xff", b'{"type":"start","path":[]}', b'{"type":"started","number":"x"}'):
        with pytest.raises(InvalidFrame):
            decode_from_worker(nonsense)
    with pytest.raises(InvalidFrame):
        list(FrameDecoder().feed(b"\xff\xff\xff\xff"))


# Finding the function


def script_with_a_job(guard: str) -> str:
    return (
        "from datetime import timedelta\n"
        "from tests.targets.kit import outcome_of\n"
        "from timewright import Scheduler\n"
        "from timewright.core.target import Call\n"
        "from timewright.targets.call.target import CallTarget\n"
        "app = Scheduler(':memory:')\n"
        "@app.task\n"
        "def here(): return 'done'\n"
        f"{guard}\n"
        "    app.start()\n"
        "    target = CallTarget(app.registry, isolation='process')\n"
        "    print(outcome_of(target, Call(name='here')))\n"
        "    target.close(grace=timedelta(seconds=1))\n"
    )


def test_a_function_of_a_script_runs_in_a_worker_process(tmp_path: Path) -> None:
    script = tmp_path / "jobs.py"
    script.write_text(script_with_a_job("if __name__ == '__main__':"))
    assert "result='done'" in run_python(str(script))


def test_a_script_that_always_starts_its_scheduler_does_not_start_it_in_a_worker_process(
    tmp_path: Path,
) -> None:
    script = tmp_path / "jobs.py"
    script.write_text(script_with_a_job("if True:"))
    output = run_python(str(script))
    assert "cannot import jobs:here" in output
    assert "this scheduler is run by the process that loads it" in output


def test_a_function_of_a_script_without_a_module_name_is_refused_with_a_fix(tmp_path: Path) -> None:
    script = tmp_path / "my-jobs.py"
    script.write_text(script_with_a_job("if __name__ == '__main__':"))
    output = run_python(str(script))
    assert "a script whose name is not a module name" in output
    assert "define it at the top level of an importable module" in output


def test_a_module_started_with_m_is_imported_by_its_real_name(tmp_path: Path) -> None:
    (tmp_path / "my_jobs.py").write_text(
        "from datetime import timedelta\n"
        "from tests.targets.kit import outcome_of\n"
        "from timewright.core.target import Call\n"
        "from timewright.targets.call.target import CallTarget\n"
        "from timewright.targets.call.registry import FunctionRegistry\n"
        "registry = FunctionRegistry()\n"
        "@registry.register\n"
        "def here(): return __name__\n"
        "if __name__ == '__main__':\n"
        "    target = CallTarget(registry, isolation='process')\n"
        "    print(outcome_of(target, Call(name='here')).result)\n"
        "    target.close(grace=timedelta(seconds=1))\n"
    )
    assert run_python("-m", "my_jobs", path=tmp_path).strip() == "my_jobs"


def run_python(*arguments: str, path: Path | None = None) -> str:
    places = [*([str(path)] if path else []), *sys.path]
    environment = {"PYTHONPATH": os.pathsep.join(places), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


def test_a_lambda_is_found_through_its_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worker_app.py").write_text(
        "from timewright.targets.call.registry import FunctionRegistry\n"
        "registry = FunctionRegistry()\nregistry.add(lambda: 'from the app', name='nameless')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with nothing_left():
        target = CallTarget(load_app("worker_app:registry"), isolation="process", preload=["worker_app"])
        assert outcome_of(target, call("nameless")).result == "from the app"
        target.close(grace=SECOND)


@pytest.mark.parametrize(
    ("source", "error", "unresolved"),
    [
        ("raise ImportError('not here')", "cannot import fragile:f: ImportError: not here", True),
        (
            "import os; os.environ['TIMEWRIGHT_STORE']",
            (
                "cannot import fragile:f: KeyError: 'TIMEWRIGHT_STORE';"
                " functions get no TIMEWRIGHT_ variables: give it a name of your own"
            ),
            True,
        ),
        ("import sys; sys.exit(4)", "cannot import fragile:f: SystemExit: 4", True),
        ("raise KeyboardInterrupt", "cannot import fragile:f: KeyboardInterrupt", True),
        ("import os; os._exit(5)", "worker exited with code 5, before it called the function", False),
    ],
)
def test_a_module_that_cannot_be_imported_in_the_worker_fails_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, error: str, unresolved: bool
) -> None:
    module = tmp_path / "fragile.py"
    module.write_text("def f(): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "fragile", raising=False)
    import fragile  # type: ignore[import-not-found]

    registry = FunctionRegistry()
    registry.add(fragile.f)
    module.write_text(f"import sys\nif 'timewright.targets.call.worker' in sys.orig_argv: {source}\n")
    with nothing_left():
        target = CallTarget(registry, isolation="process")
        outcome = outcome_of(target, call("f"))
        assert isinstance(outcome, Failed)
        assert outcome.error == error
        assert outcome.unresolved is unresolved
        target.close(grace=SECOND)


def test_a_job_whose_worker_died_before_the_function_was_called_gets_another_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, died = tmp_path / "unlucky.py", tmp_path / "died"
    module.write_text("def f(): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "unlucky", raising=False)
    import unlucky  # type: ignore[import-not-found]

    registry = FunctionRegistry()
    registry.add(unlucky.f)
    module.write_text(
        f"import os, pathlib\ndied = pathlib.Path({str(died)!r})\n"
        "if not died.exists(): died.touch(); os._exit(1)\n"
        "def f(): return 2\n"
    )
    with nothing_left():
        target = CallTarget(registry, isolation="process")
        assert outcome_of(target, call("f")) == Succeeded(result=2)
        assert died.exists()
        target.close(grace=SECOND)


def test_without_a_python_to_start_the_run_fails_with_the_reason() -> None:
    with nothing_left():
        children = ChildProcesses()
        workers, recorder = WorkerPool(children, python="/no/such/python"), OutcomeRecorder()
        workers.run(
            "pid",
            "os:getpid",
            args={},
            info=RunInfo.from_launch(launch_of(call("pid"))),
            grace=1,
            done=recorder,
        )
        outcome = recorder.wait()
        assert isinstance(outcome, Failed)
        assert outcome.error.startswith("cannot start a worker: [Errno 2]")
        workers.close(grace=1)
        children.close(grace=1)


def test_arguments_that_cannot_be_encoded_fail_the_run(shared: CallTarget) -> None:
    outcome = outcome_of(shared, Call(name="tell_async", args={"x": object()}))
    assert isinstance(outcome, Failed)
    assert "object" in outcome.error
    assert outcome_of(shared, call("add", a=1)).result == 2


def test_long_arguments_arrive_complete(shared: CallTarget) -> None:
    assert outcome_of(shared, call("length", text="x" * 3_000_000)).result == 3_000_000


# End of the scheduler process


def test_a_worker_exits_when_the_scheduler_process_is_killed(tmp_path: Path) -> None:
    source = (
        "from tests.targets.call import functions\n"
        "from tests.targets.kit import start_launch\n"
        "from timewright.core.target import Call\n"
        "from timewright.targets.call.target import CallTarget\n"
        "import sys\n"
        "target = CallTarget(functions.registry, isolation='process')\n"
        "start_launch(target, Call(name='start_a_process', args={'ready': sys.argv[1]}))\n"
        "sys.stdin.read()\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    owner = subprocess.Popen(
        [sys.executable, "-c", source, str(tmp_path / "pids")], env=environment, stdin=subprocess.PIPE
    )
    pids = list(map(int, read(tmp_path / "pids").split()))
    assert all(map(is_alive, pids))
    owner.kill()
    owner.communicate()
    wait_until(lambda: not any(map(is_alive, pids)))


def test_closing_releases_running_calls_and_ends_all_workers(tmp_path: Path) -> None:
    with nothing_left():
        target = CallTarget(functions.registry, isolation="process", workers=1)
        ready = tmp_path / "ready"
        _, under_way = start_launch(
            target, call("tidy_up", ready=str(ready), tidied=str(tmp_path / "tidied"))
        )
        pid = int(read(ready))
        _, in_line = start_launch(target, call("add", a=1))
        target.close(grace=SECOND)
        assert isinstance(under_way.wait(), Released)
        assert isinstance(in_line.wait(), Released)
        assert (tmp_path / "tidied").read_text() == "tidied"
        assert not is_alive(pid)


def test_stopping_while_the_call_returns_gives_one_outcome(target: CallTarget) -> None:
    for _ in range(10):
        work, recorder = start_launch(target, call("add", a=1))
        stopper = threading.Thread(target=work.stop, args=("by_hand",))
        stopper.start()
        assert recorder.wait() in (Succeeded(result=2), Cancelled(reason="by_hand"))
        stopper.join()
