"""A progress bar on standard error, for commands that take a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from timewright.clocks import SystemClock

WIDTH = 30
MIN_INTERVAL_S = 0.1

Progress = Callable[[float, str], None]


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Yield a function that draws a share and a text if standard error is a terminal; clear it at the end."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    drawn_at = 0.0

    def draw(share: float, text: str) -> None:
        nonlocal drawn_at
        if not is_terminal or SystemClock.monotonic() - drawn_at < MIN_INTERVAL_S:
            return
        drawn_at = SystemClock.monotonic()
        full = int(min(max(share, 0.0), 1.0) * WIDTH)
        sys.stderr.write(f"\r{'█' * full}{'·' * (WIDTH - full)} {share:4.0%} {text:<30}")
        sys.stderr.flush()

    try:
        yield draw
    finally:
        if is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
