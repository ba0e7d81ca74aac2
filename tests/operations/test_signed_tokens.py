"""Services' tokens: keys, algorithms and audience are fixed at the start, and forged tokens refused alike."""

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

from tests.operations.house import KEYRING, House
from timewright.errors import InvalidInput, MissingExtra, TimewrightError, Unauthorized, UnsafeStore
from timewright.operations.access import Caller, authenticate
from timewright.operations.doorkeeper import Doorkeeper
from timewright.operations.signed_tokens import load_service_tokens
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
    """A key set with these keys by name."""
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


def house_with(folder: Path, text: str, *algorithms: str, mode: int = 0o600, **settings: Any) -> House:
    file = folder / "keys"
    file.write_text(text)
    file.chmod(mode)
    chosen: Any = algorithms
    found = Settings(jwt_keys=str(file), jwt_algorithms=chosen, jwt_audience="timewright", **settings)
    house = House()
    keeper = Doorkeeper(lambda: KEYRING, services=lambda: load_service_tokens(found))
    house.context = replace(house.context, doorkeeper=keeper, settings=found)
    return house


def claims(now: datetime, **changed: Any) -> dict[str, Any]:
    said = {
        "sub": "billing",
        "aud": "timewright",
        "exp": int((now + timedelta(minutes=5)).timestamp()),
        "scope": "openid timewright:read timewright:trigger read admin",
        **changed,
    }
    return {name: value for name, value in said.items() if value is not None}


def signed(now: datetime, key: Any = SECRET, algorithm: str = "HS256", **changed: Any) -> str:
    headers = changed.pop("headers", None)
    return jwt.encode(claims(now, **changed), key, algorithm=algorithm, headers=headers)


def refused(house: House, token: str) -> None:
    with pytest.raises(Unauthorized) as refusal:
        authenticate(house.context, token)
    assert refusal.value.explain().startswith("no key, or not one that opens anything")


def test_a_service_comes_in_with_the_scopes_that_are_meant_for_us(tmp_path: Path) -> None:
    house = house_with(tmp_path, SECRET, "HS256")
    assert authenticate(house.context, signed(house.now)) == Caller(
        actor="billing",
        origin="service",
        scopes=frozenset({"read", "trigger"}),
        namespaces=("default",),
        key="jwt billing",
    )
    wider = authenticate(
        house.context, signed(house.now, timewright_namespaces=["a", "b"], scope=["timewright:hint"])
    )
    assert (wider.namespaces, wider.scopes) == (("a", "b"), frozenset({"hint"}))
    assert authenticate(house.context, signed(house.now, timewright_namespaces=["*"])).namespaces == ()


def test_keys_of_ours_open_beside_services_tokens(tmp_path: Path) -> None:
    house = house_with(tmp_path, SECRET, "HS256")
    token = house.ask("key create", key="ci", role="viewer")["token"]
    assert authenticate(house.context, token).actor == "ci"


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(EC, "ES256"), (RSA, "RS256"), (RSA, "PS256"), (ED, "EdDSA")],
    ids=["ES", "RS", "PS", "Ed"],
)
def test_public_keys_of_every_kind_are_understood_as_pem(tmp_path: Path, key: Any, algorithm: str) -> None:
    house = house_with(tmp_path, pem(key), algorithm, mode=0o644)
    assert authenticate(house.context, signed(house.now, key, algorithm)).actor
    refused(house, signed(house.now, pem(key).encode()[:64], "HS256"))


def test_a_key_set_is_searched_by_the_name_that_the_token_gives(tmp_path: Path) -> None:
    keys = jwks(ec_one=EC, ec_two=OTHER_EC, rsa_one=RSA, ed_one=ED)
    house = house_with(tmp_path, keys, "ES256", "RS256", "EdDSA")
    for name, key, algorithm in (("ec_one", EC, "ES256"), ("rsa_one", RSA, "RS256"), ("ed_one", ED, "EdDSA")):
        assert authenticate(house.context, signed(house.now, key, algorithm, headers={"kid": name})).actor
    refused(house, signed(house.now, EC, "ES256", headers={"kid": "ec_two"}))
    refused(house, signed(house.now, EC, "ES256"))
    for kid in ("nobody", "../../etc/passwd", "", "' or 1=1 --"):
        refused(house, signed(house.now, EC, "ES256", headers={"kid": kid}))


def forged(header: Any, said: Any, *, key: bytes = b"", digest: Any = hashlib.sha256) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, said)]
    tail = hmac.new(key, b".".join(parts), digest).digest() if key else b""
    return b".".join([*parts, base64.urlsafe_b64encode(tail).rstrip(b"=")]).decode()


