"""URLs: what is accepted is what is connected to, and everything unclear is refused in bounded time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.errors import InvalidInput
from timewright.targets.urls import LONGEST_URL, Url, parse_url, shown_url

CORPUS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "urls.json").read_text("utf-8"))


def written(case: dict[str, Any]) -> str:
    return case["url"] + "a" * case.get("pad", 0)


def of_class(*classes: str) -> list[str]:
    return [written(case) for case in CORPUS if case["class"] in classes]


@pytest.mark.parametrize("text", of_class("reject-at-create"), ids=lambda text: ascii(text[:50]))
def test_a_url_two_readers_could_understand_differently_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_url(text)
    refusal = caught.value
    assert refusal.field == "target.url"
    assert refusal.rule
    assert refusal.fix
    assert len(refusal.message) < 300


@pytest.mark.parametrize("text", of_class("accept", "reject-at-run"), ids=ascii)
def test_a_url_that_is_accepted_reads_the_same_when_it_is_read_again(text: str) -> None:
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
def test_a_url_is_taken_apart_without_changing_what_it_means(text: str, url: Url) -> None:
    assert parse_url(text) == url


def test_a_url_says_its_port_only_where_it_must() -> None:
    assert parse_url("https://example.com:443/").text == "https://example.com/"
    assert parse_url("http://example.com:443/").text == "http://example.com:443/"
    assert parse_url("http://[::1]/").place == "[::1]:80"


def test_a_refusal_repeats_neither_password_nor_query() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_url("https://anna:hunter2@example.com/?token=canary")
    told = caught.value.explain() + str(caught.value.value)
    assert "hunter2" not in told
    assert "canary" not in told
    assert shown_url("https://a:b@c/d?e") == "https://…@c/d"


def test_the_field_of_a_refusal_is_the_one_that_was_read() -> None:
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
def test_the_longest_text_is_refused_or_read_in_little_time(filler: str) -> None:
    started = time.thread_time()
    for size in (LONGEST_URL - 10, 1_000_000):
        with pytest.raises(InvalidInput):
            parse_url("http://" + filler * (size // len(filler)))
    assert time.thread_time() - started < 1
