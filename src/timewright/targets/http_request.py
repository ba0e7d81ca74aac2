"""An HTTP request before it is sent: what is refused, what goes along, and where a redirect may lead."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urljoin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import spell_instant
from timewright.core.refusals import refused
from timewright.core.run import Failed
from timewright.core.target import Http
from timewright.errors import InvalidInput
from timewright.ports import Launch
from timewright.targets.egress import Egress, parse_address
from timewright.targets.http_failure import NoAnswer
from timewright.targets.signing import MARK, Revealed, parse_reference, references_in
from timewright.targets.urls import Url, parse_url

MOST_HEADERS = 100
LONGEST_NAME = 256
LONGEST_VALUE = 8192
MOST_HEADER_BYTES = 32_768
MOST_BODY_BYTES = 1_048_576

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?|")
_NO_BODY = frozenset({"GET", "HEAD"})
# Set by the request itself, or about the connection and not about the message.
_OURS = frozenset(
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
# All that another origin is told; which other headers hold secrets, only their author knows.
_FOR_ANYONE = frozenset({"accept", "accept-encoding", "content-type", "user-agent"})
_TO_GET = frozenset({301, 302, 303})
REDIRECTS = _TO_GET | {307, 308}


# The headers that sign a body, if the target has a key to sign with.
Signed = Callable[[bytes], Mapping[str, str]]


class Prepared(Struct, frozen=True, kw_only=True):
    """A target that was found good: its parts as they will be sent, with secrets still by name."""

    url: Url
    method: str
    headers: dict[str, str]
    body: bytes | None
    said: Any = None
    signer: str | None

    @property
    def secrets(self) -> frozenset[str]:
        """The names of all secrets that the request needs."""
        named = references_in(self.headers) | references_in(self.said) | set(_in_query(self.url.path))
        return named | {self.signer} if self.signer else named

    def filled(self, revealed: Revealed) -> tuple[Url, bytes | None]:
        """The URL and the body as they are sent, with secrets in place of their names."""
        url = replace(self.url, path=_filled_query(self.url.path, revealed))
        body = _encoded(revealed.fill_in(self.said)) if references_in(self.said) else self.body
        return url, body


class Hop(Struct, frozen=True, kw_only=True):
    """One request on the wire; `shared` are the headers that may follow it to another origin.

    A `private` body holds a secret, and stays with its origin.
    """

    url: Url
    method: str
    headers: dict[str, str]
    shared: dict[str, str]
    body: bytes | None
    private: bool = False


class Redirect(Struct, frozen=True):
    """An answer that says to ask elsewhere."""

    status: int
    location: str


def check_http(target: Http, *, egress: Egress | None = None) -> None:
    """Refuse a target that could never be called, as early as when its schedule is written."""
    url = prepare(target).url
    if egress is not None and parse_address(url.host) is not None and not egress.allows(url.host, to=url):
        raise refused(
            "target.url",
            url.text,
            "leads to an address that is closed",
            rule=egress.refusal([url.host], to=url),
            fix="a public address, or an entry in egress.allow",
        )


def prepare(target: Http) -> Prepared:
    """Check every part of a target, and give it back as it will be sent."""
    url = parse_url(target.url)
    if target.body is not None and target.method in _NO_BODY:
        rule = f"a {target.method} request has no body"
        raise refused("target.body", target.body, f"cannot go with {target.method}", rule=rule, fix="POST")
    _check_headers(target.headers)
    body = _encoded(target.body)
    headers = dict(target.headers)
    if body is not None and "content-type" not in map(str.lower, headers):
        is_text = isinstance(target.body, str)
        headers["Content-Type"] = "text/plain; charset=utf-8" if is_text else "application/json"
    return Prepared(
        url=url,
        method=target.method,
        headers=headers,
        body=body,
        said=target.body,
        signer=_signer(target.sign_with),
    )


def first_hop(ready: Prepared, launch: Launch, *, revealed: Revealed, agent: str, signed: Signed) -> Hop:
    """The request with everything that travels along: who asks, for which run, and under which key."""
    told = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": agent}
    given = {name.lower() for name in ready.headers}
    open_headers = {name: value for name, value in told.items() if name.lower() not in given}
    headers = {**open_headers, **{name: revealed.fill(value) for name, value in ready.headers.items()}}
    plain = {name: value for name, value in ready.headers.items() if parse_reference(value) is None}
    shared = {name: value for name, value in plain.items() if name.lower() in _FOR_ANYONE}
    url, body = ready.filled(revealed)
    return Hop(
        url=url,
        method=ready.method,
        headers={**headers, **_identity(launch), **signed(body or b"")},
        shared={**open_headers, **shared},
        body=body,
        private=body != ready.body,
    )


def next_hop(hop: Hop, redirect: Redirect, *, signed: Signed) -> Hop:
    """Where a redirect leads: checked like any URL, and told no more than its origin may know."""
    location = redirect.location.partition("#")[0]
    if not location.isprintable() or " " in location or "\\" in location:
        # Joining would tidy these away, and what was sent would no longer be what was checked.
        raise _astray("printable characters, no blanks, no backslash")
    try:
        url = parse_url(urljoin(hop.url.text, location), field="location")
    except InvalidInput as error:
        raise _astray(str(error.rule)) from None
    except ValueError:
        raise _astray("a URL") from None
    if hop.url.scheme == "https" and url.scheme != "https":
        raise _astray("from https only to https")
    same = url.origin == hop.url.origin
    headers = dict(hop.headers if same else hop.shared)
    method, body = hop.method, hop.body
    if redirect.status in _TO_GET and method != "HEAD":
        method, body = "GET", None
    if body is not None and hop.private and not same:
        raise _astray("a body that holds a secret stays with its origin")
    if body is None and hop.body is not None:
        headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}
        headers |= signed(b"") if same else {}
    shared = hop.shared if same else headers
    return Hop(url=url, method=method, headers=headers, shared=shared, body=body, private=hop.private)


def _in_query(path: str) -> list[str]:
    """The secrets that parameters of a query name."""
    pairs = (part.partition("=")[2] for part in path.partition("?")[2].split("&"))
    return [found.name for found in map(parse_reference, pairs) if found is not None]


def _filled_query(path: str, revealed: Revealed) -> str:
    before, mark, query = path.partition("?")
    parts = []
    for part in query.split("&"):
        name, equals, value = part.partition("=")
        named = parse_reference(value) is not None
        parts.append(f"{name}{equals}{quote(revealed.fill(value), safe='') if named else value}")
    return f"{before}{mark}{'&'.join(parts)}"


def _astray(rule: str) -> NoAnswer:
    """A redirect to where we do not go; whatever its location says is not repeated."""
    return NoAnswer(Failed(error=f"redirect refused, its location breaks the rule: {rule}"))


def _identity(launch: Launch) -> dict[str, str]:
    told = {
        "Idempotency-Key": launch.key,
        "X-Timewright-Run": launch.run_id,
        "X-Timewright-Schedule": launch.schedule_id,
        "X-Timewright-Planned-At": spell_instant(launch.planned_at),
        "X-Timewright-Fence": str(launch.fence),
        "X-Timewright-Attempt": str(launch.attempt),
        "traceparent": launch.traceparent,
    }
    return {name: value for name, value in told.items() if value}


def _check_headers(headers: Mapping[str, str]) -> None:
    if len(headers) > MOST_HEADERS or sum(map(len, (*headers, *headers.values()))) > MOST_HEADER_BYTES:
        rule = f"at most {MOST_HEADERS} headers and {MOST_HEADER_BYTES} characters together"
        raise refused("target.headers", headers, "is too much", rule=rule, fix="fewer or shorter headers")
    seen: set[str] = set()
    for name, value in headers.items():
        _check_name(name, seen)
        _check_value(name, value)
        seen.add(name.lower())


def _check_name(name: str, seen: set[str]) -> None:
    field, lower = "target.headers", name.lower()
    if len(name) > LONGEST_NAME or not _TOKEN.fullmatch(name):
        rule = f"letters, digits and hyphens, at most {LONGEST_NAME}"
        raise refused(field, name, "is not the name of a header", rule=rule, fix="Authorization")
    if lower in _OURS or lower.startswith("x-timewright-"):
        rule = "the request sets it by itself"
        raise refused(field, name, "is not yours to set", rule=rule, fix="leave it out")
    if lower in seen:
        rule = "a header is given once, however it is spelled"
        raise refused(field, name, "is given twice", rule=rule, fix="leave one out")


def _check_value(name: str, value: str) -> None:
    field = f"target.headers.{name}"
    if len(value) > LONGEST_VALUE or not _VALUE.fullmatch(value):
        rule = f"printable ASCII without blanks at its ends, at most {LONGEST_VALUE} characters"
        # The value may be a secret that was pasted here, so it is not repeated.
        shown = f"of {len(value)} characters"
        raise refused(field, shown, "cannot be sent", rule=rule, fix="application/json")
    if MARK in value and parse_reference(value) is None:
        rule = "the whole value is secret://name, or one word and secret://name"
        raise refused(field, value, "names no secret", rule=rule, fix="Bearer secret://crm-token")


def _signer(written: str | None) -> str | None:
    if written is None:
        return None
    found = parse_reference(written)
    if found is None or found.before:
        rule = "a signing key is named and never written down"
        shown = f"of {len(written)} characters"
        raise refused("target.sign_with", shown, "names no secret", rule=rule, fix="secret://webhook-key")
    return found.name


def _encoded(body: Any) -> bytes | None:
    if body is None:
        return None
    try:
        encoded = body.encode() if isinstance(body, str) else msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        why, rule = f"cannot be sent: {error}", "text, or what JSON can say"
        raise refused("target.body", body, why, rule=rule, fix='{"id": 1}') from None
    if len(encoded) > MOST_BODY_BYTES:
        rule = f"at most {MOST_BODY_BYTES} bytes"
        raise refused("target.body", body, f"has {len(encoded)} bytes", rule=rule, fix="send a link instead")
    return encoded
