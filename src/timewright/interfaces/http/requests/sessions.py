"""Browser sessions: a one-time login link becomes a signed cookie; writes also need a CSRF token."""

from __future__ import annotations

import hmac
import re
import secrets
from datetime import UTC, datetime, timedelta

from timewright.operations import OperationContext
from timewright.operations.access.authentication import (
    Caller,
    authenticate_key_id,
    end_key_session,
    require_auth_cache,
    unauthorized_error,
)

SESSION_LIFETIME = timedelta(hours=12)
CSRF_HEADER = "timewright-csrf"

_CONTENT = re.compile(r"[A-Za-z0-9]{1,64}\.[0-9]{1,12}\.[A-Za-z0-9_-]{22}")


def cookie_name(port: int | None) -> str:
    """Return the cookie name; it contains the port because browsers share cookies between ports."""
    return f"timewright_{port or 0}"


def new_session(context: OperationContext, caller: Caller, *, now: datetime) -> str:
    """Return a signed cookie value with the key id and the expiry."""
    expires = int((now + SESSION_LIFETIME).timestamp())
    content = f"{caller.key}.{expires}.{secrets.token_urlsafe(16)}"
    return f"{content}.{_sign(context, 'session', content)}"


def caller_from_session(context: OperationContext, session: str, *, now: datetime) -> Caller:
    """Return the caller of a session cookie; raises if it is forged, expired or its key is revoked."""
    content, _, signature = session.rpartition(".")
    if _CONTENT.fullmatch(content) is None or not _is_equal(signature, _sign(context, "session", content)):
        raise unauthorized_error()
    prefix, expires, nonce = content.split(".")
    if int(expires) <= now.timestamp():
        raise unauthorized_error()
    return authenticate_key_id(context, prefix, session=nonce)


def end_session(context: OperationContext, session: str) -> None:
    """End a session at once, in every process; `caller_from_session` has checked the cookie before."""
    _, expires, nonce, _ = session.split(".")
    end_key_session(context, nonce, until=datetime.fromtimestamp(int(expires), UTC))


def csrf_token(context: OperationContext, session: str) -> str:
    """Return the token that writes of a session must carry; pages of other origins cannot read it."""
    return _sign(context, "csrf", session)


def has_csrf_token(context: OperationContext, session: str, token: str | None) -> bool:
    """Whether a request carries the CSRF token of its session."""
    return token is not None and _is_equal(token, csrf_token(context, session))


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


def set_cookie(session: str, *, port: int | None, secure: bool, max_age: timedelta = SESSION_LIFETIME) -> str:
    """Return the Set-Cookie header; scripts and other sites cannot use the cookie."""
    parts = [f"{cookie_name(port)}={session}", "Path=/", "HttpOnly", "SameSite=Strict"]
    parts.append(f"Max-Age={int(max_age.total_seconds())}")
    return "; ".join([*parts, *(["Secure"] if secure else [])])


def _sign(context: OperationContext, purpose: str, text: str) -> str:
    return require_auth_cache(context).keyring.current.digest(f"{purpose}\n{text}")[:64]


def _is_equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
