"""The strict URL parser refuses every ambiguous URL, in bounded time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.errors import InvalidInput
from timewright.targets.http.egress import MAX_URL_CHARS, Url, parse_url, redact_url

CORPUS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "urls.json").read_text("utf-8"))


def written(case: dict[str, Any]) -> str:
    return case["url"] + "a" * case.get("pad", 0)


def of_class(*classes: str) -> list[str]:
    return [written(case) for case in CORPUS if case["class"] in classes]


@pytest.mark.parametrize("text", of_class("reject-at-create"), ids=lambda text: ascii(text[:50]))
def test_an_ambiguous_url_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_url(text)
    refusal = caught.value
    assert refusal.field == "target.url"
    assert refusal.rule
    assert refusal.fix
    assert len(refusal.message) < 300


@pytest.mark.parametrize("text", of_class("accept", "reject-at-run"), ids=ascii)
def test_an_accepted_url_parses_to_itself(text: str) -> None:
    url = parse_url(text)
    assert parse_url(url.text) == url
    assert url.text.isascii()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("HTTPS://EXAMPLE.com", Url(scheme="https", host="example.com", port=443, path="/")),
        ("http://example.com:8080/a?b=c", Url(scheme="http", host="example.com", port=8080, path="/a?b=c")),
        ("http://example.com?b", Url(scheme="http", host="example.com", port=80, path="/?b")),
        ("http://[0:0::1]:81/", Url(scheme="http", host="::1", port=81, path="/")),
        (
            "http://bücher.example/ä",
            Url(scheme="http", host="xn--bcher-kva.example", port=80, path="/%C3%A4"),
        ),
        ("http://x.test/%2e%2e%2f{y}", Url(scheme="http", host="x.test", port=80, path="/%2e%2e%2f%7By%7D")),
    ],
)
def test_a_url_is_parsed_without_changing_its_meaning(text: str, url: Url) -> None:
    assert parse_url(text) == url


def test_a_url_omits_the_default_port() -> None:
    assert parse_url("https://example.com:443/").text == "https://example.com/"
    assert parse_url("http://example.com:443/").text == "http://example.com:443/"
    assert parse_url("http://[::1]/").host_port == "[::1]:80"


def test_an_error_shows_neither_password_nor_query() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_url("https://anna:hunter2@example.com/?token=canary")
    shown = caught.value.explain() + str(caught.value.value)
    assert "hunter2" not in shown
    assert "canary" not in shown
    assert redact_url("https://a:b@c/d?e") == "https://…@c/d"


def test_an_error_has_the_field_that_was_parsed() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_url("ftp://x", field="location")
    assert caught.value.field == "location"


@given(
    st.text(max_size=200) | st.text("htps:/@[]%.#?\\1270x \t", max_size=60).map(lambda end: "http://" + end)
)
def test_any_text_is_a_url_or_is_refused(text: str) -> None:
    try:
        url = parse_url(text)
    except InvalidInput:
        return
    assert parse_url(url.text) == url
    assert 1 <= url.port <= 65535
    assert not {"@", "\\", "#", "%", " "} & set(url.host)


@pytest.mark.parametrize("filler", ["a", ".", "a.", "[", "%25", "é", "：", "xn--"])
def test_a_long_text_is_parsed_or_refused_quickly(filler: str) -> None:
    started = time.thread_time()
    for size in (MAX_URL_CHARS - 10, 1_000_000):
        with pytest.raises(InvalidInput):
            parse_url("http://" + filler * (size // len(filler)))
    assert time.thread_time() - started < 1
