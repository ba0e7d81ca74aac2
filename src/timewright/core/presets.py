"""Five bundles of policy values, each with the defaults of one kind of scheduler; nothing more.

    routine    routines in an application: a grid, three attempts with some jitter, nothing caught up
    queue      a durable work queue: three attempts, exact doubling up to a minute, then parked
    adaptive   endpoints an agent may hint: from the last start, stretched by failures, newest missed one
    desktop    jobs of one machine: a grid of ten seconds and more, a ladder, disabled after five failures
    workflow   cron that launches workflows: nothing caught up unless asked, three tries to launch

A preset lies under what the user wrote: a field that is written wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from timewright.core.backoff import Constant, Exponential, Ladder, Stretch
from timewright.core.moments import DAY, MINUTE, SECOND
from timewright.core.policies import (
    Align,
    CatchUp,
    Exhausted,
    Floor,
    FloorAction,
    LeaseTerms,
    Overlap,
    QueuePolicy,
    Retry,
)

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "routine": {
            "align": Align.GRID,
            "catch_up": CatchUp.NONE,
            "catch_up_window": None,
            "overlap": Overlap.SKIP,
            "retry": Retry(max_attempts=3, backoff=Exponential(base=SECOND, factor=2.0, cap=DAY, jitter=0.2)),
            "lease": LeaseTerms(time_limit=300 * SECOND),
        },
        "queue": {
            "overlap": Overlap.ALLOW,
            "retry": QueuePolicy().retry,
            "lease": LeaseTerms(length=300 * SECOND),
        },
        "adaptive": {
            "align": Align.NOW,
            "catch_up": CatchUp.LAST,
            "catch_up_window": None,
            "overlap": Overlap.SKIP,
            "retry": Retry(max_attempts=1),
            "cadence": Stretch(doublings=5),
            "lease": LeaseTerms(length=30 * SECOND),
            "adaptive": True,
        },
        "desktop": {
            "align": Align.GRID,
            "catch_up": CatchUp.LAST,
            "catch_up_window": None,
            "overlap": Overlap.SKIP,
            "retry": Retry(max_attempts=1),
            "cadence": Ladder(steps=(30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, 60 * MINUTE)),
            "disable_after": 5,
        },
        "workflow": {
            "align": Align.GRID,
            "catch_up": CatchUp.NONE,
            "catch_up_limit": 100,
            "catch_up_window": None,
            "overlap": Overlap.SKIP,
            "retry": Retry(max_attempts=3, backoff=Constant(wait=SECOND), exhausted=Exhausted.FAIL),
        },
    }
)

FLOORS: Mapping[str, Floor] = MappingProxyType(
    {"desktop": Floor(interval=10 * SECOND, action=FloorAction.RAISE)}
)
