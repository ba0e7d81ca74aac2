"""Recorded answers of the five systems Timewright unites, and where it answers otherwise.

Each suite in `data/recorded` has cases: an operation, its input, what that system answers. `differences.json`
holds, for the cases where Timewright answers otherwise, its own answer and the reason.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from timewright.core.moments import format_instant, from_micros, parse_instant, to_micros
from timewright.core.run.admission import Fire, Hold, Replace
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.schedule import Schedule
from timewright.errors import InvalidInput

DATA = Path(__file__).parents[1] / "data" / "recorded"
SUITES = (
    "cool_workflow_sched",
    "cronicorn_governor",
    "cronicorn_lifecycle",
    "halo_next_run",
    "halo_timer",
    "routines",
    "seed004_enumeration",
)


class Case(NamedTuple):
    """One recorded input, the other system's answer, and Timewright's answer."""

    id: str
    title: str
    op: str
    input: dict[str, Any]
    recorded: dict[str, Any]
    expected: dict[str, Any]


@cache
def differences() -> dict[str, dict[str, Any]]:
    rows = json.loads((DATA / "differences.json").read_text(encoding="utf-8"))
    return {row["id"]: row for row in rows}


@cache
def load(suite: str) -> tuple[Case, ...]:
    found = []
    for row in json.loads((DATA / f"{suite}.json").read_text(encoding="utf-8"))["cases"]:
        ours = differences().get(row["id"], row)["expected"]
        found.append(Case(row["id"], row["title"], row["op"], row["input"], row["expected"], ours))
    return tuple(found)


def every_case(suite: str) -> pytest.MarkDecorator:
    """One test for each case of a suite, named by its id."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in load(suite)])


def check(case: Case, given: dict[str, Any], *, recorded: Any = None, expected: Any = None) -> None:
    """Assert the expected answer; a documented difference must really differ from the recorded answer."""
    assert agrees(expected or case.expected, given), given
    if case.id in differences():
        assert not agrees(recorded or case.recorded, given), "no longer a difference"


def agrees(expected: Any, answer: Any) -> bool:
    """Whether an answer matches the expectation; numbers may be bounds, an error matches any error."""
    if isinstance(expected, dict) and isinstance(answer, dict):
        return all(_part_agrees(key, value, answer) for key, value in expected.items())
    if isinstance(expected, list) and isinstance(answer, list):
        return len(expected) == len(answer) and all(map(agrees, expected, answer))
    return bool(expected == answer) and type(expected) is type(answer)


def _part_agrees(key: str, value: Any, answer: dict[str, Any]) -> bool:
    if key == "error":
        return bool(answer.get("error"))
    if key.endswith("Has"):
        return value in str(answer.get(key.removesuffix("Has"), ""))
    if key == "min_ms":
        return bool(value <= answer["delay_ms"])
    if key == "max_ms":
        return bool(answer["delay_ms"] <= value)
    if key == "between":
        return bool(value[0] <= min(answer["seen"]) <= max(answer["seen"]) <= value[1])
    return key in answer and agrees(value, answer[key])


def error_answer(error: InvalidInput) -> dict[str, Any]:
    """Return an error as an answer; it must name the field, the rule and a fix."""
    return {"error": bool(error.field and error.rule and error.fix)}


def instant(text: str | None) -> datetime | None:
    return None if text is None else parse_instant(text)


def format_ms_instant(moment: datetime | None) -> str | None:
    """Format an instant as the suites do, with three decimals."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_epoch_ms(value: float) -> datetime:
    return from_micros(round(value * 1000))


def epoch_ms(moment: datetime | None) -> int:
    return 0 if moment is None else to_micros(moment) // 1000


def build_run(
    schedule: Schedule, verdict: Fire | Hold | Replace, *, now: datetime, started: bool = True
) -> Run:
    """Build a run as admission and a lease would."""
    state = RunState.LEASED if started else RunState.READY
    return Run(
        id=f"run_{format_instant(verdict.planned_at)}",
        schedule_id=schedule.id,
        planned_at=verdict.planned_at,
        fire_at=verdict.fire_at,
        source=verdict.source,
        state=state,
        created_at=now,
        fence=1,
        lease_id="lease_1" if started else "",
        leased_at=now if started else None,
        lease_until=now + schedule.lease.length if started else None,
        started_at=now if started else None,
    )


def milliseconds(duration: timedelta) -> float:
    return duration / timedelta(milliseconds=1)
