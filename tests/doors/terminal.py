"""A terminal to try the command line on: over a furnished house in memory, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from tests.operations.house import House
from timewright.doors.cli import cli
from timewright.doors.cli.session import Session
from timewright.operations import Context

QUIET = {"TZ": "UTC", "COLUMNS": None, "NO_COLOR": "1"}


class Said(NamedTuple):
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def ask(
    house: House | None, *words: str, width: int | None = None, typed: str | None = None, **environment: str
) -> Said:
    """Type a command; with a house, it works on that instead of a store of its own."""
    columns = {"COLUMNS": str(width)} if width else {}
    session = Session() if house is None else Session(_inside(house))
    surroundings = {**QUIET, **columns, **environment}
    done = CliRunner().invoke(cli, list(words), obj=session, env=surroundings, input=typed)
    return Said(done.exit_code, done.stdout, done.stderr)


def _inside(house: House) -> Any:
    @contextmanager
    def opening(*_: object) -> Iterator[Context]:
        yield house.context

    return opening


def environment(**more: str) -> dict[str, str]:
    """Our own, without what would set something."""
    sets = ("TIMEWRIGHT_", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(sets)}
    # A free port each, so that tests may run beside one another.
    return {**ours, "TZ": "UTC", "PYTHONUNBUFFERED": "1", "TIMEWRIGHT_PORT": "0", **more}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "timewright", *words]


def run(where: Path, *words: str, stdin: bytes = b"", **more: str) -> Said:
    """Run a command as a process of its own, to its end."""
    done = subprocess.run(
        command(*words),
        cwd=where,
        env=environment(**more),
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def started(where: Path, *words: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command that stays; it is killed if it outlives the test."""
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


def lines_until(stream: Any, word: str) -> list[str]:
    """The lines a process says up to the one with a word in it."""
    lines: list[str] = []
    for line in stream:
        lines.append(line.rstrip("\n"))
        if word in line:
            return lines
    raise AssertionError(f"it ended without saying {word!r}: {lines}")


def without(answer: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key not in keys}
