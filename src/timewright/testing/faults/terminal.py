"""The program itself as a process: `timewright up` on a place, what it says, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from timewright.testing.faults.fleet import expect, until

PATIENCE = 60.0
READY = re.compile(r"^ready in ", re.MULTILINE)


class Up:
    """One `timewright up`; its words go to a file, so that it never has to wait for us."""

    def __init__(self, folder: Path, place: str, *, number: int = 0) -> None:
        self._words = folder / f"up-{number}.log"
        settings = {"TZ": "UTC", "TIMEWRIGHT_PORT": "0", "PYTHONUNBUFFERED": "1"}
        ours = {name: value for name, value in os.environ.items() if not name.startswith("TIMEWRIGHT_")}
        with self._words.open("wb") as words:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "timewright", "up", "--store", place],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                cwd=folder,
                env={**ours, **settings},
            )

    @property
    def words(self) -> str:
        """Everything it has said."""
        return self._words.read_text(encoding="utf-8", errors="replace")

    def ready(self) -> None:
        """Wait until it has said so."""
        until(lambda: self._has_ended() or READY.search(self.words), "`timewright up` to be ready")
        expect(not self._has_ended(), f"`timewright up` to stay, but it said: {self.words}")

    def refuses(self, word: str) -> str:
        """It ends with an error, this word, a remedy and no traceback; gives back what it said first."""
        code = self.process.wait(PATIENCE)
        expect(code not in (0, None) and code > 0, f"an exit code of an error, not {code}: {self.words}")
        expect(word in self.words, f"a refusal that says {word!r}, not: {self.words}")
        expect("  try " in self.words, f"a remedy in: {self.words}")
        expect("Traceback" not in self.words, f"no traceback in: {self.words}")
        return f"exit {code}: {self.words.strip().splitlines()[0]}"

    def end(self) -> int:
        """Ask it to end; gives back the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """Leave nothing of it."""
        self.process.kill()
        self.process.wait()

    def _has_ended(self) -> bool:
        return self.process.poll() is not None


@contextmanager
def up(folder: Path, place: str, *, number: int = 0) -> Iterator[Up]:
    """`timewright up`, gone at the end of the block."""
    process = Up(folder, place, number=number)
    try:
        yield process
    finally:
        process.close()
