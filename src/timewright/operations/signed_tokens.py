"""Tokens that others sign for their services: JWTs, by keys and algorithms that were fixed at the start."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from timewright.errors import InvalidInput, MissingExtra
from timewright.ledger.private_file import read_private
from timewright.operations.callers import EVERYTHING, Caller
from timewright.settings import Settings

if TYPE_CHECKING:
    from types import ModuleType

LONGEST = 8192
LONGEST_LIFE = timedelta(days=366)
SKEW = timedelta(seconds=30)
SHORTEST_SECRET = 32
EVERYWHERE = "*"
SCOPE = "timewright:"
NAMESPACES = "timewright_namespaces"

# Which algorithms a kind of key is for: a public key is never taken for a shared secret.
_FOR = {"oct": ("HS",), "RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("Ed",)}


class Verifier(Struct, frozen=True, kw_only=True):
    """One key, by the name that tokens know it by, and the algorithms it may be used with."""

    name: str
    key: Any
    algorithms: tuple[str, ...]


class ServiceTokens(Struct, frozen=True, kw_only=True):
    """What is needed to judge a service's token; made once, so that a token decides nothing about it."""

    verifiers: tuple[Verifier, ...]
    audience: str
    issuer: str

    def __repr__(self) -> str:
        return f"ServiceTokens(for {self.audience})"

    def caller(self, token: str, *, now: datetime) -> Caller | None:
        """Whom a token stands for; nobody, whatever is wrong with it."""
        claims = self._claims(token)
        if claims is None or not _is_in_time(claims, now=now):
            return None
        subject = claims.get("sub")
        scopes, namespaces = _scopes(claims), _namespaces(claims)
        if not isinstance(subject, str) or not 1 <= len(subject) <= 255 or namespaces is None:
            return None
        within = () if EVERYWHERE in namespaces else namespaces
        return Caller(
            actor=subject,
            origin="service",
            scopes=frozenset(one for one in EVERYTHING if one in scopes),
            namespaces=within,
            key=f"jwt {subject}",
        )

    def _claims(self, token: str) -> Mapping[str, Any] | None:
        jwt = _jwt()
        if len(token) > LONGEST or token.count(".") != 2 or not token.isascii():
            return None
        try:
            verifier = self._verifier(jwt.get_unverified_header(token))
            if verifier is None:
                return None
            # Instants are judged by the store's clock, and not by the one of this machine.
            lenient = dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat"), False)
            claims: Mapping[str, Any] = jwt.decode(
                token,
                verifier.key,
                algorithms=list(verifier.algorithms),
                audience=self.audience,
                issuer=self.issuer or None,
                options={**lenient, "require": ["exp", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError):
            return None
        return claims

    def _verifier(self, header: Mapping[str, Any]) -> Verifier | None:
        """The key that a token names; one that names none is judged by the only key there is."""
        named = header.get("kid")
        if named is None:
            return self.verifiers[0] if len(self.verifiers) == 1 else None
        return next((one for one in self.verifiers if one.name == named), None)


def load_service_tokens(settings: Settings) -> ServiceTokens | None:
    """What the settings say about services' tokens; nothing unless a file with keys is named."""
    if not settings.jwt_keys:
        return None
    if not settings.jwt_algorithms or not settings.jwt_audience:
        missing = "jwt_audience" if settings.jwt_algorithms else "jwt_algorithms"
        raise InvalidInput(
            f"jwt_keys needs {missing}",
            field=missing,
            rule="keys, algorithms and the audience are set together",
            fix="jwt_algorithms = ['ES256'] and jwt_audience = 'timewright'",
        )
    verifiers = _read_keys(Path(settings.jwt_keys), settings.jwt_algorithms)
    return ServiceTokens(verifiers=verifiers, audience=settings.jwt_audience, issuer=settings.jwt_issuer)


def _read_keys(path: Path, algorithms: tuple[str, ...]) -> tuple[Verifier, ...]:
    text = read_private(path, others_read=True)
    if text is None:
        raise _unusable(path, "is not there")
    try:
        found = _keys_in(text)
    except (ValueError, TypeError, KeyError, _jwt().PyJWTError):
        raise _unusable(path, "holds no keys we understand") from None
    if any(kind == "oct" for _, kind, _, _ in found):
        read_private(path)
    made = []
    for name, kind, key, own in found:
        fitting = tuple(one for one in algorithms if one.startswith(_FOR[kind]) and own in ("", one))
        if fitting:
            made.append(Verifier(name=name, key=key, algorithms=fitting))
    if not made:
        raise _unusable(path, f"has no key for {', '.join(algorithms)}")
    return tuple(made)


def _keys_in(text: str) -> list[tuple[str, str, Any, str]]:
    """Each key with its name, its kind, and the one algorithm it says it is for."""
    jwt = _jwt()
    if text.startswith("{"):
        rows = json.loads(text)["keys"]
        return [
            (
                str(row.get("kid", "")),
                row["kty"],
                jwt.PyJWK(row, row.get("alg") or _first(row)).key,
                row.get("alg", ""),
            )
            for row in rows
            if row.get("use", "sig") == "sig" and row["kty"] in _FOR
        ]
    if "PRIVATE KEY" in text:
        raise ValueError("a private key signs, and only a public one is needed here")
    if text.startswith("-----BEGIN"):
        return [("", _kind_of(text), text, "")]
    if len(text) < SHORTEST_SECRET:
        raise ValueError("a shared secret is long")
    return [("", "oct", text, "")]


def _first(row: Mapping[str, Any]) -> str:
    """An algorithm under which a key that names none can be read; whether it may be used is ours to say."""
    curves = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
    usual = {"oct": "HS256", "RSA": "RS256", "OKP": "EdDSA"}
    return curves.get(row.get("crv", ""), "") or usual[row["kty"]]


def _kind_of(pem: str) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = load_pem_public_key(pem.encode())
    kinds = {rsa.RSAPublicKey: "RSA", ec.EllipticCurvePublicKey: "EC", ed25519.Ed25519PublicKey: "OKP"}
    return next(kind for known, kind in kinds.items() if isinstance(key, known))


def _is_in_time(claims: Mapping[str, Any], *, now: datetime) -> bool:
    at = now.timestamp()
    ends, begins = _second(claims.get("exp")), _second(claims.get("nbf", 0))
    if ends is None or begins is None:
        return False
    return at < ends <= at + LONGEST_LIFE.total_seconds() and begins <= at + SKEW.total_seconds()


def _second(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if abs(value) < 1e12 else None


def _scopes(claims: Mapping[str, Any]) -> set[str]:
    """Only words that are meant for us count: `timewright:read`."""
    said = claims.get("scope", claims.get("scp", ""))
    words = said.split() if isinstance(said, str) else said if isinstance(said, list) else []
    return {word.removeprefix(SCOPE) for word in words if isinstance(word, str) and word.startswith(SCOPE)}


def _namespaces(claims: Mapping[str, Any]) -> tuple[str, ...] | None:
    named = claims.get(NAMESPACES, ["default"])
    if not isinstance(named, list) or not 1 <= len(named) <= 100:
        return None
    return tuple(named) if all(isinstance(one, str) and 1 <= len(one) <= 64 for one in named) else None


def _unusable(path: Path, why: str) -> InvalidInput:
    return InvalidInput(
        f"{path} {why}",
        field="jwt_keys",
        value=str(path),
        rule="a JWKS, a public key as PEM, or a shared secret of 32 letters or more",
        fix="the JWKS of whoever signs the tokens, saved as a file",
    )


def _jwt() -> ModuleType:
    try:
        import jwt
    except ImportError:
        raise MissingExtra(
            "services' tokens need a part that is not installed",
            field="jwt_keys",
            rule="JWTs are read with an extra",
            fix="pip install 'timewright[jwt]'",
        ) from None
    return jwt
