"""The tutorial and the how-to pages: their files are written and their commands run, block by block.

A block with a title is a file. A block of the kind `console` has commands after `$` and, below each, lines
that the command prints in this order; `…` stands for any text. A command that ends with `&` goes on until
`$ kill %N` or the end of the page.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conformance.conftest import postgres_url
from tests.project import DOCS, GUIDE_BLOCK, ROOT
from timewright.testing.postgres import fresh_database

__all__ = ["postgres_url"]

PAGES = [ROOT / "README.md", DOCS / "tutorial.md", *sorted(DOCS.glob("how-to/*.md"))]
WAIT_S = 60.0


class Command(NamedTuple):
    """A command of a page and the lines it prints."""

    text: str
    expected: list[str]


def below(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def commands(block: str) -> Iterator[Command]:
    """The commands of a console block; a backslash continues a line."""
    text = ""
    expected: list[str] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            if text:
                yield Command(text, expected)
            text, expected = line[2:], []
        elif text.endswith("\\"):
            text = text[:-1] + line.strip()
        elif line.strip():
            expected.append(line)
    if text:
        yield Command(text, expected)


def matches(expected: str, actual: str) -> bool:
    """Whether a line is as expected; `…` is any text, and spaces count as one."""
    pattern = ".*".join(r"\s+".join(map(re.escape, part.split(" "))) for part in expected.strip().split("…"))
    return re.fullmatch(re.sub(r"(\\s\+)+", r"\\s+", pattern), actual.strip()) is not None


def first_missing(expected: list[str], printed: list[str]) -> str | None:
    """The first expected line that is not printed after the one before."""
    position = 0
    for line in expected:
        found = next((i for i in range(position, len(printed)) if matches(line, printed[i])), None)
        if found is None:
            return line
        position = found + 1
    return None


class Background:
    """A process that goes on while the page continues, and the lines it has printed."""

    def __init__(self, text: str, folder: Path, environment: dict[str, str]) -> None:
        self.printed: list[str] = []
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {text}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.printed.extend(line.rstrip("\n") for line in iter(self.process.stdout.readline, ""))

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Shell:
    """Runs the commands of one page in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.background: list[Background] = []
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "100",
            "TZ": "UTC",
            "PYTHONUNBUFFERED": "1",
            "HOME": str(folder),
            # Servers take a free port.
            "UVICORN_PORT": "0",
            "GUNICORN_CMD_ARGS": "--bind=127.0.0.1:0",
        }

    def stop(self) -> None:
        """Stop what still runs."""
        for job in self.background:
            job.stop()

    def run(self, command: Command) -> None:
        """Run one command and check what it prints; time is given until the lines are there."""
        stopped = re.fullmatch(r"kill (-9 )?%(\d)", command.text)
        if stopped is not None:
            job = self.background[int(stopped[2]) - 1]
            job.stop(signal.SIGKILL if stopped[1] else signal.SIGTERM)
            assert first_missing(command.expected, job.printed) is None, job.printed
        elif command.text.endswith("&"):
            job = Background(command.text.removesuffix("&"), self.folder, self.environment)
            self.background.append(job)
            self._wait(lambda: first_missing(command.expected, job.printed), lambda: job.printed)
        else:
            self._repeat(command)

    def _repeat(self, command: Command) -> None:
        """Run a command; one that only reads is repeated until it prints what the page shows."""
        printed: list[str] = []
        reads = re.match(r"timewright (\w+ )?(list|get|explain|health|verify|next|logs)\b", command.text)

        def missing() -> str | None:
            done = subprocess.run(
                ["bash", "-c", command.text],
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
            printed[:] = [*done.stdout.splitlines(), *done.stderr.splitlines()]
            return first_missing(command.expected, printed)

        self._wait(missing, lambda: printed, repeat=reads is not None)

    def _state(self) -> str:
        """What the processes of the page have logged, whether they run, and what `doctor` finds."""
        ended = [(job.process.args, job.process.poll(), job.printed[-5:]) for job in self.background]
        logs = [f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.folder.glob("*.log")]
        found = subprocess.run(
            ["bash", "-c", "timewright doctor; timewright instance list"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        return "\n".join([str(ended), *logs, found.stdout, found.stderr])

    def _wait(
        self, missing: Callable[[], str | None], printed: Callable[[], list[str]], *, repeat: bool = True
    ) -> None:
        ends = time.monotonic() + WAIT_S
        while (line := missing()) is not None:
            if not repeat or time.monotonic() > ends:
                pytest.fail(f"not printed: {line!r}, but {printed()}\n{self._state()}")
            time.sleep(0.2)


@pytest.mark.parametrize("page", PAGES, ids=below)
def test_the_commands_of_a_guide_run_and_print_what_the_page_shows(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shell = Shell(tmp_path)
    written = page.read_text(encoding="utf-8")
    with ExitStack() as after:
        if "$DATABASE_URL" in written:
            server: str = request.getfixturevalue("postgres_url")
            shell.environment["DATABASE_URL"] = after.enter_context(fresh_database(server))
        after.callback(shell.stop)
        for kind, title, text in GUIDE_BLOCK.findall(written):
            if title:
                path = tmp_path / title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            elif kind == "console":
                for command in commands(text):
                    shell.run(command)


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("a  b", "a b", True),
        ("run_…  greet", "run_01 greet", True),
        ("a…", "ab", True),
        ("a", "ab", False),
        ("…failed…", "x succeeded y", False),
    ],
)
def test_an_ellipsis_stands_for_any_text(expected: str, actual: str, same: bool) -> None:
    assert matches(expected, actual) is same


def test_a_line_that_is_not_printed_is_found() -> None:
    assert first_missing(["a", "c"], ["a", "b", "c"]) is None
    assert first_missing(["c", "a"], ["a", "b", "c"]) == "a"
