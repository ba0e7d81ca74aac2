"""Print how many stories were compared, also with several pytest workers."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

PROPERTY = "oracle"


def print_counts(terminalreporter: Any) -> None:
    """Print the totals of the story and protocol tests of a run."""
    counts: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in getattr(report, "user_properties", ()):
            if name == PROPERTY:
                counts.update(json.loads(value))
    if counts:
        terminalreporter.section("oracle")
        terminalreporter.line(", ".join(f"{name} {counts[name]}" for name in sorted(counts)))
