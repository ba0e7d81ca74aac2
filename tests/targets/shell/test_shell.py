"""The shell target: validation, limits, output, and ending whole process trees."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.targets.kit import (
    is_alive,
    nothing_left,
    outcome_of,
    processes_of,
    read,
    start_launch,
    wait_until,
)
from timewright.core.run.run import Cancelled, Failed, Lost, Released, Succeeded, TimedOut
from timewright.core.target import Note, Shell
from timewright.errors import InvalidInput
from timewright.settings import CommandRules
from timewright.targets.processes import children, termination
from timewright.targets.processes.child import ExitStatus
from timewright.targets.processes.children import ChildProcesses
from timewright.targets.processes.table import (
    ProcessInfo,
    ProcessTable,
    kill_marked,
    read_process,
    read_table,
    set_subreaper,
)
from timewright.targets.reports import HeadTailBuffer
from timewright.targets.shell.target import ShellTarget, check_shell

SECOND = timedelta(seconds=1)
PROC = Path("/proc")
PATH = os.environ["PATH"]


@pytest.fixture
def shell() -> Iterator[ShellTarget]:
    with nothing_left():
        made = ShellTarget(allowed=True)
        yield made
        made.close(grace=SECOND)


@contextmanager
def open_shell(**options: Any) -> Iterator[ShellTarget]:
    with nothing_left():
        made = ShellTarget(allowed=options.pop("allowed", True), **options)
        yield made
        made.close(grace=SECOND)


def command(*argv: str, **options: Any) -> Shell:
    return Shell(command=argv, **options)


def script(text: str, *arguments: str, **options: Any) -> Shell:
    return Shell(command=("sh", "-c", text, "sh", *arguments), **options)


# Validation and allowed programs


def test_shell_targets_are_disabled_by_default() -> None:
    for allowed in (False, ()):
        with open_shell(allowed=allowed) as shell:
            assert outcome_of(shell, command("true")) == Failed(
                error="shell targets are disabled; enable them with the setting `shell`", final=True
            )


@pytest.mark.parametrize(
    ("program", "allowed"),
    [
        ("echo", True),
        ("/bin/echo", True),
        ("/usr/bin/env", True),
        ("cat", False),
        ("/bin/sh", False),
        ("/usr/bin/../../bin/sh", False),
        ("/usr/bin/..", False),
        ("/usr/bin/", False),
        ("/usr/bin/python/x", False),
        ("./echo", False),
    ],
)
def test_a_list_allows_names_paths_and_folders_only(program: str, allowed: bool) -> None:
    with open_shell(allowed=["echo", "/bin/echo", "/usr/bin/"]) as shell:
        outcome = outcome_of(shell, command(program))
        assert isinstance(outcome, Succeeded) is allowed
        if not allowed:
            assert outcome.final
            assert "is not an allowed program; see the setting `commands.programs`" in outcome.error


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("target.command", {"command": ()}),
    ("target.command", {"command": ("",)}),
    ("target.command", {"command": ("true",) * 10_000}),
    ("target.command[1]", {"command": ("echo", "a\0b")}),
    ("target.command[1]", {"command": ("echo", "x" * 1_000_000)}),
    ("target.command[1]", {"command": ("echo", "\udc80")}),
    ("target.command[1]", {"command": ("echo", 3)}),
    ("target.command", {"command": ("echo", *["x" * 100_000] * 11)}),
    ("target.cwd", {"command": ("true",), "cwd": "reports"}),
    ("target.cwd", {"command": ("true",), "cwd": "/srv/../etc"}),
    ("target.cwd", {"command": ("true",), "cwd": "/srv\0"}),
    ("target.env", {"command": ("true",), "env": {"A-B": "1"}}),
    ("target.env", {"command": ("true",), "env": {"": "1"}}),
    ("target.env", {"command": ("true",), "env": {"1A": "1"}}),
    ("target.env.A", {"command": ("true",), "env": {"A": "x\0"}}),
    ("target.env.A", {"command": ("true",), "env": {"A": "x" * 200_000}}),
    *[
        (f"target.env.{name}", {"command": ("true",), "env": {name: "x"}})
        for name in (
            "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PATH", "PYTHONPATH", "PYTHONSTARTUP",
            "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "PERL5OPT", "NODE_OPTIONS", "RUBYOPT", "GLIBC_TUNABLES",
            "TIMEWRIGHT_RUN_KEY", "TIMEWRIGHT_CHILD", "GIT_SSH_COMMAND", "JAVA_TOOL_OPTIONS",
            "MAKEFLAGS", "LUA_INIT", "LUA_INIT_5_4", "PHPRC", "XDG_CONFIG_HOME", "CURL_HOME",
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "fields"), REFUSED, ids=[f"{n}-{field}" for n, (field, _) in enumerate(REFUSED)]
)
def test_a_command_that_cannot_run_or_sets_loader_variables_is_refused(
    field: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_shell(Shell(**fields))
    assert refusal.value.field == field
    assert refusal.value.rule
    assert refusal.value.fix
    with open_shell() as shell:
        outcome = outcome_of(shell, Shell(**fields))
        assert isinstance(outcome, Failed)
        assert outcome.final


def test_arguments_arrive_unchanged(shell: ShellTarget) -> None:
    odd = [
        "-n",
        "--help",
        "a b",
        "*",
        "$IFS",
        "$(id)",
        "`id`",
        "; rm x",
        "line\nbreak",
        "",
        "ü",
        "\x1b[31m",
        "'\"",
    ]
    what = Shell(command=(sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *odd))
    check_shell(what)
    assert outcome_of(shell, what).result["output"] == f"{odd!a}\n"


def test_a_target_of_another_kind_fails_finally(shell: ShellTarget) -> None:
    assert outcome_of(shell, Note(text="x")) == Failed(error="a Note is not a shell command", final=True)


# Exit status


def test_exit_zero_succeeds_with_any_output(shell: ShellTarget) -> None:
    outcome = outcome_of(shell, script("echo fatal error >&2; echo done"))
    assert outcome == Succeeded(result={"exit": 0, "output": "fatal error\ndone\n", "output_bytes": 17})


@pytest.mark.parametrize("code", [1, 3, 255])
def test_another_exit_code_fails_with_the_output(shell: ShellTarget, code: int) -> None:
    outcome = outcome_of(shell, script(f"echo no; exit {code}"))
    assert outcome == Failed(error=f"exit {code}", result={"exit": code, "output": "no\n", "output_bytes": 3})


@pytest.mark.parametrize("name", ["SEGV", "KILL", "TERM", "USR1"])
def test_a_command_killed_by_a_signal_fails_by_its_name(shell: ShellTarget, name: str) -> None:
    outcome = outcome_of(shell, script(f"kill -{name} $$"))
    assert outcome.error.startswith(f"killed by SIG{name}")
    assert ("perhaps out of memory" in outcome.error) == (name == "KILL")
    assert isinstance(outcome, Lost if name in ("KILL", "TERM") else Failed), "who kills it is not its work"
    assert outcome.result["signal"] == f"SIG{name}"
    assert outcome.result["exit"] is None


def test_a_command_that_cannot_start_fails_and_may_be_tried_again(shell: ShellTarget, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo hi")
    nameless, orphaned = tmp_path / "nameless", tmp_path / "orphaned"
    nameless.write_text("echo hi")
    orphaned.write_text("#!/no/such/interpreter\n")
    for script in (nameless, orphaned):
        script.chmod(0o755)
    for program, why in (
        ("no-such-program", "no such program in PATH; use its full path"),
        ("/no/such/program", "No such file or directory"),
        (str(plain), "it is not executable; use chmod +x"),
        (str(tmp_path), "it is a directory"),
        (str(orphaned), "the interpreter in its first line does not exist"),
        (str(nameless), "nor a script with an interpreter line such as #!/bin/sh"),
    ):
        outcome = outcome_of(shell, command(program))
        assert outcome.error.startswith(f"cannot start '{program[:40]}")
        assert outcome.error.endswith(why)
        assert not outcome.final


def test_a_missing_root_folder_is_named_in_the_error(tmp_path: Path) -> None:
    target = ShellTarget(allowed=True, rules=CommandRules(folder=str(tmp_path / "gone")))
    try:
        outcome = outcome_of(target, command("true"))
        assert outcome.error.startswith("cannot start 'true': the folder '")
        assert outcome.error.endswith("' does not exist")
    finally:
        target.close(grace=timedelta(0))


def test_an_exit_code_reaped_by_other_code_is_a_failure(
    shell: ShellTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*_: Any) -> None:
        raise ChildProcessError

    monkeypatch.setattr(os, "waitid", taken)
    leaving = (
        "setsid sh -c 'echo $$ > $1; exec sleep 60' sh $1 >/dev/null 2>&1 & while [ ! -s $1 ]; do :; done"
    )
    assert "its exit code is unknown" in outcome_of(shell, script(leaving, str(tmp_path / "pid"))).error
    assert not is_alive(int(read(tmp_path / "pid")))


def test_the_pid_of_a_process_reaped_by_other_code_is_not_signalled(
    shell: ShellTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, recorder = start_launch(
        shell, script("echo $$ > $1; exec sleep 60", str(tmp_path / "pid")), grace=0
    )
    pid = int(read(tmp_path / "pid"))
    with subprocess.Popen(["sleep", "60"]) as stranger:
        real = read_process(stranger.pid, proc=PROC)
        assert real is not None
        # Another process that seems to be in the group, after the pid was reused.
        alike = msgspec.structs.replace(real, group=pid, session=pid)
        monkeypatch.setattr(
            termination, "read_table", lambda proc: ProcessTable([alike], read_mark=lambda _: "")
        )
        monkeypatch.setattr(children, "read_exit_status", lambda process: ExitStatus())
        os.kill(pid, signal.SIGKILL)
        work.stop("by_hand")
        recorder.wait()
        assert stranger.poll() is None
        stranger.kill()


# Environment and working directory


def test_the_environment_is_clean_and_has_the_facts_of_the_run(
    shell: ShellTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMEWRIGHT_KEY", "canary")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    what = command("env", "-0", env={"REPORT": "daily\nweekly"})
    output = outcome_of(shell, what, missed=4, fired_by=(0, 2), zone="Europe/Berlin", run_id="run_1").result[
        "output"
    ]
    variables = dict(item.split("=", 1) for item in output.split("\0") if item)
    assert variables["REPORT"] == "daily\nweekly"
    assert variables["TIMEWRIGHT_RUN_ID"] == "run_1"
    assert variables["TIMEWRIGHT_RUN_SCHEDULE"] == "nightly-report"
    assert variables["TIMEWRIGHT_RUN_PLANNED_AT"] == "2026-03-10T12:00:00Z"
    assert variables["TIMEWRIGHT_RUN_KEY"] == "abc"
    assert variables["TIMEWRIGHT_RUN_FENCE"] == "3"
    assert variables["TIMEWRIGHT_RUN_ATTEMPT"] == "2"
    assert variables["TIMEWRIGHT_RUN_MISSED"] == "4"
    assert variables["TIMEWRIGHT_RUN_FIRED_BY"] == "0,2"
    assert variables["TIMEWRIGHT_RUN_ZONE"] == "Europe/Berlin"
    assert "TIMEWRIGHT_RUN_NEXT_AT" not in variables
    assert "canary" not in output
    harmless = {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TMPDIR",
        "VIRTUAL_ENV",
    }
    others = {name for name in variables if not name.startswith(("TIMEWRIGHT_RUN_", "TIMEWRIGHT_CHILD"))}
    assert others <= harmless | {"REPORT"}


def test_variables_passed_by_name_reach_the_command_but_a_schedule_cannot_set_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BACKUP_TOKEN", "t")
    with open_shell(rules=CommandRules(environment=("BACKUP_TOKEN",))) as shell:
        assert outcome_of(shell, script("echo $BACKUP_TOKEN")).result["output"] == "t\n"


def test_a_payload_is_passed_as_json_if_it_is_short_enough(shell: ShellTarget) -> None:
    what = script("echo ${TIMEWRIGHT_RUN_PAYLOAD-none}")
    assert outcome_of(shell, what, payload={"a": [1]}).result["output"] == '{"a":[1]}\n'
    assert outcome_of(shell, what, payload="x" * 200_000).result["output"] == "none\n"


def test_stdin_is_empty(shell: ShellTarget) -> None:
    assert outcome_of(shell, command("cat")).result == {"exit": 0, "output": "", "output_bytes": 0}


def test_a_command_runs_in_its_folder_inside_the_root(tmp_path: Path) -> None:
    inside = tmp_path / "root" / "inside"
    inside.mkdir(parents=True)
    (tmp_path / "root" / "link").symlink_to(tmp_path)
    where = command("pwd", "-P")
    with open_shell(rules=CommandRules(folder=str(tmp_path / "root"))) as shell:

        def run_in(cwd: Path | None) -> Any:
            return outcome_of(shell, Shell(command=where.command, cwd=str(cwd) if cwd else None))

        assert run_in(None).result["output"] == f"{tmp_path}/root\n"
        assert run_in(inside).result["output"] == f"{inside}\n"
        assert "is outside" in run_in(tmp_path).error
        assert "is outside" in run_in(tmp_path / "root" / "link").error
        assert "does not exist" in run_in(tmp_path / "root" / "gone").error


# Output


def test_head_and_tail_of_a_long_output_are_kept(shell: ShellTarget) -> None:
    what = script("echo first; seq 1 200000; echo last", output_kb=4)
    result = outcome_of(shell, what).result
    assert result["output"].startswith("first\n1\n2\n")
    assert result["output"].endswith("200000\nlast\n")
    assert result["truncated"] is True
    assert result["output_bytes"] == 1_288_906
    assert f"\n… {1_288_906 - 4096} bytes left out …\n" in result["output"]
    assert len(result["output"].encode()) < 4096 + 100


def test_a_gigabyte_of_output_neither_blocks_nor_fills_memory(shell: ShellTarget) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = outcome_of(shell, script("head -c 1000000000 /dev/zero; echo the end"), limit=60)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    assert outcome.result["output_bytes"] == 1_000_000_008
    assert outcome.result["output"].endswith("the end\n")


def test_an_endless_output_ends_at_the_time_limit(shell: ShellTarget) -> None:
    outcome = outcome_of(shell, command("yes"), limit=0.1, grace=0.5)
    assert isinstance(outcome, TimedOut)
    assert outcome.result["output"].startswith("y\ny\n")
    assert outcome.result["truncated"] is True


def test_invalid_utf8_is_replaced_and_control_characters_are_kept(shell: ShellTarget) -> None:
    result = outcome_of(shell, command("printf", r"\377\376 caf\303\251 \033[31mred\a")).result
    assert result["output"] == "\ufffd\ufffd café \x1b[31mred\a"


def test_output_after_the_first_process_ended_is_read(shell: ShellTarget) -> None:
    assert (
        outcome_of(shell, script("(sleep 0.1; echo late) & echo early")).result["output"] == "early\nlate\n"
    )


def test_a_command_that_closes_its_output_is_waited_for(shell: ShellTarget, tmp_path: Path) -> None:
    path = tmp_path / "done"
    outcome = outcome_of(shell, script("exec >&- 2>&-; sleep 0.1; : > $1", str(path)))
    assert outcome.result["exit"] == 0
    assert path.exists()


@pytest.mark.parametrize("limit", [2, 7, 8, 9, 64, 1000])
def test_a_head_tail_buffer_keeps_head_and_tail_for_any_chunks(limit: int) -> None:
    whole = "äöü€𝄞".encode() * 40
    for size in (1, 3, 7, 100, len(whole)):
        excerpt = HeadTailBuffer(limit)
        for start in range(0, len(whole), size):
            excerpt.feed(whole[start : start + size])
        assert excerpt.size == len(whole)
        assert excerpt.omitted_bytes == max(0, len(whole) - limit)
        if excerpt.omitted_bytes and limit >= 64:
            head, _, tail = excerpt.text().split("\n")
            assert whole.decode().startswith(head)
            assert whole.decode().endswith(tail)
            assert len(head.encode()) > limit // 2 - 4
            assert len(tail.encode()) > limit // 2 - 4
        elif not excerpt.omitted_bytes:
            assert excerpt.text() == whole.decode()


# Ending process trees


# Ignores SIGTERM, and has a child in its group, one in its own session, and one after a double fork.
STUBBORN = """
trap '' TERM
sleep 60 & echo $! >> $1
setsid sh -c 'trap "" TERM; echo $$ >> $1; while :; do sleep 0.05; done' sh $1 &
(setsid sh -c 'trap "" TERM; echo $$ >> $1; while :; do sleep 0.05; done' sh $1 &)
echo $$ >> $1
while :; do sleep 0.05; done
"""


def pids_in(path: Path, count: int) -> list[int]:
    wait_until(lambda: path.exists() and len(path.read_text().split()) == count)
    return list(map(int, path.read_text().split()))


@pytest.mark.parametrize("own_process", [False, True])
def test_a_tree_that_ignores_sigterm_is_dead_after_its_time_limit(tmp_path: Path, own_process: bool) -> None:
    path = tmp_path / "pids"
    with open_shell(own_process=own_process) as shell:
        _, recorder = start_launch(
            shell, script(STUBBORN, str(path)), limit=0.5, grace=0.2, run_id=path.as_posix()
        )
        pids = pids_in(path, 4)
        outcome = recorder.wait()
        assert isinstance(outcome, TimedOut)
        assert outcome.result["signal"] == "SIGKILL"
        assert [pid for pid in pids if is_alive(pid)] == []
        assert processes_of(path.as_posix()) == []


@pytest.mark.parametrize("own_process", [False, True])
def test_a_tree_that_ignores_sigterm_is_dead_after_a_stop(tmp_path: Path, own_process: bool) -> None:
    path = tmp_path / "pids"
    with open_shell(own_process=own_process) as shell:
        work, recorder = start_launch(shell, script(STUBBORN, str(path)), grace=0.1)
        pids = pids_in(path, 4)
        work.stop("replaced")
        work.stop("again")
        outcome = recorder.wait()
        assert isinstance(outcome, Cancelled)
        assert outcome.reason == "replaced"
        assert [pid for pid in pids if is_alive(pid)] == []


@pytest.mark.parametrize("own_process", [False, True])
def test_a_daemon_left_by_a_successful_command_is_ended(tmp_path: Path, own_process: bool) -> None:
    path = tmp_path / "pids"
    leaving = (
        "setsid sh -c 'echo $$ > $1; exec sleep 60' sh $1 >/dev/null 2>&1 & while [ ! -s $1 ]; do :; done"
    )
    with open_shell(own_process=own_process) as shell:
        outcome = outcome_of(shell, script(leaving, str(path)))
        assert outcome.result["exit"] == 0
        assert not is_alive(int(path.read_text()))


def test_with_own_process_an_unassigned_daemon_is_found(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    leaving = """
    env -i setsid sh -c '(trap "" TERM; sh -c "echo \\$PPID > $1"; exec sleep 60) &' sh $1 >/dev/null 2>&1
    while [ ! -s $1 ]; do :; done
    """
    with open_shell(own_process=True) as shell:
        assert outcome_of(shell, script(leaving, str(path)), limit=60).result["exit"] == 0
        assert not is_alive(int(path.read_text()))


@pytest.mark.parametrize(("text", "missed"), [("exit 0", 1), ("sleep 60", 5)])
def test_a_later_check_finds_a_process_that_the_first_one_missed(
    shell: ShellTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, missed: int
) -> None:
    path, torn = tmp_path / "pids", [ProcessTable([], read_mark=lambda _: "", is_incomplete=True)] * missed
    monkeypatch.setattr(termination, "read_table", lambda proc: torn.pop() if torn else read_table(proc))
    leaving = (
        "setsid sh -c 'echo $$ > $1; exec sleep 60' sh $1 >/dev/null 2>&1 & while [ ! -s $1 ]; do :; done"
    )
    work, recorder = start_launch(shell, script(f"{leaving}; {text}", str(path)), grace=0)
    pid = int(read(path))
    if text != "exit 0":
        work.stop("by_hand")
    recorder.wait()
    assert torn == []
    assert not is_alive(pid)


def test_an_unassigned_daemon_is_kept_while_it_may_belong_to_another_command(tmp_path: Path) -> None:
    path, go, ready = tmp_path / "pids", tmp_path / "go", tmp_path / "ready"
    leaving = """
    env -i setsid sh -c '(sh -c "echo \\$PPID > $1"; exec sleep 60) &' sh $1 >/dev/null 2>&1
    while [ ! -e $2 ]; do sleep 0.01; done
    """
    with open_shell(own_process=True) as shell:
        beside = ShellTarget(allowed=True, own_process=True)
        work, older = start_launch(beside, script("echo x > $1; exec sleep 60", str(ready)))
        read(ready)
        _, neighbour = start_launch(shell, script(leaving, str(path), str(go)))
        pid = int(read(path))
        work.stop("by_hand")
        assert isinstance(older.wait(), Cancelled)
        assert is_alive(pid)
        go.write_text("")
        assert neighbour.wait().result["exit"] == 0
        assert not is_alive(pid)
        beside.close(grace=SECOND)


@pytest.mark.parametrize("own_process", [False, True])
def test_ending_one_tree_does_not_affect_another(tmp_path: Path, own_process: bool) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    with open_shell(own_process=own_process) as shell:
        begun = [start_launch(shell, script(STUBBORN, str(path)), grace=0.1) for path in paths]
        one, two = (pids_in(path, 4) for path in paths)
        begun[0][0].stop("by_hand")
        begun[0][1].wait()
        assert not any(map(is_alive, one))
        assert all(map(is_alive, two))
        assert begun[1][1].outcomes == []
        begun[1][0].stop("by_hand")
        begun[1][1].wait()
        assert not any(map(is_alive, two))


@pytest.mark.parametrize("own_process", [False, True])
def test_other_processes_are_never_signalled(tmp_path: Path, own_process: bool) -> None:
    with open_shell(own_process=own_process) as shell:
        work, recorder = start_launch(
            shell, script("echo x > $1; sleep 60", str(tmp_path / "ready")), grace=0.05
        )
        read(tmp_path / "ready")
        strangers = [subprocess.Popen(["sleep", "60"]), subprocess.Popen(["sleep", "60"], process_group=0)]
        work.stop("by_hand")
        recorder.wait()
        outcome_of(shell, script("setsid sleep 60 >/dev/null 2>&1 &"))
        assert [stranger.poll() for stranger in strangers] == [None, None]
        for stranger in strangers:
            stranger.kill()
            stranger.wait()


def test_a_command_that_handles_sigterm_has_time_to_clean_up(shell: ShellTarget, tmp_path: Path) -> None:
    ready, tidied = tmp_path / "ready", tmp_path / "tidied"
    text = "trap ': > $2; exit 0' TERM; echo x > $1; while :; do sleep 0.02; done"
    work, recorder = start_launch(shell, script(text, str(ready), str(tidied)), grace=10)
    read(ready)
    work.stop("by_hand")
    assert isinstance(recorder.wait(), Cancelled)
    assert tidied.exists()


def test_a_stopped_process_is_ended_too(shell: ShellTarget, tmp_path: Path) -> None:
    work, recorder = start_launch(
        shell, script("echo $$ > $1; kill -STOP $$; sleep 60", str(tmp_path / "pid")), grace=60
    )
    pid = int(read(tmp_path / "pid"))
    wait_until(lambda: (found := read_process(pid, proc=PROC)) is not None and found.state == "T")
    work.stop("by_hand")
    assert isinstance(recorder.wait(), Cancelled)
    assert not is_alive(pid)


def test_a_stop_does_not_change_the_outcome_of_a_finished_command(shell: ShellTarget, tmp_path: Path) -> None:
    # The first process has ended, but another one holds its output open.
    text = "(echo $PPID > $1; exec sleep 60) & while [ ! -s $1 ]; do :; done; exit 3"
    work, recorder = start_launch(shell, script(text, str(tmp_path / "pid")), grace=0.1)
    read(tmp_path / "pid")
    (child,) = wait_until(lambda: [child for child in shell.children._children if child.status is not None])
    # Its pid must not be reused before its tree is gone.
    assert read_table(PROC).processes[child.pid].state == "Z"
    work.stop("by_hand")
    assert recorder.wait() == Failed(error="exit 3", result={"exit": 3, "output": "", "output_bytes": 0})
    work.stop("by_hand")
    assert len(recorder.outcomes) == 1
    assert child.survivors == 0


def test_a_command_stopped_before_its_start_never_runs(shell: ShellTarget, tmp_path: Path) -> None:
    hold, held = threading.Event(), threading.Event()
    shell.children.io_thread.call_soon(held.set)
    shell.children.io_thread.call_soon(lambda: hold.wait(60))
    assert held.wait(60)
    work, recorder = start_launch(shell, script(": > $1", str(tmp_path / "x")))
    work.stop("by_hand")
    hold.set()
    assert isinstance(recorder.wait(), Cancelled)
    assert not (tmp_path / "x").exists()


JUMPING = """
import os, sys, time
held = os.open(sys.argv[1], os.O_WRONLY)
if sys.argv[2] == "quiet":
    os.closerange(0, 3)
