"""The system clock and the system's time zone. Nothing else in the package reads the time."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from timewright.core.zones import check_zone
from timewright.errors import InvalidZone

_LOCALTIME = Path("/etc/localtime")
_TIMEZONE_FILE = Path("/etc/timezone")
_ZONEINFO_FOLDER = "zoneinfo/"
_UTC_NAMES = frozenset({"Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "Universal", "Zulu"})


def _boot_clock() -> Callable[[], float]:
    # On macOS the monotonic clock of the system counts suspended time, and Python's does not.
    counting = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    boot: int | None = getattr(time, counting, None)
    return partial(time.clock_gettime, boot) if boot is not None else time.monotonic


class SystemClock:
    """Wall clock and monotonic clock of the host."""

    # Seconds on a clock that never goes back and that counts suspended time where the host supports it.
    # Bound without a wrapper because it is read several times per run.
    monotonic = staticmethod(_boot_clock())

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Block for at least this long; `select` is more exact than `time.sleep` on some systems."""
        until = self.monotonic() + seconds
        while (left := until - self.monotonic()) > 0:
            select.select((), (), (), left)


def system_zone(*, localtime: Path = _LOCALTIME, name_file: Path = _TIMEZONE_FILE) -> str:
    """Return the name of the system's time zone: `TZ`, /etc/localtime, /etc/timezone; "" if it has none."""
    named = os.environ.get("TZ", "").lstrip(":")
    try:
        if not named and localtime.is_symlink():
            named = str(localtime.readlink())
        elif not named and localtime.exists() and name_file.is_file():
            named = name_file.read_text(encoding="utf-8").strip()
        name = check_zone(named.rpartition(_ZONEINFO_FOLDER)[2])
        return "UTC" if name in _UTC_NAMES else name
    except (InvalidZone, OSError, ValueError):
        return ""
