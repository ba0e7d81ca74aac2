"""Response headers: ETag with the revision, and Link with the next page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from timewright.interfaces.http.requests.http_request import HttpRequest
from timewright.interfaces.http.requests.parsing import split_query
from timewright.operations import operations

# A query that can be copied into a link as it is.
_SAFE_QUERY = re.compile(r"[A-Za-z0-9._~=&%+-]*")


def response_headers(request: HttpRequest, answer: Mapping[str, Any], noun: str) -> dict[str, str]:
    """Return ETag and Link of an answer about objects of a noun."""
    headers: dict[str, str] = {}
    revision = revision_of(answer, noun) if noun in versioned_nouns() else None
    if revision is not None:
        headers["etag"] = f'"{revision}"'
    if answer.get("cursor"):
        headers["link"] = f'<{_next_page(request, str(answer["cursor"]))}>; rel="next"'
    return headers


@cache
def versioned_nouns() -> frozenset[str]:
    """Return the nouns that have revisions which a write can require."""
    return frozenset(one.noun for one in operations if "revision" in one.request_type.__struct_fields__)


def revision_of(answer: Mapping[str, Any], noun: str) -> int | None:
    """Return the revision of the object in an answer."""
    for part in (answer, answer.get("detail")):
        revision = _field(_field(part, noun), "revision")
        if isinstance(revision, int):
            return revision
    return None


def _field(part: object, name: str) -> object:
    """Return a field of an answer that may be encoded already."""
    return part.get(name) if isinstance(part, Mapping) else getattr(part, name, None)


def _next_page(request: HttpRequest, cursor: str) -> str:
    path = "/".join(quote(part, safe="") for part in request.segments)
    if _SAFE_QUERY.fullmatch(request.query) and "cursor" not in request.query:
        before = f"{request.query}&" if request.query else ""
        return f"{request.root_path}/{path}?{before}cursor={quote(cursor, safe='')}"
    pairs = [(name, value) for name, value in split_query(request.query) if name != "cursor"]
    return f"{request.root_path}/{path}?{urlencode([*pairs, ('cursor', cursor)])}"
