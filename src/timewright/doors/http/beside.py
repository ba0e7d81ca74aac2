"""What stands beside an answer: the revision of the thing it shows, and where the next page is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from timewright.doors.http.asked import split_query
from timewright.doors.http.visits import Visit
from timewright.operations import operations

# What stands in a query as it would be written by ourselves; what is escaped in it stays so.
_PLAIN = re.compile(r"[A-Za-z0-9._~=&%+-]*")


def headers_for(visit: Visit, answer: Mapping[str, Any], noun: str) -> dict[str, str]:
    """ETag and Link of an answer about things of a kind."""
    headers: dict[str, str] = {}
    revision = revision_in(answer, noun) if noun in versioned() else None
    if revision is not None:
        headers["etag"] = f'"{revision}"'
    if answer.get("cursor"):
        headers["link"] = f'<{_next(visit, str(answer["cursor"]))}>; rel="next"'
    return headers


@cache
def versioned() -> frozenset[str]:
    """The nouns whose things have revisions that a write may name."""
    return frozenset(one.noun for one in operations if "revision" in one.request.__struct_fields__)


def revision_in(answer: Mapping[str, Any], noun: str) -> int | None:
    """The revision of the thing that an answer shows."""
    for part in (answer, answer.get("kept")):
        revision = _in(_in(part, noun), "revision")
        if isinstance(revision, int):
            return revision
    return None


def _in(part: object, name: str) -> object:
    """What a part of an answer has under a name, whether it is spelled already or not."""
    return part.get(name) if isinstance(part, Mapping) else getattr(part, name, None)


def _next(visit: Visit, cursor: str) -> str:
    path = "/".join(quote(part, safe="") for part in visit.segments)
    if _PLAIN.fullmatch(visit.query) and "cursor" not in visit.query:
        said = f"{visit.query}&" if visit.query else ""
        return f"{visit.root}/{path}?{said}cursor={quote(cursor, safe='')}"
    pairs = [(name, value) for name, value in split_query(visit.query) if name != "cursor"]
    return f"{visit.root}/{path}?{urlencode([*pairs, ('cursor', cursor)])}"
