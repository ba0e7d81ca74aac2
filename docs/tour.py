# ruff: noqa: INP001 - pages are no package; the folder is one only to import these files
"""Writes docs/errors.md, a tour of refusals: `.venv/bin/python -m docs.tour`.

Every command of `docs/tour.toml` is typed, in an empty folder, and what it answers is written down. The page
is kept in the tree, and a test compares it with what this gives.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
from click.testing import CliRunner

from timewright.interfaces.cli import cli
from timewright.interfaces.cli.session import Session

DOCS = Path(__file__).resolve().parent
SAID: dict[str, Any] = tomllib.loads((DOCS / "tour.toml").read_text("utf-8"))
PAGE = "errors.md"
NOTE = "*Written by `docs/tour.py` from what the commands answer; a test keeps it true.*"
REFUSED = 1


def page() -> str:
    """The whole tour, as it is today."""
    parts = [f"# {SAID['title']}", SAID["opening"], NOTE, SAID["text"].strip()]
    with _empty_folder():
        _furnish()
        for section in SAID["section"]:
            parts += [f"## {section['title']}", section["text"].strip()]
            parts += [block for stop in section["stop"] for block in _stop(stop)]
    return "\n\n".join(parts) + "\n"


def write() -> None:
    """Put the page in its place."""
    (DOCS / PAGE).write_text(page(), "utf-8")


def typed(words: str) -> tuple[int, str]:
    """What the command line answers, and its exit code."""
    result = CliRunner().invoke(cli, shlex.split(words)[1:], obj=Session(), catch_exceptions=False)
    return result.exit_code, _settled(result.output)


def _stop(stop: dict[str, Any]) -> Iterator[str]:
    for name, text in stop.get("file", {}).items():
        Path(name).write_text(text, "utf-8")
        Path(name).chmod(stop.get("mode", 0o600))
    code, answer = typed(stop["type"])
    if code == 0:
        raise AssertionError(f"{stop['type']} was not refused: {answer}")
    for name in stop.get("file", {}):
        Path(name).unlink()
    if stop["says"]:
        yield stop["says"].strip()
    yield f"```console\n$ {stop['type']}\n{answer.rstrip()}\n```"


def _furnish() -> None:
    """What the tour walks through: a schedule, a calendar it keeps to, and two files that are no stores."""
    for words in SAID["furnish"]:
        code, answer = typed(words)
        if code:
            raise AssertionError(f"{words}: {answer}")
    Path("notes.txt").write_text("Buy milk, and call the printer about the broken one. " * 20, "utf-8")
    connection = apsw.Connection("shop.db")
    connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.close()
    typed("timewright schedule create x --every 1h --note x --store tomorrow.db")
    connection = apsw.Connection("tomorrow.db")
    connection.execute("INSERT INTO migrations VALUES (9000, 'tomorrow', '')")
    connection.close()


def _settled(text: str) -> str:
    """The answer without what is different every time, or in every version: ids, numbers, long lists."""
    text = re.sub(r"\b(sch|run|lease|key)_[0-9A-Z]{26}", r"\1_01K8…", text)
    text = re.sub(r"(the fields are: (?:\w+, ){3}).*", r"\1…", text)
    return re.sub(r"this version knows \d+", "this version knows less", text)


@contextmanager
def _empty_folder() -> Iterator[None]:
    before, environment = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ.update(TZ="UTC", XDG_STATE_HOME=folder, COLUMNS="110")
        for name in [name for name in os.environ if name.startswith("TIMEWRIGHT_")]:
            del os.environ[name]
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)


if __name__ == "__main__":
    write()
