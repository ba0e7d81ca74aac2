"""Builds HTTP requests: validation, identity headers, secrets, and redirects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urljoin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.input.input_errors import input_error
from timewright.core.moments import format_instant
from timewright.core.run.run import Failed
from timewright.core.target import SECRET_PREFIX, Http
from timewright.errors import InvalidInput
from timewright.ports import Launch
from timewright.targets.http.connector import RequestFailed
from timewright.targets.http.egress import EgressPolicy, Url, parse_ip, parse_url
from timewright.targets.secret_references import (
    RevealedSecrets,
    find_references,
    parse_reference,
)

MAX_HEADERS = 100
MAX_HEADER_NAME_CHARS = 256
MAX_HEADER_VALUE_CHARS = 8192
MAX_HEADERS_CHARS = 32_768
MAX_BODY_BYTES = 1_048_576

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?|")
_NO_BODY = frozenset({"GET", "HEAD"})
# Set by Timewright, or specific to the connection.
_RESERVED_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# The only headers sent to another origin, because any other may hold a secret.
_SHAREABLE_HEADERS = frozenset({"accept", "accept-encoding", "content-type", "user-agent"})
_TO_GET = frozenset({301, 302, 303})
REDIRECT_STATUSES = _TO_GET | {307, 308}


# Returns the signature headers of a body; empty without a signing key.
BodySigner = Callable[[bytes], Mapping[str, str]]


class PreparedRequest(Struct, frozen=True, kw_only=True):
    """A validated request; secrets are still references."""

    url: Url
    method: str
    headers: dict[str, str]
    body: bytes | None
    body_value: Any = None
    signing_secret: str | None

    @property
    def secrets(self) -> frozenset[str]:
        """The names of all secrets that the request needs."""
        named = (
            find_references(self.headers)
            | find_references(self.body_value)
            | set(_secrets_in_query(self.url.path))
        )
        return named | {self.signing_secret} if self.signing_secret else named

    def with_secrets(self, revealed: RevealedSecrets) -> tuple[Url, bytes | None]:
        """The URL and the body with secret values filled in."""
        url = replace(self.url, path=_fill_query(self.url.path, revealed))
        body = (
            _encode_body(revealed.fill_data(self.body_value))
            if find_references(self.body_value)
            else self.body
        )
        return url, body


class RequestHop(Struct, frozen=True, kw_only=True):
    """One request to send. `shareable_headers` may be sent to another origin after a redirect.

    A body with a secret is never sent to another origin.
    """

    url: Url
    method: str
    headers: dict[str, str]
    shareable_headers: dict[str, str]
    body: bytes | None
    has_secret_body: bool = False


class Redirect(Struct, frozen=True):
    """A redirect response."""

    status: int
    location: str


def check_http(target: Http, *, egress: EgressPolicy | None = None) -> None:
    """Validate a target when its schedule is written."""
    url = prepare_request(target).url
    if egress is not None and parse_ip(url.host) is not None and not egress.allows(url.host, to=url):
        raise input_error(
            "target.url",
            url.text,
            "is blocked by the egress policy",
            rule=egress.refusal_message([url.host], to=url),
            fix="a public address, or an entry in egress.allow",
        )


def add_payload(target: Http, payload: Any) -> Http:
    """The request of a manual run: its payload is the body; two JSON objects become one.

    A payload may not name secrets: who may run a schedule does not choose what is sent with its rights.
    """
    if payload is None:
        return target
    if target.method in _NO_BODY:
        rule = f"the payload is the body, and a {target.method} request has none"
        raise input_error("payload", payload, f"cannot be sent with {target.method}", rule=rule, fix="POST")
    if find_references(payload):
        rule = "secrets belong to the schedule, not to the payload of a run"
        raise input_error("payload", payload, "refers to a secret", rule=rule, fix="body: in the schedule")
    if isinstance(payload, dict) and isinstance(target.body, dict):
        payload = target.body | payload
    return replace(target, body=payload)


def prepare_request(target: Http) -> PreparedRequest:
    """Validate a target and build its request."""
    url = parse_url(target.url)
    if target.body is not None and target.method in _NO_BODY:
        rule = f"a {target.method} request has no body"
        raise input_error(
            "target.body", target.body, f"is not allowed with {target.method}", rule=rule, fix="POST"
        )
    _check_headers(target.headers)
    body = _encode_body(target.body)
    headers = dict(target.headers)
    if body is not None and "content-type" not in map(str.lower, headers):
        is_text = isinstance(target.body, str)
        headers["Content-Type"] = "text/plain; charset=utf-8" if is_text else "application/json"
    return PreparedRequest(
        url=url,
        method=target.method,
        headers=headers,
        body=body,
        body_value=target.body,
        signing_secret=_signing_secret(target.sign_with),
    )


def first_hop(
    prepared: PreparedRequest, launch: Launch, *, revealed: RevealedSecrets, agent: str, sign: BodySigner
) -> RequestHop:
    """The first request, with default headers, identity headers and signature."""
    defaults = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": agent}
    given = {name.lower() for name in prepared.headers}
    default_headers = {name: value for name, value in defaults.items() if name.lower() not in given}
    headers = {**default_headers, **{name: revealed.fill(value) for name, value in prepared.headers.items()}}
    plain = {name: value for name, value in prepared.headers.items() if parse_reference(value) is None}
    shared = {name: value for name, value in plain.items() if name.lower() in _SHAREABLE_HEADERS}
    url, body = prepared.with_secrets(revealed)
    return RequestHop(
        url=url,
        method=prepared.method,
        headers={**headers, **_identity_headers(launch), **sign(body or b"")},
        shareable_headers={**default_headers, **shared},
        body=body,
        has_secret_body=body != prepared.body,
    )


def next_hop(hop: RequestHop, redirect: Redirect, *, sign: BodySigner) -> RequestHop:
    """The request that follows a redirect. Another origin gets shareable headers only."""
    location = redirect.location.partition("#")[0]
    if not location.isprintable() or " " in location or "\\" in location:
        # urljoin removes these silently; the URL that is checked must be the URL that is sent.
        raise _redirect_refused("printable characters without spaces and backslashes")
    try:
        url = parse_url(urljoin(hop.url.text, location), field="location")
    except InvalidInput as error:
        raise _redirect_refused(str(error.rule)) from None
    except ValueError:
        raise _redirect_refused("a URL") from None
    if hop.url.scheme == "https" and url.scheme != "https":
        raise _redirect_refused("a redirect from https must lead to https")
    same = url.origin == hop.url.origin
    headers = dict(hop.headers if same else hop.shareable_headers)
    method, body = hop.method, hop.body
    if redirect.status in _TO_GET and method != "HEAD":
        method, body = "GET", None
    if body is not None and hop.has_secret_body and not same:
        raise _redirect_refused("a body with a secret is not sent to another origin")
    if body is None and hop.body is not None:
        headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}
        headers |= sign(b"") if same else {}
    shared = hop.shareable_headers if same else headers
    return RequestHop(
        url=url,
        method=method,
        headers=headers,
        shareable_headers=shared,
        body=body,
        has_secret_body=hop.has_secret_body,
    )


def _secrets_in_query(path: str) -> list[str]:
    """The names of the secrets in query parameters."""
    pairs = (part.partition("=")[2] for part in path.partition("?")[2].split("&"))
    return [found.name for found in map(parse_reference, pairs) if found is not None]


def _fill_query(path: str, revealed: RevealedSecrets) -> str:
    before, mark, query = path.partition("?")
    parts = []
    for part in query.split("&"):
        name, equals, value = part.partition("=")
        named = parse_reference(value) is not None
        parts.append(f"{name}{equals}{quote(revealed.fill(value), safe='') if named else value}")
    return f"{before}{mark}{'&'.join(parts)}"


def _redirect_refused(rule: str) -> RequestFailed:
    """A refused redirect. The message does not quote its location."""
    return RequestFailed(Failed(error=f"redirect refused: {rule}"))


def _identity_headers(launch: Launch) -> dict[str, str]:
    headers = {
        "Idempotency-Key": launch.key,
        "X-Timewright-Run": launch.run_id,
        "X-Timewright-Schedule": launch.schedule_id,
        "X-Timewright-Planned-At": format_instant(launch.planned_at),
        "X-Timewright-Fence": str(launch.fence),
        "X-Timewright-Attempt": str(launch.attempt),
        "traceparent": launch.traceparent,
    }
    return {name: value for name, value in headers.items() if value}


def _check_headers(headers: Mapping[str, str]) -> None:
    if len(headers) > MAX_HEADERS or sum(map(len, (*headers, *headers.values()))) > MAX_HEADERS_CHARS:
        rule = f"at most {MAX_HEADERS} headers and {MAX_HEADERS_CHARS} characters together"
        raise input_error(
            "target.headers", headers, "is too large", rule=rule, fix="fewer or shorter headers"
        )
    seen: set[str] = set()
    for name, value in headers.items():
        _check_name(name, seen)
        _check_value(name, value)
        seen.add(name.lower())


def _check_name(name: str, seen: set[str]) -> None:
    field, lower = "target.headers", name.lower()
    if len(name) > MAX_HEADER_NAME_CHARS or not _TOKEN.fullmatch(name):
        rule = f"letters, digits and hyphens, at most {MAX_HEADER_NAME_CHARS}"
        raise input_error(field, name, "is not the name of a header", rule=rule, fix="Authorization")
    if lower in _RESERVED_HEADERS or lower.startswith("x-timewright-"):
        rule = "Timewright sets this header itself"
        raise input_error(field, name, "is reserved", rule=rule, fix="leave it out")
    if lower in seen:
        rule = "a header may be set once; names are case-insensitive"
        raise input_error(field, name, "is set twice", rule=rule, fix="leave one out")


def _check_value(name: str, value: str) -> None:
    field = f"target.headers.{name}"
    if len(value) > MAX_HEADER_VALUE_CHARS or not _VALUE.fullmatch(value):
        rule = (
            f"printable ASCII without leading or trailing spaces, at most {MAX_HEADER_VALUE_CHARS} characters"
        )
        # The value may be a secret that was pasted here, so it is not shown.
        shown = f"of {len(value)} characters"
        raise input_error(field, shown, "cannot be sent", rule=rule, fix="application/json")
    if SECRET_PREFIX in value and parse_reference(value) is None:
        rule = "secret://name alone, or one word, a space and secret://name"
        raise input_error(
            field, value, "is not a reference to a secret", rule=rule, fix="Bearer secret://crm-token"
        )


def _signing_secret(written: str | None) -> str | None:
    if written is None:
        return None
    found = parse_reference(written)
    if found is None or found.prefix:
        rule = "a signing key is given as a reference to a secret"
        shown = f"of {len(written)} characters"
        raise input_error(
            "target.sign_with", shown, "is not a reference to a secret", rule=rule, fix="secret://webhook-key"
        )
    return found.name


def _encode_body(body: Any) -> bytes | None:
    if body is None:
        return None
    try:
        encoded = body.encode() if isinstance(body, str) else msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        why, rule = f"cannot be sent: {error}", "text, or a JSON value"
        raise input_error("target.body", body, why, rule=rule, fix='{"id": 1}') from None
    if len(encoded) > MAX_BODY_BYTES:
        rule = f"at most {MAX_BODY_BYTES} bytes"
        raise input_error(
            "target.body", body, f"has {len(encoded)} bytes", rule=rule, fix="send a link instead"
        )
    return encoded
