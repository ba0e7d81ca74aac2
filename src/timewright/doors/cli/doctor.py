"""The doctor's findings in lines, and what can be told of a store before anyone opens it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timewright.doors.cli.session import Session, file_of, look
from timewright.doors.cli.table import Screen, paragraph

Plain = Mapping[str, Any]

FAILED = 1


def findings_page(answer: Plain, screen: Screen) -> list[str]:
    """A line for each finding, the remedy behind it where there is one."""
    lines: list[str] = []
    for one in answer["findings"]:
        fix = f"   fix: {one['fix']}" if one["fix"] else ""
        lines += paragraph(screen, f"{one['status']:<4}  {one['says']}{fix}")
    return lines


def exit_code_for(operation: str, answer: Plain) -> int:
    """1 when a check or a trial fails, so that a script notices."""
    if operation == "doctor":
        return FAILED if answer["status"] == "fail" else 0
    if operation == "verify":
        return 0 if answer["holds"] else FAILED
    if operation == "schedule test" and answer["tried"]:
        return 0 if answer["outcome"]["kind"] == "succeeded" else FAILED
    return 0


def seen_from_outside(session: Session) -> dict[str, Any] | None:
    """What is wrong with a store that must not be opened to say so, for opening it would mend it."""
    if session.given.get("server"):
        return None
    path = file_of(session.place)
    if path is not None and not path.exists():
        return None
    outside = look(session.place)
    if not outside.exists or not outside.waiting:
        return None
    finding = {
        "check": "schema",
        "status": "fail",
        "says": f"{outside.engine}: the schema lacks {', '.join(outside.waiting)}",
        "fix": "timewright backup FILE, then timewright migrate",
    }
    return {"status": "fail", "findings": [finding]}
