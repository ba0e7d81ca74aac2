"""The other side of the door: an operation asked of a server, with the answers and refusals it has here."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from timewright.clocks import SystemClock
from timewright.core.encoding import plain
from timewright.doors.http.places import NOBODY, Place, places_of
from timewright.errors import InvalidInput, NotAllowed, StoreUnavailable, TimewrightError
from timewright.operations import operations
from timewright.operations.reading import read_request
from timewright.ports import Transaction

T = TypeVar("T")

SECONDS = 60.0
LARGEST_ANSWER = 64 * 1024 * 1024


class Client:
    """A server, asked one thing at a time."""

    def __init__(self, url: str, *, key: str, namespace: str | None = None) -> None:
        split = urlsplit(url)
        if split.scheme not in ("http", "https") or not split.hostname or split.query or split.username:
            raise InvalidInput(
                f"{url[:255]!r} is not the address of a server",
                field="server",
                value=url[:255],
                rule="http:// or https://, a host and a port",
                fix="http://127.0.0.1:7411",
            )
        self.url = url.rstrip("/")
        self._key = key
        self._namespace = namespace
        self._secure = split.scheme == "https"
        self._authority = split.netloc
        self._prefix = split.path.rstrip("/")

    def ask(self, name: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for an operation by its name."""
        operation = operations[name]
        asked: dict[str, Any] = plain(payload)
        place = _place_for(list(places_of(operation)), asked)
        if place.subject and not place.leaves_out and not _can_stand(asked.get(place.subject)):
            # What cannot stand in a path is refused as it would be here.
            read_request(payload, operation.request)
        path, body = _spelled(place, asked)
        return self.send(place.method, path, body)

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one request; a problem is raised as the error it stands for."""
        headers = {"authorization": f"Bearer {self._key}", "accept": "application/json"}
        if self._namespace is not None:
            headers["timewright-namespace"] = self._namespace
        if body is not None:
            headers["content-type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(
                method, self._prefix + path, json.dumps(body) if body is not None else None, headers
            )
            answer = connection.getresponse()
            data = json.loads(answer.read(LARGEST_ANSWER) or b"{}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._away(error) from None
        finally:
            connection.close()
        if answer.status >= 400:
            raise _error_in(data)
        found: dict[str, Any] = data
        return found

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._authority, timeout=SECONDS, context=context)
        return http.client.HTTPConnection(self._authority, timeout=SECONDS)

    def _away(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"no server answers at {self.url}: {error}",
            field="server",
            value=self.url,
            rule="a server that runs, at this address",
            fix="timewright up, or without --server to ask the store itself",
        )


class Elsewhere:
    """Stands where a store would be, when a server has it."""

    def now(self) -> datetime:
        """The clock of this machine."""
        return SystemClock().now()

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Nothing is written here."""
        raise _not_here()

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Nothing is read here."""
        raise _not_here()

    def close(self) -> None:
        """Nothing was opened."""


def _place_for(places: list[Place], asked: Mapping[str, Any]) -> Place:
    """One whose path can be said; with a body if the request holds more than words and numbers."""
    fit = [one for one in places if not one.subject or one.leaves_out or one.subject in asked] or places
    holds = any(isinstance(value, dict | list) for value in asked.values())
    return next((one for one in fit if one.takes == "body"), fit[0]) if holds else fit[0]


def _spelled(place: Place, asked: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    rest = {name: value for name, value in asked.items() if name != place.subject}
    named = asked.get(place.subject)
    subject = quote(named, safe="") if isinstance(named, str) and named else NOBODY
    path = "/" + "/".join(subject if part.startswith("{") else part for part in place.path)
    if place.takes == "body":
        return path, rest
    return (f"{path}?{urlencode(list(_pairs(rest)))}" if rest else path), None


def _pairs(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            yield from ((name, one) for one in value)
        else:
            yield name, value if isinstance(value, str) else json.dumps(value)


def _can_stand(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _error_in(problem: Any) -> TimewrightError:
    """The error that a problem stands for; of one we do not know, what it says."""
    if not isinstance(problem, Mapping) or "code" not in problem:
        return StoreUnavailable("the server answers, and it is not Timewright", field="server")
    kind = _kinds().get(str(problem["code"]), TimewrightError)
    said = {name: problem.get(name) for name in ("field", "rule", "fix")}
    return kind(str(problem.get("detail", "")), value=problem.get("value"), **said)


@cache
def _kinds() -> dict[str, type[TimewrightError]]:
    found: dict[str, type[TimewrightError]] = {}
    pending: list[type[TimewrightError]] = [TimewrightError]
    while pending:
        kind = pending.pop()
        found[kind.code] = kind
        pending += kind.__subclasses__()
    return found


def _not_here() -> NotAllowed:
    return NotAllowed(
        "the store is a server's",
        field="server",
        rule="what looks into the store itself is done where the store is",
        fix="the same with --store, on that machine",
    )
