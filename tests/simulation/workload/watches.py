"""Worlds with schedules that watch a value, and whether each change of it was reported exactly once."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from tests.simulation.model.simulation import Simulation
from tests.simulation.model.work import WATCHING_PREFIX
from tests.simulation.workload.scenarios import Scenario, draw_scenario
from timewright.verification.checker import Violation

_ANSWERS = """
SELECT r.schedule_id, r.state, r.outcome_label, a.result, a.ended_at
FROM runs r JOIN attempts a ON a.run_id = r.id JOIN schedules s ON s.id = r.schedule_id
WHERE s.name LIKE 'watch%' AND a.outcome = 'succeeded' ORDER BY r.id
"""
_SEEN = "SELECT name, body FROM objects WHERE kind = 'schedule_state'"
PATH = "result.version"
WATCHES = 2
HOURS = 0.1


def draw_watches(seed: int) -> Scenario:
    """Six minutes of two instances, many faults, and two schedules that watch: many small worlds cover more
    than few large ones in the same time.

    The leases are short, so that answers of lost leases still see what the next lease of the run sees.
    """
    base = draw_scenario(seed, hours=HOURS, size="dense", dependencies=False)
    common = {"call": "look", "watch": {"changed": PATH}, "lease": {"length": "5s", "grace": "1s"}}
    draft: dict[str, Any] = {"every": "20s", **common}
    if seed % 2:
        draft["retry"] = {"max_attempts": 3}
    watches = tuple(
        ("default", {**draft, "name": f"{WATCHING_PREFIX}-{number}"}) for number in range(WATCHES)
    )
    parts: dict[str, Any] = {"queues": (), "limits": (), "functions": (), "workers": 0, "holders": 0}
    return replace(base, schedules=watches, keep_history=None, **parts)


def find_wrong_changes(sim: Simulation) -> list[Violation]:
    """Changes that were reported twice or not at all, from the answers that are recorded.

    Versions only rise, so an answer is old if a newer version was reported before it ended.
    """
    reported: dict[str, list[int]] = {}
    quiet: dict[str, set[int]] = {}
    reports: dict[str, list[tuple[int, int]]] = {}
    unreported: list[tuple[str, int, int]] = []
    for schedule, state, label, result, ended in sim.backend.query(_ANSWERS):
        version = json.loads(result)["version"]
        if state == "succeeded" and label != "noop":
            reported.setdefault(schedule, []).append(version)
            reports.setdefault(schedule, []).append((version, ended))
            sim.count("watch reported a change")
        else:
            unreported.append((schedule, version, ended))
    for schedule, version, ended in unreported:
        if not any(newer > version and at <= ended for newer, at in reports.get(schedule, ())):
            quiet.setdefault(schedule, set()).add(version)
    for schedule, body in sim.backend.query(_SEEN):
        quiet.setdefault(schedule, set()).add(json.loads(body)["seen"][PATH])
    found = []
    for schedule, versions in reported.items():
        if len(set(versions)) < len(versions):
            found.append((schedule, f"a change was reported twice: {versions}"))
    for schedule, quietly in quiet.items():
        first = min([*quietly, *reported.get(schedule, [])])
        lost = quietly - set(reported.get(schedule, [])) - {first}
        if lost:
            found.append((schedule, f"the changes to {sorted(lost)} were never reported"))
    return [
        Violation(invariant="I56", message=f"{schedule}: {what}", rows=({"schedule_id": schedule},))
        for schedule, what in found
    ]
