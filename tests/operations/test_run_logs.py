"""What a run says is there to read while it says it: at every door, bounded, and without secrets."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.doors.terminal import ask
from tests.operations.house import House
from tests.targets.stage import until
from timewright.core.moments import SECOND
from timewright.core.target import Isolation
from timewright.doors.cli.listen import Listener
from timewright.engine.launch import Flown
from timewright.errors import InvalidInput, NotFound
from timewright.ports.said import said_by
from timewright.targets.call import CallTarget
from timewright.targets.registry import Registry
from timewright.targets.shell import ShellTarget
from timewright.testing.targets import fail, succeed, vanish

GATED = "echo one; cat gate; echo two"


@pytest.fixture(params=("memory", "postgres"))
def home(request: pytest.FixtureRequest) -> House:
    """A house of its own, and a street on a server in a namespace of its own."""
    if request.param == "memory":
        return House()
    street: House = request.getfixturevalue("postgres_street")
    return street.elsewhere("logs")


@pytest.fixture
def shell(home: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Commands run in a folder with a gate in it, at which they wait."""
    made = ShellTarget(allowed=True, root=str(tmp_path), secrets=lambda _namespace, _name: "hunter2-hunter2")
    monkeypatch.setitem(home.bench._targets, "shell", made)
    os.mkfifo(tmp_path / "gate")
    yield tmp_path / "gate"
    made.close(grace=SECOND)


def start(home: House, name: str, *command: str, **fields: Any) -> None:
    target = {"kind": "shell", "command": list(command), **fields}
    home.ask("schedule create", name=name, manual=True, target=target)
    home.ask("schedule run", schedule=name)
    home.bench.tick()


def flown(home: House) -> Flown:
    (only,) = home.bench.loop.launcher.under_way()
    return only


def hear(home: House, text: str) -> None:
    """Wait until the work has said so, and let a second pass, in which it is written."""
    until(lambda: text in getattr(said_by(flown(home).work), "text", ""))
    home.advance(seconds=1)


def let_end(home: House) -> None:
    until(lambda: home.bench.loop.launcher.answered)
    home.bench.tick()


def streams(answer: dict[str, Any]) -> list[dict[str, str]]:
    return [one["streams"] for one in answer["attempts"]]


def test_a_command_is_heard_while_it_runs_and_its_end_says_it_all(home: House, shell: Path) -> None:
    start(home, "talk", "sh", "-c", GATED)
    hear(home, "one\n")
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
    assert home.store.read(lambda tx: tx.get_said([first["run"]])) == {}


def test_a_secret_is_never_shown_on_the_way_not_even_its_half(home: House, shell: Path) -> None:
    command = 'printf "key $KEY and hunter2-"; cat gate; echo "$KEY"'
    start(home, "spill", "sh", "-c", command, env={"KEY": "secret://crm"})
    hear(home, "and ")
    (said,) = streams(home.ask("run logs", run="spill"))
    assert said == {"output": "key secret://crm and "}
    shell.write_text("nothing\n")
    let_end(home)


def test_of_a_long_output_the_head_and_the_tail_are_kept(home: House, shell: Path) -> None:
    command = 'yes 0123456789 | head -n 20000; echo almost; cat gate; echo "the end"'
    start(home, "long", "sh", "-c", command)
    hear(home, "almost\n")
    first = home.ask("run logs", run="long")
    (said,) = streams(first)
    assert len(said["output"]) < 70_000
    assert "bytes left out" in said["output"]
    shell.write_text("more\n")
    let_end(home)
    assert streams(home.ask("run logs", run="long", after=first["cursor"])) == [{"output": "more\nthe end\n"}]
    (early,) = streams(home.ask("run logs", run="long", after=f"{first['attempts'][0]['fence']}-40000"))
    assert early["output"].startswith("… ")


