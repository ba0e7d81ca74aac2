"""Entry point of the command `timewright` and of `python -m timewright`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; Ctrl-C while it is still being imported ends it without a traceback."""
    try:
        from timewright.interfaces.cli import main as run
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
