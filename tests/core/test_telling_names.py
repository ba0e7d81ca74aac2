"""What follows a telling name is hidden, wherever it stands and in however long a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.core.telling_names import _NAMED, _USER, hide_named

PIECES = (
    "password", "PASSWD", "Authorization", "proxy-authorization", "Set-Cookie", "client_secret",
    "access-token", "apikey", "private_key", "secret", "Token", "pwd", ":", "=", "'", '"', " ", "\n",
    "bearer ", "secret://x", "abc", "&", ",", "_", "-", "…", "ß", "https://u:p@h/", "://", "@",
    "pa\u017f\u017fword", "author\u0130zation", "to\u212aen",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("password=hunter2 and more", "password=… and more"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer …"),
        ('{"token": "abc", "n": 1}', '{"token": "…", "n": 1}'),
        ("a token of love", "a token of love"),
        ("postgres://ada:pw@db/x", "postgres://ada:…@db/x"),
        ("api_key=secret://crm", "api_key=secret://crm"),
    ],
)
def test_a_value_is_hidden_and_its_name_is_not(text: str, hidden: str) -> None:
    assert hide_named(text) == hidden


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_looking_only_where_a_name_may_begin_misses_none(text: str) -> None:
    everywhere = _USER.sub(r"\1:…@", _NAMED.sub(r"\1\2\3…", text))
    assert hide_named(text) == everywhere
