"""Redaction of texts and data: known secret values, and values after sensitive names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.core.run.run import Failed, Outcome, Succeeded
from timewright.operations.text_safety import SecretRedactor
from timewright.targets.redacting import RedactingTarget

VALUE = 'pa"ss/wörd 1'


def knowing(value: str = VALUE) -> SecretRedactor:
    redaction = SecretRedactor()
    redaction.add_secret("crm", value)
    return redaction


@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        f"a {VALUE} b {VALUE}",
        '{"x": "pa\\"ss/w\\u00f6rd 1"}',
        "https://e.com/?k=pa%22ss%2Fw%C3%B6rd%201&x=1",
    ],
)
def test_a_known_secret_is_redacted_in_every_encoding(text: str) -> None:
    for hidden in (knowing().redact_text(text), knowing().redact_data(text)):
        assert "secret://crm" in hidden
        assert "ss/w" not in hidden
        assert "ss%2F" not in hidden


def test_each_line_of_a_secret_is_redacted() -> None:
    redaction = knowing("-----BEGIN KEY-----\nMIIEvQIBADAN\n-----END KEY-----")
    assert redaction.redact_text("error near MIIEvQIBADAN") == "error near secret://crm"


def test_redacted_data_keeps_its_shape_and_keys() -> None:
    data = {"token": "abc", "rows": [{"password": VALUE, "n": 1}], "none": None, "tuple": (VALUE, 2.5)}
    assert knowing().redact_data(data) == {
        "token": "abc",
        "rows": [{"password": "secret://crm", "n": 1}],
        "none": None,
        "tuple": ["secret://crm", 2.5],
    }


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("Authorization: Bearer abc.def", "Authorization: Bearer …"),
        ("authorization=xyz; next", "authorization=…; next"),
        ('{"password": "hunter2", "user": "ada"}', '{"password": "…", "user": "ada"}'),
        ("could not connect: password=hunter2 host=db", "could not connect: password=… host=db"),
        ("postgresql://ada:hunter2@db/x is away", "postgresql://ada:…@db/x is away"),
        ("GET /?api_key=k123&page=2", "GET /?api_key=…&page=2"),
        ("token=abc123", "token=…"),
        ("{'token': 'abc123'}", "{'token': '…'}"),
        ("Set-Cookie: sid=1; Path=/", "Set-Cookie: …; Path=/"),
        ("X-Api-Key: k-1", "X-Api-Key: …"),
    ],
)
def test_values_after_sensitive_names_are_redacted_in_texts(text: str, hidden: str) -> None:
    assert SecretRedactor().redact_text(text) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "secret://nobody is needed but could not be read",
        "Authorization: Bearer secret://crm",
        "unexpected token: }",
        "HTTP 500 Internal Server Error",
        "the token is old; the password was changed",
        "exit 3",
        "cannot connect to 127.0.0.1:80",
        "tokens=5",
    ],
)
def test_texts_without_secrets_stay_unchanged(text: str) -> None:
    assert knowing().redact_text(text) == text


@given(st.text(max_size=300), st.text(min_size=4, max_size=40))
def test_no_redacted_text_contains_a_known_secret(around: str, value: str) -> None:
    redaction = SecretRedactor()
    redaction.add_secret("x", value)
    hidden = redaction.redact_data(f"{around}{value}{around}")
    assert value not in hidden.replace("secret://x", "") or len(value.strip()) < 4


def test_redaction_takes_linear_time() -> None:
    for odd in ("password" * 50_000, "token='" * 50_000, "://a:" * 50_000, "authorization: " * 50_000):
        assert SecretRedactor().redact_text(odd)


def test_a_bounded_number_of_values_is_remembered() -> None:
    redaction = SecretRedactor(max_values=10)
    for number in range(100):
        redaction.add_secret("x", f"value-{number:03}")
    assert redaction.redact_text("value-099") == "secret://x"
    assert redaction.redact_text("value-000") == "value-000"


class Told:
    """A target that returns a given outcome at once."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self.closed = False

    def launch(self, launch: Any, done: Callable[[Outcome], None]) -> Any:
        done(self._outcome)

    def close(self, *, grace: timedelta) -> None:
        self.closed = True


def test_an_outcome_is_recorded_without_secrets() -> None:
    seen: list[Outcome] = []
    launch: Any = None
    outcomes: list[Outcome] = [
        Failed(error=f"bad {VALUE}, password=x", result={"said": VALUE}, final=True),
        Succeeded(result=[VALUE]),
        Succeeded(),
    ]
    for outcome in outcomes:
        target = Told(outcome)
        redacting = RedactingTarget(target, knowing())
        redacting.launch(launch, seen.append)
        redacting.close(grace=timedelta(0))
        assert target.closed
    assert seen == [
        Failed(error="bad secret://crm, password=…", result={"said": "secret://crm"}, final=True),
        Succeeded(result=["secret://crm"]),
        Succeeded(),
    ]
