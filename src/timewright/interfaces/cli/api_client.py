"""The client of the HTTP API: calls operations on a server and raises its problems as errors."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from msgspec import inspect as mi

from timewright.clocks import SystemClock
from timewright.core.input.encoding import to_json_value
from timewright.errors import InvalidInput, NotAllowed, StoreUnavailable, TimewrightError, errors_by_code
from timewright.interfaces.http.routing import NO_SUBJECT, Route, routes_of
from timewright.operations import Operation, operations
from timewright.operations.request_parsing import parse_request
from timewright.ports import Transaction

T = TypeVar("T")

TIMEOUT_S = 60.0
MAX_RESPONSE_BYTES = 64 * 1024 * 1024


class ApiClient:
    """Calls one server; one request per connection."""

    def __init__(
        self,
        url: str,
        *,
        key: str,
        namespace: str | None = None,
        system_zone: str = "",
        file_zone: str = "",
        origin: str = "",
    ) -> None:
        split = urlsplit(url)
        if split.scheme not in ("http", "https") or not split.hostname or split.query or split.username:
            raise InvalidInput(
                f"{url[:255]!r} is not a server URL",
                field="server",
                value=url[:255],
                rule="http:// or https://, a host and a port",
                fix="http://127.0.0.1:7411",
            )
        self.url = url.rstrip("/")
        self._key = key
        self._namespace = namespace
        self._about_us = {
            "timewright-system-zone": system_zone,
            "timewright-file-zone": file_zone,
            "timewright-origin": origin,
        }
        self._secure = split.scheme == "https"
        self._authority = split.netloc
        self._prefix = split.path.rstrip("/")

    def call(self, name: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Call an operation by its name."""
        operation = operations[name]
        fields: dict[str, Any] = to_json_value(payload)
        route = _route_for(list(routes_of(operation)), fields)
        if route.subject and not route.subject_optional and not _fits_into_path(fields.get(route.subject)):
            # Raise the same error as a local call, because the value has no place in a path.
            parse_request(payload, operation.request_type)
        path, body = _encode(route, fields)
        answer = self.send(route.method, path, body)
        check_answer(operation, answer, url=self.url)
        return answer

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one request and return its JSON; a problem response is raised as its error."""
        headers = {"authorization": f"Bearer {self._key}", "accept": "application/json"}
        headers |= {name: text for name, text in self._about_us.items() if text}
        if self._namespace is not None:
            headers["timewright-namespace"] = self._namespace
        if body is not None:
            headers["content-type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(
                method, self._prefix + path, json.dumps(body) if body is not None else None, headers
            )
            response = connection.getresponse()
            data = json.loads(response.read(MAX_RESPONSE_BYTES) or b"{}")
        except UnicodeDecodeError:
            raise self.unexpected_answer("it is not JSON") from None
        except (json.JSONDecodeError, RecursionError) as error:
            raise self.unexpected_answer(f"it is not JSON: {error}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()
        if not isinstance(data, dict):
            raise self.unexpected_answer("it is not an object")
        if response.status >= 400:
            raise self._error_in(data)
        return data

    def unexpected_answer(self, why: str) -> StoreUnavailable:
        """Return the error for a server that answers, but not as Timewright does."""
        return _unexpected_answer(self.url, why)

    def _error_in(self, problem: Mapping[str, Any]) -> TimewrightError:
        """Return the error of a problem; an unknown code becomes `TimewrightError`."""
        if "code" not in problem:
            return self.unexpected_answer("it is not a problem document")
        kind = errors_by_code().get(str(problem["code"]), TimewrightError)
        details = {name: problem.get(name) for name in ("field", "rule", "fix")}
        return kind(str(problem.get("detail", "")), value=problem.get("value"), **details)

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._authority, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(self._authority, timeout=TIMEOUT_S)

    def _unreachable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"cannot reach the server at {self.url}: {error}",
            field="server",
            value=self.url,
            rule="a running server at this address",
            fix="start it with timewright up, or omit --server to use the store directly",
        )


class NoLocalStore:
    """A placeholder for the store when the operations run on a server."""

    def now(self) -> datetime:
        """Return the time of this machine."""
        return SystemClock().now()

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        """Not available."""
        raise _no_store()

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Not available."""
        raise _no_store()

    def close(self) -> None:
        """Do nothing: no store was opened."""


def _route_for(routes: list[Route], fields: Mapping[str, Any]) -> Route:
    """Return a route whose path can be filled; one with a body if a field is structured."""
    fit = [
        one for one in routes if not one.subject or one.subject_optional or one.subject in fields
    ] or routes
    has_json = any(isinstance(value, dict | list) for value in fields.values())
    return next((one for one in fit if one.input_from == "body"), fit[0]) if has_json else fit[0]


def _encode(route: Route, fields: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    rest = {name: value for name, value in fields.items() if name != route.subject}
    named = fields.get(route.subject)
    subject = quote(named, safe="") if isinstance(named, str) and named else NO_SUBJECT
    path = "/" + "/".join(subject if part.startswith("{") else part for part in route.path)
    if route.input_from == "body":
        return path, rest
    return (f"{path}?{urlencode(list(_pairs(rest)))}" if rest else path), None


def _pairs(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            yield from ((name, one) for one in value)
        else:
            yield name, value if isinstance(value, str) else json.dumps(value)


def _fits_into_path(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def check_answer(operation: Operation[Any], answer: Any, *, url: str) -> None:
    """Raise if a server's answer lacks a field of the operation's answer type, or has another shape there."""
    fault = _fault(answer, mi.type_info(operation.answer_type), "")
    if fault:
        raise _unexpected_answer(url, fault)


def _fault(value: Any, info: mi.Type, path: str) -> str:
    """Describe the first place where a JSON value does not fit a type; values without fields may be any."""
    where = path or "it"
    if isinstance(info, mi.UnionType):
        kinds = [kind for kind in info.types if not isinstance(kind, mi.NoneType)]
        if value is None or len(kinds) > 1:
            return "" if value is not None or info.includes_none else f"{where} is null"
        return _fault(value, kinds[0], path)
    if isinstance(info, mi.StructType):
        if not isinstance(value, dict):
            return f"{where} is not an object"
        return next(filter(None, (_field_fault(value, field, path) for field in info.fields)), "")
    if isinstance(info, mi.VarTupleType):
        if not isinstance(value, list):
            return f"{where} is not a list"
        return next(filter(None, (_fault(one, info.item_type, f"{path}[]") for one in value)), "")
    is_scalar = not isinstance(value, dict | list)
    return "" if is_scalar or isinstance(info, mi.DictType | mi.AnyType) else f"{where} is not a single value"


def _field_fault(value: Mapping[str, Any], field: mi.Field, path: str) -> str:
    name = f"{path}.{field.encode_name}".removeprefix(".")
    if field.encode_name not in value:
        return f"{name} is missing"
    return _fault(value[field.encode_name], field.type, name)


def _unexpected_answer(url: str, why: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the server at {url} did not answer as Timewright does: {why}",
        field="server",
        value=url,
        rule="the URL of a Timewright server of this version",
        fix="check the URL and the server's version, or omit --server to use the store directly",
    )


def _no_store() -> NotAllowed:
    return NotAllowed(
        "this command needs direct access to the store",
        field="server",
        rule="run it on the machine that has the store",
        fix="use --store there instead of --server",
    )
