"""Refusals as RFC 9457 problems: one mapping from the tree of errors to a status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from timewright.core.encoding import plain
from timewright.errors import TimewrightError

MEDIA_TYPE = "application/problem+json"
LONGEST_VALUE = 500

# By code; what is not here takes the status of its parent in the tree.
STATUS: Mapping[str, int] = {
    "invalid_input": 422,
    "not_found": 404,
    "conflict": 409,
    "not_allowed": 409,
    "stale": 409,
    "unauthorized": 401,
    "forbidden": 403,
    "over_quota": 429,
    "missing_extra": 501,
    "store_error": 503,
    "store_full": 507,
    "error": 500,
}
# Refusals of the protocol itself, which no other door has.
OF_THE_PROTOCOL: Mapping[str, tuple[int, str]] = {
    "csrf": (403, "A browser's write does not show the token of its session."),
    "internal": (500, "A fault of ours; the log of the server says more."),
    "invalid_json": (400, "The body is not one JSON object, or has a key twice."),
    "invalid_path": (400, "The path is not UTF-8."),
    "invalid_query": (400, "The query is not UTF-8, or has too many parameters."),
    "method_not_allowed": (405, "The path is there, and is asked by other methods."),
    "too_large": (413, "The body is too large."),
    "too_many_headers": (431, "There are too many headers."),
    "too_many_streams": (503, "Too many listen already."),
    "too_slow": (408, "The body did not come in time."),
    "unexpected_body": (400, "A question has no body; it stands in the query."),
    "unknown_version": (505, "A version of HTTP that is not spoken here."),
    "unsupported_media_type": (415, "The body is not JSON, or it is compressed."),
    "uri_too_long": (414, "The path or the query is too long."),
    "wrong_host": (421, "A host name that this server does not answer to."),
    "wrong_origin": (403, "A page from elsewhere may not ask."),
}
_BESIDE: Mapping[int, Mapping[str, str]] = {
    401: {"www-authenticate": 'Bearer realm="timewright"'},
    429: {"retry-after": "1"},
    503: {"retry-after": "1"},
}


class Refused(Exception):
    """A refusal of the protocol itself, before any operation is asked."""

    def __init__(
        self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None, **said: Any
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})
        self.said = said


def status_of(error: type[TimewrightError]) -> int:
    """The status of a kind of error, or of the nearest of its ancestors that has one."""
    codes = (getattr(kind, "code", "") for kind in error.__mro__)
    return next(STATUS[code] for code in codes if code in STATUS)


def problems() -> list[dict[str, Any]]:
    """Every code that a problem may have, with its status and what it means."""
    found: dict[str, tuple[int, str]] = dict(OF_THE_PROTOCOL)
    pending: list[type[TimewrightError]] = [TimewrightError]
    while pending:
        kind = pending.pop()
        found[kind.code] = (status_of(kind), " ".join((kind.__doc__ or "").split()))
        pending += kind.__subclasses__()
    return [
        {"code": code, "status": status, "means": means} for code, (status, means) in sorted(found.items())
    ]


def problem_of(error: TimewrightError | Refused, *, docs: str = "/docs") -> dict[str, Any]:
    """A refusal as data: what every door says of it, in the members that HTTP has for it."""
    if isinstance(error, Refused):
        status, said = error.status, error.said
    else:
        status = status_of(type(error))
        said = {"field": error.field, "value": _value(error.value), "rule": error.rule, "fix": error.fix}
    return {
        "type": f"{docs}#{error.code}",
        "title": error.code.replace("_", " "),
        "status": status,
        "detail": error.message,
        "code": error.code,
        **{name: value for name, value in said.items() if value is not None},
    }


def problem_response(error: TimewrightError | Refused, *, docs: str = "/docs") -> Response:
    """The same as an answer."""
    problem = problem_of(error, docs=docs)
    more = error.headers if isinstance(error, Refused) else _later(error)
    return Response(
        msgspec.json.encode(problem),
        status_code=problem["status"],
        media_type=MEDIA_TYPE,
        headers={**_BESIDE.get(problem["status"], {}), **more},
    )


def _later(error: TimewrightError) -> dict[str, str]:
    """When to come again, where the error knows."""
    seconds: float | None = getattr(error, "retry_after", None)
    return {"retry-after": str(max(math.ceil(seconds), 1))} if seconds is not None else {}


def internal() -> Refused:
    """What is said of a fault of ours: nothing that helps an attacker, and where to look."""
    return Refused(
        500,
        "internal",
        "something is wrong inside timewright",
        rule="what happened is written in the log of the server",
        fix="look there, and tell us",
    )


def _value(value: object) -> object:
    """The value that was refused, if it is short and can be shown."""
    try:
        shown = plain(value)
        text = msgspec.json.encode(shown)
    except (TypeError, ValueError, UnicodeError, RecursionError, OverflowError):
        return repr(value)[:LONGEST_VALUE].encode("ascii", "backslashreplace").decode()
    return shown if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE].decode("utf-8", "ignore") + "…"
