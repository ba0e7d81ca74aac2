"""A worker process for workflow tests.

    python -m tests.workflows.child PLACE JOURNAL [HOST]

HOST is the name that it gives as that of its machine. Each step writes a line when it starts. A step with the
input `waits` never ends in its first lease.
"""

from __future__ import annotations

import os
import platform
import sys
import threading

from timewright import Context, Scheduler

JOURNAL = sys.argv[2] if len(sys.argv) > 2 else ""


def work(ctx: Context, step: str, waits: bool = False) -> str:
    """Write that the step started; then return, or wait."""
    descriptor = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{step} {ctx.key} {ctx.fence} {os.getpid()}\n".encode())
    finally:
        os.close(descriptor)
    if waits and ctx.fence == 1:
        threading.Event().wait(120)
    return f"{step} {ctx.fence}"


def main(place: str) -> None:
    """Run until a signal arrives."""
    if len(sys.argv) > 3:
        platform.node = lambda: sys.argv[3]
    app = Scheduler(place)
    app.task("work")(work)
    app.run()


if __name__ == "__main__":
    main(sys.argv[1])
