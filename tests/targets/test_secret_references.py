"""References to secrets, and signatures. The expected digests were computed with another program."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from timewright.core.target import SecretDestination
from timewright.errors import NotFound
from timewright.targets.reports import HeadTailBuffer
from timewright.targets.secret_references import (
    RevealedSecrets,
    SecretReference,
    parse_reference,
    reveal_secrets,
    sign_body,
)

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
KEY = "key-of-the-hook"

CRM = SecretDestination("host", "api.crm.example")


@pytest.mark.parametrize(
    ("body", "digest"),
    [
        (b'{"a":1}', "0e7803dc2d7a6dd3c5e6d31a5b84ac2cf006227955c14a872629d003c445f58e"),
        (b"", "73a1a8f1b977c3e5ca037681bc7eab2d4f3674e5b1a01fcc48364214b5cf1a45"),
    ],
)
def test_a_signature_covers_timestamp_and_body(body: bytes, digest: str) -> None:
    assert sign_body(body, key=KEY, at=NOON) == {
        "X-Timewright-Timestamp": "1773144000",
        "X-Timewright-Signature": f"v1={digest}",
    }


def test_a_signature_uses_whole_seconds() -> None:
    assert sign_body(b"x", key=KEY, at=NOON + timedelta(milliseconds=999)) == sign_body(
        b"x", key=KEY, at=NOON
    )
    assert sign_body(b"x", key=KEY, at=NOON + timedelta(seconds=1)) != sign_body(b"x", key=KEY, at=NOON)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("secret://a", SecretReference("", "a")),
        ("Bearer secret://crm/token-1.b_c", SecretReference("Bearer ", "crm/token-1.b_c")),
        ("Bearer x", None),
        ("secret://", None),
        ("secret:///a", None),
        ("secret://a b", None),
        ("secret://a\n", None),
        ("a b secret://c", None),
    ],
)
def test_a_reference_is_the_whole_value_or_follows_one_word(text: str, found: SecretReference | None) -> None:
    assert parse_reference(text) == found


def test_secrets_are_looked_up_in_their_own_namespace() -> None:
    asked: list[tuple[str, str]] = []

    def lookup(namespace: str, name: str, destination: SecretDestination) -> str:
        asked.append((namespace, name))
        return "value"

    revealed = reveal_secrets(frozenset({"b", "a"}), namespace="acme", lookup=lookup, destination=CRM)
    assert asked == [("acme", "a"), ("acme", "b")]
    assert revealed.fill("Bearer secret://a") == "Bearer value"
    assert revealed.fill("plain") == "plain"


@pytest.mark.parametrize("value", ["", "canary\nX: y", "canary\0", "canaré"])
def test_a_secret_that_is_no_header_value_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(NotFound) as caught:
        reveal_secrets(frozenset({"a"}), namespace="acme", lookup=lambda *_: value, destination=CRM)
    assert "secret://a" in caught.value.message
    assert "canar" not in caught.value.explain()


def test_the_message_of_a_failing_secret_lookup_is_not_shown() -> None:
    def lookup(namespace: str, name: str, destination: SecretDestination) -> str:
        raise RuntimeError("canary")

    for how in (lookup, None):
        with pytest.raises(NotFound) as caught:
            reveal_secrets(frozenset({"a"}), namespace="acme", lookup=how, destination=CRM)
        assert "secret://a" in caught.value.message
        assert "canary" not in caught.value.explain()
        assert caught.value.__cause__ is None


def test_redacting_replaces_a_secret_by_its_reference() -> None:
    revealed = RevealedSecrets({"a": 'can"ary'})
    assert revealed.redact(b'x can"ary y') == b"x secret://a y"
    assert revealed.redact(b'{"x": "can\\"ary"}') == b'{"x": "secret://a"}'
    assert revealed.redact_text('can"ary') == "secret://a"


def test_a_partial_secret_at_the_end_of_a_truncated_response_is_removed() -> None:
    revealed = RevealedSecrets({"a": "canary"})
    assert revealed.drop_partial_end(b"x canar") == b"x "
    assert revealed.drop_partial_end(b"x c") == b"x "
    assert revealed.drop_partial_end(b"x y") == b"x y"


def test_a_whole_secret_at_a_cut_is_hidden_although_another_ends_with_its_first_letter() -> None:
    secrets = RevealedSecrets({"token": "canary-1", "other": "magic"})
    buffer = HeadTailBuffer(32)
    buffer.feed(b"x" * 100 + b"canary-1canary-1")
    assert secrets.drop_partial_start(b"canary-1 and") == b"canary-1 and"
    assert secrets.drop_partial_start(b"y-1canary-1") == b"canary-1"
    assert "anary" not in buffer.snapshot(secrets).text
