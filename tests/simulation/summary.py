"""What the worlds of one run saw, added up and printed at its end, also when several workers shared them.

Whoever hands out work to workers collects nothing, and so knows no `conftest` but the first.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

PROPERTY = "simulation"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Simulated time, crashes, stale answers, and how often each danger was met."""
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
        f"{counts['worlds']} worlds, {days:.1f} simulated days, {days / cpu:.2f} a second and core;"
        f" {counts['crash injected']} crashes, {counts['stale answer refused']} stale answers refused"
    )
    seen = sorted(name for name in counts if " " in name and name not in ("simulated hours", "cpu seconds"))
    terminalreporter.line(", ".join(f"{name} {counts[name]}" for name in seen))
