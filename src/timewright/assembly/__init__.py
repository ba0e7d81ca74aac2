"""The one place that picks concrete things and joins them; it decides nothing."""

from __future__ import annotations

from timewright.assembly.functions import (
    HOSTED,
    check_target,
    is_inside_a_run,
    load_registry,
    new_registry,
)
from timewright.assembly.house import House, policies_of, trial_on
from timewright.assembly.places import (
    announced,
    copy_store,
    doorkeeper_for,
    look_at,
    open_store,
    path_of,
    private_place,
    surroundings_for,
)

__all__ = [
    "HOSTED",
    "House",
    "announced",
    "check_target",
    "copy_store",
    "doorkeeper_for",
    "is_inside_a_run",
    "load_registry",
    "look_at",
    "new_registry",
    "open_store",
    "path_of",
    "policies_of",
    "private_place",
    "surroundings_for",
    "trial_on",
]
