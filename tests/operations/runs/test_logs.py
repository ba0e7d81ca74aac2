"""The output of a run is readable while it runs, bounded, and without secrets."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness
from tests.targets.kit import wait_until
from timewright.core.moments import SECOND
from timewright.core.target import Isolation
from timewright.engine.in_flight import InFlightRun
from timewright.errors import InvalidInput, NotFound
from timewright.interfaces.cli.output.follow import OutputFollower
from timewright.ports.attempt_output import AttemptOutput, read_output
from timewright.settings import CommandRules
from timewright.targets.call.registry import FunctionRegistry
from timewright.targets.call.target import CallTarget
from timewright.targets.shell.target import ShellTarget
from timewright.testing.targets import fail, succeed, vanish

WITH_PIPE = "echo one; cat pipe; echo two"


@pytest.fixture(params=("memory", "postgres"))
def home(request: pytest.FixtureRequest) -> OperationsHarness:
    """An empty harness; on PostgreSQL a separate namespace of a shared one."""
    if request.param == "memory":
        return OperationsHarness()
    shared_harness: OperationsHarness = request.getfixturevalue("empty_postgres_harness")
    return shared_harness.in_namespace("logs")


@pytest.fixture
def shell(home: OperationsHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a file that commands wait for."""
    made = ShellTarget(
        allowed=True, rules=CommandRules(folder=str(tmp_path)), secrets=lambda *_: "hunter2-hunter2"
    )
    monkeypatch.setitem(home.bench._targets, "shell", made)
    os.mkfifo(tmp_path / "pipe")
    yield tmp_path / "pipe"
    made.close(grace=SECOND)


def start(home: OperationsHarness, name: str, *command: str, **fields: Any) -> None:
    target = {"kind": "shell", "command": list(command), **fields}
    home.ask("schedule create", name=name, manual=True, target=target)
    home.ask("schedule run", schedule=name)
    home.bench.tick()


def flown(home: OperationsHarness) -> InFlightRun:
    (only,) = home.bench.loop.launcher.in_flight_runs()
    return only


def wait_for_output(home: OperationsHarness, text: str) -> None:
    """Wait until the work has printed a text, and advance a second, in which it is stored."""
    wait_until(lambda: text in getattr(read_output(flown(home).work), "text", ""))
    home.advance(seconds=1)


def let_end(home: OperationsHarness) -> None:
    wait_until(lambda: home.bench.loop.launcher.results)
    home.bench.tick()


def streams(answer: dict[str, Any]) -> list[dict[str, str]]:
    return [one["streams"] for one in answer["attempts"]]


def test_the_output_of_a_command_is_shown_while_it_runs_and_after(
    home: OperationsHarness, shell: Path
) -> None:
    start(home, "talk", "sh", "-c", WITH_PIPE)
    wait_for_output(home, "one\n")
    first = home.ask("run logs", run="talk")
    assert (first["state"], first["attempts"][0]["outcome"]) == ("leased", "running")
    assert first["attempts"][0]["ended_at"] is None
    assert streams(first) == [{"output": "one\n"}]
    assert streams(home.ask("run logs", run="talk", after=first["cursor"])) == [{}]
    shell.write_text("and a half\n")
    let_end(home)
    last = home.ask("run logs", run=first["run"], after=first["cursor"])
    assert (last["state"], streams(last)) == ("succeeded", [{"output": "and a half\ntwo\n"}])
    assert streams(home.ask("run logs", run="talk")) == [{"output": "one\nand a half\ntwo\n"}]
    for _ in range(3):
        home.advance(seconds=1)
    assert home.store.read(lambda tx: tx.get_run_rows(AttemptOutput, [first["run"]])) == {}


def test_a_secret_split_across_output_chunks_is_redacted(home: OperationsHarness, shell: Path) -> None:
    command = 'printf "key $KEY and hunter2-"; cat pipe; echo "$KEY"'
    start(home, "spill", "sh", "-c", command, env={"KEY": "secret://crm"})
    wait_for_output(home, "and ")
    (result,) = streams(home.ask("run logs", run="spill"))
    assert result == {"output": "key secret://crm and "}
    shell.write_text("nothing\n")
    let_end(home)


