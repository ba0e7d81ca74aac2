"""Checks Host and Origin, and authenticates requests by API key or by browser session."""

from __future__ import annotations

import base64
import hmac
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache

from msgspec.structs import replace
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers

from timewright.errors import StoreError, Unauthorized
from timewright.interfaces.http.problems import HttpProblem
from timewright.interfaces.http.request import HttpRequest
from timewright.operations import OperationContext
from timewright.operations.access.auth_cache import CachedCaller, RateLimit
from timewright.operations.access.authentication import (
    MAX_LIFETIME,
    Identity,
    authenticate_session,
    context_for,
    require_auth_cache,
    resolve_token,
    save_key_uses,
    start_session,
    unauthorized_error,
)
from timewright.operations.access.callers import Caller
from timewright.operations.context import NonBlockingStore, check_may_block, non_blocking_reader
from timewright.operations.quotas import charge_request
from timewright.ports.store import WouldBlock
from timewright.settings import is_loopback

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

# 255 characters of a name, a colon, five digits of a port and a final dot.
_MAX_AUTHORITY_LENGTH = 262

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_]([a-z0-9_.-]{0,252}[a-z0-9_])?\.?)(:([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://([^/?#@\s]+)")
_DEFAULT_PORTS = {"http": 80, "https": 443}

WILDCARD_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound

CSRF_HEADER = "timewright-csrf"

_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_BEARER = re.compile(r"bearer ([!-~]{1,8192})", re.IGNORECASE)
_BASIC = re.compile(r"basic ([A-Za-z0-9+/=]{1,8192})", re.IGNORECASE)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
FEED_PATH = ("feed.ics",)

# Only failed keys are charged, so failed attempts of one client do not lock out others with valid keys.
FAILED_KEY_RATE = RateLimit(per_minute=60, burst=30)


# Returns the caller of a request or raises `Unauthorized`. It may block, so it runs in a thread.
Authenticator = Callable[[HttpRequest], Caller]


class RequestAuthenticator:
    """Returns the operation context of each request: by key or session, or as `sign_in` says."""

    def __init__(self, context: OperationContext, sign_in: Authenticator | None) -> None:
        self._context = context
        self._nonblocking = replace(context, store=NonBlockingStore(non_blocking_reader(context)))
        self._sign_in = sign_in

    async def authenticate(self, request: HttpRequest) -> OperationContext:
        """Authenticate on the event loop if that does not block, else in a thread; charges the request."""
        try:
            context = self._authenticate(request, self._nonblocking)
        except WouldBlock:
            context = await run_in_threadpool(self._authenticate, request, self._context)
        if context.auth_cache is not None and context.auth_cache.has_unsaved_uses:
            await run_in_threadpool(_save_uses, context)
        return context

    def read_caller(self, request: HttpRequest) -> Caller:
        """Authenticate a request again without charging it; never answered from the cache."""
        return (self._sign_in or authenticate_by_key_or_session)(request)

    def _authenticate(self, request: HttpRequest, context: OperationContext) -> OperationContext:
        """Return the context of the caller; too many failed keys raise `OverQuota`."""
        request.context = context
        try:
            if self._sign_in is None:
                known = _identify(request, at=request.received_at)
            else:
                check_may_block(context)
                known = CachedCaller(caller=self._sign_in(request), now=context.now())
        except Unauthorized:
            charge_failed_key(request)
            raise
        found = context_for(self._context, known.caller)
        # Without known quotas they are read, which must not block on the event loop.
        charged = found if known.quotas is not None else replace(found, store=context.store)
        charge_request(charged, quotas=known.quotas, now=known.now)
        return found


def _save_uses(context: OperationContext) -> None:
    """Save when keys and sessions were used; reading must work while the store refuses writes."""
    with suppress(StoreError):
        save_key_uses(context)


def authenticate_by_key_or_session(request: HttpRequest) -> Caller:
    """Return the caller by API key or by session cookie, never from the cache."""
    return _identify(request).caller


def _identify(request: HttpRequest, *, at: float | None = None) -> CachedCaller:
    """Return the caller by API key or by session cookie; writes with a session need the CSRF token."""
    context = request.context
    if "authorization" in request.headers:
        token = _token_of(request)
        if token is None:
            raise unauthorized_error()
        return resolve_token(context, token, at=at)
    session = session_of(request)
    if session is None:
        raise unauthorized_error()
    caller = caller_from_session(context, session)
    given = request.headers.get(CSRF_HEADER, "")
    if request.method not in SAFE_METHODS and not is_equal(given, csrf_token(context, session)):
        raise HttpProblem(
            "csrf",
            "CSRF token missing or invalid",
            field=CSRF_HEADER,
            rule="writes with a session cookie carry the token of GET /session",
            fix="reload the page",
        )
    return CachedCaller(caller=caller, now=context.now())


def charge_failed_key(request: HttpRequest) -> None:
    """Count a failed key of a client; raises OverQuota if there were too many."""
    cache = request.context.auth_cache
    if cache is not None:
        address, now = request.client.host if request.client else "", request.context.now()
        cache.limiter.take(f"failed keys {address}", now, rate=FAILED_KEY_RATE, what="failed keys")


def _token_of(request: HttpRequest) -> str | None:
    """Return the token of the request, if there is exactly one."""
    header, *more = request.headers.getlist("authorization")
    match = _BEARER.fullmatch(header) if not more else None
    if match is None and not more and request.segments == FEED_PATH:
        return _password_in(header)
    return match[1] if match is not None else None


def _password_in(header: str) -> str | None:
    """Return the key from basic authentication, which calendar programs use; only for the feed."""
    match = _BASIC.fullmatch(header)
    try:
        text = base64.b64decode(match[1], validate=True).decode("ascii") if match is not None else ""
    except ValueError:
        return None
    return text.partition(":")[2] or None


def session_of(request: HttpRequest) -> str | None:
    """Return the session cookie of a request."""
    return read_cookie(request.headers.get("cookie", ""), cookie_name(port_of(request)))


def port_of(request: HttpRequest) -> int | None:
    """Return the port in the Host header."""
    parsed = parse_authority(request.headers.get("host", ""))
    return parsed[1] if parsed is not None else None


def cookie_name(port: int | None) -> str:
    """Return the cookie name; it contains the port because browsers share cookies between ports."""
    return f"timewright_{port or 0}"


def new_session(
    context: OperationContext, key: str, *, client: str, now: datetime, identity: Identity | None = None
) -> str:
    """Start a session of a key or an identity, and return the signed cookie value with its id."""
    session_id = start_session(context, key, client=client, now=now, identity=identity)
    return f"{session_id}.{sign(context, 'session', session_id)}"


def caller_from_session(context: OperationContext, session: str) -> Caller:
    """Return the caller of a session cookie; raises if it is forged, expired or its key is revoked."""
    session_id, _, signature = session.rpartition(".")
    if _ID.fullmatch(session_id) is None or not is_equal(signature, sign(context, "session", session_id)):
        raise unauthorized_error()
    return authenticate_session(context, session_id)


def csrf_token(context: OperationContext, session: str) -> str:
    """Return the token that writes of a session must carry; pages of other origins cannot read it."""
    return sign(context, "csrf", session)


def read_cookie(cookies: str, name: str) -> str | None:
    """Return a cookie of ours from the Cookie header.

    `http.cookies` is not used, because it takes quadratic time for a quoted value with many backslashes. The
    values of our cookies are never quoted.
    """
    parts = (part.strip().partition("=") for part in cookies.split(";"))
    return next((value for found, _, value in parts if found == name), None)


def set_cookie(session: str, *, port: int | None, secure: bool, max_age: timedelta = MAX_LIFETIME) -> str:
    """Return the Set-Cookie header; scripts and other sites cannot use the cookie."""
    parts = [f"{cookie_name(port)}={session}", "Path=/", "HttpOnly", "SameSite=Strict"]
    parts.append(f"Max-Age={int(max_age.total_seconds())}")
    return "; ".join([*parts, *(["Secure"] if secure else [])])


def sign(context: OperationContext, purpose: str, text: str) -> str:
    """Return the signature of a text for one purpose, with the key of the installation."""
    return require_auth_cache(context).keyring.current.digest(f"{purpose}\n{text}")[:64]


def is_equal(one: str, other: str) -> bool:
    """Compare two texts in a time that does not depend on them."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


class HostOriginCheck:
    """Allows this machine and these host names.

    `allow_any_address` also allows IP addresses: DNS rebinding needs a name.
    """

    def __init__(self, hosts: Iterable[str] = (), *, allow_any_address: bool = False) -> None:
        self.allowed_hosts = frozenset(name.lower().removesuffix(".") for name in (*LOOPBACK, *hosts))
        self.allow_any_address = allow_any_address

    def check(self, headers: Headers) -> None:
        """Raise if the request is for another host, or was sent by a page of another origin."""
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        if not self.allows_host(host):
            raise HttpProblem(
                "wrong_host",
                "host not allowed",
                field="host",
                value=host[:255],
                rule=f"one of: {', '.join(sorted(self.allowed_hosts))}",
                fix="use the address that `timewright up` prints, or add the name: timewright up --host NAME",
            )
        self._check_origin(headers, host)

    def allows_host(self, authority: str) -> bool:
        """Whether a Host header is allowed."""
        parsed = parse_authority(authority)
        return parsed is not None and (
            parsed[0] in self.allowed_hosts or (self.allow_any_address and _is_address(parsed[0]))
        )

    def _check_origin(self, headers: Headers, host: str) -> None:
        origins = headers.getlist("origin")
        cross = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        navigates = headers.get("sec-fetch-mode") == "navigate"
        same = not origins or (len(origins) == 1 and _is_same_origin(origins[0], host))
        if not same or (cross and not navigates):
            raise HttpProblem(
                "wrong_origin",
                "cross-origin requests are not allowed",
                field="origin",
                value=origins[0][:255] if origins else "",
                rule="the same origin, or none",
                fix="send the request from a program or from the dashboard",
            )


def parse_authority(text: str) -> tuple[str, int | None] | None:
    """Parse `host:port` into a lower-case host without a final dot and a port; None if it is invalid."""
    return _parse(text) if len(text) <= _MAX_AUTHORITY_LENGTH else None


@lru_cache(maxsize=256)
def _parse(text: str) -> tuple[str, int | None] | None:
    match = _AUTHORITY.fullmatch(text.lower())
    if match is None:
        return None
    port = int(match[4]) if match[4] else None
    if port is not None and not 1 <= port <= 65535:
        return None
    return match[1].removesuffix("."), port


def _is_same_origin(origin: str, host: str) -> bool:
    match = _ORIGIN.fullmatch(origin.lower())
    theirs = parse_authority(match[2]) if match is not None else None
    ours = parse_authority(host)
    if match is None or theirs is None or ours is None:
        return False
    default_port = _DEFAULT_PORTS[match[1]]
    return (theirs[0], theirs[1] or default_port) == (ours[0], ours[1] or default_port)


def _is_address(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return not address.is_unspecified


def own_addresses(bind: str) -> list[str]:
    """Return the addresses of this machine that a server bound to `bind` is reachable at."""
    if is_loopback(bind):
        return []
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    return sorted({bind, *WILDCARD_ADDRESSES, *(str(row[4][0]) for row in found)})
