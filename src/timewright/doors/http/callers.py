"""Who asks over HTTP: a key in a header, or a browser with a session of ours."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Protocol

from timewright.doors.http.gate import parse_authority
from timewright.doors.http.problems import Refused
from timewright.doors.http.sessions import CSRF_HEADER, caller_in, session_in, shows_token
from timewright.doors.http.visits import Visit
from timewright.errors import StoreError, Unauthorized
from timewright.operations.access import (
    Caller,
    acting,
    doorkeeper_of,
    keep_uses,
    look_up,
    unauthorized,
)
from timewright.operations.limiter import Rate
from timewright.operations.quotas import take_request

_BEARER = re.compile(r"bearer ([!-~]{1,8192})", re.IGNORECASE)
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


# A wrong key costs one of these; a right one costs none, so nobody is locked out by a neighbour's guesses.
GUESSES = Rate(per_minute=60, burst=30)


class Callers(Protocol):
    """Says who asks, or refuses; may wait for the store, so it is asked on a thread."""

    def __call__(self, visit: Visit) -> Caller:
        """The caller of a request."""
        ...


def by_key_or_session(visit: Visit) -> Caller:
    """The caller of a request by its key, or by its session; a session must show its token to write."""
    if visit.headers.get("authorization") is not None:
        return _by_key(visit)
    session = session_of(visit)
    if session is None:
        raise unauthorized()
    caller = caller_in(visit.context, session, now=visit.context.now())
    if visit.method not in _SAFE and not shows_token(visit.context, session, visit.headers.get(CSRF_HEADER)):
        raise Refused(
            403,
            "csrf",
            "this request does not show the token of its session",
            field=CSRF_HEADER,
            rule="a browser's writes carry the token that GET /session gives",
            fix="load the page again",
        )
    return caller


def let_in_again(visit: Visit) -> Caller | None:
    """The caller of a request whose key came in a moment ago, counted; it never waits for the store."""
    token, keeper = _token_of(visit), visit.context.doorkeeper
    known = keeper.recall(token, at=visit.at) if token is not None and keeper is not None else None
    if known is None or keeper is None or keeper.has_uses:
        return None
    take_request(acting(visit.context, known.caller), terms=known.terms, now=known.now)
    return known.caller


def let_in(visit: Visit, callers: Callers) -> Caller:
    """The caller of a request, counted; whoever shows too many wrong keys is told to wait."""
    try:
        caller = callers(visit)
    except Unauthorized:
        keeper = visit.context.doorkeeper
        if keeper is not None:
            where = (visit.scope.get("client") or ("",))[0]
            keeper.limiter.take(f"guesses {where}", 1, visit.context.now(), rate=GUESSES, what="wrong keys")
        raise
    context = acting(visit.context, caller)
    take_request(context)
    # A store that takes no writes may still be read.
    with suppress(StoreError):
        keep_uses(context)
    return caller


def _by_key(visit: Visit) -> Caller:
    token = _token_of(visit)
    if token is None:
        raise unauthorized()
    keeper = doorkeeper_of(visit.context)
    since = keeper.known.changes
    known = look_up(visit.context, token, at=visit.at)
    keeper.remember(token, known, since=since)
    return known.caller


def _token_of(visit: Visit) -> str | None:
    """The one token that a request shows."""
    said = visit.headers.getlist("authorization")
    match = _BEARER.fullmatch(said[0]) if len(said) == 1 else None
    return match[1] if match is not None else None


def session_of(visit: Visit) -> str | None:
    """The session cookie of a request."""
    return session_in(visit.headers.get("cookie"), port_of(visit))


def port_of(visit: Visit) -> int | None:
    """The port that the browser asked, as its Host header says."""
    parsed = parse_authority(visit.headers.get("host", ""))
    return parsed[1] if parsed is not None else None