def test_head_and_tail_of_a_long_output_are_kept(home: OperationsHarness, shell: Path) -> None:
    command = 'yes 0123456789 | head -n 20000; echo almost; cat pipe; echo "the end"'
    start(home, "long", "sh", "-c", command)
    wait_for_output(home, "almost\n")
    first = home.ask("run logs", run="long")
    (result,) = streams(first)
    assert len(result["output"]) < 70_000
    assert "bytes left out" in result["output"]
    shell.write_text("more\n")
    let_end(home)
    assert streams(home.ask("run logs", run="long", after=first["cursor"])) == [{"output": "more\nthe end\n"}]
    (early,) = streams(home.ask("run logs", run="long", after=f"{first['attempts'][0]['fence']}-40000"))
    assert early["output"].startswith("… ")


def test_the_output_of_a_lost_attempt_is_kept(home: OperationsHarness, shell: Path) -> None:
    start(home, "lost", "sh", "-c", WITH_PIPE)
    wait_for_output(home, "one\n")
    home.bench.loop.launcher.abandon_all()
    home.bench.clock.advance(timedelta(minutes=10))
    home.bench.tick()
    answer = home.ask("run logs", run="lost")
    assert answer["attempts"][0]["outcome"] == "lost"
    assert answer["attempts"][0]["streams"] == {"output": "one\n"}
    shell.write_text("\n")


@pytest.mark.parametrize("isolation", ["thread", "loop", "process"])
def test_function_logs_are_captured_in_process_and_in_workers(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, registry = OperationsHarness(), FunctionRegistry()
    registry.add(handlers()[isolation == "loop"], name="chatty", isolation=isolation)
    target = CallTarget(registry)
    home.bench._targets["call"] = target
    os.mkfifo(tmp_path / "pipe")
    call = {"kind": "call", "name": "chatty", "args": {"pipe": str(tmp_path / "pipe")}}
    home.ask("schedule create", name="chat", manual=True, target=call)
    home.ask("schedule run", schedule="chat")
    home.bench.tick()
    wait_for_output(home, "halfway")
    first = home.ask("run logs", run="chat")
    (result,) = streams(first)
    assert "INFO halfway through 2" in result["output"]
    (tmp_path / "pipe").write_text("go")
    let_end(home)
    (result,) = streams(home.ask("run logs", run="chat", after=first["cursor"]))
    assert "WARNING tests.chatter: done" in result["output"] or isolation == "process"
    assert home.ask("run get", run=first["run"])["attempts"][0]["outcome"] == "succeeded"
    logging.getLogger("tests.chatter").warning("this belongs to nobody")
    assert "nobody" not in str(home.ask("run logs", run="chat"))
    target.close(grace=SECOND)


def handlers() -> tuple[Any, Any]:
    from tests.operations.logging_functions import log_twice, log_twice_async

    return log_twice, log_twice_async


def test_a_schedule_name_means_its_active_or_last_run() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="report", every="1h", note="x")
    with pytest.raises(NotFound, match="no run 'report'"):
        harness.ask("run logs", run="report")
    with pytest.raises(NotFound, match="no schedule 'reprot'"):
        harness.ask("run logs", run="reprot")
    with pytest.raises(InvalidInput, match="is not a cursor"):
        harness.ask("run logs", run="report", after="yesterday")
    harness.bench.target.script("report", succeed({"output": "fine"}), vanish())
    harness.advance(hours=1)
    ended = harness.ask("run logs", run="report")
    assert (ended["state"], streams(ended)) == ("succeeded", [{"output": "fine"}])
    harness.advance(hours=1)
    assert harness.ask("run logs", run="report")["state"] == "leased"


def test_following_logs_prints_each_line_once_and_ends_with_the_run() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="report", every="1h", note="x", retry={"max_attempts": 2})
    harness.bench.target.script("report", fail("no route"), succeed({"output": "one\ntwo", "body": "b"}))
    harness.advance(hours=1)
    listener = OutputFollower(harness.context, {"run": "report"})
    assert [line.split() for line in listener.lines(listener.poll())] == [
        ["attempt", "1"],
        ["attempt", "1", "failed:", "no", "route"],
    ]
    assert (listener.lines(listener.poll()), listener.is_finished) == ([], False)
    harness.advance(minutes=1)
    answer = [line.split() for line in listener.lines(listener.poll())]
    assert answer == [["attempt", "2"], ["one"], ["two"], ["b"], ["attempt", "2", "succeeded"]]
    assert listener.is_finished
    result = invoke(harness, "run", "logs", "report", "--follow")
    assert (result.code, result.lines.count("  one")) == (0, 1)
    assert "there is more" not in invoke(harness, "run", "logs", "report").err
    assert '"output": "one\\ntwo"' in invoke(harness, "run", "logs", "report", "--follow", "-o", "json").out
