"""Run `python -m tests.simulation`; the command is in `tests.simulation.command`."""

from __future__ import annotations

import sys

from tests.simulation.command import main

if __name__ == "__main__":
    sys.exit(main())
