"""Browser sessions: signing in gives a signed cookie; writes also need a CSRF token."""

from __future__ import annotations

import hmac
import re
from datetime import datetime, timedelta

from timewright.operations import OperationContext
from timewright.operations.access.authentication import (
    Caller,
    authenticate_session,
    require_auth_cache,
    unauthorized_error,
)
from timewright.operations.access.sessions import MAX_LIFETIME, Identity, start_session

CSRF_HEADER = "timewright-csrf"

_ID = re.compile(r"[A-Za-z0-9_-]{22}")


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


def has_csrf_token(context: OperationContext, session: str, token: str | None) -> bool:
    """Whether a request carries the CSRF token of its session."""
    return token is not None and is_equal(token, csrf_token(context, session))


def session_from_cookies(cookies: str | None, port: int | None) -> str | None:
    """Return the session cookie from the Cookie header.

    `http.cookies` is not used, because it takes quadratic time for a quoted value with many backslashes. The
    value of our cookie is never quoted.
    """
    wanted = cookie_name(port)
    for part in (cookies or "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            return value
    return None


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
