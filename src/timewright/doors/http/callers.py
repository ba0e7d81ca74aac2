"""Who asks over HTTP: a key in a header, or a browser with a session of ours."""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

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
from timewright.operations.at_once import AtOnce, glimpses_of
from timewright.operations.context import Context
from timewright.operations.doorkeeper import Doorkeeper, Known
from timewright.operations.limiter import Rate
from timewright.operations.quotas import take_request
from timewright.ports.glimpse import NotAtOnce

_BEARER = re.compile(r"bearer ([!-~]{1,8192})", re.IGNORECASE)
_BASIC = re.compile(rb"basic ([A-Za-z0-9+/=]{1,8192})", re.IGNORECASE)
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
FEED = ("feed.ics",)


# A wrong key costs one of these; a right one costs none, so nobody is locked out by a neighbour's guesses.
GUESSES = Rate(per_minute=60, burst=30)
MOST_ACTING = 1_000


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


class Entrance:
    """Lets requests in, each as its caller; those whose caller is known cost no look at the store."""

    def __init__(self, context: Context, callers: Callers) -> None:
        self._context = context
        self._callers = callers
        self._glimpses = glimpses_of(context)
        self._acting: dict[int, tuple[Caller, Context]] = {}

    def at_once(self, visit: Visit) -> Context:
        """The context of a request, counted; `NotAtOnce` if that has to wait for the store."""
        context = self.remembered(visit)
        if context is not None:
            return context
        keeper = visit.context.doorkeeper
        if self._callers is not by_key_or_session or keeper is None or keeper.has_uses:
            raise NotAtOnce
        return self._looked_up(visit, keeper)

    def remembered(self, visit: Visit) -> Context | None:
        """The same for a key that let someone in a moment ago; nothing for everyone else."""
        keeper = visit.context.doorkeeper
        if self._callers is not by_key_or_session or keeper is None:
            return None
        known = _known(visit)
        if known is None or keeper.has_uses:
            return None
        context = self._context_of(known.caller)
        take_request(context, terms=known.terms, now=known.now)
        return context

    def let_in(self, visit: Visit) -> Context:
        """The same on a thread that may wait; whoever shows too many wrong keys is told to wait."""
        context = acting(self._context, self._caller(visit))
        take_request(context)
        # A store that takes no writes may still be read.
        with suppress(StoreError):
            keep_uses(context)
        return context

    def _looked_up(self, visit: Visit, keeper: Doorkeeper) -> Context:
        if self._glimpses is None or keeper.services is not None:
            raise NotAtOnce
        visit.context = inside = replace(self._context, store=AtOnce(self._glimpses))
        try:
            caller = self._caller(visit)
            if keeper.has_uses:
                # What is new about a key is written down before it is let in.
                raise NotAtOnce
            take_request(acting(inside, caller))
        finally:
            visit.context = self._context
        return self._context_of(caller)

    def _caller(self, visit: Visit) -> Caller:
        try:
            return self._callers(visit)
        except Unauthorized:
            keeper = visit.context.doorkeeper
            if keeper is not None:
                where, now = (visit.scope.get("client") or ("",))[0], visit.context.now()
                keeper.limiter.take(f"guesses {where}", 1, now, rate=GUESSES, what="wrong keys")
            raise

    def _context_of(self, caller: Caller) -> Context:
        """The context as a caller sees it; one who comes again within moments is the same value."""
        known = self._acting.get(id(caller))
        if known is None or known[0] is not caller:
            if len(self._acting) >= MOST_ACTING:
                self._acting.clear()
            known = self._acting[id(caller)] = (caller, acting(self._context, caller))
        return known[1]


def _known(visit: Visit) -> Known | None:
    """Whom the key of a request let in a moment ago."""
    token, keeper = _token_of(visit), visit.context.doorkeeper
    return keeper.recall(token, at=visit.at) if token is not None and keeper is not None else None


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
    said = visit.said.get(b"authorization")
    if said is None or (len(visit.said) < len(visit.scope["headers"]) and _is_said_twice(visit)):
        return None
    match = _BEARER.fullmatch(said.decode("latin-1"))
    if match is None and visit.segments == FEED:
        return _password_in(said)
    return match[1] if match is not None else None


def _password_in(said: bytes) -> str | None:
    """The key of a calendar program, which can only show it as a password; a browser may not come so."""
    match = _BASIC.fullmatch(said)
    try:
        text = base64.b64decode(match[1], validate=True).decode("ascii") if match is not None else ""
    except ValueError:
        return None
    return text.partition(":")[2] or None


def _is_said_twice(visit: Visit) -> bool:
    return len(visit.headers.getlist("authorization")) > 1


def session_of(visit: Visit) -> str | None:
    """The session cookie of a request."""
    return session_in(visit.headers.get("cookie"), port_of(visit))


def port_of(visit: Visit) -> int | None:
    """The port that the browser asked, as its Host header says."""
    parsed = parse_authority(visit.headers.get("host", ""))
    return parsed[1] if parsed is not None else None
