"""What schedules answered, read through the operations: the newest first, bodies cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from timewright.errors import NotFound
from timewright.operations import Context, operations
from timewright.operations.plain_text import harmless

LONGEST_BODY = 1000
MOST_SIBLINGS = 20
MOST_ROWS = 100


def responses(context: Context, schedule: str, *, limit: int, offset: int = 0) -> dict[str, Any]:
    """The newest responses of a schedule; those that ran and answered, whatever they said."""
    wanted = offset + limit + 1
    asked = {"schedule": schedule, "limit": min(max(wanted * 2, 10), MOST_ROWS)}
    rows = [row for row in operations["run list"](context, asked)["runs"] if _answered(row)]
    shown = [found for row in rows[offset : offset + limit] for found in _response(context, row["id"])]
    more = len(rows) > offset + limit
    return {"count": len(shown), "has_more": more, "responses": shown}


def latest(context: Context, schedule: str) -> dict[str, Any]:
    """The newest response of a schedule, if there is one."""
    found = responses(context, schedule, limit=1)["responses"]
    return {"found": True, **found[0]} if found else {"found": False}


def siblings(context: Context, schedule: str, group: str | None) -> dict[str, Any]:
    """The newest response of every other schedule of a group."""
    found = []
    for name in sibling_names(context, schedule, group):
        answer = latest(context, name)
        if answer["found"]:
            found.append({"schedule": name, **answer})
    return {"count": len(found), "siblings": found}


def sibling_names(context: Context, schedule: str, group: str | None) -> list[str]:
    """The names of the other schedules of a group."""
    if not group:
        return []
    rows = operations["schedule list"](context, {"group": group, "limit": MOST_SIBLINGS + 1})["schedules"]
    return [row["name"] for row in rows if row["name"] != schedule][:MOST_SIBLINGS]


def _answered(row: Mapping[str, Any]) -> bool:
    return bool(row["finished_at"] and row["started_at"] and row["state"] != "cancelled")


def _response(context: Context, run_id: str) -> Iterator[dict[str, Any]]:
    try:
        found = operations["run get"](context, {"run": run_id})
    except NotFound:
        return  # it was forgotten between the list and the look
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
        "error": harmless(last["error"], longest=LONGEST_BODY),
        "body": _cut(result["body"] if is_http else result),
    }


def _cut(body: Any) -> Any:
    """Data as it is while it is short; else its text, cut."""
    text = body if isinstance(body, str) else msgspec.json.encode(body).decode()
    if isinstance(body, str) or len(text) > LONGEST_BODY:
        return harmless(text, longest=LONGEST_BODY)
    return harmless(body)
