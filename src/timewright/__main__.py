"""Entry point of the command `timewright` and of `python -m timewright`."""

from __future__ import annotations

import sys

from timewright.interfaces.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
