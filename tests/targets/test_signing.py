"""Secrets by name, and the signature; the expected digests were made with another program."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from timewright.errors import NotFound
from timewright.targets.signing import Reference, Revealed, parse_reference, reveal, sign

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
KEY = "key-of-the-hook"


@pytest.mark.parametrize(
    ("body", "digest"),
    [
        (b'{"a":1}', "0e7803dc2d7a6dd3c5e6d31a5b84ac2cf006227955c14a872629d003c445f58e"),
        (b"", "73a1a8f1b977c3e5ca037681bc7eab2d4f3674e5b1a01fcc48364214b5cf1a45"),
    ],
)
def test_a_signature_covers_the_second_a_dot_and_the_bytes_sent(body: bytes, digest: str) -> None:
    assert sign(body, key=KEY, at=NOON) == {
        "X-Timewright-Timestamp": "1773144000",
        "X-Timewright-Signature": f"v1={digest}",
    }


def test_a_signature_counts_whole_seconds() -> None:
    assert sign(b"x", key=KEY, at=NOON + timedelta(milliseconds=999)) == sign(b"x", key=KEY, at=NOON)
    assert sign(b"x", key=KEY, at=NOON + timedelta(seconds=1)) != sign(b"x", key=KEY, at=NOON)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("secret://a", Reference("", "a")),
        ("Bearer secret://crm/token-1.b_c", Reference("Bearer ", "crm/token-1.b_c")),
        ("Bearer x", None),
        ("secret://", None),
        ("secret:///a", None),
        ("secret://a b", None),
        ("secret://a\n", None),
        ("a b secret://c", None),
    ],
)
def test_a_reference_is_the_whole_value_or_follows_one_word(text: str, found: Reference | None) -> None:
    assert parse_reference(text) == found


def test_secrets_are_looked_up_in_their_own_namespace() -> None:
    asked: list[tuple[str, str]] = []

    def lookup(namespace: str, name: str) -> str:
        asked.append((namespace, name))
        return "value"

    revealed = reveal(frozenset({"b", "a"}), namespace="acme", lookup=lookup)
    assert asked == [("acme", "a"), ("acme", "b")]
    assert revealed.fill("Bearer secret://a") == "Bearer value"
    assert revealed.fill("plain") == "plain"


@pytest.mark.parametrize("value", ["", "canary\nX: y", "canary\0", "canaré"])
def test_a_secret_that_no_header_can_carry_is_refused_without_being_told(value: str) -> None:
    with pytest.raises(NotFound) as caught:
        reveal(frozenset({"a"}), namespace="acme", lookup=lambda namespace, name: value)
    assert "secret://a" in caught.value.message
    assert "canar" not in caught.value.explain()


def test_what_a_failing_lookup_says_is_not_repeated() -> None:
    def lookup(namespace: str, name: str) -> str:
        raise RuntimeError("canary")

    for how in (lookup, None):
        with pytest.raises(NotFound) as caught:
            reveal(frozenset({"a"}), namespace="acme", lookup=how)
        assert "secret://a" in caught.value.message
        assert "canary" not in caught.value.explain()
        assert caught.value.__cause__ is None


def test_an_answer_that_repeats_a_secret_names_it_instead() -> None:
    revealed = Revealed({"a": 'can"ary'})
    assert revealed.hide(b'x can"ary y') == b"x secret://a y"
    assert revealed.hide(b'{"x": "can\\"ary"}') == b'{"x": "secret://a"}'
    assert revealed.hide_text('can"ary') == "secret://a"


def test_the_beginning_of_a_secret_is_cut_off_the_end_of_a_cut_answer() -> None:
    revealed = Revealed({"a": "canary"})
    assert revealed.hide_end(b"x canar") == b"x "
    assert revealed.hide_end(b"x c") == b"x "
    assert revealed.hide_end(b"x y") == b"x y"
