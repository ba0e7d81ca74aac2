"""How to call this installation from the shell, so that the commands in messages can be copied."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

NAME = "timewright"
# A command in a sentence: the name, and a word after it.
_COMMAND = re.compile(rf"(?<![\w/.-])(?<!-m ){NAME} (?=[a-z])")
# Commands that start a process do it on a store, never on a server.
_START = re.compile(rf"{NAME} (?:up|serve|worker|watch)\b")


def program() -> str:
    """Return the words that start this program in the current folder: `timewright`, or a path to it."""
    return _program(sys.argv[0] if sys.argv else "", os.environ.get("PATH", ""), os.getcwd())  # noqa: PTH109


def program_beside_python() -> str:
    """Return the words that start the command line of the Python that runs, for an embedded scheduler."""
    script = Path(sys.executable).with_name(NAME)
    return _program(str(script) if script.exists() else NAME, os.environ.get("PATH", ""), os.getcwd())  # noqa: PTH109


def with_program(text: str, options: Sequence[str] = ()) -> str:
    """Return a message with its commands as they can be typed here.

    `options` select the store that the message is about, such as `--store other.db`. Without them, a command
    that is copied would work on the default store.
    """
    if NAME not in text:
        return text
    names = {option: option.partition(" ")[0] for option in options}
    left_out = "--server" if _START.search(text) else ""
    chosen = (one for one, name in names.items() if name not in text and name != left_out)
    words = " ".join((program(), *chosen))
    return _COMMAND.sub(lambda _: f"{words} ", text)


@cache
def _program(called_as: str, path: str, folder: str) -> str:
    script = Path(called_as)
    if script.parts[-2:] == (NAME, "__main__.py"):
        return f"{_command(Path(sys.executable), path, folder)} -m {NAME}"
    return _command(script, path, folder) if script.stem == NAME else NAME


def _command(script: Path, path: str, folder: str) -> str:
    """Return the name of an executable if the shell finds it, else its path, relative if it is below here."""
    script = Path(folder) / script
    found = shutil.which(script.name, path=path)
    # Compare the folders and not the files, because the Python of an environment is a link to another one.
    if found is not None and os.path.realpath(os.path.dirname(found)) == os.path.realpath(script.parent):  # noqa: PTH120
        return script.name
    below = os.path.relpath(script, folder)
    return shlex.quote(below if not below.startswith("..") else str(script))
