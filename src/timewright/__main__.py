"""The command `timewright`, also as `python -m timewright`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec


def main() -> int:
    """Run the command line; its exit code is ours."""
    # Looked up when asked for, so that the library can be used, and built, without this door.
    if find_spec("timewright.doors") is None:
        sys.stderr.write("timewright: this version is a library and has no command line yet.\n")
        return 2
    return int(import_module("timewright.doors.cli").main() or 0)


if __name__ == "__main__":
    sys.exit(main())
