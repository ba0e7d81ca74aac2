"""Responses of schedules, read through the operations: newest first, bodies truncated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from timewright.errors import NotFound
from timewright.operations import OperationContext, operations
from timewright.operations.text_safety import sanitize

MAX_BODY_CHARS = 1000
MAX_SIBLINGS = 20
MAX_ROWS = 100


def list_responses(
    context: OperationContext, schedule: str, *, limit: int, offset: int = 0
) -> dict[str, Any]:
    """The newest responses of a schedule: runs that started and finished, successful or not."""
    wanted = offset + limit + 1
    request = {"schedule": schedule, "limit": min(max(wanted * 2, 10), MAX_ROWS)}
    rows = [row for row in operations["run list"](context, request)["runs"] if _has_response(row)]
    shown = [found for row in rows[offset : offset + limit] for found in _response(context, row["id"])]
    more = len(rows) > offset + limit
    return {"count": len(shown), "has_more": more, "responses": shown}


def latest_response(context: OperationContext, schedule: str) -> dict[str, Any]:
    """The newest response of a schedule, if there is one."""
    found = list_responses(context, schedule, limit=1)["responses"]
    return {"found": True, **found[0]} if found else {"found": False}


def sibling_responses(context: OperationContext, schedule: str, group: str | None) -> dict[str, Any]:
    """The newest response of every other schedule of a group."""
    found = []
    for name in sibling_names(context, schedule, group):
        answer = latest_response(context, name)
        if answer["found"]:
            found.append({"schedule": name, **answer})
    return {"count": len(found), "siblings": found}


def sibling_names(context: OperationContext, schedule: str, group: str | None) -> list[str]:
    """The names of the other schedules of a group; `schedule` is a name or an id."""
    if not group:
        return []
    rows = operations["schedule list"](context, {"group": group, "limit": MAX_SIBLINGS + 1})["schedules"]
    others = [row["name"] for row in rows if schedule not in (row["name"], row["id"])]
    return others[:MAX_SIBLINGS]


def _has_response(row: Mapping[str, Any]) -> bool:
    return bool(row["finished_at"] and row["started_at"] and row["state"] != "cancelled")


def _response(context: OperationContext, run_id: str) -> Iterator[dict[str, Any]]:
    try:
        found = operations["run get"](context, {"run": run_id})
    except NotFound:
        return  # pruned between the list and the read
    if not found["attempts"]:
        return
    last = found["attempts"][-1]
    result = last["result"]
    is_http = isinstance(result, Mapping) and "body" in result and "status" in result
    yield {
        "at": found["run"]["finished_at"],
        "state": found["run"]["state"],
        "source": found["run"]["source"],
        "http_status": result["status"] if is_http else None,
        "error": sanitize(last["error"], max_chars=MAX_BODY_CHARS),
        "body": _truncate(result["body"] if is_http else result),
    }


def _truncate(body: Any) -> Any:
    """Return short data unchanged, else its truncated text."""
    text = body if isinstance(body, str) else msgspec.json.encode(body).decode()
    if isinstance(body, str) or len(text) > MAX_BODY_CHARS:
        return sanitize(text, max_chars=MAX_BODY_CHARS)
    return sanitize(body)
