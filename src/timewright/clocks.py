"""The one place that reads the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial


def _boot_clock() -> Callable[[], float]:
    boot: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return partial(time.clock_gettime, boot) if boot is not None else time.monotonic


class SystemClock:
    """The host's clocks."""

    # Seconds on a clock that never goes back and, where the host has one, counts suspended time. It is read
    # several times for every run, so nothing stands between the caller and the host.
    monotonic = staticmethod(_boot_clock())

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)
