"""Collects garbage in a rest, so that Python does not do it between an instant and what starts there."""

from __future__ import annotations

import gc
import sys
from datetime import timedelta

# A full pass goes through everything there is; where there is more than this, it takes too long for a rest.
MOST_BLOCKS = 500_000
# A rest that is shorter is left alone.
SHORTEST_REST = timedelta(seconds=0.25)


def tidy() -> None:
    """Have the full pass now that would come before long; a program that collects by itself is left to it."""
    soon = gc.get_threshold()[2] // 2
    if gc.isenabled() and gc.get_count()[2] >= soon > 0 and sys.getallocatedblocks() <= MOST_BLOCKS:
        gc.collect()
