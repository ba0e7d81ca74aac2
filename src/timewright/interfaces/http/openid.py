"""Sign-in with an OpenID Connect provider: authorization code with PKCE, state and nonce."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, cast
from urllib.parse import quote, urlencode

from timewright.interfaces.http.authentication import is_equal, sign
from timewright.interfaces.http.problems import HttpProblem
from timewright.operations import OperationContext
from timewright.operations.access.authentication import Identity
from timewright.operations.access.callers import ROLES, Role
from timewright.operations.access.service_tokens import ServiceTokenVerifier, keys_of_provider
from timewright.settings import OpenIdTerms

# What a provider may sign ID tokens with; no shared secret and no unsigned token.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
MAX_ANSWER_BYTES = 1024 * 1024
TIMEOUT_S = 10.0
REFRESH_S = 600.0
SIGN_IN_TIME = timedelta(minutes=10)
MAX_GROUPS = 10_000

Fetch = Callable[[urllib.request.Request], bytes]


class OpenIdProvider:
    """One provider; its addresses and keys are read when first needed and again every ten minutes."""

    def __init__(
        self, terms: OpenIdTerms, *, monotonic: Callable[[], float], fetch: Fetch | None = None
    ) -> None:
        self._terms = terms
        self._monotonic = monotonic
        self._fetch = fetch or _fetch
        self._lock = threading.Lock()
        self._known: tuple[float, Mapping[str, Any]] | None = None

    @property
    def name(self) -> str:
        """The host of the provider, as the sign-in page shows it."""
        return self._terms.issuer.split("/")[2]

    def start(self, context: OperationContext, redirect_uri: str, *, now: datetime) -> tuple[str, str]:
        """Return the address of the provider's sign-in page, and what the browser keeps until it is back."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._terms.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._terms.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        page = str(self._configuration()["authorization_endpoint"])
        until = int((now + SIGN_IN_TIME).timestamp())
        content = f"{until}.{state}.{nonce}.{verifier}"
        address = f"{page}{'&' if '?' in page else '?'}{urlencode(query)}"
        return address, f"{content}.{sign(context, 'oidc', content)}"

    def finish(
        self,
        context: OperationContext,
        query: Mapping[str, str],
        kept: str,
        redirect_uri: str,
        *,
        now: datetime,
    ) -> tuple[str, Identity]:
        """Exchange the code for an ID token; return the subject as a key name, and the person it names."""
        nonce, verifier = _check_kept(context, query.get("state", ""), kept, now=now)
        if "code" not in query:
            why = query.get("error_description") or query.get("error") or "no code"
            raise _refused(f"the provider refused the sign-in: {why[:200]}")
        token = self._exchange(query["code"], verifier, redirect_uri)
        claims = self._verified(token, now=now)
        if claims is None or not is_equal(str(claims.get("nonce", "")), nonce):
            raise _refused("the ID token of the provider is not valid")
        has_others = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if has_others and claims.get("azp") != self._terms.client_id:
            raise _refused("the ID token was made for another client")
        return f"oidc {claims['sub']}"[:255], self._identity(claims)

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        """The name and the permissions of a person; the first group of the settings that fits decides."""
        names = (claims.get(name) for name in ("email", "preferred_username", "name", "sub"))
        actor = next(name for name in names if isinstance(name, str) and name)[:255]
        given = claims.get(self._terms.groups_claim, [])
        groups = {given} if isinstance(given, str) else set()
        if isinstance(given, list):
            groups = {one for one in given[:MAX_GROUPS] if isinstance(one, str)}
        found = next(
            (role for group, role in self._terms.roles.items() if group == "*" or group in groups), ""
        )
        if not found:
            raise _refused(
                f"{actor} is in no group that may sign in",
                rule=f"one of: {', '.join(self._terms.roles) or 'none is set'}",
                fix="ask an administrator to add a group to oidc.roles",
            )
        role, _, within = found.partition("@")
        return Identity(
            actor=actor,
            scopes=tuple(sorted(ROLES[cast("Role", role)])),
            namespaces=tuple(one for one in within.split(",") if one),
        )

    def _verified(self, token: str, *, now: datetime) -> Mapping[str, Any] | None:
        """Return the claims of an ID token; keys that are not known yet are read again once."""
        for again in (False, True):
            known = self._configuration(again=again)
            verifier = ServiceTokenVerifier(
                keys=known["keys"], audience=self._terms.client_id, issuer=str(known["issuer"])
            )
            claims = verifier.verified_claims(token, now=now)
            if claims is not None:
                return claims
        return None

    def _exchange(self, code: str, verifier: str, redirect_uri: str) -> str:
        body = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self._terms.client_id,
            "code_verifier": verifier,
        }
        headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
        known, secret = self._configuration(), self._secret()
        methods = known.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if secret and "client_secret_basic" in methods:
            pair = f"{quote(self._terms.client_id, safe='')}:{quote(secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif secret:
            body["client_secret"] = secret
        sent = urllib.request.Request(  # noqa: S310 - http or https by the setting's pattern
            str(known["token_endpoint"]), data=urlencode(body).encode(), headers=headers, method="POST"
        )
        token = self._json(sent).get("id_token")
        if not isinstance(token, str):
            raise _refused("the provider returned no ID token", fix="add openid to oidc.scopes")
        return token

    def _secret(self) -> str:
        name = self._terms.client_secret.removeprefix("env:")
        if name and name not in os.environ:
            raise _refused(
                f"environment variable {name} is not set",
                fix=f"start Timewright with {name} in its environment",
            )
        return os.environ.get(name, "") if name else ""

    def _configuration(self, *, again: bool = False) -> Mapping[str, Any]:
        with self._lock:
            if self._known is None or again or self._monotonic() - self._known[0] > REFRESH_S:
                self._known = (self._monotonic(), self._read_configuration())
            return self._known[1]

    def _read_configuration(self) -> Mapping[str, Any]:
        issuer = self._terms.issuer.rstrip("/")
        found = self._json(
            urllib.request.Request(f"{issuer}/.well-known/openid-configuration")  # noqa: S310
        )
        missing = {"issuer", "authorization_endpoint", "token_endpoint", "jwks_uri"} - set(found)
        if missing or str(found["issuer"]).rstrip("/") != issuer:
            raise _refused("the provider's configuration is for another issuer, or not complete")
        supported = found.get("id_token_signing_alg_values_supported", ["RS256"])
        keys = self._fetch(urllib.request.Request(str(found["jwks_uri"]))).decode()  # noqa: S310
        algorithms = tuple(one for one in ALGORITHMS if one in supported)
        return {**found, "keys": keys_of_provider(keys.strip(), algorithms)}

    def _json(self, request: urllib.request.Request) -> dict[str, Any]:
        try:
            found = json.loads(self._fetch(request))
        except (OSError, ValueError) as error:
            detail = (
                error.read(300).decode("utf-8", "replace")
                if isinstance(error, urllib.error.HTTPError)
                else ""
            )
            raise _refused(f"the provider does not answer as expected: {error} {detail}".strip()) from None
        if not isinstance(found, dict):
            raise _refused("the provider does not answer with a JSON object")
        return found


def _check_kept(context: OperationContext, state: str, kept: str, *, now: datetime) -> tuple[str, str]:
    """Return nonce and verifier that the browser kept, if it is the one that began and is not too late."""
    content, _, signature = kept.rpartition(".")
    parts = content.split(".")
    valid = len(parts) == 4 and is_equal(signature, sign(context, "oidc", content))
    if not valid or not is_equal(state, parts[1]) or now.timestamp() >= int(parts[0]):
        raise _refused("this sign-in was not begun in this browser, or took longer than ten minutes")
    return parts[2], parts[3]


def _refused(message: str, *, rule: str = "", fix: str = "sign in again") -> HttpProblem:
    return HttpProblem("sign_in_refused", message, rule=rule, fix=fix)


def _fetch(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
        return bytes(answer.read(MAX_ANSWER_BYTES))