def test_what_a_lost_attempt_had_said_stays_with_it(home: House, shell: Path) -> None:
    start(home, "lost", "sh", "-c", GATED)
    hear(home, "one\n")
    home.bench.loop.launcher.let_go()
    home.bench.clock.advance(timedelta(minutes=10))
    home.bench.tick()
    told = home.ask("run logs", run="lost")
    assert told["attempts"][0]["outcome"] == "lost"
    assert told["attempts"][0]["streams"] == {"output": "one\n"}
    shell.write_text("\n")


@pytest.mark.parametrize("isolation", ["thread", "loop", "process"])
def test_what_a_function_logs_is_heard_wherever_it_runs(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, registry = House(), Registry()
    registry.add(handlers()[isolation == "loop"], name="chatty", isolation=isolation)
    target = CallTarget(registry)
    home.bench._targets["call"] = target
    os.mkfifo(tmp_path / "gate")
    call = {"kind": "call", "name": "chatty", "args": {"gate": str(tmp_path / "gate")}}
    home.ask("schedule create", name="chat", manual=True, target=call)
    home.ask("schedule run", schedule="chat")
    home.bench.tick()
    hear(home, "halfway")
    first = home.ask("run logs", run="chat")
    (said,) = streams(first)
    assert "INFO halfway through 2" in said["output"]
    (tmp_path / "gate").write_text("go")
    let_end(home)
    (said,) = streams(home.ask("run logs", run="chat", after=first["cursor"]))
    assert "WARNING tests.chatter: done" in said["output"] or isolation == "process"
    assert home.ask("run get", run=first["run"])["attempts"][0]["outcome"] == "succeeded"
    logging.getLogger("tests.chatter").warning("this belongs to nobody")
    assert "nobody" not in str(home.ask("run logs", run="chat"))
    target.close(grace=SECOND)


def handlers() -> tuple[Any, Any]:
    from tests.operations.chatter import chat, chat_async

    return chat, chat_async


def test_a_name_means_the_run_under_way_and_else_the_last_that_ran() -> None:
    house = House()
    house.ask("schedule create", name="report", every="1h", note="x")
    with pytest.raises(NotFound, match="no run 'report'"):
        house.ask("run logs", run="report")
    with pytest.raises(NotFound, match="no schedule 'reprot'"):
        house.ask("run logs", run="reprot")
    with pytest.raises(InvalidInput, match="no place in an output"):
        house.ask("run logs", run="report", after="yesterday")
    house.bench.target.script("report", succeed({"output": "fine"}), vanish())
    house.advance(hours=1)
    ended = house.ask("run logs", run="report")
    assert (ended["state"], streams(ended)) == ("succeeded", [{"output": "fine"}])
    house.advance(hours=1)
    assert house.ask("run logs", run="report")["state"] == "leased"


def test_following_at_the_command_line_tells_each_line_once_and_ends_with_the_run() -> None:
    house = House()
    house.ask("schedule create", name="report", every="1h", note="x", retry={"max_attempts": 2})
    house.bench.target.script("report", fail("no route"), succeed({"output": "one\ntwo", "body": "b"}))
    house.advance(hours=1)
    listener = Listener(house.context, {"run": "report"})
    assert [line.split() for line in listener.lines(listener.news())] == [
        ["attempt", "1"],
        ["attempt", "1", "failed:", "no", "route"],
    ]
    assert (listener.lines(listener.news()), listener.is_over) == ([], False)
    house.advance(minutes=1)
    told = [line.split() for line in listener.lines(listener.news())]
    assert told == [["attempt", "2"], ["one"], ["two"], ["b"], ["attempt", "2", "succeeded"]]
    assert listener.is_over
    said = ask(house, "run", "logs", "report", "--follow")
    assert (said.code, said.lines.count("  one")) == (0, 1)
    assert "there is more" not in ask(house, "run", "logs", "report").err
    assert '"output": "one\\ntwo"' in ask(house, "run", "logs", "report", "--follow", "-o", "json").out
