"""Service tokens: keys, algorithms and audience are fixed at the start, and forged tokens are rejected."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from msgspec.structs import replace

from tests.operations.harness import KEYRING, OperationsHarness
from timewright.errors import InvalidInput, MissingExtra, TimewrightError, Unauthorized, UnsafeStore
from timewright.operations.access.auth_cache import AuthCache
from timewright.operations.access.authentication import Caller, authenticate
from timewright.operations.access.service_tokens import load_service_token_verifier
from timewright.settings import Settings

SECRET = "a shared secret of more than thirty-two letters"
EC = ec.generate_private_key(ec.SECP256R1())
OTHER_EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: Any) -> str:
    form, encoding = serialization.PublicFormat.SubjectPublicKeyInfo, serialization.Encoding.PEM
    return str(key.public_key().public_bytes(encoding, form).decode())


def jwks(**keys: Any) -> str:
    """Return a JWKS with these keys by id."""
    makers: dict[str, Any] = {
        "EC": jwt.algorithms.ECAlgorithm,
        "RS": jwt.algorithms.RSAAlgorithm,
        "Ed": jwt.algorithms.OKPAlgorithm,
    }
    rows = []
    for name, key in keys.items():
        kind = "EC" if name.startswith("ec") else "RS" if name.startswith("rsa") else "Ed"
        rows.append({**json.loads(makers[kind].to_jwk(key.public_key())), "kid": name})
    return json.dumps({"keys": rows})


def harness_with(
    folder: Path, text: str, *algorithms: str, mode: int = 0o600, **settings: Any
) -> OperationsHarness:
    file = folder / "keys"
    file.write_text(text)
    file.chmod(mode)
    chosen: Any = algorithms
    found = Settings(jwt_keys=str(file), jwt_algorithms=chosen, jwt_audience="timewright", **settings)
    harness = OperationsHarness()
    keeper = AuthCache(lambda: KEYRING, services=lambda: load_service_token_verifier(found))
    harness.context = replace(harness.context, auth_cache=keeper, settings=found)
    return harness


def claims(now: datetime, **changed: Any) -> dict[str, Any]:
    result = {
        "sub": "billing",
        "aud": "timewright",
        "exp": int((now + timedelta(minutes=5)).timestamp()),
        "scope": "openid timewright:read timewright:trigger read admin",
        **changed,
    }
    return {name: value for name, value in result.items() if value is not None}


def signed(now: datetime, key: Any = SECRET, algorithm: str = "HS256", **changed: Any) -> str:
    headers = changed.pop("headers", None)
    return jwt.encode(claims(now, **changed), key, algorithm=algorithm, headers=headers)


def refused(harness: OperationsHarness, token: str) -> None:
    with pytest.raises(Unauthorized) as error:
        authenticate(harness.context, token)
    assert error.value.explain().startswith("API key missing or invalid")


def test_a_service_token_authenticates_with_our_scopes(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, SECRET, "HS256")
    assert authenticate(harness.context, signed(harness.now)) == Caller(
        actor="billing",
        origin="service",
        scopes=frozenset({"read", "trigger"}),
        namespaces=("default",),
        key="jwt billing",
    )
    wider = authenticate(
        harness.context, signed(harness.now, timewright_namespaces=["a", "b"], scope=["timewright:hint"])
    )
    assert (wider.namespaces, wider.scopes) == (("a", "b"), frozenset({"hint"}))
    assert authenticate(harness.context, signed(harness.now, timewright_namespaces=["*"])).namespaces == ()


def test_api_keys_work_beside_service_tokens(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, SECRET, "HS256")
    token = harness.ask("key create", key="ci", role="viewer")["token"]
    assert authenticate(harness.context, token).actor == "ci"


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(EC, "ES256"), (RSA, "RS256"), (RSA, "PS256"), (ED, "EdDSA")],
    ids=["ES", "RS", "PS", "Ed"],
)
def test_public_keys_of_every_type_are_read_from_pem(tmp_path: Path, key: Any, algorithm: str) -> None:
    harness = harness_with(tmp_path, pem(key), algorithm, mode=0o644)
    assert authenticate(harness.context, signed(harness.now, key, algorithm)).actor
    refused(harness, signed(harness.now, pem(key).encode()[:64], "HS256"))


def test_a_key_set_is_searched_by_kid(tmp_path: Path) -> None:
    keys = jwks(ec_one=EC, ec_two=OTHER_EC, rsa_one=RSA, ed_one=ED)
    harness = harness_with(tmp_path, keys, "ES256", "RS256", "EdDSA")
    for name, key, algorithm in (("ec_one", EC, "ES256"), ("rsa_one", RSA, "RS256"), ("ed_one", ED, "EdDSA")):
        assert authenticate(harness.context, signed(harness.now, key, algorithm, headers={"kid": name})).actor
    refused(harness, signed(harness.now, EC, "ES256", headers={"kid": "ec_two"}))
    refused(harness, signed(harness.now, EC, "ES256"))
    for kid in ("nobody", "../../etc/passwd", "", "' or 1=1 --"):
        refused(harness, signed(harness.now, EC, "ES256", headers={"kid": kid}))


def forged(header: Any, result: Any, *, key: bytes = b"", digest: Any = hashlib.sha256) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, result)]
    tail = hmac.new(key, b".".join(parts), digest).digest() if key else b""
    return b".".join([*parts, base64.urlsafe_b64encode(tail).rstrip(b"=")]).decode()


def test_a_token_cannot_choose_its_algorithm(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, pem(RSA), "RS256")
    for word in ("none", "None", "nOnE", "NONE", "", None, 1, ["RS256"], "HS256", "HS512", "ES256", "PS256"):
        refused(harness, forged({"alg": word, "typ": "JWT"}, claims(harness.now)))
        # The public key as if it were a shared secret.
        refused(harness, forged({"alg": word, "typ": "JWT"}, claims(harness.now), key=pem(RSA).encode()))
        refused(
            harness, forged({"alg": word, "typ": "JWT"}, claims(harness.now), key=pem(RSA).strip().encode())
        )
    evil = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rsa_of_mallory().public_key()))
    for header in ({"jwk": evil}, {"jku": "https://evil.example/keys"}, {"x5u": "https://evil.example/c"}):
        refused(harness, signed(harness.now, rsa_of_mallory(), "RS256", headers=header))


def rsa_of_mallory() -> Any:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": None},
        {"aud": None},
        {"sub": None},
        {"aud": "other"},
        {"aud": ["other", "another"]},
        {"aud": 7},
        {"exp": 1},
        {"exp": -1},
        {"exp": 10**18},
        {"exp": "soon"},
        {"exp": True},
        {"exp": math.inf},
        {"exp": [1]},
        {"nbf": 4_000_000_000},
        {"sub": ""},
        {"sub": "x" * 300},
        {"sub": 7},
        {"timewright_namespaces": []},
        {"timewright_namespaces": "default"},
        {"timewright_namespaces": [1]},
    ],
)
def test_a_token_without_required_claims_is_invalid(tmp_path: Path, changed: dict[str, Any]) -> None:
    harness = harness_with(tmp_path, SECRET, "HS256")
    result = claims(harness.now, **changed)
    refused(harness, forged({"alg": "HS256", "typ": "JWT"}, result, key=SECRET.encode()))


def test_a_token_expires_by_the_clock_of_the_store(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, SECRET, "HS256")
    token = signed(harness.now)
    harness.sleep(minutes=4, seconds=59)
    assert authenticate(harness.context, token).actor
    harness.sleep(seconds=1)
    refused(harness, token)


def test_scopes_of_other_systems_permit_nothing(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, SECRET, "HS256")
    for scope in (None, "", "read write admin", ["admin"], {"admin": 1}, "timewright:everything", 7):
        assert authenticate(harness.context, signed(harness.now, scope=scope)).scopes == frozenset()


def test_a_configured_issuer_must_match(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, SECRET, "HS256", jwt_issuer="https://login.example.com")
    assert authenticate(harness.context, signed(harness.now, iss="https://login.example.com")).actor
    for other in (None, "https://login.example.com.evil", "https://LOGIN.example.com"):
        refused(harness, signed(harness.now, iss=other))


def test_broken_tokens_are_refused_like_any_other(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, SECRET, "HS256")
    token = signed(harness.now)
    head, body, tail = token.split(".")
    odd = [
        "..",
        "a.b.c",
        f"{head}.{body}.",
        f"{head}..{tail}",
        token[:-2],
        f"{token}.",
        f"{head}.{body}.{tail[:-4]}AAAA",
    ]
    odd += [
        "é.é.é",
        f"{head}.{'A' * 100_000}.{tail}",
        f"{'A' * 9000}.b.c",
        "\0.\0.\0",
        forged([], {}),
        forged({}, 7),
    ]
    for one in odd:
        refused(harness, one)


@pytest.mark.parametrize(
    ("text", "algorithms", "settings", "field"),
    [
        (SECRET, (), {}, "jwt_algorithms"),
        (SECRET, ("HS256",), {"jwt_audience": ""}, "jwt_audience"),
        ("short", ("HS256",), {}, "jwt_keys"),
        (SECRET, ("RS256",), {}, "jwt_keys"),
        (pem(RSA), ("HS256",), {}, "jwt_keys"),
        ("{}", ("ES256",), {}, "jwt_keys"),
        ('{"keys": [{"kty": "EC"}]}', ("ES256",), {}, "jwt_keys"),
        ("-----BEGIN PRIVATE KEY-----", ("ES256",), {}, "jwt_keys"),
        ("-----BEGIN PUBLIC KEY-----", ("ES256",), {}, "jwt_keys"),
    ],
)
def test_mismatching_keys_and_algorithms_are_rejected_at_the_start(
    tmp_path: Path, text: str, algorithms: Any, settings: Any, field: str
) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    file.chmod(0o600)
    wanted = {"jwt_keys": str(file), "jwt_algorithms": algorithms, "jwt_audience": "timewright", **settings}
    with pytest.raises(InvalidInput) as error:
        load_service_token_verifier(Settings(**wanted))
    assert error.value.field == field
    assert len(text) < 5 or text not in error.value.explain()


def test_a_shared_secret_that_others_can_read_is_refused_and_a_public_key_that_others_can_write(
    tmp_path: Path,
) -> None:
    for text, algorithm, mode in ((SECRET, "HS256", 0o644), (pem(EC), "ES256", 0o666)):
        harness = harness_with(tmp_path, text, algorithm, mode=mode)
        assert harness.context.auth_cache is not None
        with pytest.raises(UnsafeStore):
            harness.context.auth_cache.load_keys()


def test_a_missing_extra_is_reported_with_its_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys"
    file.write_text(SECRET)
    file.chmod(0o600)
    monkeypatch.setitem(sys.modules, "jwt", None)
    wanted = Settings(jwt_keys=str(file), jwt_algorithms=("HS256",), jwt_audience="timewright")
    with pytest.raises(MissingExtra) as error:
        load_service_token_verifier(wanted)
    assert error.value.fix == "pip install 'timewright[jwt]'"


def test_an_unknown_algorithm_is_rejected() -> None:
    from timewright.core.input.decode import decode

    for word in ("none", "None", "HS1", ""):
        with pytest.raises(TimewrightError):
            decode({"jwt_algorithms": [word]}, Settings)
