"""`timewright up` as a process: its output and its exit code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.tools.worker_fleet import expect, wait_until

TIMEOUT_S = 60.0
READY_LINE = re.compile(r"^ready in ", re.MULTILINE)


class UpProcess:
    """One `timewright up`; its output goes to a file, so that it never blocks."""

    def __init__(self, folder: Path, store: str, *, number: int = 0) -> None:
        self._log = folder / f"up-{number}.log"
        settings = {"TZ": "UTC", "TIMEWRIGHT_PORT": "0", "PYTHONUNBUFFERED": "1"}
        ours = {name: value for name, value in os.environ.items() if not name.startswith("TIMEWRIGHT_")}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "timewright", "up", "--store", store],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**ours, **settings},
            )

    @property
    def output(self) -> str:
        """Everything it has printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_until_ready(self) -> None:
        """Wait for its ready line."""
        wait_until(lambda: self._has_ended() or READY_LINE.search(self.output), "`timewright up` to be ready")
        expect(not self._has_ended(), f"`timewright up` to keep running, but it printed: {self.output}")

    def wait_for_refusal(self, text: str) -> str:
        """Wait until it exits with an error, this text and a remedy, without a traceback; return its first
        line.
        """
        code = self.process.wait(TIMEOUT_S)
        expect(code not in (0, None) and code > 0, f"a positive exit code, not {code}: {self.output}")
        expect(text in self.output, f"a refusal that says {text!r}, not: {self.output}")
        expect("  try " in self.output, f"a remedy in: {self.output}")
        expect("Traceback" not in self.output, f"no traceback in: {self.output}")
        return f"exit {code}: {self.output.strip().splitlines()[0]}"

    def stop(self) -> int:
        """Stop it; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    def _has_ended(self) -> bool:
        return self.process.poll() is not None


@contextmanager
def timewright_up(folder: Path, store: str, *, number: int = 0) -> Iterator[UpProcess]:
    """Run `timewright up`; killed at the end of the block."""
    process = UpProcess(folder, store, number=number)
    try:
        yield process
    finally:
        process.close()
