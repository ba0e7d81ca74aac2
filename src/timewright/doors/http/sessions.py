"""A browser's way in: a link that works once becomes a signed cookie; writes show a second token."""

from __future__ import annotations

import hmac
import re
import secrets
from datetime import datetime, timedelta
from http.cookies import CookieError, SimpleCookie

from timewright.operations import Context
from timewright.operations.access import Caller, doorkeeper_of, recall, unauthorized

LIVES = timedelta(hours=12)
CSRF_HEADER = "timewright-csrf"

_FORM = re.compile(r"[A-Za-z0-9]{1,64}\.[0-9]{1,12}\.[A-Za-z0-9_-]{22}")


def cookie_name(port: int | None) -> str:
    """Browsers keep cookies by host alone; several of us on one host are told apart by the port."""
    return f"timewright_{port or 0}"


def new_session(context: Context, caller: Caller, *, now: datetime) -> str:
    """What the cookie holds: whose key it stands for and until when, signed with the installation's key."""
    until = int((now + LIVES).timestamp())
    said = f"{caller.key}.{until}.{secrets.token_urlsafe(16)}"
    return f"{said}.{_sign(context, 'session', said)}"


def caller_in(context: Context, session: str, *, now: datetime) -> Caller:
    """Who a cookie belongs to, if it is one of ours, not over, and its key still opens."""
    said, _, signature = session.rpartition(".")
    if _FORM.fullmatch(said) is None or not _same(signature, _sign(context, "session", said)):
        raise unauthorized()
    prefix, until, _ = said.split(".")
    if int(until) <= now.timestamp():
        raise unauthorized()
    return recall(context, prefix)


def csrf_token(context: Context, session: str) -> str:
    """What a page of ours shows with every write; a page from elsewhere cannot read it."""
    return _sign(context, "csrf", session)


def shows_token(context: Context, session: str, shown: str | None) -> bool:
    """Whether a request carries the token of its own session."""
    return shown is not None and _same(shown, csrf_token(context, session))


def session_in(cookies: str | None, port: int | None) -> str | None:
    """Our cookie among those that came."""
    try:
        found = SimpleCookie(cookies or "").get(cookie_name(port))
    except CookieError:
        return None
    return found.value if found is not None else None


def set_cookie(session: str, *, port: int | None, secure: bool, lives: timedelta = LIVES) -> str:
    """The header that keeps a session in a browser, away from scripts and from other sites."""
    parts = [f"{cookie_name(port)}={session}", "Path=/", "HttpOnly", "SameSite=Strict"]
    parts.append(f"Max-Age={int(lives.total_seconds())}")
    return "; ".join([*parts, *(["Secure"] if secure else [])])


def _sign(context: Context, purpose: str, text: str) -> str:
    return doorkeeper_of(context).keyring.current.digest(f"{purpose}\n{text}")[:64]


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