if os.fork():
    time.sleep(60)
for _ in range(300):
    time.sleep(0.02)
    if os.fork():
        os._exit(0)
    os.setsid()
    os.write(held, b"x")
time.sleep(60)
"""


@pytest.mark.parametrize("own_process", [False, True])
@pytest.mark.parametrize("voice", ["loud", "quiet"])
def test_a_tree_that_changes_sessions_is_killed(tmp_path: Path, own_process: bool, voice: str) -> None:
    # Each process starts another in a new session and ends. All of them hold the pipe, which shows who runs.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with open_shell(own_process=own_process) as shell:
        what = Shell(command=(sys.executable, "-c", JUMPING, str(pipe), voice))
        work, recorder = start_launch(shell, what, grace=0)
        for _ in range(5):
            assert select.select([held], [], [], 10)[0]
            assert os.read(held, 1) == b"x"
        work.stop("by_hand")
        assert isinstance(recorder.wait(), Cancelled)
        os.read(held, 1000)
        assert os.read(held, 1) == b"", "the end of the pipe, because nobody holds it any more"
    os.close(held)


def test_an_invisible_process_that_holds_the_output_open_is_reported(
    shell: ShellTarget, tmp_path: Path
) -> None:
    # Without own_process, a daemon that left its session and cleared its environment cannot be found.
    text = """
    env -i setsid sh -c '(echo x; exec sleep 60) & echo $! > $1' sh $1
    """
    outcome = outcome_of(shell, script(text, str(tmp_path / "pid")))
    pid = int((tmp_path / "pid").read_text())
    assert outcome.result == {"exit": 0, "output": "x\n", "output_bytes": 2, "survivors": 1}
    os.kill(pid, signal.SIGKILL)


def test_closing_releases_running_commands_and_ends_them(tmp_path: Path) -> None:
    with nothing_left():
        shell = ShellTarget(allowed=True)
        _, recorder = start_launch(shell, script(STUBBORN, str(tmp_path / "pids")), grace=60)
        pids = pids_in(tmp_path / "pids", 4)
        shell.close(grace=timedelta(seconds=0.1))
        outcome = recorder.wait()
        assert isinstance(outcome, Released)
        assert outcome.reason == "the target is closing"
        assert not any(map(is_alive, pids))
        assert isinstance(outcome_of(shell, command("true")), Released)
        shell.close(grace=SECOND)


def test_several_targets_may_share_one_io_thread(tmp_path: Path) -> None:
    with nothing_left():
        shared = ChildProcesses(own_process=True)
        one, two = (ShellTarget(allowed=True, children=shared) for _ in range(2))
        _, first = start_launch(one, command("sleep", "60"))
        _, second = start_launch(two, script("echo x > $1; sleep 60", str(tmp_path / "ready")))
        read(tmp_path / "ready")
        one.close(grace=SECOND)
        assert isinstance(first.wait(), Released)
        assert second.outcomes == []
        two.close(grace=SECOND)
        assert isinstance(second.wait(), Released)
        shared.close(grace=1)


# Many commands, and missing resources


def test_hundreds_of_concurrent_commands_need_one_thread(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    before = threading.active_count()
    with open_shell() as shell:
        recorders = [
            start_launch(shell, script("read x < $1; exit $2", str(go), str(n % 7)))[1] for n in range(200)
        ]
        wait_until(lambda: len(shell.children._children) == 200)
        assert threading.active_count() - before == 1
        opened = os.open(go, os.O_RDWR)
        os.write(opened, b"x\n" * 200)
        assert [recorder.wait().result["exit"] for recorder in recorders] == [n % 7 for n in range(200)]
        os.close(opened)


def test_a_command_fails_without_descriptors_and_succeeds_when_they_are_free() -> None:
    with open_shell() as shell:
        assert isinstance(outcome_of(shell, command("true")), Succeeded)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = [os.dup(0)]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, hard))
            outcome = outcome_of(shell, command("true"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            os.close(taken[0])
        assert isinstance(outcome, Failed)
        assert "Too many open files" in outcome.error
        assert not outcome.final
        assert isinstance(outcome_of(shell, command("true")), Succeeded)


def test_without_pidfd_the_end_of_a_process_is_polled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with open_shell() as shell:
        assert outcome_of(shell, script("exit 3")).error == "exit 3"
        assert isinstance(outcome_of(shell, command("sleep", "60"), limit=0.05, grace=0.1), TimedOut)


def test_without_proc_the_group_is_killed_and_survivors_are_reported(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pids"
    with nothing_left():
        blind = ChildProcesses(proc=tmp_path / "no-proc")
        shell = ShellTarget(allowed=True, children=blind)
        away = "setsid sh -c 'echo $$ >> $1; exec sleep 60' sh $1"
        text = f"sleep 60 & echo $! >> $1; echo $$ >> $1; {away} & wait"
        work, recorder = start_launch(shell, script(text, str(path)), grace=0.1)
        pids = pids_in(path, 3)
        work.stop("by_hand")
        outcome = recorder.wait()
        assert isinstance(outcome, Cancelled)
        assert outcome.result["survivors"] == 1
        wait_until(lambda: not any(map(is_alive, pids[:2])))
        os.kill(pids[2], signal.SIGKILL)
        shell.close(grace=SECOND)
        blind.close(grace=1)


def test_the_process_table_is_parsed_correctly(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as started:
        found = read_table(PROC).processes[started.pid]
        assert (found.parent, found.group, found.session) == (os.getpid(), started.pid, started.pid)
        assert not found.is_dead
        started.kill()
    odd = tmp_path / "7"
    odd.mkdir()
    (odd / "stat").write_text("7 (a) b (c) S 1 2 3 " + " ".join(["0"] * 15) + " 99 0 0\n")
    process = read_process(7, proc=tmp_path)
    assert process is not None
    assert (process.parent, process.group, process.session, process.started) == (1, 2, 3, 99)
    assert read_process(8, proc=tmp_path) is None


def process(pid: int, parent: int, **changes: Any) -> ProcessInfo:
    facts: dict[str, Any] = {"group": 1, "session": 1, "started": 50, "state": "S", **changes}
    return ProcessInfo(pid, parent, facts["group"], facts["session"], facts["started"], facts["state"])


def test_a_tree_is_recognised_by_parent_group_session_and_mark() -> None:
    table = ProcessTable(
        [
            process(1, 0),
            process(10, 1, group=10, session=10),
            process(11, 10),
            process(12, 11),
            process(13, 1, group=10),
            process(14, 1, session=10),
            process(15, 1),
            process(16, 15),
            process(17, 1),
            process(18, 10, state="Z"),
            process(19, 18),
            process(20, 1, group=10, started=49),
        ],
        read_mark=lambda pid: {15: "ours", 17: "theirs"}.get(pid, ""),
    )
    kin = {found.pid for found in table.descendants(10, started=50, mark="ours")}
    assert kin == {11, 12, 13, 14, 15, 16, 19}


def test_a_table_read_while_processes_end_is_incomplete(tmp_path: Path) -> None:
    whole = ProcessTable([process(1, 0), process(2, 1)], read_mark=lambda _: "")
    assert whole.descendants(1, started=50, mark="ours") != []
    assert not whole.is_incomplete
    ended = ProcessTable([process(10, 0), process(3, 0)], read_mark=lambda _: None)
    assert ended.descendants(10, started=50, mark="ours") == []
    assert ended.is_incomplete
    (tmp_path / "8").mkdir()
    assert read_table(tmp_path).is_incomplete
    zombies = ProcessTable(
        [process(1, 0), process(2, 1, state="Z"), process(3, 9, state="Z")], read_mark=lambda _: ""
    )
    assert zombies.unreaped(except_parent=9) == {(2, 50)}


def test_kill_marked_kills_new_processes_with_the_mark_only() -> None:
    marks = ["ours", "theirs", "ours"]
    started = [
        subprocess.Popen(["sleep", "60"], env={"TIMEWRIGHT_CHILD": mark, "PATH": PATH}) for mark in marks
    ]
    known = set(read_table(PROC).processes) - {started[0].pid, started[1].pid}
    assert kill_marked({"ours"}, known, proc=PROC) == {"ours"}
    assert started[0].wait() == -signal.SIGKILL
    assert [process.poll() for process in started[1:]] == [None, None]
    for process in started[1:]:
        process.kill()
        process.wait()


def test_orphans_are_children_we_did_not_start_in_a_session_of_their_own() -> None:
    table = ProcessTable(
        [
            process(1, 0),
            process(2, 1),
            process(3, 1, session=3),
            process(4, 1, session=4),
            process(5, 3, session=5),
        ],
        read_mark=lambda _: "",
    )
    assert [found.pid for found in table.adopted_orphans(1, known=[4])] == [3]


def test_this_process_is_a_subreaper_only_while_needed() -> None:
    before = set_subreaper(False)
    with open_shell(own_process=True):
        second = ShellTarget(allowed=True, own_process=True)
        assert set_subreaper(True) is True
        second.close(grace=SECOND)
        second.close(grace=SECOND)
        assert set_subreaper(True) is True
    assert set_subreaper(before) is False


# Limits


def test_a_command_is_bound_by_its_limits() -> None:
    rules = CommandRules(open_files=17, memory_mb=512, cpu_seconds=5, file_mb=3, processes=100_000)
    with open_shell(rules=rules) as shell:
        text = 'ulimit -n; ulimit -v; ulimit -t; ulimit -f; echo "$1"'
        output = outcome_of(shell, script(text, "an argument; with * signs")).result["output"]
        assert output.split("\n")[:3] == ["17", str(512 * 1024), "5"]
        assert output.endswith("an argument; with * signs\n")
        assert outcome_of(shell, command("no-such-program")).error == "exit 127"
        assert outcome_of(shell, command(sys.executable, "-c", "x = 'x' * 10**9")).error == "exit 1"


def test_the_oom_killer_prefers_a_command_over_the_scheduler(shell: ShellTarget) -> None:
    sooner = min(int(Path("/proc/self/oom_score_adj").read_text()) + 300, 1000)
    waits = f'until [ "$(cat /proc/$$/oom_score_adj)" = {sooner} ]; do :; done'
    assert isinstance(outcome_of(shell, command("sh", "-c", waits)), Succeeded)


def test_a_command_can_be_denied_new_privileges() -> None:
    with open_shell(rules=CommandRules(new_privileges=False)) as shell:
        output = outcome_of(shell, command("grep", "NoNewPrivs", "/proc/self/status")).result["output"]
        assert output.split() == ["NoNewPrivs:", "1"]


def test_a_command_can_be_killed_with_the_scheduler_process(tmp_path: Path) -> None:
    source = (
        "import sys\n"
        "from tests.targets.kit import start_launch\n"
        "from timewright.core.target import Shell\n"
        "from timewright.settings import CommandRules\n"
        "from timewright.targets.shell.target import ShellTarget\n"
        "shell = ShellTarget(allowed=True, rules=CommandRules(outlives_parent=False))\n"
        "start_launch(shell, Shell(command=('sh', '-c', 'echo $$ > $0; exec sleep 60', sys.argv[1])))\n"
        "sys.stdin.read()\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    owner = subprocess.Popen(
        [sys.executable, "-c", source, str(tmp_path / "pid")], env=environment, stdin=subprocess.PIPE
    )
    pid = int(read(tmp_path / "pid"))
    assert is_alive(pid)
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    wait_until(lambda: not is_alive(pid))
