"""Authenticates requests by API key or by browser session."""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

from timewright.errors import StoreError, Unauthorized
from timewright.interfaces.http.problems import HttpProblem
from timewright.interfaces.http.requests.host_origin import parse_authority
from timewright.interfaces.http.requests.http_request import HttpRequest
from timewright.interfaces.http.requests.sessions import (
    CSRF_HEADER,
    caller_from_session,
    has_csrf_token,
    session_from_cookies,
)
from timewright.operations.access.auth_cache import AuthCache, CachedCaller, RateLimit
from timewright.operations.access.authentication import (
    Caller,
    context_for,
    require_auth_cache,
    resolve_token,
    save_key_uses,
    unauthorized_error,
)
from timewright.operations.context import NonBlockingStore, OperationContext, non_blocking_reader
from timewright.operations.quotas import charge_request
from timewright.ports.store import WouldBlock

_BEARER = re.compile(r"bearer ([!-~]{1,8192})", re.IGNORECASE)
_BASIC = re.compile(rb"basic ([A-Za-z0-9+/=]{1,8192})", re.IGNORECASE)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
FEED_PATH = ("feed.ics",)

# Only failed keys are charged, so failed attempts of one client do not lock out others with valid keys.
FAILED_KEY_RATE = RateLimit(per_minute=60, burst=30)
MAX_CACHED_CONTEXTS = 1_000


class Authenticator(Protocol):
    """Returns the caller of a request or raises `Unauthorized`. May block, so it runs in a thread."""

    def __call__(self, request: HttpRequest) -> Caller:
        """Return the caller."""
        ...


def authenticate_by_key_or_session(request: HttpRequest) -> Caller:
    """Return the caller by API key or by session cookie; writes with a session need the CSRF token."""
    if request.headers.get("authorization") is not None:
        return _by_key(request)
    session = session_of(request)
    if session is None:
        raise unauthorized_error()
    caller = caller_from_session(request.context, session)
    if request.method not in SAFE_METHODS and not has_csrf_token(
        request.context, session, request.headers.get(CSRF_HEADER)
    ):
        raise HttpProblem(
            403,
            "csrf",
            "CSRF token missing or invalid",
            field=CSRF_HEADER,
            rule="writes with a session cookie carry the token of GET /session",
            fix="reload the page",
        )
    return caller


class RequestAuthenticator:
    """Returns the operation context of each request; callers in the cache need no query."""

    def __init__(self, context: OperationContext, authenticate: Authenticator) -> None:
        self._context = context
        self._authenticate = authenticate
        self._reader = non_blocking_reader(context)
        self._contexts: dict[int, tuple[Caller, OperationContext]] = {}

    def authenticate_nonblocking(self, request: HttpRequest) -> OperationContext:
        """Authenticate without blocking and charge the request quota; raises `WouldBlock` otherwise."""
        context = self.authenticate_cached(request)
        if context is not None:
            return context
        cache = request.context.auth_cache
        if (
            self._authenticate is not authenticate_by_key_or_session
            or cache is None
            or cache.has_unsaved_uses
        ):
            raise WouldBlock
        return self._authenticate_by_read(request, cache)

    def authenticate_cached(self, request: HttpRequest) -> OperationContext | None:
        """Authenticate from the cache; returns None if the key is not in it."""
        cache = request.context.auth_cache
        if self._authenticate is not authenticate_by_key_or_session or cache is None:
            return None
        known = _cached_caller(request)
        if known is None or cache.has_unsaved_uses:
            return None
        context = self._caller_context(known.caller)
        charge_request(context, quotas=known.quotas, now=known.now)
        return context

    def authenticate(self, request: HttpRequest) -> OperationContext:
        """Authenticate in a thread that may block; too many failed keys raise `OverQuota`."""
        context = context_for(self._context, self._caller(request))
        charge_request(context)
        # Reading must work while the store refuses writes.
        with suppress(StoreError):
            save_key_uses(context)
        return context

    def read_caller(self, request: HttpRequest) -> Caller:
        """Authenticate a request again without charging it; never answered from the cache."""
        return self._authenticate(request)

    def _authenticate_by_read(self, request: HttpRequest, cache: AuthCache) -> OperationContext:
        if self._reader is None or cache.service_tokens is not None:
            raise WouldBlock
        request.context = inside = replace(self._context, store=NonBlockingStore(self._reader))
        try:
            caller = self._caller(request)
            if cache.has_unsaved_uses:
                # The first use of a key must be saved, which needs a write.
                raise WouldBlock
            charge_request(context_for(inside, caller))
        finally:
            request.context = self._context
        return self._caller_context(caller)

    def _caller(self, request: HttpRequest) -> Caller:
        try:
            return self._authenticate(request)
        except Unauthorized:
            charge_failed_key(request)
            raise

    def _caller_context(self, caller: Caller) -> OperationContext:
        """Return the context of a caller; the same object for the same cached caller."""
        known = self._contexts.get(id(caller))
        if known is None or known[0] is not caller:
            if len(self._contexts) >= MAX_CACHED_CONTEXTS:
                self._contexts.clear()
            known = self._contexts[id(caller)] = (caller, context_for(self._context, caller))
        return known[1]


def charge_failed_key(request: HttpRequest) -> None:
    """Count a failed key of a client; raises OverQuota if there were too many."""
    cache = request.context.auth_cache
    if cache is not None:
        address, now = (request.scope.get("client") or ("",))[0], request.context.now()
        cache.limiter.take(f"failed keys {address}", 1, now, rate=FAILED_KEY_RATE, what="failed keys")


def _cached_caller(request: HttpRequest) -> CachedCaller | None:
    """Return the cached caller of the key in a request."""
    token, cache = _token_of(request), request.context.auth_cache
    return (
        cache.get_caller(token, at=request.received_at) if token is not None and cache is not None else None
    )


def _by_key(request: HttpRequest) -> Caller:
    token = _token_of(request)
    if token is None:
        raise unauthorized_error()
    cache = require_auth_cache(request.context)
    generation = cache.cached_callers.generation
    known = resolve_token(request.context, token, at=request.received_at)
    cache.put_caller(token, known, generation=generation)
    return known.caller


def _token_of(request: HttpRequest) -> str | None:
    """Return the token of the request, if there is exactly one."""
    header = request.raw_headers.get(b"authorization")
    if header is None or (len(request.raw_headers) < len(request.scope["headers"]) and _is_repeated(request)):
        return None
    match = _BEARER.fullmatch(header.decode("latin-1"))
    if match is None and request.segments == FEED_PATH:
        return _password_in(header)
    return match[1] if match is not None else None


def _password_in(header: bytes) -> str | None:
    """Return the key from basic authentication, which calendar programs use; only for the feed."""
    match = _BASIC.fullmatch(header)
    try:
        text = base64.b64decode(match[1], validate=True).decode("ascii") if match is not None else ""
    except ValueError:
        return None
    return text.partition(":")[2] or None


def _is_repeated(request: HttpRequest) -> bool:
    return len(request.headers.getlist("authorization")) > 1


def session_of(request: HttpRequest) -> str | None:
    """Return the session cookie of a request."""
    return session_from_cookies(request.headers.get("cookie"), port_of(request))


def port_of(request: HttpRequest) -> int | None:
    """Return the port in the Host header."""
    parsed = parse_authority(request.headers.get("host", ""))
    return parsed[1] if parsed is not None else None
