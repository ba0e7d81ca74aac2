"""Values after sensitive keys are redacted, anywhere in a text of any length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.core.sensitive_keys import _KEY_VALUE, _URL_PASSWORD, redact_text

PIECES = (
    "password", "PASSWD", "Authorization", "proxy-authorization", "Set-Cookie", "client_secret",
    "access-token", "apikey", "private_key", "Vault-Token", "auth_token", "secret", "Token",
    "pwd", ":", "=", "'", '"', " ", "\n",
    "bearer ", "secret://x", "abc", "&", ",", "_", "-", "…", "ß", "https://u:p@h/", "://", "@",
    "pa\u017f\u017fword", "author\u0130zation", "to\u212aen",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("password=hunter2 and more", "password=… and more"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer …"),
        ("Private-Token: glpat-1 sent", "Private-Token: … sent"),
        ("X-Vault-Token: hvs.1, X-Auth-Token: 2", "X-Vault-Token: …, X-Auth-Token: …"),
        ('{"token": "abc", "n": 1}', '{"token": "…", "n": 1}'),
        ("a token of love", "a token of love"),
        ("postgres://ada:pw@db/x", "postgres://ada:…@db/x"),
        ("api_key=secret://crm", "api_key=secret://crm"),
    ],
)
def test_a_value_is_redacted_and_its_key_is_not(text: str, hidden: str) -> None:
    assert redact_text(text) == hidden


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_searching_only_where_a_key_may_begin_misses_none(text: str) -> None:
    everywhere = _URL_PASSWORD.sub(r"\1:…@", _KEY_VALUE.sub(r"\1\2\3…", text))
    assert redact_text(text) == everywhere
