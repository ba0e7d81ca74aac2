"""What is hidden in texts and data: values that were revealed, and what follows a telling name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.core.run import Failed, Outcome, Succeeded
from timewright.operations.redaction import Redaction
from timewright.targets.discreet import Discreet

VALUE = 'pa"ss/wörd 1'


def knowing(value: str = VALUE) -> Redaction:
    redaction = Redaction()
    redaction.learn("crm", value)
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
def test_a_value_that_was_revealed_is_hidden_however_it_is_spelled(text: str) -> None:
    for hidden in (knowing().text(text), knowing().data(text)):
        assert "secret://crm" in hidden
        assert "ss/w" not in hidden
        assert "ss%2F" not in hidden


def test_each_line_of_a_value_is_hidden_by_itself() -> None:
    redaction = knowing("-----BEGIN KEY-----\nMIIEvQIBADAN\n-----END KEY-----")
    assert redaction.text("error near MIIEvQIBADAN") == "error near secret://crm"


def test_data_keeps_its_shape_and_names_are_not_touched_in_it() -> None:
    data = {"token": "abc", "rows": [{"password": VALUE, "n": 1}], "none": None, "tuple": (VALUE, 2.5)}
    assert knowing().data(data) == {
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
def test_what_follows_a_telling_name_is_hidden_in_texts(text: str, hidden: str) -> None:
    assert Redaction().text(text) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "secret://nobody is needed and could not be looked up",
        "Authorization: Bearer secret://crm",
        "unexpected token: }",
        "HTTP 500 Internal Server Error",
        "the token is old; the password was changed",
        "exit 3",
        "cannot connect to 127.0.0.1:80",
        "tokens=5",
    ],
)
def test_what_tells_nothing_stays_as_it_is(text: str) -> None:
    assert knowing().text(text) == text


@given(st.text(max_size=300), st.text(min_size=4, max_size=40))
def test_no_text_shows_a_value_that_is_known(around: str, value: str) -> None:
    redaction = Redaction()
    redaction.learn("x", value)
    hidden = redaction.data(f"{around}{value}{around}")
    assert value not in hidden.replace("secret://x", "") or len(value.strip()) < 4


def test_hiding_takes_no_longer_than_the_text_is_long() -> None:
    for odd in ("password" * 50_000, "token='" * 50_000, "://a:" * 50_000, "authorization: " * 50_000):
        assert Redaction().text(odd)


def test_a_bounded_number_of_values_is_remembered() -> None:
    redaction = Redaction(most=10)
    for number in range(100):
        redaction.learn("x", f"value-{number:03}")
    assert redaction.text("value-099") == "secret://x"
    assert redaction.text("value-000") == "value-000"


class Told:
    """A target that answers at once with what it is given."""

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
        discreet = Discreet(target, knowing())
        discreet.launch(launch, seen.append)
        discreet.close(grace=timedelta(0))
        assert target.closed
    assert seen == [
        Failed(error="bad secret://crm, password=…", result={"said": "secret://crm"}, final=True),
        Succeeded(result=["secret://crm"]),
        Succeeded(),
    ]
