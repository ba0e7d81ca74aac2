"""The commands in messages can be copied: they name this installation and this store."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interfaces.terminal import environment, invoke
from timewright.interfaces.program import _command, _program, with_program

SCRIPT = Path(sys.executable).with_name("timewright")


def test_a_program_on_the_path_is_called_by_its_name(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "timewright"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert _program(str(tool), str(tool.parent), "/srv") == "timewright"
    assert _program(str(tool), "/usr/bin", str(tmp_path)) == "bin/timewright"
    assert _program(str(tool), "/usr/bin", "/srv") == str(tool)
    assert _program("/x/timewright/__main__.py", "/usr/bin", "/srv").endswith(" -m timewright")


def test_the_python_of_an_environment_is_not_mistaken_for_the_one_that_it_links_to(tmp_path: Path) -> None:
    system, environment = tmp_path / "usr" / "python", tmp_path / "env" / "python"
    for python in (system, environment):
        python.parent.mkdir()
    system.write_text("#!/bin/sh\n")
    system.chmod(0o755)
    environment.symlink_to(system)
    assert _command(environment, str(system.parent), "/srv") == str(environment)
    assert _command(environment, str(environment.parent), "/srv") == "python"


def test_only_commands_in_a_sentence_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timewright.interfaces.program.program", lambda: ".venv/bin/timewright")
    text = "timewright 0.1.0: start it with timewright up, see ./timewright.db or timewright.toml"
    shown = "timewright 0.1.0: start it with .venv/bin/timewright up, see ./timewright.db or timewright.toml"
    assert with_program(text) == shown


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPT), *words]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(PATH="/usr/bin:/bin"),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_remedy_is_for_the_store_and_namespace_that_were_asked(tmp_path: Path) -> None:
    here = ("--store", str(tmp_path / "other store.db"), "--namespace", "team-b")
    assert invoke(None, *here, "schedule", "create", "daily", "--every", "1d", "--note", "x").code == 0
    assert invoke(None, *here, "schedule", "pause", "daily").code == 0
    said = invoke(None, *here, "explain", "daily")
    (line,) = [line for line in said.out.splitlines() if "to change it" in line]
    command = line[line.index("--store") :]
    assert shlex.split(command)[:4] == list(here)
    assert invoke(None, *shlex.split(command)).code == 0
    assert "active" in invoke(None, *here, "schedule", "list").out
    assert f"fix: timewright --store '{here[1]}' --namespace team-b up" in invoke(
        None, *here, "doctor", width=400
    ).out.replace("\n", " ")


def test_a_command_names_no_server_twice_and_none_where_it_starts_a_process() -> None:
    server = ("--server http://127.0.0.1:7411",)
    assert with_program("run timewright schedule skip x", server).endswith(f" {server[0]} schedule skip x")
    assert with_program("timewright up", server).endswith("timewright up")
    given = "timewright resume --store other.db"
    assert with_program(given, ("--store other.db",)).endswith("timewright resume --store other.db")


def test_a_printed_command_runs_as_typed_in_that_shell(tmp_path: Path) -> None:
    refused = run(tmp_path, "schedule", "list")
    assert f"{SCRIPT} up creates one" in refused.stderr
    made = run(tmp_path, "demo", "--store", "my demo.db")
    command = made.stdout.strip()
    assert command == f"{SCRIPT} serve --store 'my demo.db'"
    typed = command.replace(" serve ", " schedule list -q ")
    shown = subprocess.run(
        typed,
        shell=True,
        cwd=tmp_path,
        env=environment(PATH="/usr/bin:/bin"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "backup-database" in shown.stdout


def test_a_second_server_takes_a_free_port_if_the_default_one_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from timewright.interfaces.cli.process import http_server
    from timewright.interfaces.cli.session import Session
    from timewright.settings import Settings

    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(http_server, "DEFAULT_PORT", port)
        server = http_server._bind(Session(), Settings(port=port))
    try:
        assert server.port not in (0, port)
    finally:
        server.stop()
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - nothing was written
