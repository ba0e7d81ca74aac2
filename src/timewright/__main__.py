"""The command `timewright`, also as `python -m timewright`."""

from __future__ import annotations

import sys

from timewright.doors.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
