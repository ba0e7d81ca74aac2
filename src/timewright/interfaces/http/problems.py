"""Errors as RFC 9457 problem responses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from timewright.core.input.encoding import to_json_value
from timewright.errors import TimewrightError, errors_by_code

MEDIA_TYPE = "application/problem+json"
MAX_VALUE_BYTES = 500

# Status by error code; other codes have the status of their parent class.
STATUS_BY_CODE: Mapping[str, int] = {
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
# Problems of the HTTP protocol, which other interfaces do not have.
PROTOCOL_PROBLEMS: Mapping[str, tuple[int, str]] = {
    "csrf": (403, "The CSRF token of a browser session is missing or invalid."),
    "internal": (500, "An internal error; see the server log."),
    "invalid_json": (400, "The body is not a JSON object or has duplicate keys."),
    "invalid_path": (400, "The path is not UTF-8."),
    "invalid_query": (400, "The query is not UTF-8, or has too many parameters."),
    "method_not_allowed": (405, "Method not allowed for this path."),
    "sign_in_refused": (401, "The sign-in provider or its answer was refused."),
    "too_large": (413, "The body is too large."),
    "too_many_headers": (431, "There are too many headers."),
    "too_many_streams": (503, "Too many event streams."),
    "too_slow": (408, "The body was not received in time."),
    "unexpected_body": (400, "This method takes no body."),
    "unknown_version": (505, "HTTP version not supported."),
    "unsupported_media_type": (415, "The body is not JSON or is compressed."),
    "uri_too_long": (414, "The path or the query is too long."),
    "wrong_host": (421, "Host not allowed."),
    "wrong_origin": (403, "Cross-origin request."),
}
_HEADERS_BY_STATUS: Mapping[int, Mapping[str, str]] = {
    401: {"www-authenticate": 'Bearer realm="timewright"'},
    429: {"retry-after": "1"},
    503: {"retry-after": "1"},
}


class HttpProblem(Exception):
    """An error of the HTTP protocol, before any operation runs; its code has the status."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 0,
        headers: Mapping[str, str] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.status = status or STATUS_BY_CODE.get(code) or PROTOCOL_PROBLEMS[code][0]
        self.code = code
        self.message = message
        self.headers = dict(headers or {})
        self.details = details


def status_of(error: type[TimewrightError]) -> int:
    """Return the status of an error class, or of its nearest parent that has one."""
    codes = (getattr(kind, "code", "") for kind in error.__mro__)
    return next(STATUS_BY_CODE[code] for code in codes if code in STATUS_BY_CODE)


def problems() -> list[dict[str, Any]]:
    """Return all problem codes with status and meaning."""
    errors = errors_by_code().items()
    found = {code: (status_of(kind), " ".join((kind.__doc__ or "").split())) for code, kind in errors}
    found = {**PROTOCOL_PROBLEMS, **found}
    return [
        {"code": code, "status": status, "means": means} for code, (status, means) in sorted(found.items())
    ]


def problem_of(error: TimewrightError | HttpProblem, *, docs: str = "/docs") -> dict[str, Any]:
    """Return an error as the members of a problem document."""
    if isinstance(error, HttpProblem):
        status, details = error.status, error.details
    else:
        status = status_of(type(error))
        details = {
            "field": error.field,
            "value": _shown_value(error.value),
            "rule": error.rule,
            "fix": error.fix,
        }
    return {
        "type": f"{docs}#{error.code}",
        "title": error.code.replace("_", " "),
        "status": status,
        "detail": error.message,
        "code": error.code,
        **{name: value for name, value in details.items() if value is not None},
    }


def problem_response(error: TimewrightError | HttpProblem, *, docs: str = "/docs") -> Response:
    """Return an error as a problem response."""
    problem = problem_of(error, docs=docs)
    extra = error.headers if isinstance(error, HttpProblem) else _retry_after(error)
    return Response(
        msgspec.json.encode(problem),
        status_code=problem["status"],
        media_type=MEDIA_TYPE,
        headers={**_HEADERS_BY_STATUS.get(problem["status"], {}), **extra},
    )


def _retry_after(error: TimewrightError) -> dict[str, str]:
    """Return the Retry-After header, if the error has a time."""
    seconds: float | None = getattr(error, "retry_after", None)
    return {"retry-after": str(max(math.ceil(seconds), 1))} if seconds is not None else {}


def internal_error() -> HttpProblem:
    """Return the problem for an unexpected error; it contains no details, which could help an attacker."""
    return HttpProblem(
        "internal",
        "internal error",
        rule="the details are in the server log",
        fix="check the server log and report the problem",
    )


def _shown_value(value: object) -> object:
    """Return the refused value, shortened and safe to show."""
    try:
        shown = to_json_value(value)
        text = msgspec.json.encode(shown)
    except (TypeError, ValueError, UnicodeError, RecursionError, OverflowError):
        return repr(value)[:MAX_VALUE_BYTES].encode("ascii", "backslashreplace").decode()
    return shown if len(text) <= MAX_VALUE_BYTES else text[:MAX_VALUE_BYTES].decode("utf-8", "ignore") + "…"
