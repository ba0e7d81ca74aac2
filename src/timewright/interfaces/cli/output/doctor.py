"""Prints the findings of `doctor`, and checks a store for pending migrations without opening it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timewright.interfaces.cli.output.errors import EXIT_PENDING
from timewright.interfaces.cli.output.table import Screen, wrap
from timewright.interfaces.cli.session import Session, inspect_store, store_path
from timewright.interfaces.program import with_program

JsonObject = Mapping[str, Any]

EXIT_FAILED = 1


def findings_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return a line per finding, with its remedy."""
    lines: list[str] = []
    for one in answer["findings"]:
        remedy = f"   fix: {with_program(one['remedy'])}" if one["remedy"] else ""
        lines += wrap(screen, f"{one['severity']:<4}  {one['sentence']}{remedy}")
    return lines or ["ok    nothing was found"]


def exit_code_for(operation: str, answer: JsonObject) -> int:
    """Return 1 if a check, a verification, the audit chain or a target test fails, 3 for differences."""
    if operation in ("doctor", "lint"):
        return EXIT_FAILED if answer["severity"] == "fail" else 0
    if operation == "verify":
        return 0 if answer["holds"] else EXIT_FAILED
    if operation == "audit verify":
        return 0 if answer["intact"] else EXIT_FAILED
    if operation == "schedule test" and answer["tried"]:
        return 0 if answer["outcome"]["kind"] == "succeeded" else EXIT_FAILED
    if operation in ("plan", "diff"):
        return EXIT_PENDING if answer["changed"] else 0
    return 0


def pending_migrations(session: Session) -> dict[str, Any] | None:
    """Return a finding if migrations are pending; checked without opening, which would apply them."""
    if session.given.get("server"):
        return None
    path = store_path(session.store_url)
    if path is not None and not path.exists():
        return None
    info = inspect_store(session.store_url)
    if not info.exists or not info.pending_migrations:
        return None
    finding = {
        "kind": "schema",
        "severity": "fail",
        "sentence": f"{info.engine}: the schema lacks migrations: {', '.join(info.pending_migrations)}",
        "remedy": "timewright backup FILE, then timewright migrate",
    }
    return {"severity": "fail", "findings": [finding]}
