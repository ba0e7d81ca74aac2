"""Test kit: a manual clock, a bench that runs an instance step by step, scripted targets, a real server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timewright.testing.bench import Bench
    from timewright.testing.clock import ManualClock
    from timewright.testing.targets import fail, hang, succeed, vanish

# Imported on first use, because pytest imports this package at every start for the fixtures of the plugin.
_LATER = {
    "Bench": "timewright.testing.bench",
    "ManualClock": "timewright.testing.clock",
    "fail": "timewright.testing.targets",
    "hang": "timewright.testing.targets",
    "succeed": "timewright.testing.targets",
    "vanish": "timewright.testing.targets",
}

__all__ = ["Bench", "ManualClock", "fail", "hang", "succeed", "vanish"]


def __getattr__(name: str) -> Any:
    """Import the names of the test kit on first use."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'timewright.testing' has no attribute {name!r}")
