"""Workers as real processes on one place: the fleet of the fault lane, under the name these tests use."""

from __future__ import annotations

from timewright.testing.faults.fleet import Fleet, Worker, outcomes, until

__all__ = ["Fleet", "Worker", "outcomes", "until"]
