"""The one place that reads the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """The host's clocks."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back and, where the host has one, counts suspended time."""
        return time.clock_gettime(_BOOT) if _BOOT is not None else time.monotonic()


_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)
