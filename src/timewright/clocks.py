"""The system clock. Nothing else in the package reads the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial


def _boot_clock() -> Callable[[], float]:
    boot: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return partial(time.clock_gettime, boot) if boot is not None else time.monotonic


class SystemClock:
    """Wall clock and monotonic clock of the host."""

    # Seconds on a clock that never goes back and that counts suspended time where the host supports it.
    # Bound without a wrapper because it is read several times per run.
    monotonic = staticmethod(_boot_clock())

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        return datetime.now(UTC)