def test_no_algorithm_of_the_tokens_own_choice_is_taken(tmp_path: Path) -> None:
    house = house_with(tmp_path, pem(RSA), "RS256")
    for word in ("none", "None", "nOnE", "NONE", "", None, 1, ["RS256"], "HS256", "HS512", "ES256", "PS256"):
        refused(house, forged({"alg": word, "typ": "JWT"}, claims(house.now)))
        # The public key as if it were a shared secret.
        refused(house, forged({"alg": word, "typ": "JWT"}, claims(house.now), key=pem(RSA).encode()))
        refused(house, forged({"alg": word, "typ": "JWT"}, claims(house.now), key=pem(RSA).strip().encode()))
    evil = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rsa_of_mallory().public_key()))
    for header in ({"jwk": evil}, {"jku": "https://evil.example/keys"}, {"x5u": "https://evil.example/c"}):
        refused(house, signed(house.now, rsa_of_mallory(), "RS256", headers=header))


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
def test_a_token_without_what_must_be_in_it_opens_nothing(tmp_path: Path, changed: dict[str, Any]) -> None:
    house = house_with(tmp_path, SECRET, "HS256")
    said = claims(house.now, **changed)
    refused(house, forged({"alg": "HS256", "typ": "JWT"}, said, key=SECRET.encode()))


def test_a_token_is_over_by_the_clock_of_the_store(tmp_path: Path) -> None:
    house = house_with(tmp_path, SECRET, "HS256")
    token = signed(house.now)
    house.sleep(minutes=4, seconds=59)
    assert authenticate(house.context, token).actor
    house.sleep(seconds=1)
    refused(house, token)


def test_scopes_that_are_not_meant_for_us_permit_nothing(tmp_path: Path) -> None:
    house = house_with(tmp_path, SECRET, "HS256")
    for scope in (None, "", "read write admin", ["admin"], {"admin": 1}, "timewright:everything", 7):
        assert authenticate(house.context, signed(house.now, scope=scope)).scopes == frozenset()


def test_an_issuer_that_is_asked_for_must_be_the_one(tmp_path: Path) -> None:
    house = house_with(tmp_path, SECRET, "HS256", jwt_issuer="https://login.example.com")
    assert authenticate(house.context, signed(house.now, iss="https://login.example.com")).actor
    for other in (None, "https://login.example.com.evil", "https://LOGIN.example.com"):
        refused(house, signed(house.now, iss=other))


def test_broken_tokens_are_refused_like_any_other(tmp_path: Path) -> None:
    house = house_with(tmp_path, SECRET, "HS256")
    token = signed(house.now)
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
        refused(house, one)


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
def test_keys_and_algorithms_that_do_not_fit_are_refused_at_the_start(
    tmp_path: Path, text: str, algorithms: Any, settings: Any, field: str
) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    file.chmod(0o600)
    wanted = {"jwt_keys": str(file), "jwt_algorithms": algorithms, "jwt_audience": "timewright", **settings}
    with pytest.raises(InvalidInput) as refusal:
        load_service_tokens(Settings(**wanted))
    assert refusal.value.field == field
    assert len(text) < 5 or text not in refusal.value.explain()


def test_a_shared_secret_that_others_can_read_is_refused_and_a_public_key_that_others_can_write(
    tmp_path: Path,
) -> None:
    for text, algorithm, mode in ((SECRET, "HS256", 0o644), (pem(EC), "ES256", 0o666)):
        house = house_with(tmp_path, text, algorithm, mode=mode)
        assert house.context.doorkeeper is not None
        with pytest.raises(UnsafeStore):
            house.context.doorkeeper.ready()


def test_without_the_extra_a_refusal_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys"
    file.write_text(SECRET)
    file.chmod(0o600)
    monkeypatch.setitem(sys.modules, "jwt", None)
    wanted = Settings(jwt_keys=str(file), jwt_algorithms=("HS256",), jwt_audience="timewright")
    with pytest.raises(MissingExtra) as refusal:
        load_service_tokens(wanted)
    assert refusal.value.fix == "pip install 'timewright[jwt]'"


def test_an_algorithm_that_is_none_is_no_setting() -> None:
    from timewright.core.vocabulary import decode

    for word in ("none", "None", "HS1", ""):
        with pytest.raises(TimewrightError):
            decode({"jwt_algorithms": [word]}, Settings)
