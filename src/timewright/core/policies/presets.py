"""Presets: five sets of policy values, each with the defaults of one kind of scheduler.

    routine    periodic jobs in an application: fixed grid, three attempts with jitter, no catch-up
    queue      durable work queue: three attempts, delay doubles up to a minute, then parked
    adaptive   endpoints that an agent may adjust: interval from the last start, stretched by failures
    desktop    jobs on one machine: grid of at least ten seconds, failure ladder, parked after five failures
    workflow   cron that starts workflows: no catch-up unless requested, three attempts to start

Fields that the user sets override the preset.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from timewright.core.moments import DAY, MINUTE, SECOND
from timewright.core.policies.backoff import Constant, Exponential, Ladder, Stretch
from timewright.core.policies.policies import (
    OUTSIDE_LEASE,
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
            "retry": Retry(
                max_attempts=3,
                backoff=Exponential(base=SECOND, factor=2.0, cap=DAY, jitter=0.2),
                losses_are_attempts=True,
            ),
            "lease": LeaseTerms(time_limit=300 * SECOND),
        },
        "queue": {
            "overlap": Overlap.ALLOW,
            "retry": QueuePolicy().retry,
            "lease": LeaseTerms(length=OUTSIDE_LEASE),
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
