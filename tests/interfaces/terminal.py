"""Runs the command line in tests: in-process on a harness, or as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from tests.operations.harness import OperationsHarness
from timewright.interfaces.cli import cli
from timewright.interfaces.cli.session import Session
from timewright.operations import OperationContext

ENVIRONMENT = {"TZ": "UTC", "COLUMNS": None, "NO_COLOR": "1"}


class CommandResult(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def invoke(
    harness: OperationsHarness | None,
    *arguments: str,
    width: int | None = None,
    stdin: str | None = None,
    **environment: str,
) -> CommandResult:
    """Run a command in-process, on the harness if one is given."""
    columns = {"COLUMNS": str(width)} if width else {}
    session = Session() if harness is None else HarnessSession(harness)
    surroundings = {**ENVIRONMENT, **columns, **environment}
    done = CliRunner().invoke(cli, list(arguments), obj=session, env=surroundings, input=stdin)
    return CommandResult(done.exit_code, done.stdout, done.stderr)


class HarnessSession(Session):
    """A session whose operations run on a harness instead of a store."""

    def __init__(self, harness: OperationsHarness) -> None:
        super().__init__()
        self._harness = harness

    @contextmanager
    def context(self, *_: object) -> Iterator[OperationContext]:
        yield self._harness.context


def environment(**more: str) -> dict[str, str]:
    """Return the environment without variables that change settings."""
    sets = ("TIMEWRIGHT_", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(sets)}
    # A free port, so that tests can run in parallel.
    return {**ours, "TZ": "UTC", "PYTHONUNBUFFERED": "1", "TIMEWRIGHT_PORT": "0", **more}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "timewright", *words]


def run(where: Path, *words: str, stdin: bytes = b"", **more: str) -> CommandResult:
    """Run a command as a process and wait for it."""
    done = subprocess.run(
        command(*words),
        cwd=where,
        env=environment(**more),
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def running(where: Path, *words: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Start a long-running command; it is killed at the end of the test."""
    with subprocess.Popen(
        command(*words),
        cwd=where,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(stream: Any, word: str) -> list[str]:
    """Read lines until one contains a word."""
    lines: list[str] = []
    for line in stream:
        lines.append(line.rstrip("\n"))
        if word in line:
            return lines
    raise AssertionError(f"the process ended without printing {word!r}: {lines}")


def without(answer: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key not in keys}


def stop_process(process: subprocess.Popen[str], number: int) -> tuple[float, str]:
    """Send a signal; return the time until exit and the remaining output."""
    began = time.monotonic()
    process.send_signal(number)
    _, words = process.communicate(timeout=60)
    return time.monotonic() - began, words
