"""Service tokens: JWTs signed by another system, verified with keys and algorithms fixed at the start."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from timewright.access.keyring import read_private
from timewright.errors import InvalidInput, MissingExtra
from timewright.operations.access.callers import ALL_SCOPES, Caller
from timewright.settings import Settings

if TYPE_CHECKING:
    from types import ModuleType

MAX_TOKEN_CHARS = 8192
MAX_LIFETIME = timedelta(days=366)
MAX_CLOCK_SKEW = timedelta(seconds=30)
MIN_SECRET_CHARS = 32
ALL_NAMESPACES = "*"
SCOPE_PREFIX = "timewright:"
NAMESPACES_CLAIM = "timewright_namespaces"

# Algorithms by key type, so that a public key is never used as a shared secret.
_ALGORITHMS_BY_TYPE = {"oct": ("HS",), "RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("Ed",)}


class VerificationKey(Struct, frozen=True, kw_only=True):
    """One key, its id (`kid`) in tokens, and the algorithms it may be used with."""

    name: str
    key: Any
    algorithms: tuple[str, ...]


class ServiceTokenVerifier(Struct, frozen=True, kw_only=True):
    """Verifies service tokens; keys and algorithms are fixed, so a token cannot choose them."""

    keys: tuple[VerificationKey, ...]
    audience: str
    issuer: str

    def __repr__(self) -> str:
        return f"ServiceTokens(for {self.audience})"

    def authenticate(self, token: str, *, now: datetime) -> Caller | None:
        """Return the caller of a token; None if anything is wrong with it."""
        claims = self.verified_claims(token, now=now)
        if claims is None:
            return None
        subject = claims.get("sub")
        scopes, namespaces = _scopes(claims), _namespaces(claims)
        if not isinstance(subject, str) or not 1 <= len(subject) <= 255 or namespaces is None:
            return None
        within = () if ALL_NAMESPACES in namespaces else namespaces
        return Caller(
            actor=subject,
            origin="service",
            scopes=frozenset(one for one in ALL_SCOPES if one in scopes),
            namespaces=within,
            key=f"jwt {subject}",
        )

    def verified_claims(self, token: str, *, now: datetime) -> Mapping[str, Any] | None:
        """Return the claims of a token with a valid signature, audience, issuer and time; else None."""
        claims = self._claims(token)
        return claims if claims is not None and _is_current(claims, now=now) else None

    def _claims(self, token: str) -> Mapping[str, Any] | None:
        jwt = _jwt()
        if len(token) > MAX_TOKEN_CHARS or token.count(".") != 2 or not token.isascii():
            return None
        try:
            verifier = self._verifier(jwt.get_unverified_header(token))
            if verifier is None:
                return None
            # Times are checked against the store's clock, not this machine's.
            options_off = dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat"), False)
            claims: Mapping[str, Any] = jwt.decode(
                token,
                verifier.key,
                algorithms=list(verifier.algorithms),
                audience=self.audience,
                issuer=self.issuer or None,
                options={**options_off, "require": ["exp", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError):
            return None
        return claims

    def _verifier(self, header: Mapping[str, Any]) -> VerificationKey | None:
        """Return the key that a token names; a token without `kid` needs a single key."""
        named = header.get("kid")
        if named is None:
            return self.keys[0] if len(self.keys) == 1 else None
        return next((one for one in self.keys if one.name == named), None)


def load_service_token_verifier(settings: Settings) -> ServiceTokenVerifier | None:
    """Return the verifier that the settings describe; None if no key file is set."""
    if not settings.jwt_keys:
        return None
    if not settings.jwt_algorithms or not settings.jwt_audience:
        missing = "jwt_audience" if settings.jwt_algorithms else "jwt_algorithms"
        raise InvalidInput(
            f"jwt_keys needs {missing}",
            field=missing,
            rule="set keys, algorithms and audience together",
            fix="jwt_algorithms = ['ES256'] and jwt_audience = 'timewright'",
        )
    verifiers = _read_keys(Path(settings.jwt_keys), settings.jwt_algorithms)
    return ServiceTokenVerifier(keys=verifiers, audience=settings.jwt_audience, issuer=settings.jwt_issuer)


def _read_keys(path: Path, algorithms: tuple[str, ...]) -> tuple[VerificationKey, ...]:
    text = read_private(path, allow_read=True)
    if text is None:
        raise _unusable(path, "does not exist")
    try:
        found = _keys_in(text)
    except (ValueError, TypeError, KeyError, _jwt().PyJWTError):
        raise _unusable(path, "contains no supported keys") from None
    if any(kind == "oct" for _, kind, _, _ in found):
        read_private(path)
    made = _usable_keys(found, algorithms)
    if not made:
        raise _unusable(path, f"has no key for {', '.join(algorithms)}")
    return made


def keys_of_provider(jwks: str, algorithms: tuple[str, ...]) -> tuple[VerificationKey, ...]:
    """Return the keys of an OpenID Connect provider; never a shared secret. Raises ValueError."""
    try:
        found = [row for row in _keys_in(jwks) if row[1] != "oct"] if jwks.startswith("{") else []
    except (TypeError, KeyError, _jwt().PyJWTError):
        raise ValueError("contains no supported keys") from None
    return _usable_keys(found, algorithms)


def _usable_keys(
    found: list[tuple[str, str, Any, str]], algorithms: tuple[str, ...]
) -> tuple[VerificationKey, ...]:
    made = []
    for name, kind, key, own in found:
        fitting = tuple(
            one for one in algorithms if one.startswith(_ALGORITHMS_BY_TYPE[kind]) and own in ("", one)
        )
        if fitting:
            made.append(VerificationKey(name=name, key=key, algorithms=fitting))
    return tuple(made)


def _keys_in(text: str) -> list[tuple[str, str, Any, str]]:
    """Return each key with its id, its type, and its own algorithm if it names one."""
    jwt = _jwt()
    if text.startswith("{"):
        rows = json.loads(text)["keys"]
        return [
            (
                str(row.get("kid", "")),
                row["kty"],
                jwt.PyJWK(row, row.get("alg") or _default_algorithm(row)).key,
                row.get("alg", ""),
            )
            for row in rows
            if row.get("use", "sig") == "sig" and row["kty"] in _ALGORITHMS_BY_TYPE
        ]
    if "PRIVATE KEY" in text:
        raise ValueError("this is a private key; only a public key is needed")
    if text.startswith("-----BEGIN"):
        return [("", _kind_of(text), text, "")]
    if len(text) < MIN_SECRET_CHARS:
        raise ValueError("a shared secret needs at least 32 characters")
    return [("", "oct", text, "")]


def _default_algorithm(row: Mapping[str, Any]) -> str:
    """Return an algorithm for loading a key that names none; the settings decide which may be used."""
    curves = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
    usual = {"oct": "HS256", "RSA": "RS256", "OKP": "EdDSA"}
    return curves.get(row.get("crv", ""), "") or usual[row["kty"]]


def _kind_of(pem: str) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = load_pem_public_key(pem.encode())
    kinds = {rsa.RSAPublicKey: "RSA", ec.EllipticCurvePublicKey: "EC", ed25519.Ed25519PublicKey: "OKP"}
    return next(kind for known, kind in kinds.items() if isinstance(key, known))


def _is_current(claims: Mapping[str, Any], *, now: datetime) -> bool:
    at = now.timestamp()
    ends, begins = _parse_seconds(claims.get("exp")), _parse_seconds(claims.get("nbf", 0))
    if ends is None or begins is None:
        return False
    return at < ends <= at + MAX_LIFETIME.total_seconds() and begins <= at + MAX_CLOCK_SKEW.total_seconds()


def _parse_seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if abs(value) < 1e12 else None


def _scopes(claims: Mapping[str, Any]) -> set[str]:
    """Return our scopes, such as `timewright:read`; other scopes are ignored."""
    scopes = claims.get("scope", claims.get("scp", ""))
    scopes = scopes.split() if isinstance(scopes, str) else scopes if isinstance(scopes, list) else []
    return {
        scope.removeprefix(SCOPE_PREFIX)
        for scope in scopes
        if isinstance(scope, str) and scope.startswith(SCOPE_PREFIX)
    }


def _namespaces(claims: Mapping[str, Any]) -> tuple[str, ...] | None:
    named = claims.get(NAMESPACES_CLAIM, ["default"])
    if not isinstance(named, list) or not 1 <= len(named) <= 100:
        return None
    return tuple(named) if all(isinstance(one, str) and 1 <= len(one) <= 64 for one in named) else None


def _unusable(path: Path, why: str) -> InvalidInput:
    return InvalidInput(
        f"{path} {why}",
        field="jwt_keys",
        value=str(path),
        rule="a JWKS, a public key in PEM, or a shared secret of at least 32 characters",
        fix="save the issuer's JWKS as a file",
    )


def _jwt() -> ModuleType:
    try:
        import jwt
    except ImportError:
        raise MissingExtra(
            "service tokens need an extra that is not installed",
            field="jwt_keys",
            rule="JWTs need the extra `jwt`",
            fix="pip install 'timewright[jwt]'",
        ) from None
    return jwt
