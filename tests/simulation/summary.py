"""Sum up the simulations of a test run and print the totals, also with several pytest workers.

The pytest-xdist controller collects no tests, so it loads only the top-level `conftest`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

PROPERTY = "simulation"


def print_simulations(terminalreporter: Any) -> None:
    """Print simulated time, crashes, stale results, and how often each event happened."""
    counts: Counter[str] = Counter()
    for report in [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]:
        for name, value in getattr(report, "user_properties", ()):
            if name == PROPERTY:
                counts.update(msgspec.json.decode(value))
    if not counts:
        return
    days, cpu = counts["simulated hours"] / 24, counts["cpu seconds"]
    terminalreporter.section("simulation")
    terminalreporter.line(
        f"{counts['simulations']} simulations, {days:.1f} simulated days, {days / cpu:.2f} a second and core;"
        f" {counts['crash injected']} crashes, {counts['stale result refused']} stale results refused"
    )
    events = sorted(name for name in counts if " " in name and name not in ("simulated hours", "cpu seconds"))
    terminalreporter.line(", ".join(f"{name} {counts[name]}" for name in events))
